"""A run while this console drives it: begun, saved as it goes, settled at its end, and stopped on its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from backend.logs.store import LogStore
from backend.model import Event, EventKind, Fleet
from backend.outcomes import OperatorError, Outcome
from backend.paths import Paths
from backend.runs.attached import AttachedDriver, kill_marked
from backend.runs.audit import RunAudit
from backend.runs.boots import BootDriver, BootPace, View
from backend.runs.detached import DetachedDriver, Program
from backend.runs.fanout import FailurePolicy, Fanout, Phase, WorkerResult, summarize
from backend.runs.live import Run, RunLock, now
from backend.runs.model import RunState
from backend.runs.prepare import needed, prepare
from backend.runs.store import RunJournal, RunStore
from backend.sanitize import plain
from backend.ssh.budget import ReadBudget
from backend.ssh.connections import ConnectionPool
from backend.ssh.hostkeys import node_of
from backend.targets import WorkerRef, fold

SAVE_S = 1.0
"""How often changed results are written while a run lives."""

LAST_LOOK_BYTES, LAST_LOOK_LOGS = 4 * 1024 * 1024, 1024
"""When a run has ended with failures: some 100 ms of work at most."""

ORPHAN_TEXT = (
    "Its console ended while the command ran: it may have run until its worker ended it. "
    "`slicetower runs stop {}` confirms that nothing is left."
)
UNREACHED_TEXT = "Not started: its console ended before this batch."


class RunDriving:
    """What every run needs while it lives, however it came to be.

    Args:
        pool: Connections to workers.
        journal: Keeps the records.
        paths: Where logs lie.
        fleet: The fleet as it is known now; tells when a worker no longer exists.
        context: The context's name, for the record.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        journal: RunJournal,
        paths: Paths,
        *,
        fleet: Callable[[], Fleet] | None = None,
        context: str = "",
    ) -> None:
        self.store = RunStore(journal)
        self.audit = RunAudit(journal)
        self.logs = LogStore(paths.runs_dir)
        self.budget = ReadBudget()
        """Shared by all sessions; the console limits it, the verbs don't."""
        self.active: dict[str, Run] = {}
        """Runs of this session by id, ended ones too until `forget`."""
        self._pool = pool
        self._journal = journal
        self._paths = paths
        self._fleet = fleet
        self._context = context
        self.view: View | None = None
        """The cloud as production jobs need it; without one the fleet as it is known."""
        self.boot_pace = BootPace()
        self._program: Program | None = None
        self._locks: dict[str, RunLock] = {}

    def _begin(self, run: Run, values: dict[str, str] | None, *, resumed: bool) -> None:
        driver: AttachedDriver | DetachedDriver
        if run.request.supervised:
            driver = self._detached(run, values)
        else:
            driver = AttachedDriver(run, self._pool, values or {}, self.budget)
        run.stopper = driver
        policy = FailurePolicy.parse(run.request.on_failure, run.request.max_failures)
        execute = driver.resume if resumed and isinstance(driver, DetachedDriver) else driver.execute
        begins = partial(self._write_ahead, run)
        run.fanout = Fanout(run.results, run.batches, policy, execute, run.changed, begins=begins, resumed=resumed)
        self.active[run.id] = run
        run.task = asyncio.create_task(self._drive(run, values, resumed=resumed), name=f"run {run.id}")

    def _detached(self, run: Run, values: dict[str, str] | None) -> DetachedDriver:
        if self._program is None:
            self._program = Program.load()
        if run.request.at_boot:
            view = self.view or View(self._known_fleet, lambda _key: False)
            return BootDriver(run, self._pool, self.budget, self._program, view, self.boot_pace)
        return DetachedDriver(run, self._pool, values, self.budget, self._exists, self._program)

    async def _drive(self, run: Run, values: dict[str, str] | None, *, resumed: bool) -> None:
        """Brings a run to its end and keeps its record up to date."""
        saving = asyncio.create_task(self._save_while_it_lives(run))
        assert run.fanout is not None
        try:
            ready = True
            if needed(run.request) and not resumed:
                run.preparing = True
                ready = await prepare(run, self._pool, values or {}, self.budget)
                run.preparing = False
            if resumed or (ready and not run.interrupted):
                await run.fanout.run()
        except asyncio.CancelledError:
            # Asked for by detach, stop or close; `wait` then returns as for any other end.
            pass
        finally:
            saving.cancel()
            with suppress(asyncio.CancelledError):
                await saving
            self._settle(run)

    def _settle(self, run: Run) -> None:
        """Writes the last word of this console on a run."""
        leaves = run.request.supervised and not run.interrupted and not all(item.ended for item in run.results)
        if not leaves:
            for index, result in enumerate(run.results):
                if not result.ended:
                    untouched = result.started_at is None and (run.preparing or result.phase is Phase.WAITING)
                    outcome = Outcome.NOT_STARTED if untouched else Outcome.UNKNOWN
                    run.finish(index, outcome, _last_words(run, untouched))
            run.ended_at = now()
        run.state = RunState.DETACHED if leaves else RunState.ENDED
        try:
            self._write_down(run, ended=not leaves)
        except OperatorError as error:
            # What became of the workers is known all the same, and told.
            run.unrecorded = error.what
        self._lock(run.id).release()
        run.dirty.clear()
        run.changed()

    def _write_down(self, run: Run, *, ended: bool) -> None:
        if run.first_failure is not None:
            run.look(budget=LAST_LOOK_BYTES, most=LAST_LOOK_LOGS)
        self._save_symptoms(run)
        self.store.update(run.id, enumerate(run.results))
        self.store.set_state(run.id, run.state, run.ended_at)
        if ended:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in summarize(run.results).items())
            first = run.first_failure
            blame = f"; first: {first.worker.address}" if first is not None else ""
            self._tell(run, f"Run {run.id} ended: {counts}{blame}")

    async def _save_while_it_lives(self, run: Run) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            run.look()
            with suppress(OperatorError):  # A full disk: what is dirty stays so, and is tried again.
                self._save(run)

    def _write_ahead(self, run: Run, batch: Sequence[int]) -> None:
        """Before any command of a batch starts: a console that is killed must not leave a record that says it did not."""
        with suppress(OperatorError):
            self.store.update(run.id, [(place, begun(run.results[place])) for place in batch])

    def _save(self, run: Run) -> None:
        places = sorted(run.dirty)
        self.store.update(run.id, ((place, run.results[place]) for place in places))
        run.dirty.difference_update(places)
        self._save_symptoms(run)

    def _save_symptoms(self, run: Run) -> None:
        seen = run.lookout.sightings
        self.store.add_symptoms(run.id, seen[run.symptoms_kept :])
        run.symptoms_kept = len(seen)

    def _remote_stopper(self, run: Run) -> DetachedDriver | MarkStopper:
        return self._detached(run, None) if run.request.supervised else MarkStopper(run, self._pool)

    # -- small things ------------------------------------------------------------------------------------------------

    def _lock(self, run_id: str) -> RunLock:
        return self._locks.setdefault(run_id, RunLock(self._paths.runs_dir / run_id / "lock"))

    async def _known_fleet(self) -> Fleet:
        return self._fleet() if self._fleet is not None else Fleet()

    def _exists(self, worker: WorkerRef) -> bool:
        """False only when a whole and good view of the fleet lacks the worker's node."""
        fleet = self._fleet() if self._fleet is not None else None
        if fleet is None or not fleet.loaded:
            return True
        places = {(poll.project, poll.zone) for poll in fleet.polls if not poll.failures}
        if (worker.project, worker.zone) not in places:
            return True
        slices = (item for resource in fleet.queued_resources for item in resource.slices)
        nodes = {item.uid or f"{item.project}/{item.zone}/{item.node_id}" for item in (*slices, *fleet.standalone)}
        return node_of(worker) in nodes

    def _tell(self, run: Run, text: str) -> None:
        first = run.workers[0] if run.workers else None
        event = Event(
            at=datetime.now(UTC),
            kind=EventKind.ACTION,
            project=first.project if first else "",
            zone=first.zone if first else "",
            subject=run.id,
            text=text,
        )
        self._journal.record([event])


def begun(result: WorkerResult) -> WorkerResult:
    """As it is written before its command starts; in memory it waits until it is really connected."""
    return replace(result, phase=Phase.CONNECTING) if result.phase is Phase.WAITING else result


def _last_words(run: Run, untouched: bool) -> str:
    if run.interrupted:
        return "Not started: the run was stopped." if untouched else "The run was stopped, and its end was not seen."
    return UNREACHED_TEXT if untouched else ORPHAN_TEXT.format(run.id)


def where_of(run: Run) -> str:
    return plain(fold(worker.address for worker in run.workers), limit=200)


class MarkStopper:
    """Stops an attached run that another process drives, by the mark of its processes."""

    def __init__(self, run: Run, pool: ConnectionPool) -> None:
        self._run = run
        self._pool = pool

    async def stop(self, index: int, grace_s: float) -> tuple[int, ...]:
        return await kill_marked(self._pool, self._run, index, 0, grace_s)
