"""When a log's bytes came: `NAME.idx` beside `NAME.log`, fixed records from which a line or a moment is found at once."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INDEX_RECORD = struct.Struct("<QQdB7x")
"""offset in bytes, newlines before it, arrival in Unix seconds, stream (1 stdout, 2 stderr)."""


class Arrival(NamedTuple):
    """One record: bytes that came together."""

    offset: int
    """In bytes."""
    lines: int
    """Newlines before it."""
    at: float
    """Unix seconds."""
    stream: int
    """1 stdout, 2 stderr."""


OFFSET, LINES, AT = range(3)
"""Fields of an arrival that rise from record to record, for `Arrivals.below`."""
NOTHING = Arrival(0, 0, 0.0, 1)


class Arrivals:
    """The records of one log. Reads them where they lie: thousands of open logs hold none in memory.

    Args:
        path: `NAME.idx`; made private (0600) when missing.
        append: This process writes the log, and so the index.
    """

    def __init__(self, path: Path, *, append: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0)
        self._file = os.open(path, flags, 0o600)
        self.count = 0
        self.look()

    def look(self) -> None:
        """Takes in what another process added."""
        self.count = os.fstat(self._file).st_size // INDEX_RECORD.size

    def add(self, arrival: Arrival) -> None:
        """Writes one more.

        Raises:
            OSError: The disk is full or gone.
        """
        os.write(self._file, INDEX_RECORD.pack(*arrival))
        self.count += 1

    def drop_beyond(self, size: int, *, mend: bool) -> None:
        """Forgets records of bytes that a log of that size does not have, as a crash leaves them.

        Args:
            mend: Also on disk.
        """
        while self.count and self.at(self.count - 1).offset > size:
            self.count -= 1
        if mend:
            os.ftruncate(self._file, self.count * INDEX_RECORD.size)

    def at(self, position: int) -> Arrival:
        """One record, by its position."""
        raw = os.pread(self._file, INDEX_RECORD.size, position * INDEX_RECORD.size)
        return Arrival(*INDEX_RECORD.unpack(raw))

    def last(self) -> Arrival:
        """The newest; of a log without any, its beginning."""
        return self.at(self.count - 1) if self.count else NOTHING

    def since(self, position: int) -> Iterator[Arrival]:
        """All from a position on."""
        size = (self.count - position) * INDEX_RECORD.size
        raw = os.pread(self._file, size, position * INDEX_RECORD.size)
        return map(Arrival._make, INDEX_RECORD.iter_unpack(raw))

    def below(self, field: int, value: float) -> int:
        """The number of records whose field is below `value`."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.at(middle)[field] < value:
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        os.close(self._file)
