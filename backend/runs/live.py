"""A run that is being driven: its workers' results, its logs, and what the operator can do to it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from backend.logs.store import LogStore
from backend.logs.worker_log import WorkerLog
from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Fanout, Phase, WorkerResult, first_failure, summarize
from backend.runs.model import NOT_KEPT, RunPlan, RunRequest, RunState, StopReport
from backend.runs.sightings import LOOK_BYTES, LOOK_LOGS, Lookout, Sighting, suspicion
from backend.sanitize import plain
from backend.ssh.scripts import MARK
from backend.targets import WorkerRef

STOP_WAIT_S = 10.0
"""After everything was signalled: how long a run may take to notice its own end."""

SETTLE_S = 0.05
"""Waiters for a condition look at it this often while the run changes."""

LOG_DISK_CURE = "Free some space where the logs lie (`slicetower locate`)."


def now() -> datetime:
    return datetime.now(UTC)


class Stopper(Protocol):
    """Ends what runs on one worker, and looks whether it is gone."""

    async def stop(self, index: int, grace_s: float) -> tuple[int, ...]:
        """Returns the pids that survived.

        Raises:
            OperatorError: Nobody could look.
        """
        ...


class RunLock:
    """Whoever holds it writes the logs and the record of a run; another console reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def take(self) -> bool:
        if self._file >= 0:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Run:
    """One run, live. `version` rises with every change; screens compare it and repaint.

    Args:
        run_id: Its id.
        request: What was asked for.
        results: One entry a worker, in order.
        remote_text: What each worker runs, as shown.
        log_store: Where its logs lie.
        started_at: When it began.
    """

    def __init__(
        self,
        run_id: str,
        request: RunRequest,
        results: list[WorkerResult],
        remote_text: str,
        log_store: LogStore,
        started_at: datetime,
        *,
        batches: tuple[tuple[int, ...], ...] = (),
        writable_logs: bool = True,
    ) -> None:
        self.id = run_id
        self.request = request
        self.results = results
        self.workers: tuple[WorkerRef, ...] = tuple(result.worker for result in results)
        self.remote_text = remote_text
        self.batches = batches or (tuple(range(len(results))),)
        self.logs: dict[str, WorkerLog] = {}
        """By worker address; a log appears when its worker begins."""
        self.state = RunState.RUNNING
        self.version = 0
        self.started_at = started_at
        self.ended_at: datetime | None = None
        self.interrupted = False
        """The operator stopped it."""
        self.preparing = False
        """Code is being shipped, or setup runs: nothing of the command has started."""
        self.followed = True
        """False leaves a supervised run alone once it is started: nothing is asked of its workers before somebody looks."""
        self.observed = False
        """Another console drives it; this one only looks."""
        self.fanout: Fanout | None = None
        self.stopper: Stopper | None = None
        self.task: asyncio.Task[None] | None = None
        self.caught_up: set[int] = set()
        """Places of a followed run whose log holds all that its worker had when the following began."""
        self.dirty: set[int] = set()
        """Places whose record is not written yet."""
        self.lookout = Lookout(request, results)
        """Known failures in its logs; see `symptoms`."""
        self.symptoms_kept = 0
        """So many of them are in the journal."""
        self.unrecorded = ""
        """Why the journal does not hold how this run ended; empty when it does."""
        self._log_store = log_store
        self._writable_logs = writable_logs
        self._changed = asyncio.Event()
        self._detaching = False
        self.stop_asked = asyncio.Event()
        self._placed: dict[int, WorkerLog] = {}
        self._looked_at = -1

    # -- what it shows -----------------------------------------------------------------------------------------------

    @property
    def summary(self) -> dict[Outcome, int]:
        return summarize(self.results)

    @property
    def first_failure(self) -> WorkerResult | None:
        return first_failure(self.results)

    @property
    def deadlock(self) -> str:
        """A sentence while a deadlock among batches is probable, else empty."""
        return self.fanout.deadlock if self.fanout is not None else ""

    @property
    def batch(self) -> int:
        """Batches started so far."""
        return self.fanout.batch if self.fanout is not None else 0

    @property
    def symptoms(self) -> tuple[Sighting, ...]:
        """Known failures that its logs told so far, as they were seen: worker, line, meaning and cure."""
        return tuple(self.lookout.sightings)

    @property
    def suspicion(self) -> str:
        """Whom they and the deaths so far speak against, in one sentence, or empty; an ended run has a verdict instead."""
        return suspicion(self.request, self.results, self.lookout.sightings)

    @property
    def detaching(self) -> bool:
        return self._detaching

    def log(self, index: int) -> WorkerLog:
        """The log of a worker, opened when it is first asked for."""
        worker = self.workers[index]
        log = self.logs.get(worker.address)
        if log is None:
            log = self._log_store.open(self.id, worker.file_stem, writable=self._writable_logs)
            self.logs[worker.address] = log
        self._placed[index] = log
        return log

    def has_log(self, index: int) -> bool:
        """Whether `log` finds one or may begin one: those of a run that has ended may have been removed since."""
        begins = self._writable_logs and not self.results[index].ended
        return begins or self.workers[index].address in self.logs or self.log_path(index).exists()

    def open_logs(self) -> None:
        """Opens all logs that exist, as after a restart."""
        for index in range(len(self.workers)):
            if self.log_path(index).exists():
                self.log(index)

    def log_path(self, index: int) -> Path:
        return self._log_store.path(self.id, self.workers[index].file_stem)

    def mark(self, index: int) -> str:
        """Value of the variable that all processes of one worker's command carry; of fixed width, so none begins another."""
        return f"{self.id}-{index:05d}"

    def environment(self, index: int, secrets: dict[str, str]) -> dict[str, str]:
        """Everything that is set for one worker's command."""
        own = self.request.worker_environment.get(self.workers[index].address, {})
        return {**dict(self.request.environment), **own, **secrets, MARK: self.mark(index)}

    def relocate(self, index: int, worker: WorkerRef) -> None:
        """The worker at a place has another address or another node now; its name stays."""
        self.results[index].worker = worker
        self.workers = tuple(result.worker for result in self.results)
        self.changed(index)

    # -- changing it -------------------------------------------------------------------------------------------------

    def changed(self, index: int | None = None) -> None:
        """Something is different; of a worker, if `index` says which."""
        self.version += 1
        if index is not None:
            self.dirty.add(index)
        self._changed.set()

    def phase(self, index: int, phase: Phase, note: str = "") -> None:
        result = self.results[index]
        result.phase, result.note = phase, note
        self.changed(index)

    def finish(self, index: int, outcome: Outcome, error: str = "", *, at: datetime | None = None) -> None:
        """The last word on one worker."""
        result = self.results[index]
        result.outcome, result.phase, result.note = outcome, Phase.ENDED, ""
        result.error = plain(error) if error else result.error
        if outcome is not Outcome.NOT_STARTED:
            result.ended_at = at or now()
        self.changed(index)

    def output(self, index: int, data: bytes, stream: int) -> bool:
        """Takes bytes of a worker. False when the disk did not take them."""
        result = self.results[index]
        if self.fanout is not None:
            self.fanout.activity()
        log = self.log(index)
        try:
            log.append(data, stream=stream)
        except OSError as error:
            result.error = f"{NOT_KEPT}: {error.strerror}. {LOG_DISK_CURE}"
            self.changed(index)
            return False
        result.output_bytes = log.size
        self.version += 1
        self._changed.set()
        return True

    def look(self, *, budget: int = LOOK_BYTES, most: int = LOOK_LOGS) -> None:
        """Looks for known failures in what its logs got since the last look; called on a clock, never for a chunk."""
        if self._looked_at == self.version or not self._placed:
            return
        version = self.version
        if self.lookout.look(list(self._placed.items()), budget=budget, most=most):
            self.changed()
        self._looked_at = version

    # -- what the operator does --------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Until the run has ended, or is only followed no more."""
        if self.task is not None:
            await asyncio.shield(self.task)

    async def until(self, condition: Callable[[Run], bool]) -> bool:
        """Until the condition holds; False when the run was over before."""
        while not condition(self):
            if self.task is None or self.task.done():
                return False
            self._changed.clear()
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
            await asyncio.sleep(SETTLE_S)
        return True

    async def until_started(self) -> None:
        """Until every worker has started its command, or has ended without."""
        await self.until(lambda run: all(item.ended or item.started_at is not None for item in run.results))

    def start_rest(self) -> None:
        """Starts all further batches at once: the cure of a deadlock among them."""
        if self.fanout is not None:
            self.fanout.start_rest()

    def stop_launching(self) -> None:
        """No further batch starts; what runs goes on."""
        if self.fanout is not None:
            self.fanout.stop_launching("Not started: the operator stopped launching.")

    def detach(self) -> None:
        """Stops following; the command lives on.

        Raises:
            OperatorError: It was not started through the supervisor, and would be left without anybody who hears it.
        """
        if not self.request.supervised:
            raise OperatorError(
                f"Run {self.id} is tied to this console.", "Start it with --detach to leave it alone."
            )
        if self.task is not None and not self.task.done():
            self._detaching = True
            self.task.cancel()

    async def stop(self, grace_s: float = 3.0) -> StopReport:
        """Ends the run: starts nothing more, signals the remote processes, and looks whether they are gone.

        Args:
            grace_s: Between TERM and KILL.
        """
        self.interrupted = True
        self.stop_asked.set()
        if self.fanout is not None:
            self.fanout.stop_launching("Not started: the run was stopped.")
        may_run = [
            index
            for index, result in enumerate(self.results)
            if result.outcome is Outcome.UNKNOWN or (not result.ended and result.phase is not Phase.WAITING)
        ]
        for index in may_run:
            if not self.results[index].ended:
                self.phase(index, Phase.STOPPING)
        answers = await asyncio.gather(*(self._stop_one(index, grace_s) for index in may_run))
        if self.task is not None and not self.observed:
            if self.preparing:
                self.task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WAIT_S):
                    await self.wait()
            if not self.task.done():
                self.task.cancel()
                await asyncio.gather(self.task, return_exceptions=True)
        report = StopReport(
            stopped=tuple(address for address, left, why in answers if not left and not why),
            survivors=tuple((address, left) for address, left, why in answers if left),
            unverified=tuple((address, why) for address, left, why in answers if why),
        )
        self.changed()
        return report

    async def _stop_one(self, index: int, grace_s: float) -> tuple[str, tuple[int, ...], str]:
        address = self.workers[index].address
        if self.stopper is None:
            return address, (), "nobody drives it"
        try:
            return address, await self.stopper.stop(index, grace_s), ""
        except OperatorError as error:
            return address, (), error.what


def new_results(plan: RunPlan) -> list[WorkerResult]:
    return [WorkerResult(worker) for worker in plan.workers]
