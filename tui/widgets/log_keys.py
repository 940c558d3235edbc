"""The keys of a log view and what each does to its reader."""

from __future__ import annotations

from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.scroll_view import ScrollView

from tui.widgets.log_reader import LogReader

Kind = Literal["match", "error", "warning"]
SIDEWAYS = 16
"""Cells that one press of left or right scrolls."""
JUMP_SCAN_LINES = 1_000
"""How far a key press looks for the next hit at once; the rest is looked through from poll to poll."""


class LogKeys(ScrollView):
    """Bindings and their actions; `LogView` does the work."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "cursor(1)", "down", show=False, id="log.down"),
        Binding("up,k", "cursor(-1)", "up", show=False, id="log.up"),
        Binding("ctrl+d", "half_page(1)", "half a page down", show=False, id="log.half-page-down"),
        Binding("ctrl+u", "half_page(-1)", "half a page up", show=False, id="log.half-page-up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="log.page-down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="log.page-up"),
        Binding("g,home", "start", "first line", show=False, id="log.start"),
        Binding("G,end", "end", "last line, and follow", show=False, id="log.end"),
        Binding("left", "sideways(-1)", "to the left", show=False, id="log.left"),
        Binding("right", "sideways(1)", "to the right", show=False, id="log.right"),
        Binding("f", "follow", "follow or pause", show=False, id="log.follow"),
        Binding("n", "jump('match', 1)", "next match", show=False, id="log.next-match"),
        Binding("N", "jump('match', -1)", "previous match", show=False, id="log.previous-match"),
        Binding("e", "jump('error', 1)", "next error", show=False, id="log.next-error"),
        Binding("E", "jump('error', -1)", "previous error", show=False, id="log.previous-error"),
        Binding("w", "jump('warning', 1)", "next warning", show=False, id="log.next-warning"),
        Binding("W", "jump('warning', -1)", "previous warning", show=False, id="log.previous-warning"),
        Binding("m", "mark", "mark the line", show=False, id="log.mark"),
        Binding("u", "next_mark", "next mark", show=False, id="log.next-mark"),
        Binding("U", "previous_mark", "previous mark", show=False, id="log.previous-mark"),
        Binding("z", "wrap", "wrap long lines", show=False, id="log.wrap"),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.reader: LogReader | None = None
        self.marks: set[int] = set()
        self.notice = ""
        """Said on the status line until the next key."""
        self.wrapping = False
        self.show_time = False

    def moved(self) -> None:
        """The page may be another one: draws it."""
        raise NotImplementedError

    def forget(self) -> None:
        """Throws away everything that was drawn."""
        raise NotImplementedError

    def refresh_status(self) -> bool:
        """Repaints the status line if it says something else."""
        raise NotImplementedError

    def jump(self, kind: Kind, direction: int, budget: int) -> None:
        """Goes to the next hit, looking at up to `budget` lines at once."""
        raise NotImplementedError

    @property
    def page_height(self) -> int:
        """Rows of the log that fit, above the status line."""
        return max(1, self.size.height - 1)

    def _scroll(self, rows: int) -> None:
        if self.reader is not None:
            self.notice = ""
            self.reader.scroll(rows)
            self.moved()

    def action_cursor(self, lines: int) -> None:
        if self.reader is not None:
            self.notice = ""
            self.reader.move_cursor(lines)
            self.moved()

    def action_page(self, direction: int) -> None:
        self._scroll(direction * max(1, self.page_height - 1))

    def action_half_page(self, direction: int) -> None:
        self._scroll(direction * max(1, self.page_height // 2))

    def action_start(self) -> None:
        if self.reader is not None:
            self.reader.go_to_start()
            self.moved()

    def action_end(self) -> None:
        if self.reader is not None:
            self.notice = ""
            self.reader.follow()
            self.moved()

    def action_follow(self) -> None:
        if self.reader is not None:
            self.notice = ""
            if self.reader.following:
                self.reader.pause()
            else:
                self.reader.follow()
            self.moved()

    def action_sideways(self, direction: int) -> None:
        self.scroll_to(x=self.scroll_offset.x + direction * SIDEWAYS, animate=False)

    def action_jump(self, kind: Kind, direction: int) -> None:
        self.notice = ""
        self.jump(kind, direction, JUMP_SCAN_LINES)

    def action_mark(self) -> None:
        """Marks or unmarks the line at the cursor; a follower's is the last one."""
        if self.reader is not None and self.reader.last >= 0:
            self.marks ^= {self.reader.cursor}
            self.moved()

    def action_next_mark(self) -> None:
        self._to_mark(min((number for number in self.marks if number > self._place()), default=None))

    def action_previous_mark(self) -> None:
        self._to_mark(max((number for number in self.marks if number < self._place()), default=None))

    def _place(self) -> int:
        return self.reader.cursor if self.reader is not None else 0

    def _to_mark(self, number: int | None) -> None:
        if self.reader is None:
            return
        if number is None:
            self.notice = "no further mark" if self.marks else "nothing is marked"
            self.refresh_status()
            return
        self.notice = ""
        self.reader.go_to(number)
        self.moved()

    def action_wrap(self) -> None:
        """Wraps long lines, those on the screen alone, or cuts them; the reader's line stays."""
        self.wrapping = not self.wrapping
        self._redraw()

    def action_toggle_time(self) -> None:
        """Shows or hides when each line came."""
        self.show_time = not self.show_time
        self._redraw()

    def _redraw(self) -> None:
        self.forget()
        if self.wrapping:
            self.scroll_to(x=0, animate=False)
        if self.reader is not None:
            self.reader.wrapped = self.wrapping
            self.reader.resize(self.page_height)
        self.moved()
