"""The sweeps of one console: driven in the background, stopped with proof, taken up again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from backend.bench.manager import BenchManager
from backend.bench.sweep import (
    OPERATOR_STOPPED,
    PointState,
    Sweep,
    SweepStore,
    keep_change,
    run_sweep,
    was_left,
)
from backend.journal import Journal
from backend.model import QueuedResource
from backend.outcomes import OperatorError


class SweepManager:
    """The sweeps of one console: those it runs, and those that the journal knows."""

    def __init__(self, benches: BenchManager, journal: Journal) -> None:
        self.active: dict[str, Sweep] = {}
        """By id; those that ended stay until the console is closed."""
        self.store = SweepStore(journal)
        self._benches = benches
        self._running: dict[str, asyncio.Task[None]] = {}

    def is_running(self, sweep_id: str) -> bool:
        """Whether this console runs it now."""
        task = self._running.get(sweep_id)
        return task is not None and not task.done()

    def find(self, sweep_id: str) -> Sweep:
        """One of this console, or of the journal.

        Raises:
            OperatorError: There is none of that id.
        """
        if sweep_id not in self.active:
            self.active[sweep_id] = self.store.load(sweep_id, self._benches)
        return self.active[sweep_id]

    def begin(self, sweep: Sweep, resources: Sequence[QueuedResource]) -> None:
        """Runs what is left of it in the background.

        Raises:
            OperatorError: It runs already, or another one holds one of its queued resources.
        """
        for other in self.active.values():
            shared = set(other.targets) & set(sweep.targets)
            if self.is_running(other.id) and shared:
                raise OperatorError(
                    f"{other.id} runs on {', '.join(sorted(shared))}.", "Stop it, or wait for its end."
                )
        for point in sweep.points:
            if was_left(point):
                point.state, point.note = PointState.WAITING, ""
        self.active[sweep.id] = sweep
        self.store.save(sweep)
        self._running[sweep.id] = asyncio.create_task(self._run(sweep, resources), name=sweep.id)

    async def _run(self, sweep: Sweep, resources: Sequence[QueuedResource]) -> None:
        try:
            await run_sweep(sweep, resources, self._benches, self.store)
        except OperatorError as error:
            sweep.stopped = str(error)
            keep_change(sweep, self.store)

    async def wait(self, sweep: Sweep) -> None:
        """Until this console runs it no more."""
        task = self._running.get(sweep.id)
        if task is not None:
            await asyncio.wait({task})

    async def stop(self, sweep: Sweep) -> None:
        """Ends the benchmark at work on its workers, verified; what is left can be taken up again.

        Raises:
            OperatorError: It does not run here, or it is not known whether the benchmark has ended.
        """
        if not self.is_running(sweep.id):
            raise OperatorError(f"{sweep.id} does not run in this console; there is nothing to stop.")
        bench = next(
            (
                found
                for point in sweep.points
                if point.state == PointState.RUNNING and (found := self._benches.active.get(point.bench)) is not None
            ),
            None,
        )
        if bench is not None and not bench.state.is_over:
            await self._benches.stop(bench)
            await self.wait(sweep)
            return
        # Between two benchmarks: nothing is on the workers.
        task = self._running[sweep.id]
        task.cancel()
        await asyncio.wait({task})
        sweep.stopped = OPERATOR_STOPPED
        keep_change(sweep, self.store)

    async def close(self) -> None:
        """Ceases to drive them; the benchmark at work goes on and is found again."""
        for task in self._running.values():
            task.cancel()
        for task in self._running.values():
            with suppress(asyncio.CancelledError):
                await task
        self._running.clear()
