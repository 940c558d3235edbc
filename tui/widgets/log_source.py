"""What a log view reads from: anything that counts its lines from 0 and can give each of them."""

from __future__ import annotations

from typing import Protocol


class LogLineLike(Protocol):
    """One line, already through the gate (`backend.logs.lines.LogLine`)."""

    @property
    def number(self) -> int: ...
    @property
    def text(self) -> str:
        """With SGR colours and nothing else of escape sequences."""

    @property
    def at(self) -> float:
        """Arrival, Unix seconds."""

    @property
    def level(self) -> str:
        """`error`, `warning` or empty."""

    @property
    def source(self) -> str:
        """The worker's address in a merged log, else empty."""


class LineSource(Protocol):
    """`backend.logs.worker_log.WorkerLog` and `MergedLog`, and whatever a test makes up."""

    @property
    def version(self) -> int:
        """Changes whenever a line came, grew or went."""

    @property
    def first(self) -> int:
        """The lowest line number that is cheap to read; it grows when the memory is trimmed."""

    @property
    def total(self) -> int:
        """How many lines there ever were."""

    @property
    def last_at(self) -> float:
        """When the last byte came, Unix seconds; 0 if none did."""

    def line(self, number: int) -> LogLineLike:
        """Raises IndexError for a line that can't be read any more."""

    def line_at(self, moment: float) -> int:
        """The number of the first line that arrived at or after `moment`; `total` if none did."""


def earliest(source: LineSource) -> int:
    """The lowest line that can be read at all: a source that reads back from disk says so with `earliest`."""
    value = getattr(source, "earliest", None)
    return value if isinstance(value, int) else source.first
