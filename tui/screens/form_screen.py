"""What screens of form lines have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from textual import events
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from tui.actions import Action
from tui.screens.base import ConsoleScreen
from tui.screens.form import FormLine


class FormScreen(ConsoleScreen):
    """A screen of form lines: letters are typed, up and down go through the fields, escape leaves it."""

    CSS_PATH = "forms.tcss"

    draft_name: str = ""
    """Under which what was typed is kept when the form is left; empty: it is not kept."""
    _begun = False

    @cached_property
    def _early(self) -> list[events.Key]:
        """Keys that came before a field had the focus: what is typed right after the key that opens a form is meant for it."""
        return []

    def compose_foot(self) -> Iterable[Widget]:
        yield Static(id="field-words", markup=False)

    def refresh_frame(self) -> None:
        super().refresh_frame()
        self._show_field()

    _field_words = ""

    def _show_field(self) -> None:
        """The field that has the focus, in words: its own hint is hidden by what is typed into it."""
        focused = self.focused
        line = next((line for line in self.lines.values() if focused is not None and line.has(focused)), None)
        words = f"{line.label}: {line.words}" if line is not None and line.words else ""
        if words != self._field_words:
            self._field_words = words
            self.query_one("#field-words", Static).update(words)

    def line(self, name: str) -> FormLine:
        """The line of one field."""
        return self.lines[name]

    @property
    def lines(self) -> dict[str, FormLine]:
        """The lines by field name, in their order; looked up once they are mounted."""
        found: dict[str, FormLine] | None = self.__dict__.get("_lines")
        if not found:
            found = self.__dict__["_lines"] = {line.field_name: line for line in self.query(FormLine)}
        return found

    def texts(self) -> dict[str, str]:
        """What the form says, by field name."""
        return {name: line.value for name, line in self.lines.items()}

    _sending = False
    """From ctrl+r until its question is answered, or what was asked for is sent."""

    def perform(self, action: Action) -> bool:
        begun = super().perform(action)
        if action.id == "submit" and begun:
            self._sending = any(each.group == "submit" and not each.is_finished for each in self.workers)
        return begun

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.worker.group == "submit" and event.worker.is_finished:
            self._sending = False

    def takes(self, event: events.Key) -> bool:
        """What is typed after ctrl+r is meant for the question that is being made, and changes nothing of what is sent."""
        return event.key == "escape" or not self._sending

    def _forward_event(self, event: events.Event) -> None:
        waits = not self._begun and self.focused is None
        if waits and isinstance(event, events.Key) and (event.is_printable or event.key == "backspace"):
            self._early.append(event)
        else:
            super()._forward_event(event)

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """The first field that has the focus gets what was typed before it was there."""
        super().set_focus(widget, scroll_visible, from_app_focus)
        if self.focused is not None:
            self._show_field()
        if self._begun or self.focused is None:
            return
        self._begun = True
        self._opened = self.texts()
        for event in self._early:
            if event.key == "tab":
                self.focus_next()
            elif self.focused is not None:
                self.focused._forward_event(event)
        self._early.clear()

    @cached_property
    def _opened(self) -> dict[str, str]:
        """What the form said when it was opened."""
        return {}

    def draft(self) -> dict[str, str]:
        """What a form of this kind said when it was left without being sent."""
        return dict(self.console.drafts.get(self.draft_name, {}))

    def drop_draft(self) -> None:
        """It was sent: the next one begins anew."""
        self.console.drafts.pop(self.draft_name, None)

    def do_back(self) -> None:
        """Leaves the form; what was typed is kept for the next of its kind."""
        if (
            self.draft_name
            and self._begun
            and not self.prompt.is_open
            and _filled(self.texts()) != _filled(self._opened)
        ):
            self.console.drafts[self.draft_name] = self.texts()
            self.console.say("Nothing was sent. What you typed is kept for when you open this form again.")
        super().do_back()

    def do_next_field(self) -> None:
        if not self._begun and self.focused is None:
            self._early.append(events.Key("tab", None))
            return
        self.focus_next()

    def do_previous_field(self) -> None:
        """The first field is the end: going round would open what lies behind the last."""
        first = next(iter(self.lines.values()), None)
        if first is None or self.focused is not first.control:
            self.focus_previous()


def _filled(texts: Mapping[str, str]) -> dict[str, str]:
    """Without the empty ones: a field that was not made yet and one that nobody filled are the same."""
    return {name: text for name, text in texts.items() if text}
