"""Which lines match, found bit by bit: a search never holds up the screen, and new lines join as they come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from tui.widgets.log_source import LineSource, LogLineLike, earliest

SCAN_LINES = 1_000
"""Lines looked at in one go: about 10 ms where each passes the gate and has its level read."""

Test = Callable[[LogLineLike], bool]


class LogIndex:
    """The matching lines of a log, from `start` outwards in both directions.

    The last line is never taken for known: it may still be growing.

    Args:
        test: What makes a line a hit.
        start: Where the reader is; hits near it are found first.
    """

    def __init__(self, test: Test, start: int) -> None:
        self.test = test
        self.low = self.high = max(0, start)
        self._above: list[int] = []
        """Hits below `start` in number, descending."""
        self._below: list[int] = []

    def scan(self, source: LineSource, budget: int = SCAN_LINES) -> int:
        """Looks at up to `budget` more lines: new ones first, then older ones. Returns how many it looked at."""
        end = max(0, source.total - 1)
        floor = earliest(source)
        self.high = max(self.high, floor)
        looked = 0
        if self.low > end:
            # Everything that was known is gone: another log under the same name.
            self.low = self.high = end
            self._above.clear()
            self._below.clear()
        while looked < budget and self.high < end:
            if self._hit(source, self.high):
                self._below.append(self.high)
            self.high += 1
            looked += 1
        while looked < budget and self.low > floor:
            self.low -= 1
            if self._hit(source, self.low):
                self._above.append(self.low)
            looked += 1
        return looked

    def _hit(self, source: LineSource, number: int) -> bool:
        try:
            return self.test(source.line(number))
        except IndexError:
            return False

    def complete(self, source: LineSource) -> bool:
        """Whether every line that can be read was looked at, but for the last."""
        return self.high >= source.total - 1 and self.low <= earliest(source)

    def _last(self, source: LineSource) -> list[int]:
        last = source.total - 1
        return [last] if last >= self.high and last >= 0 and self._hit(source, last) else []

    def count(self, source: LineSource) -> int:
        """Hits found so far that can still be read."""
        floor = earliest(source)
        above = len(self._above) - self._lost_above(floor)
        below = len(self._below) - bisect_left(self._below, floor)
        return above + below + len(self._last(source))

    def _lost_above(self, floor: int) -> int:
        return len(self._above) - bisect_right(self._above, -floor, key=lambda number: -number)

    def rank(self, source: LineSource, number: int) -> int:
        """The place of a hit among those that can still be read, from 1; 0 if it is none."""
        floor = earliest(source)
        above = len(self._above) - self._lost_above(floor)
        place = bisect_left(self._above, -number, key=lambda each: -each)
        if place < above and self._above[place] == number:
            return above - place
        lost = bisect_left(self._below, floor)
        place = bisect_left(self._below, number)
        if lost <= place < len(self._below) and self._below[place] == number:
            return above + place - lost + 1
        if number in self._last(source):
            return above + len(self._below) - lost + 1
        return 0

    def next_after(self, source: LineSource, number: int) -> int | None:
        """The first known hit beyond a line."""
        place = bisect_right(self._above, -number - 1, key=lambda each: -each)
        if place:
            return self._above[place - 1]
        place = bisect_right(self._below, number)
        if place < len(self._below):
            return self._below[place]
        return next((last for last in self._last(source) if last > number), None)

    def previous_before(self, source: LineSource, number: int) -> int | None:
        """The last known hit before a line."""
        for last in self._last(source):
            if last < number:
                return last
        place = bisect_left(self._below, number)
        floor = earliest(source)
        if place:
            found = self._below[place - 1]
            return found if found >= floor else None
        place = bisect_right(self._above, -number, key=lambda each: -each)
        found = self._above[place] if place < len(self._above) else -1
        return found if found >= floor else None
