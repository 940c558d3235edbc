"""Queued resources for benchmark tests, and a launcher that runs a gang's processes on this machine."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import signal
import sys
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from backend.bench.model import WorkerSurvey
from backend.logs.worker_log import WorkerLog
from backend.model import QueuedResource, Slice, Worker
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult, first_failure
from backend.runs.model import RunPlan, RunRequest, RunState, StopReport
from backend.targets import WorkerRef
from jobs.accelerators import parse

CPU = WorkerSurvey("cpu", "4", "3.11.7", "0.10.2", "0.10.2", "", "m1", "vm", "127.0.0.1", 2, 20 * 10**9, "free")
TPU = WorkerSurvey("", "", "3.10.12", "0.10.2", "0.10.2", "0.0.40", "m2", "t1v", "10.0.0.2", 208, 400 * 10**9, "free")


def resource(
    name: str = "train-a",
    kind: str = "v5litepod-16",
    slices: int = 2,
    *,
    state: str = "ACTIVE",
    workers: int | None = None,
) -> QueuedResource:
    """An active request with all its workers on loopback addresses."""
    accelerator = parse(kind)
    count = accelerator.workers if workers is None else workers
    nodes = tuple(
        Slice(
            "demo",
            "us-west4-a",
            f"{name}-{index}",
            index,
            "READY",
            uid=f"10{index}",
            health="HEALTHY",
            accelerator_type=kind,
            queued_resource=name,
            workers=tuple(Worker(number, f"127.0.{index}.{number + 1}", "") for number in range(count)),
        )
        for index in range(slices)
    )
    return QueuedResource(
        "demo",
        "us-west4-a",
        name,
        state,
        accelerator_type=kind,
        slice_count=slices,
        slices=nodes if state == "ACTIVE" else (),
        chips_per_slice=accelerator.chips,
        workers_per_slice=accelerator.workers,
    )


class LocalRun:
    """A gang of real processes on this machine, followed as a run is."""

    def __init__(self, plan: RunPlan, folder: Path) -> None:
        self.id = f"run-{os.urandom(4).hex()}"
        self.workers: Sequence[WorkerRef] = plan.workers
        self.results = [WorkerResult(worker) for worker in plan.workers]
        self.logs: dict[str, WorkerLog] = {}
        self.state = RunState.RUNNING
        self.started_at = datetime.now(UTC)
        self.ended_at: datetime | None = None
        self.interrupted = False
        self.processes: list[asyncio.subprocess.Process] = []
        self._plan = plan
        self._folder = folder
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        request = self._plan.request
        code = self._folder / "bundle"
        assert request.bundle is not None
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(request.bundle.archive))) as archive:
            archive.extractall(code, filter="data")
        for worker in self.workers:
            environment = {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(self._folder),
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "4",
                **dict(request.environment),
                **request.worker_environment.get(worker.address, {}),
            }
            self.logs[worker.address] = WorkerLog(self._folder / f"{worker.file_stem}.log")
            self.processes.append(
                await asyncio.create_subprocess_exec(
                    *request.argv,
                    cwd=code,
                    env=environment,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
            )
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(len(self.workers)):
                group.create_task(self._follow_one(number))
        self.state = RunState.ENDED
        self.ended_at = datetime.now(UTC)

    async def _follow_one(self, number: int) -> None:
        process, result = self.processes[number], self.results[number]
        assert process.stdout is not None
        while data := await process.stdout.read(65536):
            self.logs[result.worker.address].append(data)
        code = await process.wait()
        result.phase = Phase.ENDED
        result.exit_code = code
        result.outcome = Outcome.OK if code == 0 else Outcome.SIGNALLED if code < 0 else Outcome.FAILED

    @property
    def first_failure(self) -> WorkerResult | None:
        return first_failure(self.results)

    def log(self, index: int) -> WorkerLog:
        return self.logs[self.workers[index].address]

    def has_log(self, index: int) -> bool:
        return self.workers[index].address in self.logs

    async def wait(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)

    async def stop(self) -> StopReport:
        self.interrupted = True
        for process in self.processes:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
        await self.wait()
        return StopReport(stopped=tuple(worker.address for worker in self.workers))

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


class LocalRuns:
    """Plans and launches on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[LocalRun] = []

    @property
    def active(self) -> Mapping[str, LocalRun]:
        return {run.id: run for run in self.runs}

    def plan(self, request: RunRequest, workers: Sequence[WorkerRef]) -> RunPlan:
        return RunPlan(request, tuple(workers), (tuple(range(len(workers))),), " ".join(request.argv))

    async def launch(self, plan: RunPlan) -> LocalRun:
        run = LocalRun(plan, self.folder)
        await run.start()
        self.runs.append(run)
        return run

    async def close(self) -> None:
        for run in self.runs:
            await run.stop()
            run.close()


def survey_of(
    workers: Sequence[WorkerRef], answer: WorkerSurvey, **other: WorkerSurvey
) -> Mapping[str, WorkerSurvey]:
    """The same answer of all; `other` by address with `_` for `/` and `-`."""
    renamed = {address.replace("__", "/").replace("_", "-"): each for address, each in other.items()}
    return {worker.address: renamed.get(worker.address, answer) for worker in workers}
