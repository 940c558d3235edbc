"""The logs of all runs on disk: which file is whose, how much of them is in memory, and search over all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.logs.worker_log import RING_BYTES_MOST, WorkerLog
from backend.sanitize import plain

__all__ = ["Hit", "LogStore", "search_file"]

RING_BYTES_TOTAL = 96 * 1024 * 1024
"""Shared by all open logs: 16,384 workers get 6 KiB each, 1,024 get 96 KiB, 64 get the most."""
RING_BYTES_LEAST = 4 * 1024


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a search found."""

    file_stem: str
    number: int
    text: str
    """Through the gate, without colour."""


def search_file(path: Path, pattern: re.Pattern[bytes], *, limit: int = 1_000) -> Iterator[Hit]:
    """The lines of one log file that match, in order, in blocks: memory stays flat whatever its size."""
    number = 0
    found = 0
    carried = b""
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            lines = (carried + block).split(b"\n")
            carried = lines.pop()
            for line in lines:
                if pattern.search(line):
                    yield Hit(path.stem, number, plain(line))
                    found += 1
                    if found >= limit:
                        return
                number += 1
    if carried and pattern.search(carried):
        yield Hit(path.stem, number, plain(carried))


class LogStore:
    """The logs of all runs: `runs/ID/QR.SLICE.WORKER.log`.

    Open logs share `RING_BYTES_TOTAL`, so that memory is bounded for any number of workers.
    """

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        self._open: dict[Path, WorkerLog] = {}

    def path(self, run_id: str, file_stem: str) -> Path:
        """Where that worker's log lies."""
        return self.runs_dir / run_id / f"{file_stem}.log"

    def open(self, run_id: str, file_stem: str, *, writable: bool = True) -> WorkerLog:
        """The log, opened once and shared by whoever asks."""
        path = self.path(run_id, file_stem)
        log = self._open.get(path)
        if log is None:
            log = WorkerLog(path, ring_bytes=self._share(len(self._open) + 1), writable=writable)
            self._open[path] = log
            share = self._share(len(self._open))
            for each in self._open.values():
                each.set_ring(share)
        return log

    @staticmethod
    def _share(count: int) -> int:
        return max(RING_BYTES_LEAST, min(RING_BYTES_MOST, RING_BYTES_TOTAL // count))

    def release(self, run_id: str) -> None:
        """Closes the logs of one run; the others get its share of memory."""
        folder = self.runs_dir / run_id
        for path in [path for path in self._open if path.parent == folder]:
            self._open.pop(path).close()
        share = self._share(max(1, len(self._open)))
        for each in self._open.values():
            each.set_ring(share)

    def files(self, run_id: str) -> list[Path]:
        """The log files of a run, in the order of their workers."""

        def order(path: Path) -> tuple[str, int, int]:
            name, _, rest = path.stem.rpartition(".")[0].rpartition(".")
            slice_text, worker_text = rest, path.stem.rpartition(".")[2]
            return (
                name,
                int(slice_text) if slice_text.isdigit() else 0,
                int(worker_text) if worker_text.isdigit() else 0,
            )

        return sorted((self.runs_dir / run_id).glob("*.log"), key=order)

    def search(self, run_id: str, pattern: re.Pattern[bytes], *, limit: int = 1_000) -> Iterator[Hit]:
        """Matching lines of all workers of a run, worker by worker. Reads files: call it from a thread."""
        found = 0
        for path in self.files(run_id):
            for hit in search_file(path, pattern, limit=limit - found):
                yield hit
                found += 1
            if found >= limit:
                return

    def close(self) -> None:
        """Closes every open log."""
        for log in self._open.values():
            log.close()
        self._open.clear()
