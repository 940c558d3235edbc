"""A fleet that never changes, at a moment that never passes: what pictures of screens show."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.bench.model import BenchRecord, BenchRequest, BenchState, BenchSummary, StepPoint
from backend.model import Event, EventKind, Maintenance, Operation, QueuedResource, Slice, Status, Tier, Worker
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.targets import WorkerRef, workers_of

NOW = datetime(2026, 11, 30, 14, 5, 9, tzinfo=UTC)
POLL = timedelta(seconds=5)
"""Between two looks of the past."""
PROJECT, WEST, EAST = "demo-project", "us-west4-a", "us-east5-a"


def ago(**length: float) -> datetime:
    return NOW - timedelta(**length)


def _slice(request: str, index: int, state: str, zone: str, workers: int = 4, **other: object) -> Slice:
    base = 10 * index + 1 + 100 * len(request)
    ends = tuple(
        Worker(number, f"10.164.0.{(base + number) % 250}", f"203.0.113.{(base + number) % 250}")
        for number in range(workers)
    )
    made = Slice(
        project=PROJECT,
        zone=zone,
        node_id=f"{request}-{index}",
        index=index,
        state=state,
        uid=f"{7000 + base}",
        health="HEALTHY" if state == "READY" else "",
        accelerator_type="v5litepod-16",
        topology="4x4",
        runtime_version="v2-alpha-tpuv5-lite",
        queued_resource=request,
        workers=ends,
        created_at=ago(hours=1, minutes=51),
    )
    return replace(made, **other)  # type: ignore[arg-type]


def _request(name: str, state: str, zone: str = WEST, **other: object) -> QueuedResource:
    made = QueuedResource(
        project=PROJECT,
        zone=zone,
        name=name,
        state=state,
        accelerator_type="v5litepod-16",
        topology="4x4",
        slice_count=2,
        runtime_version="v2-alpha-tpuv5-lite",
        tier=Tier.SPOT,
        created_at=ago(hours=2),
        chips_per_slice=16,
        workers_per_slice=4,
    )
    return replace(made, **other)  # type: ignore[arg-type]


MOVE = Maintenance("SCHEDULED", "PENDING", True, "2026-12-01T02:00:00Z", "2026-12-01T06:00:00Z")
TRAIN = _request(
    "train-a", "ACTIVE", slices=(_slice("train-a", 0, "READY", WEST), _slice("train-a", 1, "READY", WEST))
)
SWEEP = _request(
    "sweep-b",
    "PROVISIONING",
    slice_count=4,
    tier=Tier.ON_DEMAND,
    created_at=ago(minutes=12),
    slices=(
        _slice("sweep-b", 0, "READY", WEST),
        _slice("sweep-b", 1, "READY", WEST, maintenance=MOVE),
        _slice("sweep-b", 2, "CREATING", WEST, workers=0),
        _slice("sweep-b", 3, "CREATING", WEST, workers=0),
    ),
)
BIG = _request(
    "big-c",
    "WAITING_FOR_RESOURCES",
    EAST,
    accelerator_type="v5p-128",
    topology="4x4x4",
    chips_per_slice=64,
    workers_per_slice=16,
    tier=Tier.RESERVED,
    runtime_version="v2-alpha-tpuv5",
    created_at=ago(minutes=31),
)
OLD = _request(
    "old-d",
    "FAILED",
    slice_count=1,
    created_at=ago(days=3, hours=2),
    error=Status(8, 'There is no more capacity in the zone "us-west4-a"; you can try in another zone.'),
)
TAKEN = _request("taken-e", "SUSPENDED", EAST, created_at=ago(hours=9))
WANING = _request(
    "lame-f",
    "ACTIVE",
    slices=(
        _slice("lame-f", 0, "READY", WEST),
        _slice(
            "lame-f", 1, "READY", WEST, health="UNHEALTHY_TENSORFLOW", health_description="The TPU runtime is down."
        ),
    ),
    created_at=ago(hours=5),
)
FLEET = (TRAIN, SWEEP, BIG, OLD, TAKEN, WANING)
LATE = _request("late-g", "WAITING_FOR_RESOURCES", created_at=ago(minutes=30))
"""Waits longer than the one spot request that was seen to wait; only where that is looked at."""

WAITING_YET = replace(TRAIN, state="WAITING_FOR_RESOURCES", slices=())
PROVISIONING_YET = replace(TRAIN, state="PROVISIONING", slices=())
HISTORY: tuple[tuple[datetime, tuple[QueuedResource, ...]], ...] = (
    (ago(days=1), (OLD,)),
    (ago(hours=5), (replace(WANING, slices=WANING.slices[:1]), OLD)),
    (ago(hours=2), (WANING, OLD, replace(TAKEN, state="ACTIVE"))),
    (ago(hours=1, minutes=59, seconds=58), (WAITING_YET, WANING, OLD, replace(TAKEN, state="SUSPENDING"))),
    (ago(hours=1, minutes=53), (PROVISIONING_YET, WANING, OLD, TAKEN)),
    (ago(hours=1, minutes=51), (TRAIN, WANING, OLD, TAKEN)),
    (ago(minutes=31), (TRAIN, BIG, WANING, OLD, TAKEN)),
    (ago(minutes=12), (TRAIN, replace(SWEEP, state="ACCEPTED", slices=()), BIG, WANING, OLD, TAKEN)),
    (ago(minutes=2), FLEET),
)
"""What was seen when, before the console was opened: the journal makes states and durations of it."""

OPERATIONS = (
    Operation(
        PROJECT,
        WEST,
        "operation-1764511509-a1",
        True,
        "create",
        f"projects/{PROJECT}/locations/{WEST}/queuedResources/train-a",
        created_at=ago(hours=2),
        ended_at=ago(hours=1, minutes=59),
    ),
)

WORKERS = workers_of(TRAIN)
RUN_ID, LIVE_ID, BENCH_ID = "20261130-133000-k3f2", "20261130-140309-q7xa", "20261130-121000-m4tz"
FAILED_TEXT = (
    "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 4711.\n"
)


def _ended(place: int, worker: WorkerRef) -> WorkerResult:
    started = ago(minutes=35, seconds=9)
    ended = started + timedelta(seconds=12 + place)
    if place == 2:
        return WorkerResult(
            worker, Outcome.FAILED, Phase.ENDED, 1, None, started, started + timedelta(seconds=7), 188
        )
    if place == 5:
        return WorkerResult(
            worker,
            Outcome.UNREACHABLE,
            Phase.ENDED,
            started_at=None,
            error="203.0.113.12 port 22: Connection refused",
        )
    return WorkerResult(worker, Outcome.OK, Phase.ENDED, 0, None, started, ended, 2048)


ENDED = RunRecord(
    RUN_ID,
    RunRequest(("python3", "check_devices.py", "--expect", "16"), batch="4", on_failure="continue"),
    WORKERS,
    tuple(_ended(place, worker) for place, worker in enumerate(WORKERS)),
    RunState.ENDED,
    "demo",
    "exec python3 check_devices.py --expect 16",
    ago(minutes=35, seconds=9),
    ago(minutes=34, seconds=48),
)


def output_of(place: int) -> list[str]:
    """What the ended run printed on one worker."""
    if place == 2:
        return ["devices: looking", FAILED_TEXT.strip()]
    if place == 5:
        return []
    return ["devices: looking", "16 devices, 4 of them here", "libtpu 0.0.23, jax 0.10.2: as expected"]


LIVE = RunRequest(("bash", "train.sh", "--steps", "5000"), gang=True, detach=True, title="train.sh --steps 5000")


def live_results() -> list[WorkerResult]:
    """A run that goes on for ever."""
    return [
        WorkerResult(worker, Outcome.PENDING, Phase.RUNNING, started_at=ago(minutes=2), output_bytes=9000 + place)
        for place, worker in enumerate(WORKERS)
    ]


LIVE_RECORD = RunRecord(
    LIVE_ID,
    LIVE,
    WORKERS,
    tuple(live_results()),
    RunState.RUNNING,
    "demo",
    "exec bash train.sh --steps 5000",
    ago(minutes=2),
)


def live_lines(place: int) -> list[tuple[float, str]]:
    """(seconds after the start, line) that one worker of it printed: colours, a warning, an error, a long line."""
    lines = [
        (0.0, f"\x1b[36mINFO\x1b[0m  process {place} of 8: mesh ICI fsdp 16, DCN data 2"),
        (1.0 + place / 10, "\x1b[36mINFO\x1b[0m  compiled in 21.4 s"),
    ]
    for step in range(40):
        loss = 9.5 - step * 0.11
        lines.append(
            (25 + step * 2 + place / 20, f"step {step:4d}  loss {loss:.3f}  1.98 s  151.{place} TFLOP/s/device")
        )
        if step == 17 and place == 3:
            lines.append((60.1, "\x1b[33mWARNING\x1b[0m: the input queue ran empty for 0.8 s"))
        if step == 30 and place == 6:
            lines.append(
                (86.1, "\x1b[31mERROR\x1b[0m: checkpoint of step 30 failed: gs://example-bucket: 503, tried again")
            )
        if step == 33:
            lines.append(
                (92.0, "sharding " + " ".join(f"layers/{layer}/mlp=('fsdp','tensor')" for layer in range(6)))
            )
    return lines


def bench_record(identity: str, *, slices: int = 2, rate: float = 151.2, started: datetime = NOW) -> BenchRecord:
    """A benchmark that ended well."""
    points = []
    for step in range(20):
        wobble = ((step * 7) % 5 - 2) * 0.6
        here = rate + wobble if step else rate * 0.4
        took = 1.98 * rate / here
        low, high = here - 2.2, here + 1.7
        points.append(
            StepPoint(step, 8, took, took * 0.98, took * 1.03, here, low, high, "" if step else "first step")
        )
    return BenchRecord(
        id=identity,
        request=BenchRequest(dcn_data_parallelism=slices, ici_fsdp_parallelism=16),
        target="train-a",
        project=PROJECT,
        zone=WEST,
        queued_resource="train-a",
        accelerator_type="v5litepod-16",
        slices=slices,
        devices=16 * slices,
        platform="tpu",
        state=BenchState.DONE,
        context="demo",
        started_at=started,
        ended_at=started + timedelta(seconds=95),
        versions={"jax": "0.10.2", "libtpu": "0.0.23"},
        summary=BenchSummary(
            steps=19,
            set_aside={"first step": 1},
            step_time_s=1.98,
            step_time_p10_s=1.96,
            step_time_p90_s=2.01,
            tflops_per_device=rate,
            tflops_p10=rate - 1.2,
            tflops_p90=rate + 1.2,
            claimed_tflops_per_device=rate * 1.25,
            tflops_total=rate * 16 * slices,
            mfu=rate / 197,
            exposed_communication=0.08,
            compile_s=21.4,
            hbm_peak_bytes=11_200_000_000,
            hbm_limit_bytes=16_900_000_000,
            slowest_worker="train-a/1/2",
            slowest_ratio=1.03,
        ),
        points=tuple(points),
        peak_tflops_per_device=197.0,
        predicted_tflops_per_device=163.0,
    )


SHORN_ID = "20261130-130500-a9rw"
BENCHES = (
    bench_record(BENCH_ID, started=ago(hours=1, minutes=55)),
    bench_record(SHORN_ID, slices=1, rate=158.6, started=ago(hours=1)),
)


def _run_of(bench: BenchRecord) -> RunRecord:
    """The run that a benchmark is."""
    assert bench.ended_at is not None
    request = RunRequest(bench.request.argv, gang=True, detach=True, kind="bench", title=bench.request.mesh.words())
    results = tuple(
        WorkerResult(worker, Outcome.OK, Phase.ENDED, 0, None, bench.started_at, bench.ended_at, 4096)
        for worker in WORKERS[: 4 * bench.slices]
    )
    workers = tuple(result.worker for result in results)
    text = "exec python3 -m jobs.programs.shardings"
    return RunRecord(
        bench.id, request, workers, results, RunState.ENDED, "demo", text, bench.started_at, bench.ended_at
    )


def readings_of(place: int) -> list[str]:
    """What the first benchmark printed on one worker; the logs of the other were removed."""
    return [
        json.dumps(
            {"step": point.step, "step_time_s": point.step_time_s, "tflops_per_device": rate}
            | ({"warmup": True} if point.set_aside else {})
        )
        for point in BENCHES[0].points
        if (rate := round((point.tflops_per_device or 0.0) + place / 10, 3))
    ]


BENCH_RUNS = tuple(_run_of(bench) for bench in BENCHES)

EVENTS = (
    Event(
        ago(minutes=35),
        EventKind.ACTION,
        PROJECT,
        subject=RUN_ID,
        text=f"Run {RUN_ID} started on train-a: exec python3 check_devices.py --expect 16",
    ),
    Event(ago(minutes=34), EventKind.ERROR, PROJECT, subject="train-a/1/1", text="Connection refused."),
)
