"""What screens of form lines have in common."""

from __future__ import annotations

from functools import cached_property

from textual import events
from textual.widget import Widget

from tui.screens.base import ConsoleScreen
from tui.screens.form import FormLine


class FormScreen(ConsoleScreen):
    """A screen of form lines: letters are typed, up and down go through the fields, escape leaves it."""

    CSS_PATH = "forms.tcss"

    _begun = False

    @cached_property
    def _early(self) -> list[events.Key]:
        """Keys that came before a field had the focus: what is typed right after the key that opens a form is meant for it."""
        return []

    def line(self, name: str) -> FormLine:
        """The line of one field."""
        return self.lines[name]

    @cached_property
    def lines(self) -> dict[str, FormLine]:
        """The lines by field name, in their order; asked for when they are mounted, and looked up once."""
        return {line.field_name: line for line in self.query(FormLine)}

    def texts(self) -> dict[str, str]:
        """What the form says, by field name."""
        return {name: line.value for name, line in self.lines.items()}

    def _forward_event(self, event: events.Event) -> None:
        waits = not self._begun and self.focused is None
        if waits and isinstance(event, events.Key) and (event.is_printable or event.key == "backspace"):
            self._early.append(event)
        else:
            super()._forward_event(event)

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """The first field that has the focus gets what was typed before it was there."""
        super().set_focus(widget, scroll_visible, from_app_focus)
        if self._begun or self.focused is None:
            return
        self._begun = True
        for event in self._early:
            if event.key == "tab":
                self.focus_next()
            elif self.focused is not None:
                self.focused._forward_event(event)
        self._early.clear()

    def do_next_field(self) -> None:
        if not self._begun and self.focused is None:
            self._early.append(events.Key("tab", None))
            return
        self.focus_next()

    def do_previous_field(self) -> None:
        self.focus_previous()
