"""The logs of a run by worker address, opened when they are looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.logs.merged import MergedLog, mergeable
from backend.logs.worker_log import WorkerLog

if TYPE_CHECKING:
    from backend.runs.manager import Run

READ_SLICE_S = 0.015
"""Logs are opened for so long at a stretch: keys are painted between."""


class RunLogs:
    """The logs of a run by worker address, opened when they are looked at.

    Args:
        run: Whose logs.
        only: Some of its workers; None for all.
    """

    def __init__(self, run: Run, only: Sequence[str] | None = None) -> None:
        self.run = run
        self._places = {worker.address: place for place, worker in enumerate(run.workers)}
        self.names = [name for name in self._places if (only is None or name in only) and self._is_kept(name)]

    def _is_kept(self, name: str) -> bool:
        """Whether there is a log to open: those of a run that has ended may have been removed since."""
        return self.run.has_log(self._places[name])

    def has_output(self, name: str) -> bool:
        return self.run.results[self._places[name]].output_bytes > 0 or name in self.run.logs

    def ended(self, title: str) -> bool:
        """Whether nothing more comes: of a worker by its name, else of the whole run."""
        place = self._places.get(title)
        if place is None:
            return all(self.run.results[self._places[name]].ended for name in self.names)
        return self.run.results[place].ended

    def open(self, name: str) -> WorkerLog:
        return self.run.log(self._places[name])

    def path(self, name: str) -> Path:
        """Where the log lies, whether there is one or not."""
        return self.run.log_path(self._places[name])

    @property
    def unopened(self) -> int:
        """How many of those that wrote something are still to be read from disk."""
        return sum(name not in self.run.logs for name in self.names if self.has_output(name))

    async def merge(self, tell: Callable[[int, int], None]) -> MergedLog:
        """All that wrote something; of more than there may be open files, the first. Opens them in slices.

        Args:
            tell: Hears how many of how many were read, after each slice.
        """
        loud = [name for name in self.names if self.has_output(name)]
        loud = loud[: mergeable(len(loud))]
        logs: dict[str, WorkerLog] = {}
        began = time.monotonic()
        for name in loud:
            logs[name] = self.open(name)
            if time.monotonic() - began >= READ_SLICE_S:
                tell(len(logs), len(loud))
                await asyncio.sleep(0)
                began = time.monotonic()
        return MergedLog(logs)
