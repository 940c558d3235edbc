"""A log in memory with a ring, as `backend.logs` has on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FakeLine:
    number: int
    text: str
    at: float = 0.0
    level: str = ""
    source: str = ""


class FakeLog:
    """Keeps the last `capacity` lines; older ones raise IndexError, as a merged log's do."""

    def __init__(self, *texts: str, capacity: int = 1_000_000) -> None:
        self.capacity = capacity
        self.version = 0
        self.first = 0
        self.last_at = 0.0
        self.reads = 0
        self._lines: dict[int, FakeLine] = {}
        self.total = 0
        self.add(*texts)

    def add(self, *texts: str, at: float | None = None, source: str = "") -> None:
        for text in texts:
            arrived = float(self.total) if at is None else at
            level = "error" if "error" in text else "warning" if "warn" in text else ""
            self._lines[self.total] = FakeLine(self.total, text, arrived, level, source)
            self.total += 1
            self.last_at = arrived
        while self.total - self.first > self.capacity:
            del self._lines[self.first]
            self.first += 1
        self.version += 1

    def line(self, number: int) -> FakeLine:
        self.reads += 1
        try:
            return self._lines[number]
        except KeyError:
            raise IndexError(number) from None

    def line_at(self, moment: float) -> int:
        return next(
            (number for number in range(self.first, self.total) if self._lines[number].at >= moment), self.total
        )
