"""Screens of what the journal tells: read in a thread once in a while, two views of it in one table."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from textual import on
from textual.widgets import Static
from textual.worker import Worker

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from tui.actions import BY_ID
from tui.screens.base import TableScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column

EVERY_S = 10.0
"""Between two readings while the screen is open: what is told changes slowly, and the journal is read whole."""


class JournalScreen(TableScreen):
    """A line of words, a table in two views, and what is told of the row of the cursor."""

    CSS_PATH = "tools.tcss"
    title_of_reading: ClassVar[str]
    """What is done while it is read, where an error is told."""

    def __init__(self) -> None:
        super().__init__()
        self.other_view = False
        self._is_known = False
        self._reading: Worker[None] | None = None
        self._next_at = float("-inf")
        self._words = ""

    # What a screen tells

    def columns(self) -> Sequence[Column]:
        """Of the view that is shown."""
        raise NotImplementedError

    def loading_words(self) -> str:
        raise NotImplementedError

    async def read(self) -> None:
        """Reads the journal, beside the loop.

        Raises:
            OperatorError: The journal fails.
        """
        raise NotImplementedError

    def forget(self) -> None:
        """What was read is not known any more."""
        raise NotImplementedError

    def draw(self) -> None:
        """Shows what was read last."""
        raise NotImplementedError

    # How it is read

    def tick(self) -> None:
        if self.console.tower is None:
            trouble = self.console.trouble
            self.table.set_message(
                f"{trouble.what} {trouble.cure}" if trouble is not None else "Opening the journal …",
                kind="error" if trouble is not None else "loading",
            )
            return
        busy = self._reading is not None and not self._reading.is_finished
        if not busy and monotonic() >= self._next_at:
            self._next_at = monotonic() + EVERY_S
            if not self._is_known:
                self.table.set_message(self.loading_words(), kind="loading")
            self._reading = self.background(self._read(), group=self.crumb, title=self.title_of_reading)

    async def _read(self) -> None:
        try:
            await self.read()
        except OperatorError as error:
            self._is_known = False
            self.forget()
            # Asked again by key: a journal that fails would be told of again and again.
            self._next_at = float("inf")
            self.table.set_rows([])
            again = self.console.settings.keymap.shown(BY_ID["refresh"])
            self.table.set_message(f"{error.what} {error.cure}".strip() + f"\n{again} tries again.", kind="error")
            self.say("")
            raise
        self._is_known = True
        self.draw()

    def read_anew(self) -> None:
        """What is being read now is not wanted any more: begins again at once."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._next_at = float("-inf")
        self.say(self.loading_words())
        self.tick()

    def redraw(self) -> None:
        """Shows it again, where anything was read."""
        if self._is_known:
            self.draw()

    def say(self, words: str) -> None:
        """The words above the table."""
        if words != self._words:
            self._words = words
            self.query_one(".work-head", Static).update(plain_text(words))

    def show_view(self, *, other: bool) -> None:
        """Changes to one of the two views: filter and marks were of the one before."""
        self.other_view = other
        self.apply_filter("")
        self.table.clear_marks()
        self.table.set_columns(self.columns())
        self.redraw()

    # Keys

    def do_refresh(self) -> None:
        self._next_at = float("-inf")
        self.console.do_refresh()
        self.tick()

    def do_view(self) -> None:
        self.show_view(other=not self.other_view)

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])
