"""What the tools of the fixed console find: the same on every day, and nothing is asked or sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.bench.model import BenchRequest
from backend.bench.sweep import PointState, Sweep, SweepPoint
from backend.doctor import Finding as Found
from backend.outcomes import OperatorError, Outcome
from backend.own_places import Place
from backend.ssh.answers import Silent
from backend.targets import WorkerRef
from backend.tools.forward import Ports
from backend.tools.model import CheckReport, Finding, Severity
from backend.tools.ship import Answer
from backend.tools.transfers import Transfer
from jobs.hlo import Sent
from jobs.preflight import Compilation, PreflightReport
from jobs.sweep import StopRule
from tests.tui.fixed import facts

ALL = tuple(worker.address for worker in facts.WORKERS)
HELD = "train-a/0/2"

REFUSED = ("train-a/1/2",)
"""Who lets nobody in."""

REPORT = CheckReport(
    (
        Finding(
            "holders",
            Severity.FAIL,
            (HELD,),
            "The chips are held by process 4711 of operator: python3 train.py --steps 5000",
            "End it, or let free do so.",
        ),
        Finding(
            "versions",
            Severity.WARN,
            ("train-a/1/1",),
            "jax 0.10.1, where the others have 0.10.2",
            "Run setup again.",
        ),
        Finding("devices", Severity.OK, ALL, "4 chips each, as v5litepod-16 has"),
        Finding("clock", Severity.OK, ALL, "clocks differ by 0.02 s at most"),
    ),
    errors={"train-a/1/3": "Connection refused."},
    facts={HELD: {"versions": {"jax": "0.10.2"}, "holders": [{"pid": 4711}]}},
)


def _free_facts(address: str, dry_run: bool) -> dict[str, Any]:
    holders = (
        [{"pid": 4711, "user": "operator", "command": "python3 train.py --steps 5000"}] if address == HELD else []
    )
    pids = [holder["pid"] for holder in holders]
    return {
        "free": not holders or not dry_run,
        "holders": holders,
        "terminated": [] if dry_run else pids,
        "killed": [],
        "refused": [],
        "would_stop": pids if dry_run else [],
        "lockfile": {"path": "/tmp/libtpu_lockfile", "removed": bool(holders) and not dry_run},
        "would_remove_lockfile": bool(holders) and dry_run,
    }


async def check(_tower: object, _workers: Sequence[WorkerRef], **_more: object) -> CheckReport:
    return REPORT


async def free(
    _tower: object, workers: Sequence[WorkerRef], *, dry_run: bool = False, **_more: object
) -> list[Answer]:
    return [Answer(worker, _free_facts(worker.address, dry_run)) for worker in workers]


async def upload(
    _pool: object, workers: Sequence[WorkerRef], sources: Sequence[Path], destination: str, told: Any
) -> None:
    for place, worker in enumerate(workers):
        if place == 5:
            told(Transfer(worker, Outcome.FAILED, error="No space left on device."))
        elif place != 7:
            told(Transfer(worker, Outcome.OK, place=f"{destination}/{sources[0].name}"))


@asynccontextmanager
async def forward(_pool: object, _worker: WorkerRef, ports: Ports) -> AsyncIterator[object]:
    import asyncio

    async def answers() -> bool:
        return True

    yield SimpleNamespace(address=f"127.0.0.1:{ports.local or 40001}", lost=asyncio.Event().wait, answers=answers)


async def preflight(request: Any, **_more: object) -> PreflightReport:
    sent = (
        Sent("ICI", "all-gather", 16, 12, 402_653_184.0),
        Sent("ICI", "reduce-scatter", 16, 4, 134_217_728.0),
        Sent("DCN", "all-reduce", 2, 4, 8_388_608.0),
    )
    compiled = Compilation(request.model.batch_per_device, True, 11.2e9, flops=3.1e12, sent=sent, compile_s=41.0)
    return PreflightReport(
        compiled,
        16.9e9,
        compute_s=0.0201,
        hbm_s=0.0118,
        ici_s=0.0094,
        dcn_s=0.0012,
        bound="compute",
        tflops_per_device=163.0,
        compiler_ratio=1.01,
        largest_batch=192,
        versions={"jax": "0.10.2", "libtpu": "0.0.23"},
    )


async def answers(
    _self: object,
    workers: Sequence[WorkerRef],
    _timeout_s: float,
    seen: Callable[[WorkerRef, Silent | None], None],
    _waits: object,
) -> None:
    """All but one let the operator in."""
    for worker in workers:
        error = OperatorError(f"{worker.address} refuses the key of the agent.", "Add the public key to the node.")
        seen(worker, Silent(worker, "permission", error) if worker.address in REFUSED else None)


async def examine(*_given: object, **_more: object) -> AsyncIterator[Found]:
    """This machine, as it never changes."""
    yield Found("configuration", "ok", "demo: demo-project, us-west4-a us-east5-a (from demo.toml).")
    yield Found("endpoint", "fail", "127.0.0.1:1 gave no answer within 20 s.", "Check network, proxy and firewall.")
    yield Found("ssh key", "warn", "id_ed25519 can be read by others.", "Run `chmod 600 id_ed25519`.")
    yield Found("gcloud", "ok", "/usr/bin/gcloud.")


OWN = {"config": (900, 1), "journal": (1_240_000, 3), "runs": (48_300_000, 212), "console_log": (0, 1)}
"""Bytes and files of each place."""


def own_places(_paths: object) -> dict[str, Path]:
    return {name: Path(f"/home/operator/{name}") for name in ("config", "themes", "journal", "runs", "console_log")}


def look_at(name: str, path: Path) -> Place:
    if name not in OWN:
        return Place(name, path, False)
    problem = f"others may read it: chmod go= {path}" if name == "console_log" else ""
    return Place(name, path, True, *OWN[name], problem)


def answer_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools are asked here instead of on workers."""
    import backend.doctor
    import backend.own_places
    import backend.ssh.answers
    import backend.tools.check
    import backend.tools.forward
    import backend.tools.free
    import backend.tools.transfers
    import tui.screens.preflight

    monkeypatch.setattr(backend.ssh.answers.Answers, "ask", answers)
    monkeypatch.setattr(backend.doctor, "examine", examine)
    monkeypatch.setattr(backend.own_places, "own_places", own_places)
    monkeypatch.setattr(backend.own_places, "look_at", look_at)
    monkeypatch.setattr(backend.tools.check, "check", check)
    monkeypatch.setattr(backend.tools.free, "free", free)
    monkeypatch.setattr(backend.tools.transfers, "upload", upload)
    monkeypatch.setattr(backend.tools.forward, "forward", forward)
    monkeypatch.setattr(tui.screens.preflight, "preflight", preflight)


def _point(
    position: int, fsdp: int, tensor: int, rate: float | None, state: PointState, note: str = ""
) -> SweepPoint:
    request = BenchRequest(dcn_data_parallelism=2, ici_fsdp_parallelism=fsdp, ici_tensor_parallelism=tensor)
    return SweepPoint(
        position,
        request,
        168.0 - 9 * position,
        "train-a",
        state,
        facts.BENCH_ID if rate else "",
        note,
        rate,
        300 / rate if rate else None,
    )


def sweep() -> Sweep:
    """One that was ended half-way."""
    points = [
        _point(0, 16, 1, 151.2, PointState.DONE),
        _point(1, 8, 2, 139.9, PointState.DONE),
        _point(
            2,
            4,
            4,
            None,
            PointState.FAILED,
            "train-a/1/2: RESOURCE_EXHAUSTED: Out of memory while trying to allocate.",
        ),
        _point(3, 2, 8, None, PointState.SKIPPED, "cannot beat 151 TFLOP/s/device"),
        _point(4, 1, 16, None, PointState.WAITING),
    ]
    return Sweep("sweep-20261130-120500-c0de", "train-a", "demo", points, StopRule(), facts.ago(hours=2))
