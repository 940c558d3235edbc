"""The footer: which keys do what, here and now, on one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from tui.look import Look, look_of
from tui.widgets.priority_line import Part, priority_line


@dataclass(frozen=True, slots=True)
class Hint:
    """One key and its word."""

    key: str
    label: str
    priority: int = 0
    """Lowest is dropped first when the line is narrow; of equals the last one."""
    action: str = ""
    """A Textual action that a click on the hint runs; empty: none."""


def hint_line(hints: Sequence[Hint], width: int, look: Look, base: Style | None = None) -> Strip:
    """As many hints as fit, in their order, the most important first to stay."""
    ground = base if base is not None else Style.null()
    return priority_line(_parts(hints), width, look, ground)


def _parts(hints: Sequence[Hint]) -> list[Part]:
    return [
        Part((((" " if index == 0 else "") + hint.key, "key"), (f" {hint.label}", "")), hint.priority)
        for index, hint in enumerate(hints)
    ]


class HintsFooter(Widget):
    """Hints in their order, for whatever has the focus; or a message in their place until it is cleared."""

    DEFAULT_CSS = """
    HintsFooter {
        dock: bottom;
        height: 1;
        background: $panel;
        color: $foreground;
    }
    """

    def __init__(self, hints: Sequence[Hint] = (), *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.hints = tuple(hints)
        self.message: tuple[str, str] = ("", "")

    def set_hints(self, hints: Sequence[Hint]) -> None:
        """Shows other hints."""
        if (fresh := tuple(hints)) != self.hints:
            self.hints = fresh
            self.refresh()

    def set_message(self, text: str, token: str = "") -> None:
        """Says something in place of the hints; empty gives them back. Plain text, never markup."""
        if (text, token) != self.message:
            self.message = (text, token)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        look, base, width = look_of(self), self.rich_style, self.size.width
        if y:
            return Strip.blank(width, base)
        text, token = self.message
        if text:
            return priority_line([Part(((f" {text}", token),), 0)], width, look, base)
        return hint_line(self.hints, width, look, base)

    async def on_click(self, event: events.Click) -> None:
        """A click on a hint does what its key does."""
        offset = event.get_content_offset(self)
        if offset is None or self.message[0]:
            return
        line = hint_line(self.hints, self.size.width, look_of(self), self.rich_style).text
        position = 0
        for index, hint in enumerate(self.hints):
            text = (" " if index == 0 else "") + f"{hint.key} {hint.label}"
            found = line.find(text, position)
            if found < 0:
                continue
            position = found + len(text)
            if cell_len(line[:found]) <= offset.x < cell_len(line[:position]) and hint.action:
                await self.app.run_action(hint.action, default_namespace=self.screen.focused or self.screen)
                return
