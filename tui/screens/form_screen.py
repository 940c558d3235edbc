"""What screens of form lines have in common."""

from __future__ import annotations

from functools import cached_property

from tui.screens.base import ConsoleScreen
from tui.screens.form import FormLine


class FormScreen(ConsoleScreen):
    """A screen of form lines: letters are typed, up and down go through the fields, escape leaves it."""

    CSS_PATH = "forms.tcss"

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

    def do_next_field(self) -> None:
        self.focus_next()

    def do_previous_field(self) -> None:
        self.focus_previous()
