"""Where a reader is in a log, without a screen: follow, pause, page, cursor, and what trimming must not move.

Positions are absolute line numbers. While the reader has ceased to follow, new lines move nothing; lines that are trimmed
from memory while they stand on the screen are held until the reader leaves them.
"""

from __future__ import annotations

from collections.abc import Callable

from tui.widgets.log_source import LineSource, LogLineLike, earliest

Place = tuple[int, int]
"""(line number, row within the wrapped line)."""


class LogReader:
    """One reader of one source.

    Args:
        source: What is read.
        rows_of: How many rows a line takes on the screen while lines are wrapped.
    """

    def __init__(self, source: LineSource, rows_of: Callable[[LogLineLike], int]) -> None:
        self.source = source
        self.rows_of = rows_of
        self.wrapped = False
        """Whether lines may take several rows; otherwise none need be read to lay a page out."""
        self.height = 1
        self.following = True
        self.top: Place = (earliest(source), 0)
        self.cursor = max(0, source.total - 1)
        self.read_to = source.total
        """Lines before this number have been on the screen, or came before the reader ceased to follow."""
        self.held: dict[int, LogLineLike] = {}

    # -- lines -------------------------------------------------------------------------------------------------------

    def line(self, number: int) -> LogLineLike | None:
        """A line, from the source or from what is held; None when it is gone."""
        held = self.held.get(number)
        if number < self.source.first and held is not None:
            return held
        try:
            return self.source.line(number)
        except IndexError:
            return held

    def _readable(self, number: int) -> int:
        """The line itself, or the next one that was not trimmed or is held."""
        floor = earliest(self.source)
        if number >= floor or number in self.held:
            return number
        return min((each for each in self.held if number < each < floor), default=floor)

    def _rows(self, number: int) -> int:
        if not self.wrapped:
            return 1
        line = self.line(number)
        return max(1, self.rows_of(line)) if line is not None else 1

    @property
    def start(self) -> int:
        """The lowest line that can be reached: what the source has, or what is still held on the screen."""
        floor = earliest(self.source)
        return min(floor, self.top[0]) if not self.following and self.top[0] in self.held else floor

    @property
    def last(self) -> int:
        """The last line's number; -1 while there is none."""
        return self.source.total - 1

    @property
    def new_lines(self) -> int:
        """Lines that came since the reader ceased to follow, and were not yet on the screen."""
        return 0 if self.following else max(0, self.source.total - self.read_to)

    # -- the page ----------------------------------------------------------------------------------------------------

    def page(self) -> list[Place]:
        """The rows on the screen, from the top; fewer than `height` where the log ends."""
        places: list[Place] = []
        number, row = self.top
        while len(places) < self.height and number <= self.last:
            if (readable := self._readable(number)) != number:
                number, row = readable, 0
                continue
            count = self._rows(number)
            places.extend((number, each) for each in range(row, min(count, row + self.height - len(places))))
            number, row = number + 1, 0
        if places and not self.following:
            self.read_to = max(self.read_to, places[-1][0] + 1)
            self.top = places[0]
            self._hold(places[0][0], places[-1][0])
        return places

    def _hold(self, low: int, high: int) -> None:
        held: dict[int, LogLineLike] = {}
        for number in range(low, high + 1):
            line = self.line(number)
            if line is not None:
                held[number] = line
        self.held = held

    def bottom(self) -> Place:
        """The top of the page that ends with the last row of the log."""
        room, number = self.height, self.last
        floor = earliest(self.source)
        while number >= floor:
            count = self._rows(number)
            if count >= room:
                return (number, count - room)
            room -= count
            number -= 1
        return (floor, 0)

    # -- what happens ------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Takes note of a change of the source; a follower moves with it, nobody else moves."""
        if self.last < self.cursor or (self.top[0] > self.last >= 0):
            # The log is another, or shorter than it was.
            self.follow()
        if self.following:
            self.top = self.bottom()
            self.cursor = max(0, self.last)
        elif self.top[0] < earliest(self.source) and self.top[0] not in self.held:
            self.top = (earliest(self.source), 0)

    def resize(self, height: int) -> None:
        """Another height of the page, or another width of wrapped lines."""
        self.height = max(1, height)
        self.top = (self.top[0], 0) if self._rows(self.top[0]) <= self.top[1] else self.top
        if self.following:
            self.sync()
        else:
            # Room that was gained below the end is filled from above.
            self.top = min(self.top, self.bottom())

    def follow(self) -> None:
        """Goes to the end and stays there."""
        self.following = True
        self.held = {}
        self.top = self.bottom()
        self.cursor = max(0, self.last)

    def pause(self) -> None:
        """Stays where the page is."""
        if self.following:
            self.following = False
            self.read_to = self.source.total
            self.page()

    def scroll(self, rows: int) -> None:
        """Moves the page; upwards ceases to follow, down to the end takes it up again."""
        if rows < 0:
            self.pause()
            self._up(-rows)
        elif not self.following:
            self._down(rows)
            if self.top >= self.bottom():
                self.follow()
                return
        self._keep_cursor_on_page()

    def _up(self, rows: int) -> None:
        number, row = self.top
        while rows > 0:
            if row >= rows:
                row -= rows
                break
            rows -= row
            row = 0
            if number <= self.start:
                break
            number -= 1
            row = self._rows(number)
        self.top = (max(number, self.start), row)

    def _down(self, rows: int) -> None:
        number, row = self.top
        while rows > 0 and number <= self.last:
            left = self._rows(number) - row
            if rows < left:
                row += rows
                break
            rows -= left
            number, row = self._readable(number + 1), 0
        self.top = min((number, row), self.bottom())

    def _keep_cursor_on_page(self) -> None:
        places = self.page()
        if places:
            self.cursor = max(places[0][0], min(self.cursor, places[-1][0]))

    def set_top(self, number: int) -> None:
        """Puts a line at the top, as a dragged scrollbar does."""
        self.pause()
        self.top = min((max(self.start, number), 0), self.bottom())
        if self.top >= self.bottom():
            self.follow()
        else:
            self._keep_cursor_on_page()

    def move_cursor(self, lines: int) -> None:
        """Moves the cursor by lines and the page with it at its edges; on the last line, following begins again."""
        if lines < 0:
            self.pause()
        elif self.following:
            return
        self.cursor = max(self.start, min(self.cursor + lines, self.last))
        self._show_cursor()
        if lines > 0 and self.cursor == self.last:
            self.follow()

    def _show_cursor(self) -> None:
        if self.cursor < self.top[0] or (self.cursor == self.top[0] and self.top[1]):
            self.top = (self.cursor, 0)
            return
        end = (self.cursor, self._rows(self.cursor) - 1)
        places = self.page()
        if places and end > places[-1]:
            number, room = self.cursor, self.height - self._rows(self.cursor)
            while room > 0 and number > self.start:
                count = self._rows(number - 1)
                if count > room:
                    break
                number -= 1
                room -= count
            self.top = (number, 0)

    def go_to(self, number: int) -> None:
        """Puts the cursor on a line; if it is not on the page, a third of the page stands above it."""
        self.pause()
        self.cursor = max(self.start, min(number, self.last))
        places = self.page()
        if places and places[0] <= (self.cursor, 0) and (self.cursor, self._rows(self.cursor) - 1) <= places[-1]:
            return
        self.top = (self.cursor, 0)
        self._up(self.height // 3)
        self.top = min(self.top, self.bottom())
        self.page()

    def go_to_start(self) -> None:
        """The first line there is."""
        self.pause()
        self.held = {}
        self.top = (earliest(self.source), 0)
        self.cursor = self.top[0]
        self.page()
