"""A worker's log as it is: raw bytes on disk, an index of when they came, and a bounded part of them in memory.

Nothing is parsed while bytes arrive: a flood costs a write, a count of newlines and a place in a ring. Lines are cut and
pass the gate when somebody looks at them. The file of a worker holds exactly the bytes that its command wrote, so its
size is the offset from which a lost connection resumes.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backend.logs.arrivals import AT, LINES, NOTHING, OFFSET, Arrival, Arrivals
from backend.logs.lines import LogLine, level_of
from backend.sanitize import TAIL_LIMIT, safe_line

RING_BYTES_SMALL = 64 * 1024
"""A ring below this holds no chunk that is larger than itself: it is read from disk when somebody looks."""
RING_BYTES_MOST = 1024 * 1024
COALESCE_BYTES = 4 * 1024
"""Chunks smaller than this that arrive together become one, so that a slow log costs few objects."""
COALESCE_S = 0.1
LOAD_RECORDS = 1_024
"""Arrivals of the end of a log that are taken into memory when it is opened."""
HISTORY_BLOCKS = 8
"""Blocks of lines read back from disk that are kept: a reader who scrolls up reads each once."""
HISTORY_BLOCK_BYTES = 256 * 1024


@dataclass(slots=True)
class _Chunk:
    """Whole lines that arrived together."""

    first_line: int
    data: bytes
    """Without the newline of its last line."""
    at: float
    count: int
    lines: list[bytes] | None = field(default=None)

    def line(self, number: int) -> bytes:
        if self.lines is None:
            self.lines = self.data.split(b"\n")
        return self.lines[number - self.first_line]


class WorkerLog:
    """The log of one worker in one run: append-only bytes, readable by absolute line number.

    Args:
        path: `NAME.log`; made private (0600) with its folder when missing. What is there already is continued.
        ring_bytes: How much of the end is kept in memory.
        writable: False opens it for reading alone, as a second console does.
    """

    def __init__(self, path: Path, *, ring_bytes: int = RING_BYTES_MOST, writable: bool = True) -> None:
        self.path = path
        self.ring_bytes = ring_bytes
        self.version = 0
        self.last_at = 0.0
        self._chunks: deque[_Chunk] = deque()
        self._ring_size = 0
        self._tail = b""
        self._lines = 0
        self._history: OrderedDict[int, list[bytes]] = OrderedDict()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if writable else os.O_RDONLY
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._arrivals = Arrivals(path.with_suffix(".idx"), append=writable)
        self.size = 0
        self._indexed_at = 0.0
        self._indexed_stream = 0
        self._indexed_offset = 0
        self._load(writable)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, data: bytes, *, at: float | None = None, stream: int = 1) -> None:
        """Writes bytes as they came. Disk first: what is in memory is on disk already.

        Raises:
            OSError: The disk is full or gone; nothing of `data` counts as received then.
        """
        if not data:
            return
        arrived = time.time() if at is None else at
        self._write(data)
        fresh = (
            stream != self._indexed_stream
            or arrived - self._indexed_at > COALESCE_S
            or self.size - self._indexed_offset >= HISTORY_BLOCK_BYTES
        )
        if fresh:
            self._arrivals.add(Arrival(self.size, self._lines, arrived, stream))
            self._indexed_at, self._indexed_stream, self._indexed_offset = arrived, stream, self.size
        self.size += len(data)
        self._take(data, arrived)
        self.last_at = arrived
        self.version += 1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, self.size)
            raise

    def _take(self, data: bytes, at: float) -> None:
        end = data.rfind(b"\n")
        if end < 0:
            self._tail += data
            if len(self._tail) > 2 * TAIL_LIMIT:
                # The line goes on, on disk; of what is shown, its newest part is enough.
                self._tail = self._tail[-TAIL_LIMIT:]
            return
        whole = self._tail + data[:end]
        self._tail = data[end + 1 :][-TAIL_LIMIT:]
        count = data.count(b"\n")
        last = self._chunks[-1] if self._chunks else None
        if last is not None and len(last.data) < COALESCE_BYTES and at - last.at <= COALESCE_S:
            last.data = b"%b\n%b" % (last.data, whole)
            last.count += count
            last.lines = None
            self._ring_size += len(whole) + 1
        else:
            self._chunks.append(_Chunk(self._lines, whole, at, count))
            self._ring_size += len(whole)
        self._lines += count
        least = 1 if self.ring_bytes >= RING_BYTES_SMALL else 0
        while self._ring_size > self.ring_bytes and len(self._chunks) > least:
            self._ring_size -= len(self._chunks.popleft().data)

    # -- opening what is there ---------------------------------------------------------------------------------------

    def _load(self, writable: bool) -> None:
        """Counts the lines on disk by the index, mends an index that a crash left short, and fills the ring."""
        size = os.fstat(self._file).st_size
        self._arrivals.drop_beyond(size, mend=writable)
        offset, lines, at, _ = self._arrivals.last()
        modified = os.fstat(self._file).st_mtime
        self.last_at = max(at, modified) if size else 0.0
        total = lines + self._count_newlines(offset, size)
        known = self._arrivals.count
        oldest = self._arrivals.at(known - LOAD_RECORDS).offset if known > LOAD_RECORDS else 0
        start = max(0, size - self.ring_bytes, oldest)
        if start:
            first = self._find_newline(start, size)
            start = self._last_line_start(size) if first is None else first + 1
        self.size = size
        self._lines = total - self._count_newlines(start, size)
        if size > start:
            self._take_arrivals(start, os.pread(self._file, size - start, start))

    def _take_arrivals(self, start: int, data: bytes) -> None:
        """Fills the ring from disk as the bytes arrived once: a merged log goes by that."""
        position = max(self._arrivals.below(OFFSET, start + 1) - 1, 0)
        records = [(each.offset, each.at) for each in self._arrivals.since(position)]
        if not records:
            self._take(data, self.last_at)
        for number, (offset, at) in enumerate(records):
            begin = max(offset, start) if number else start
            end = records[number + 1][0] if number + 1 < len(records) else start + len(data)
            if end > begin:
                self._take(data[begin - start : end - start], at)

    def _count_newlines(self, start: int, end: int) -> int:
        count = 0
        while start < end:
            block = os.pread(self._file, min(1 << 20, end - start), start)
            if not block:
                break
            count += block.count(b"\n")
            start += len(block)
        return count

    def _find_newline(self, start: int, end: int) -> int | None:
        while start < end:
            block = os.pread(self._file, min(1 << 16, end - start), start)
            if not block:
                return None
            found = block.find(b"\n")
            if found >= 0:
                return start + found
            start += len(block)
        return None

    def _last_line_start(self, end: int) -> int:
        """Where the unfinished last line begins; at most `TAIL_LIMIT` before `end`, of a longer one its end is enough."""
        start = max(0, end - TAIL_LIMIT)
        return start + os.pread(self._file, end - start, start).rfind(b"\n") + 1

    def refresh(self) -> None:
        """Takes what another process appended to the file (a second console's view)."""
        size = os.fstat(self._file).st_size
        self._arrivals.look()
        while self.size < size:
            data = os.pread(self._file, min(1 << 20, size - self.size), self.size)
            if not data:
                return
            self.size += len(data)
            self.last_at = time.time()
            self._take(data, self.last_at)
            self.version += 1

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many lines there are: those that ended, and the one being written."""
        return self._lines + (1 if self._tail else 0)

    @property
    def ended(self) -> int:
        """How many lines have ended; the one being written is not among them."""
        return self._lines

    @property
    def first(self) -> int:
        """The absolute number of the first line that is in memory; earlier ones are read from disk."""
        return self._chunks[0].first_line if self._chunks else self._lines

    @property
    def earliest(self) -> int:
        """The absolute number of the first line that can be read at all: the disk has them all."""
        return 0

    def line(self, number: int) -> LogLine:
        """The line of that absolute number, from memory or from disk.

        Raises:
            IndexError: There is no such line.
        """
        raw, at = self.raw_line(number)
        return LogLine(number, safe_line(raw), at, level_of(raw))

    def raw_line(self, number: int) -> tuple[bytes, float]:
        """The bytes of a line without its newline, and its arrival."""
        if not 0 <= number < self.total:
            raise IndexError(f"line {number} of {self.total}")
        if number == self._lines:
            return self._tail, self.last_at
        if number < self.first:
            return self._history_line(number)
        chunk = self._chunks[bisect_right(self._chunks, number, key=lambda each: each.first_line) - 1]
        return chunk.line(number), chunk.at

    def lines(self, start: int, stop: int) -> list[LogLine]:
        """Lines start to stop (exclusive), clipped to what exists."""
        return [self.line(number) for number in range(max(0, start), min(stop, self.total))]

    def _history_line(self, number: int) -> tuple[bytes, float]:
        position = max(self._arrivals.below(LINES, number) - 1, 0)
        offset, before, _, _ = self._arrivals.at(position) if self._arrivals.count else NOTHING
        ended_in = self._arrivals.below(LINES, number + 1) - 1
        at = self._arrivals.at(ended_in).at if ended_in >= 0 else self.last_at
        block = self._history.get(offset)
        if block is None or number - before >= len(block) - 1:
            wanted = number - before
            size = HISTORY_BLOCK_BYTES
            while True:
                data = os.pread(self._file, min(size, self.size - offset), offset)
                if data.count(b"\n") > wanted or len(data) < size:
                    break
                size *= 2
            block = data.split(b"\n")
            self._history[offset] = block
            self._history.move_to_end(offset)
            while len(self._history) > HISTORY_BLOCKS:
                self._history.popitem(last=False)
        return block[number - before], at

    def arrivals(self, start: int, stop: int) -> Iterator[tuple[float, int, int]]:
        """The lines start to stop (exclusive) that have ended, as runs that arrived together: (arrival, first line, lines).

        No line is cut or read for it: a flood of short lines costs as little as one of long ones.
        """
        start, stop = max(0, start), min(stop, self._lines)
        in_memory = self.first
        position = max(self._arrivals.below(LINES, start + 1) - 1, 0) if start < in_memory else 0
        known = self._arrivals.count
        at = self.last_at
        while start < min(stop, in_memory):
            if position < known:
                at = self._arrivals.at(position).at
            following = self._arrivals.at(position + 1).lines if position + 1 < known else self._lines
            end = min(following, stop, in_memory)
            if end > start:
                yield at, start, end - start
                start = end
            position += 1
        place = bisect_right(self._chunks, start, key=lambda each: each.first_line) - 1
        while start < stop:
            chunk = self._chunks[place]
            end = min(chunk.first_line + chunk.count, stop)
            if end > start:
                yield chunk.at, start, end - start
                start = end
            place += 1

    def line_at(self, moment: float) -> int:
        """The number of the first line that arrived at or after `moment` (Unix seconds); `total` if none did."""
        position = self._arrivals.below(AT, moment)
        if position >= self._arrivals.count:
            return self.total
        return min(self._arrivals.at(position).lines, self.total)

    def silence_s(self, now: float | None = None) -> float | None:
        """Seconds since the last byte; None while there was none."""
        return None if not self.last_at else max(0.0, (time.time() if now is None else now) - self.last_at)

    def set_ring(self, ring_bytes: int) -> None:
        """Changes how much is kept in memory; takes effect with the next bytes."""
        self.ring_bytes = ring_bytes

    def close(self) -> None:
        """Closes the files; the log can't be used afterwards."""
        os.close(self._file)
        self._arrivals.close()
        self._file = -1
