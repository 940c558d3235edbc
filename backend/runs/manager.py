"""Runs: planned, launched, followed, stopped, and found again after a restart."""

from __future__ import annotations

import asyncio
import os
import secrets as random_source
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from backend.model import Fleet
from backend.outcomes import OperatorError, Outcome
from backend.runs.audit import AuditHistory
from backend.runs.driving import UNREACHED_TEXT, RunDriving, where_of
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.history import EVERY_RUN, RunHistory
from backend.runs.live import Run, new_results, now
from backend.runs.model import RunHead, RunPlan, RunRecord, RunRequest, RunState, StopReport
from backend.runs.plan import make_plan
from backend.runs.store import new_run_id
from backend.sanitize import plain
from backend.ssh.connections import require_files
from backend.targets import WorkerRef

__all__ = ["Run", "RunManager", "RunPlan", "RunRecord", "RunRequest", "RunState", "StopReport"]

OBSERVE_S = 1.0
"""How often a run that another console drives is read, and its lock is tried."""

CATCH_UP_S = 20.0
"""For a look at a run that lives on its workers: all of them asked, and their news fetched."""

GONE_TEXT = "Its end was not seen; it was stopped afterwards, and none of its processes is left."


class RunManager(RunDriving):
    """Launches runs, keeps their records, and finds again what outlived a console."""

    # -- planning and launching --------------------------------------------------------------------------------------

    def plan(self, request: RunRequest, workers: Sequence[WorkerRef]) -> RunPlan:
        """What would be done.

        Raises:
            OperatorError: A batch size, a failure limit or a policy that can't be read.
        """
        return make_plan(request, workers)

    async def launch(
        self, plan: RunPlan, *, environment: Mapping[str, str] | None = None, follow: bool = True
    ) -> Run:
        """Starts a run and returns at once.

        Args:
            plan: A plan without refusals.
            follow: False for a supervised one that is detached as soon as it is started everywhere: to follow it until
                then would cost each worker one more process than the start. Batches wait for each other, and are followed.
            environment: The operator's own, from which secret variables are taken.

        Raises:
            OperatorError: The plan was refused, a secret variable is not set, no key can be loaded, too few open files.
        """
        if plan.refusals:
            raise OperatorError(plan.refusals[0], " ".join(plan.refusals[1:]))
        values = _secret_values(plan.request, os.environ if environment is None else environment)
        require_files(len(plan.workers))
        await self._pool.require_key()
        self._pool.host_keys.read(plan.workers)
        started_at = now()
        run_id = new_run_id(random_source.randbelow(1 << 20), now=started_at.timestamp())
        run = Run(
            run_id, plan.request, new_results(plan), plan.remote_text, self.logs, started_at, batches=plan.batches
        )
        run.followed = follow or not plan.request.supervised or len(plan.batches) > 1
        self._lock(run_id).take()
        bundle = plan.request.bundle
        self.store.create(
            RunRecord(
                id=run_id,
                request=plan.request,
                workers=plan.workers,
                results=tuple(run.results),
                state=RunState.RUNNING,
                context=self._context,
                remote_text=plan.remote_text,
                started_at=started_at,
                bundle_digest=bundle.digest if bundle is not None else "",
                bundle_source=bundle.source if bundle is not None else "",
            )
        )
        self.audit.started(run_id)
        self._tell(run, f"Run {run_id} started on {where_of(run)}: {plain(plan.remote_text, limit=200)}")
        self._begin(run, values, resumed=False)
        return run

    def register(self, record: RunRecord) -> None:
        """Keeps a run that its workers start themselves, before any of them exists; `attach` follows it."""
        self.store.create(record)

    def knows(self, run_id: str) -> bool:
        """Whether the journal has a run of exactly this id."""
        return self.store.has(run_id)

    def reopen(self, run_id: str) -> bool:
        """A production job that ended with its request, which is made again. False when it is not known or not ended.

        What its logs hold stays: the new workers' output comes after it.
        """
        if not self.store.has(run_id):
            return False
        record = self.store.get(run_id)
        if record.state is not RunState.ENDED:
            return False
        if (run := self.active.get(run_id)) is not None:
            self.forget(run)
        fresh = [WorkerResult(worker) for worker in record.workers]
        self.store.update(run_id, enumerate(fresh))
        self.store.set_state(run_id, RunState.DETACHED, None)
        return True

    def give_up(self, run_id: str, why: str) -> None:
        """Ends a run whose workers will never be there: those on which nothing began were not started.

        One that another process drives is left to it. Does nothing to a run that has ended.
        """
        run = self.active.get(run_id)
        if run is None:
            record = self.store.get(run_id)
            if record.state is RunState.ENDED or not self._lock(run_id).take():
                return
            run = self._from_record(record, writable=False)
        elif run.observed or run.state is RunState.ENDED:
            return
        for index, result in enumerate(run.results):
            if not result.ended and result.started_at is None:
                run.finish(index, Outcome.NOT_STARTED, why)
        if run.task is not None:
            # Its driver would look for the workers once more first, which is when its pause is over.
            if all(result.ended for result in run.results):
                run.task.cancel()
        else:
            self._settle(run)

    # -- after a restart ---------------------------------------------------------------------------------------------

    async def reattach(self, fleet: Fleet | None = None) -> list[Run]:
        """Takes up every run of this context that was not seen to end.

        A run that another console drives is observed, and taken over when that console ends. An attached run whose
        console died is closed as unknown: its connections died with it.

        Args:
            fleet: Taken for the manager's own when it has none.
        """
        if fleet is not None and self._fleet is None:
            self._fleet = lambda: fleet
        found: list[Run] = []
        for record in self.store.open_runs():
            if record.id not in self.active and record.context == self._context:
                found.append(self._take_up(record))
        return [run for run in found if run.state is not RunState.ENDED]

    def attach(self, run_id: str) -> Run:
        """One run by its id: driven or observed if it was not seen to end, else as it ended.

        Raises:
            OperatorError: There is no such run.
        """
        record = self.store.get(run_id)
        if record.id in self.active:
            return self.active[record.id]
        if record.state is RunState.ENDED:
            run = self.open(record)
            run.stopper = self._remote_stopper(run)
            return run
        self._require_own(record)
        return self._take_up(record)

    def _require_own(self, record: RunRecord) -> None:
        """Another context's workers would be reached by the wrong route, or not at all."""
        if record.context != self._context:
            raise OperatorError(
                f"Run {record.id} belongs to the context {plain(record.context)}, and this is {plain(self._context)}.",
                f"Say --context {plain(record.context)}.",
            )

    async def catch_up(self, run: Run, *, timeout_s: float = CATCH_UP_S) -> bool:
        """Waits until a followed run's logs hold what its workers have now; False when some can't be reached in time."""
        if run.observed or run.state is RunState.ENDED:
            return True
        places = range(len(run.results))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await run.until(
                    lambda each: all(place in each.caught_up or each.results[place].ended for place in places)
                )
        return all(place in run.caught_up or run.results[place].ended for place in places)

    def open(self, record: RunRecord) -> Run:
        """A run of the past as a Run: its results and its logs, nothing driven."""
        run = self._from_record(record, writable=False)
        run.state, run.ended_at = record.state, record.ended_at
        return run

    def _from_record(self, record: RunRecord, *, writable: bool) -> Run:
        batches = make_plan(record.request, record.workers).batches
        run = Run(
            record.id,
            record.request,
            list(record.results),
            record.remote_text,
            self.logs,
            record.started_at,
            batches=batches,
            writable_logs=writable,
        )
        self._know_symptoms(run)
        return run

    def _know_symptoms(self, run: Run) -> None:
        """Takes what another console, or this one before it was restarted, saw in the logs."""
        run.lookout.know(self.store.symptoms(run.id, run.workers))
        if run.symptoms_kept != len(run.lookout.sightings):
            run.symptoms_kept = len(run.lookout.sightings)
            run.changed()

    def _take_up(self, record: RunRecord) -> Run:
        if not self._lock(record.id).take():
            run = self._from_record(record, writable=False)
            run.observed = True
            run.stopper = self._remote_stopper(run)
            self.active[run.id] = run
            run.task = asyncio.create_task(self._observe(run), name=f"observe {run.id}")
            return run
        run = self._from_record(record, writable=True)
        if not run.request.supervised:
            run.stopper = self._remote_stopper(run)
            run.open_logs()
            self.active[run.id] = run
            self._settle(run)
            return run
        require_files(sum(not result.ended for result in run.results))
        for index, result in enumerate(run.results):
            path = run.log_path(index)
            result.output_bytes = path.stat().st_size if path.exists() else 0
        if not run.request.at_boot:
            self._pass_over_unreached(run)
        self._begin(run, None, resumed=True)
        return run

    def _pass_over_unreached(self, run: Run) -> None:
        """Batches that had begun are completed, since their workers may wait for each other; later ones are not begun."""
        begun = 0
        for number, batch in enumerate(run.batches):
            if any(run.results[index].phase not in (Phase.WAITING, Phase.SHIPPING, Phase.SETUP) for index in batch):
                begun = number + 1
        for batch in run.batches[begun:]:
            for index in batch:
                if not run.results[index].ended:
                    run.finish(index, Outcome.NOT_STARTED, UNREACHED_TEXT)

    async def _observe(self, run: Run) -> None:
        """Reads what the other console writes, until it ends; then takes its place."""
        while True:
            await asyncio.sleep(OBSERVE_S)
            record = self.store.get(run.id)
            for index, fresh in enumerate(record.results):
                if fresh != run.results[index]:
                    run.results[index] = fresh
                    run.changed()
                if fresh.output_bytes:
                    run.log(index).refresh()
            self._know_symptoms(run)
            if record.state is RunState.ENDED:
                run.state, run.ended_at = record.state, record.ended_at
                run.changed()
                return
            if self._lock(run.id).take():
                self._lock(run.id).release()
                self.logs.release(run.id)
                self.active[run.id] = self._take_up(record)
                run.state = RunState.DETACHED
                run.changed()
                return

    # -- stopping and history ----------------------------------------------------------------------------------------

    async def stop(self, run_id: str, *, grace_s: float = 3.0) -> StopReport:
        """Stops a run, whoever drives it.

        Raises:
            OperatorError: There is no such run.
        """
        run = self.active.get(run_id)
        if run is None:
            record = self.store.get(run_id)
            self._require_own(record)
            run = self.open(record)
            run.stopper = self._remote_stopper(run)
        self._tell(run, f"Run {run.id}: stop asked for")
        report = await run.stop(grace_s)
        if run.state is RunState.ENDED:
            self._note_gone(run, report)
        return report

    def _note_gone(self, run: Run, report: StopReport) -> None:
        """What was unknown of an ended run is unknown still, but that nothing of it is left is known now."""
        gone = set(report.stopped)
        places = [
            place
            for place, result in enumerate(run.results)
            if result.outcome is Outcome.UNKNOWN and result.worker.address in gone
        ]
        for place in places:
            run.results[place].error = GONE_TEXT
        self.store.update(run.id, ((place, run.results[place]) for place in places))

    def history(self, *, limit: int = 200) -> list[RunRecord]:
        """The newest runs first, as they are: one whose console is gone is not called running."""
        self.close_abandoned()
        return self.store.history(limit=limit)

    def heads(self, *, limit: int = 200) -> list[RunHead]:
        """The same without their workers, for lists."""
        self.close_abandoned()
        return self.store.heads(limit=limit)

    async def all_heads(self) -> list[RunHead]:
        """The same of every run that is kept, read beside the loop: thousands take a while."""
        self.close_abandoned()

        def read() -> list[RunHead]:
            with self._journal.apart() as reader:
                return RunHistory(reader).heads(limit=EVERY_RUN)

        return await asyncio.to_thread(read)

    def audit_rows(self, only: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
        """A row for each worker of each run, of these or of every one that is kept, oldest first: for any thread.

        They are read while they are taken, by a connection of their own.
        """
        with self._journal.apart() as reader:
            yield from AuditHistory(reader).rows(RunHistory(reader).oldest_first(only))

    def close_abandoned(self) -> None:
        """What runs in the record and is held by no process any more: whoever drives a run holds its lock until it dies.

        An attached run was tied to its console and ends as unknown; a supervised one lives on its workers, unfollowed.
        """
        for run_id, state in self.store.open_ids():
            lock = self._lock(run_id)
            if run_id in self.active or state is not RunState.RUNNING or not lock.take():
                continue
            try:
                record = self.store.get(run_id)
                if record.request.supervised:
                    self.store.set_state(run_id, RunState.DETACHED, None)
                elif record.state is RunState.RUNNING:
                    run = self._from_record(record, writable=False)
                    run.open_logs()
                    self._settle(run)
                    self.logs.release(run_id)
            finally:
                lock.release()

    def forget(self, run: Run) -> None:
        """Closes an ended run's logs and drops it from `active`."""
        if run.state is not RunState.RUNNING:
            self.active.pop(run.id, None)
            self.logs.release(run.id)

    async def close(self) -> None:
        """Leaves supervised runs to their supervisors, gives up attached ones, closes logs and locks."""
        tasks = [run.task for run in self.active.values() if run.task is not None and not run.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.logs.close()
        for lock in self._locks.values():
            lock.release()


def _secret_values(request: RunRequest, environment: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in request.secret_environment if name not in environment]
    if missing:
        raise OperatorError(
            f"--env {missing[0]}: your environment has no such variable.",
            f"Export it first, or give a value: --env {missing[0]}=VALUE.",
        )
    return {name: environment[name] for name in request.secret_environment}
