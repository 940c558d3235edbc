"""Parts of a form that fit 80x24: a line with a label, an input or a choice, and a sentence when something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.command_line import in_console
from tui.glyphs import UNICODE, GlyphSet
from tui.screens.entry import Entry


class PickedChoice(Widget, can_focus=True):
    """One of a few values on one line: left, right and space go through them, and a letter picks by its beginning."""

    @dataclass
    class Changed(Message):
        choice: PickedChoice
        value: str

        @property
        def control(self) -> PickedChoice:
            return self.choice

    def __init__(
        self,
        values: Sequence[str],
        value: str = "",
        *,
        unset: str = "default",
        id: str | None = None,  # noqa: A002 - Textual's own name
    ) -> None:
        """
        Args:
            values: In the order to go through.
            value: The one to begin with.
            unset: What is shown for an empty value.
            id: Textual's.
        """
        super().__init__(id=id)
        self.unset = unset
        self.values = tuple(values)
        self._value = value if value in self.values else self.values[0]

    @property
    def value(self) -> str:
        return self._value

    @value.setter
    def value(self, value: str) -> None:
        if value in self.values and value != self._value:
            self._value = value
            self.refresh()
            self.post_message(self.Changed(self, value))

    def render(self) -> Content:
        glyphs: GlyphSet = getattr(self.app, "glyphs", UNICODE)
        before, after = (glyphs["more-left"], glyphs["more-right"]) if self.has_focus else (" ", " ")
        return Content(f"{before} {self._value or self.unset} {after}")

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return self._picks(key, character) is not None

    def _picks(self, key: str, character: str | None) -> str | None:
        place = self.values.index(self._value)
        if key in ("right", "space"):
            return self.values[(place + 1) % len(self.values)]
        if key == "left":
            return self.values[(place - 1) % len(self.values)]
        if character and character.isalnum():
            order = self.values[place + 1 :] + self.values[: place + 1]
            return next((item for item in order if item.startswith(character.lower())), None)
        return None

    def on_key(self, event: events.Key) -> None:
        picked = self._picks(event.key, event.character)
        if picked is not None:
            event.stop()
            event.prevent_default()
            self.value = picked

    def on_click(self) -> None:
        self.value = self._picks("right", None) or self._value


class FormInput(Entry):
    """An input that hands a pasted command to its form instead of taking its first line."""

    PASTED_COMMANDS = ("gcloud ",)

    @dataclass
    class CommandPasted(Message):
        text: str

    def _on_paste(self, event: events.Paste) -> None:
        text = event.text.strip()
        if text.lstrip("$ ").startswith(self.PASTED_COMMANDS):
            event.stop()
            event.prevent_default()
            self.post_message(self.CommandPasted(text))


class Further(Widget, can_focus=True):
    """Stands for fields that are made when they are wanted: by going on to it, or by a click."""

    @dataclass
    class Wanted(Message):
        """The operator went on past the fields that are there."""

    def __init__(self, number: int) -> None:
        super().__init__(id="further")
        self._number = number
        self.early: list[events.Key | events.Paste] = []
        """What was typed and pasted while the fields are being made, with a tab for each step to the next field."""

    def render(self) -> Content:
        glyphs: GlyphSet = getattr(self.app, "glyphs", UNICODE)
        return Content(f"{glyphs['collapsed']} {self._number} further options: going on here opens them")

    def on_focus(self) -> None:
        self.post_message(self.Wanted())

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return bool(character and character.isprintable())

    def _forward_event(self, event: events.Event) -> None:
        """Keeps what is meant for the fields, at once: later it would come after the steps between them."""
        if isinstance(event, events.Paste) or (
            isinstance(event, events.Key) and (event.is_printable or event.key == "backspace")
        ):
            self.early.append(event)
        else:
            super()._forward_event(event)

    def on_click(self) -> None:
        self.focus()


class FormBody(VerticalScroll, inherit_bindings=False, can_focus=False):
    """Scrolls to the field that has the focus; up and down are left to the form."""


class FormLine(Vertical):
    """A label with its input, and the sentence about it."""

    def __init__(
        self,
        name: str,
        label: str,
        *,
        value: str = "",
        hint: str = "",
        choices: Sequence[str] = (),
        suggestions: Sequence[str] = (),
    ) -> None:
        super().__init__(classes="form-line")
        self.field_name = name
        self.label = label
        self._value = value
        self._hint = hint
        self._choices = tuple(choices)
        self._suggestions = tuple(suggestions)
        self._said = ("", False)
        self._composed = False

    def compose(self) -> ComposeResult:
        with Horizontal(classes="form-row"):
            yield Static(self.label, classes="form-label", markup=False)
            if self._choices:
                yield PickedChoice(
                    self._choices, self._value, unset=self._hint or "default", id=f"field-{self.field_name}"
                )
            else:
                suggester = SuggestFromList(self._suggestions, case_sensitive=False) if self._suggestions else None
                yield FormInput(
                    self._value,
                    placeholder=self._hint,
                    id=f"field-{self.field_name}",
                    compact=True,
                    suggester=suggester,
                    select_on_focus=False,
                )
        yield Static(classes="form-problem", markup=False)

    def on_mount(self) -> None:
        self._composed = True

    @cached_property
    def control(self) -> Input | PickedChoice:
        selector = f"#field-{self.field_name}"
        return self.query_one(selector, PickedChoice) if self._choices else self.query_one(selector, Input)

    def has(self, widget: Widget) -> bool:
        """Whether that is its control."""
        return self._composed and widget is self.control

    @property
    def value(self) -> str:
        """What it says; before it is mounted, what it will begin with."""
        return self.control.value if self._composed else self._value

    @value.setter
    def value(self, value: str) -> None:
        if not self._composed:
            self._value = value
            return
        control = self.control
        control.value = value
        if isinstance(control, Input):
            control.cursor_position = len(value)

    def suggest(self, names: Sequence[str]) -> None:
        """Replaces the suggestions."""
        control = self.control
        if isinstance(control, Input):
            control.suggester = SuggestFromList(names, case_sensitive=False)

    @property
    def words(self) -> str:
        """What may stand here: the hint, which a field that is filled does not show itself, or the choices."""
        if self._choices:
            return " or ".join(choice or self._hint or "default" for choice in self._choices)
        return self._hint

    def set_hint(self, hint: str) -> None:
        self._hint = hint
        control = self.control
        if isinstance(control, Input) and control.placeholder != hint:
            control.placeholder = hint

    def say(self, text: str, *, warning: bool = False) -> None:
        """Shows the sentence about this field; an empty one hides it."""
        text = in_console(text)
        if (text, warning) == self._said or not self._composed:
            return
        # An update is a layout, and a form has forty lines.
        self._said = (text, warning)
        line = self.query_one(".form-problem", Static)
        line.set_class(bool(text), "-said")
        line.set_class(warning, "-warning")
        line.update(text)
