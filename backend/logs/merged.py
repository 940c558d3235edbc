"""Several workers' logs as one, in the order of arrival.

What is kept is not lines but runs of lines that arrived together: 64 workers that flood bring millions of lines between two
looks, and none of them is touched until it stands on the screen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from backend.logs.store import LogLine, WorkerLog

MERGED_LINES = 50_000
"""Lines of a merged log that can be reached; each worker's own log has them all."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Lines of one worker that arrived together."""

    first: int
    """Its first line's number in the merged order."""
    source: str
    own: int
    """The same line's number in the worker's log."""
    count: int


class MergedLog:
    """Several workers' logs in the order of arrival, each line with its source. Reads them; owns none.

    Only lines that have ended are merged: two workers' unfinished lines have no order yet.

    Args:
        logs: By worker address.
        capacity: How many of the newest lines can be reached.
    """

    def __init__(self, logs: Mapping[str, WorkerLog], *, capacity: int = MERGED_LINES) -> None:
        self._logs = dict(logs)
        self._capacity = capacity
        self._runs: deque[_Run] = deque()
        self._seen: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self.total = 0
        self.version = 0

    def refresh(self) -> None:
        """Takes in what arrived since the last call; cheap when nothing did."""
        fresh: list[tuple[float, str, int, int]] = []
        for source, log in self._logs.items():
            if self._versions.get(source) == log.version:
                continue
            self._versions[source] = log.version
            start, ended = self._seen.get(source, 0), log.ended
            self._seen[source] = ended
            skipped = max(0, ended - start - self._capacity)
            self.total += skipped
            fresh.extend((at, source, own, count) for at, own, count in log.arrivals(start + skipped, ended))
        if not fresh:
            return
        fresh.sort()
        for _, source, own, count in fresh:
            self._runs.append(_Run(self.total, source, own, count))
            self.total += count
        self._trim()
        self.version += 1

    def _trim(self) -> None:
        first = self.total - self._capacity
        while self._runs and self._runs[0].first + self._runs[0].count <= first:
            self._runs.popleft()
        if self._runs and self._runs[0].first < first:
            run = self._runs[0]
            cut = first - run.first
            self._runs[0] = _Run(first, run.source, run.own + cut, run.count - cut)

    @property
    def first(self) -> int:
        """The absolute number of the first line that can be reached."""
        return self._runs[0].first if self._runs else self.total

    @property
    def last_at(self) -> float:
        """When the last byte of any of them came."""
        return max((log.last_at for log in self._logs.values()), default=0.0)

    def _place(self, number: int) -> tuple[str, int]:
        if not self.first <= number < self.total:
            raise IndexError(f"line {number}")
        run = self._runs[bisect_right(self._runs, number, key=lambda each: each.first) - 1]
        own = run.own + number - run.first
        if number >= run.first + run.count:
            raise IndexError(f"line {number}")
        return run.source, own

    def line(self, number: int) -> LogLine:
        """The line of that absolute number in the merged order.

        Raises:
            IndexError: There is no such line, or it can't be reached any more.
        """
        source, own = self._place(number)
        line = self._logs[source].line(own)
        return LogLine(number, line.text, line.at, line.level, source)

    def lines(self, start: int, stop: int) -> list[LogLine]:
        """Lines start to stop (exclusive), clipped to what exists."""
        return [self.line(number) for number in range(max(self.first, start), min(stop, self.total))]

    def line_at(self, moment: float) -> int:
        """The number of the first reachable line that arrived at or after `moment`."""
        low, high = self.first, self.total
        while low < high:
            middle = (low + high) // 2
            source, own = self._place(middle)
            if self._logs[source].raw_line(own)[1] < moment:
                low = middle + 1
            else:
                high = middle
        return low
