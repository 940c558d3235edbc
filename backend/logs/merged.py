"""Several workers' logs as one, in the order of arrival.

What is kept is not lines but runs of lines that arrived together: 64 workers that flood bring millions of lines between two
looks, and none of them is touched until it stands on the screen.
"""

from __future__ import annotations

import heapq
import os
import resource
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from backend.logs.lines import LogLine
from backend.logs.worker_log import WorkerLog

MERGED_LINES = 50_000
"""Lines of a merged log that can be reached; each worker's own log has them all."""

SHORTEST_AGE_S, LONGEST_AGE_S, AGE_STEPS = 0.1, 1e9, 4
"""Between which the age of the oldest line that can be reached is looked for, and how closely."""

FILES_PER_LOG = 2
SPARE_FILES = 64
"""Open files that are left to everything else."""


def mergeable(wanted: int) -> int:
    """How many logs this process may hold open at once, with its limit of open files raised as far as that goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    needed = in_use + wanted * FILES_PER_LOG + SPARE_FILES
    if soft != resource.RLIM_INFINITY and needed > soft:
        raised = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        return max(1, min(wanted, (soft - in_use - SPARE_FILES) // FILES_PER_LOG))
    return wanted


def by_arrival(logs: Mapping[str, WorkerLog]) -> Iterator[tuple[str, int]]:
    """(source, line number) of every line that has ended, in the order of arrival; holds one arrival a log in memory."""

    def arrivals(source: str, log: WorkerLog) -> Iterator[tuple[float, str, int, int]]:
        for at, own, count in log.arrivals(0, log.ended):
            yield at, source, own, count

    for _, source, own, count in heapq.merge(*(arrivals(source, log) for source, log in logs.items())):
        for number in range(own, own + count):
            yield source, number


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
        changed = {source: log for source, log in self._logs.items() if self._versions.get(source) != log.version}
        pending = sum(log.ended - self._seen.get(source, 0) for source, log in changed.items())
        since = self._newest_since(changed.values()) if pending > 2 * self._capacity else 0.0
        for source, log in changed.items():
            self._versions[source] = log.version
            seen, ended = self._seen.get(source, 0), log.ended
            self._seen[source] = ended
            start = max(seen, ended - self._capacity, log.line_at(since) if since else 0)
            self.total += min(start, ended) - seen
            fresh.extend((at, source, own, count) for at, own, count in log.arrivals(start, ended))
        if not fresh:
            return
        fresh.sort()
        for _, source, own, count in fresh:
            self._runs.append(_Run(self.total, source, own, count))
            self.total += count
        self._trim()
        self.version += 1

    def _newest_since(self, logs: Iterable[WorkerLog]) -> float:
        """A moment since which at least as many lines came as can be reached: what came before need not be put in order.

        Asks the indexes, reads no line: thousands of long logs cost little more than what will be shown of them.
        """
        every = list(logs)
        newest = max(log.last_at for log in every)

        def enough(age_s: float) -> bool:
            since, count = newest - age_s, 0
            for log in every:
                if log.last_at >= since:
                    count += max(0, log.ended - log.line_at(since))
                    if count >= self._capacity:
                        return True
            return False

        age_s = SHORTEST_AGE_S
        while not enough(age_s):
            if age_s > LONGEST_AGE_S:
                return 0.0
            age_s *= 4
        low = age_s / 4
        for _ in range(AGE_STEPS):
            middle = (low + age_s) / 2
            low, age_s = (low, middle) if enough(middle) else (middle, age_s)
        return newest - age_s

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
