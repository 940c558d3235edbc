"""Benchmarks: surveyed, planned, launched as a detached gang, read while they run, kept, and found again.

A benchmark is a run (`backend.runs.manager`) plus readings. The programs are shipped, never assumed; every worker's process is
told its place in its environment; results lie in the journal with everything that it takes to repeat them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

from backend.bench.live import Bench, FollowedRun
from backend.bench.model import BenchPlan, BenchRecord, BenchRequest, BenchState, Survey, WorkerSurvey
from backend.bench.plan import plan_bench, programs, suggested_sizes
from backend.bench.store import BenchStore
from backend.interpreter import launcher
from backend.journal import Journal
from backend.model import QueuedResource
from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.runs.fanout import FAILURES
from backend.runs.model import RunPlan, RunRequest, RunState
from backend.sanitize import plain
from backend.targets import WorkerRef, workers_of

if TYPE_CHECKING:
    import asyncssh

__all__ = ["Bench", "BenchManager", "BenchPlan", "BenchRecord", "BenchRequest", "BenchState", "plan_bench"]
__all__ += ["suggested_sizes"]

REFRESH_S = 0.2
"""How often the logs of a running benchmark are read: a step is on screen a fifth of a second after it was told."""
SURVEY_TIMEOUT_S = 45.0
"""For one worker to connect and answer."""
FAILURE_GRACE_S = 45.0
"""After the first process of a gang failed; the others end by themselves within the heartbeat, or are stopped then."""


class Launcher(Protocol):
    """What is needed of `backend.runs.manager.RunManager`."""

    @property
    def active(self) -> Mapping[str, FollowedRun]: ...
    def plan(self, request: RunRequest, workers: Sequence[WorkerRef]) -> RunPlan: ...
    async def launch(self, plan: RunPlan) -> FollowedRun: ...


class Connector(Protocol):
    """What is needed of `backend.ssh.connections.ConnectionPool`."""

    async def connection(self, worker: WorkerRef) -> asyncssh.SSHClientConnection: ...


class BenchManager:
    """All benchmarks of one console."""

    def __init__(self, runs: Launcher, pool: Connector, journal: Journal, *, context: str) -> None:
        self.active: dict[str, Bench] = {}
        """By run id; those that ended stay until the console is closed."""
        self._runs = runs
        self._pool = pool
        self._store = BenchStore(journal)
        self._context = context
        self._following: dict[str, asyncio.Task[None]] = {}

    @property
    def store(self) -> BenchStore:
        return self._store

    @property
    def version(self) -> int:
        """Rises with every change of any benchmark."""
        return len(self.active) + sum(bench.version for bench in self.active.values())

    async def survey(self, workers: Sequence[WorkerRef], request: BenchRequest) -> Survey:
        """Asks every worker what a plan has to know. A worker that can't be asked is told as an error, never left out."""
        if not workers:
            return {}
        ordered = sorted(workers, key=lambda each: each.order)
        command = shlex.join(
            (*launcher(request.python), "-", ordered[0].internal_ip or "127.0.0.1", str(request.port))
        )
        told = await asyncio.gather(*(self._ask(worker, command) for worker in ordered))
        return {worker.address: each for worker, each in zip(ordered, told, strict=True)}

    async def _ask(self, worker: WorkerRef, command: str) -> WorkerSurvey:
        import asyncssh  # a fifth of a second that `bench list` need not wait for

        try:
            async with asyncio.timeout(SURVEY_TIMEOUT_S):
                connection = await self._pool.connection(worker)
                done = await connection.run(command, input=_survey_program(), encoding=None)
        except TimeoutError:
            return WorkerSurvey(error=f"it did not answer within {SURVEY_TIMEOUT_S:g} s.")
        except OperatorError as error:
            return WorkerSurvey(error=error.what)
        except (OSError, asyncssh.Error) as error:
            return WorkerSurvey(error=plain(str(error)) or type(error).__name__)
        return read_survey(done.stdout, done.stderr, done.exit_status)

    async def plan(
        self,
        resource: QueuedResource,
        request: BenchRequest,
        workers: Sequence[WorkerRef] | None = None,
        *,
        target: str = "",
        survey: Survey | None = None,
        ask: bool = True,
    ) -> BenchPlan:
        """A plan with the survey's findings and the run's own refusals and exact text.

        Args:
            survey: An earlier one of the same workers.
            ask: Survey now when none is given; not done when the plan is refused already.
        """
        plan = plan_bench(resource, request, workers, survey, target=target)
        if ask and survey is None and not plan.refusals:
            answers = await self.survey(plan.workers, request)
            plan = plan_bench(resource, request, workers, answers, target=target)
        if not plan.workers:
            return plan
        run_plan = self._runs.plan(plan.run_request, plan.workers)
        return replace(
            plan,
            run_plan=run_plan,
            refusals=plan.refusals + run_plan.refusals,
            warnings=plan.warnings + run_plan.warnings,
        )

    async def platform_of(self, resource: QueuedResource) -> tuple[Survey, dict[str, int]]:
        """The survey of all workers, and the sizes that it suggests (empty: upstream's defaults)."""
        answers = await self.survey(workers_of(resource), BenchRequest())
        return answers, suggested_sizes(answers)

    async def launch(self, plan: BenchPlan) -> Bench:
        """Launches and follows it in the background.

        Raises:
            OperatorError: The plan is refused (nothing was sent), or launching failed.
        """
        if plan.refusals:
            raise OperatorError(" ".join(plan.refusals), exit_code=ExitCode.USAGE)
        if plan.run_plan is None:
            raise OperatorError(f"{plan.target} has no workers.", exit_code=ExitCode.USAGE)
        run = await self._runs.launch(plan.run_plan)
        return self._begin(run, new_record(run, plan, self._context))

    def _begin(self, run: FollowedRun, record: BenchRecord) -> Bench:
        bench = Bench(run, record)
        self.active[run.id] = bench
        self._store.save(bench.record)
        self._following[run.id] = asyncio.create_task(self._follow(bench), name=f"bench {run.id}")
        return bench

    def reattach(self, runs: Iterable[FollowedRun]) -> list[Bench]:
        """Benchmarks among runs that were found again; each is read from the beginning of its logs."""
        found = []
        for run in runs:
            record = self._store.find(run.id)
            if record is not None and run.id not in self.active:
                found.append(self._begin(run, record))
        return found

    async def wait(self, bench: Bench) -> None:
        """Until it has ended and everything is read and kept. Ctrl-C here leaves it running."""
        while (task := self._following.get(bench.id)) is not None and not task.done():
            await asyncio.shield(task)

    async def changed(self, bench: Bench) -> None:
        """Until its `version` is another, or it is over."""
        seen = bench.version
        while bench.version == seen and (task := self._following.get(bench.id)) is not None and not task.done():
            await asyncio.wait({task}, timeout=REFRESH_S)

    async def stop(self, bench: Bench) -> None:
        """Ends its processes everywhere, verified by the run.

        Raises:
            OperatorError: Some are not known to be gone.
        """
        report = await bench.run.stop()
        if not report.clean:
            left = [address for address, _ in (*report.survivors, *report.unverified)]
            raise OperatorError(
                f"It is not known whether the benchmark has ended on {', '.join(left)}.",
                "Look with `slicetower check`, end it with `slicetower free`.",
                exit_code=ExitCode.UNREACHABLE,
            )

    async def close(self) -> None:
        """Stops following (the benchmarks go on) and keeps what is known."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._following.clear()

    async def _follow(self, bench: Bench) -> None:
        ended = asyncio.ensure_future(bench.run.wait())
        loop = asyncio.get_running_loop()
        failed_at: float | None = None
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=REFRESH_S)
                bench.refresh()
                outcomes = [result.outcome for result in bench.run.results]
                if failed_at is None and any(outcome in FAILURES for outcome in outcomes):
                    failed_at = loop.time()
                if (
                    failed_at is not None
                    and loop.time() - failed_at > FAILURE_GRACE_S
                    and Outcome.PENDING in outcomes
                ):
                    bench.gave_up = True
                    await bench.run.stop()
                    failed_at = None
            await ended
            bench.refresh()
            while bench.run.state == RunState.ENDED and bench.is_behind:
                await asyncio.sleep(0)
                bench.refresh()
        finally:
            ended.cancel()
            bench.refresh()
            self._store.save(bench.record)
        successor = self._runs.active.get(bench.id)
        if successor is not None and successor is not bench.run:
            # Another console drove it and ended: our run manager took it up, with logs opened anew.
            self._begin(successor, bench.record)


def new_record(run: FollowedRun, plan: BenchPlan, context: str) -> BenchRecord:
    """What is known of a benchmark when it is launched."""
    first = next((each for each in plan.survey.values() if not each.error), WorkerSurvey())
    versions = {name: value for name in ("jax", "jaxlib", "libtpu", "python") if (value := str(getattr(first, name)))}
    return BenchRecord(
        id=run.id,
        request=plan.request,
        target=plan.target,
        project=plan.project,
        zone=plan.zone,
        queued_resource=plan.queued_resource,
        accelerator_type=plan.accelerator.name if plan.accelerator else "",
        slices=plan.slices,
        devices=plan.devices,
        platform=plan.platform,
        state=BenchState.STARTING,
        context=context,
        started_at=run.started_at or datetime.now(UTC),
        topology=plan.accelerator.topology if plan.accelerator else "",
        program_digest=programs().digest,
        versions=versions,
        peak_tflops_per_device=plan.peak_tflops_per_device,
        predicted_tflops_per_device=plan.prediction.tflops_per_device if plan.prediction else None,
    )


def read_survey(stdout: object, stderr: object, exit_status: int | None) -> WorkerSurvey:
    """What `environment.py` printed; anything else becomes the reason."""
    text = _text(stdout)
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                told: Any = json.loads(line)
            except ValueError:
                continue
            if isinstance(told, dict):
                return _survey_of(told)
    said = plain((_text(stderr).strip() or text.strip() or "nothing").splitlines()[-1])
    return WorkerSurvey(error=f"it answered with exit code {exit_status} and: {said}")


def _survey_of(told: dict[str, Any]) -> WorkerSurvey:
    values: dict[str, Any] = {}
    for item in fields(WorkerSurvey):
        value = told.get(item.name)
        if item.name in ("cpus", "memory_available", "free_port"):
            if isinstance(value, int) and not isinstance(value, bool):
                values[item.name] = value
        elif isinstance(value, str) and item.name != "error":
            values[item.name] = plain(value, limit=200)
    return WorkerSurvey(**values)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else ""


@cache
def _survey_program() -> bytes:
    return resources.files("jobs").joinpath("programs", "environment.py").read_bytes()
