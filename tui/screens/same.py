"""The equivalents view: the gcloud command and the REST call of what is selected or about to happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from backend.sanitize import plain_text
from tui.actions import DIALOG, Action, bindings
from tui.screens.base import Dialog

if TYPE_CHECKING:
    from backend.cloud.equivalents import Equivalent

LINE = 76
"""Longer gcloud commands are wrapped."""


def page(same: Equivalent) -> str:
    """All ways to say it; long gcloud commands with one flag a line."""
    from backend.cloud.equivalents import wrap

    lines = [wrap(line) if line.startswith("gcloud ") and len(line) > LINE else line for line in same.lines()]
    return plain_text("\n".join(lines))


class PageDialog(Dialog[None]):
    """A page to read and copy; changes nothing."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._heading = title
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -wide-dialog"):
            yield Static(self._heading, classes="dialog-title", markup=False)
            yield TextArea(self._text, read_only=True, soft_wrap=True, compact=True, id="same")
            yield Static("y copies · esc closes", classes="muted", markup=False)

    def applies(self, action: Action) -> bool:
        return action.id in ("copy-page", "back")

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    def do_copy_page(self) -> None:
        area = self.query_one(TextArea)
        self.console.copy(area.selected_text or area.text)


class SameDialog(PageDialog):
    """The equivalents of something."""

    def __init__(self, title: str, same: Equivalent) -> None:
        super().__init__(title, page(same))
