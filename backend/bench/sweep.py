"""Sweeps: many benchmarks on one queued resource, the most promising first, kept so that they can be taken up again."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from backend.bench.manager import BenchManager
from backend.bench.model import BenchRecord, BenchRequest, BenchState
from backend.bench.plan import accelerator_of
from backend.journal import Journal
from backend.model import QueuedResource
from backend.outcomes import OperatorError
from backend.sanitize import plain
from jobs.meshes import Axes, Mesh
from jobs.roofline import Model
from jobs.sweep import Candidate, StopRule, candidates

_STEPS = (
    """
    CREATE TABLE sweeps (
        id TEXT PRIMARY KEY,
        started_at REAL NOT NULL,
        facts TEXT NOT NULL
    );
    CREATE TABLE sweep_points (
        sweep TEXT NOT NULL,
        position INTEGER NOT NULL,
        request TEXT NOT NULL,
        at_most REAL NOT NULL,
        state TEXT NOT NULL,
        bench TEXT NOT NULL,
        note TEXT NOT NULL,
        PRIMARY KEY (sweep, position)
    );
    """,
    "ALTER TABLE sweep_points ADD COLUMN target TEXT NOT NULL DEFAULT '';",
)


OPERATOR_STOPPED = "the operator stopped it"


class PointState(StrEnum):
    """What became of one point."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(slots=True)
class SweepPoint:
    """One benchmark of a sweep, live."""

    position: int
    request: BenchRequest
    at_most_tflops: float
    """Per device, by the roofline; 0 where there is none."""
    target: str
    """The queued resource that it is run on: a sweep over slice counts has several."""
    state: PointState = PointState.WAITING
    bench: str = ""
    """The benchmark's id, once it was launched."""
    note: str = ""
    """Why it was skipped or failed."""
    tflops_per_device: float | None = None
    step_time_s: float | None = None


@dataclass(slots=True)
class Sweep:
    """A sweep. `version` rises with every change."""

    id: str
    target: str
    context: str
    points: list[SweepPoint]
    rule: StopRule
    started_at: datetime
    stopped: str = ""
    """Why it ended before its list did."""
    version: int = field(default=0)

    @property
    def best(self) -> SweepPoint | None:
        """The fastest so far."""
        done = [point for point in self.points if point.tflops_per_device is not None]
        return max(done, key=lambda point: point.tflops_per_device or 0.0, default=None)

    @property
    def targets(self) -> tuple[str, ...]:
        """The queued resources of its points, in their order."""
        return tuple(dict.fromkeys(point.target for point in self.points))

    @property
    def left(self) -> list[SweepPoint]:
        return [point for point in self.points if point.state in (PointState.WAITING, PointState.RUNNING)]


def plan_sweep(
    resource: QueuedResource,
    base: BenchRequest,
    *,
    target: str,
    context: str,
    meshes: Sequence[Mesh] | None = None,
    batch_sizes: Sequence[int] = (),
    embedding_dimensions: Sequence[int] = (),
    platform: str = "",
    limit: int = 0,
    rule: StopRule | None = None,
) -> Sweep:
    """The points of a sweep in their order.

    Args:
        base: What all points share.
        meshes: Only these; all legal ones when left out.
        batch_sizes: Rows per device; the base's alone when empty. `embedding_dimensions` likewise.
        platform: `cpu` lifts the limits of the chip and the stop rule that follows from its roofline.
        limit: At most so many are run; 0: all.

    Raises:
        OperatorError: The type is not in the catalogue, or nothing can be run.
    """
    accelerator = accelerator_of(resource)
    if accelerator is None:
        raise OperatorError(f"{resource.name} is of a type that is not in the catalogue.")
    models = [
        Model(dimension, base.num_layers, rows, base.dtype)
        for dimension in embedding_dimensions or (base.embedding_dimension,)
        for rows in batch_sizes or (base.batch_size,)
    ]
    found = candidates(accelerator, resource.slice_count, models, meshes=meshes, check_memory=platform != "cpu")
    if all(each.skip for each in found):
        why = found[0].skip if found else "there is no legal mesh."
        raise OperatorError(f"No point of this sweep can be run: {why}")
    points = []
    runnable = 0
    for position, each in enumerate(found):
        runnable += not each.skip
        over = bool(limit) and runnable > limit and not each.skip
        skip = each.skip or (f"beyond the limit of {limit}" if over else "")
        state = PointState.SKIPPED if skip else PointState.WAITING
        at_most = 0.0 if platform == "cpu" else each.at_most_tflops
        points.append(SweepPoint(position, _request(base, each), at_most, target, state, note=skip))
    rule = rule or StopRule()
    started = datetime.now(UTC)
    identity = f"sweep-{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    return Sweep(
        identity, target, context, points, replace(rule, use_bound=rule.use_bound and platform != "cpu"), started
    )


def join_sweeps(sweeps: Sequence[Sweep]) -> Sweep:
    """One sweep over several queued resources, one after the other: over slice counts, for instance.

    Raises:
        ValueError: None are given.
    """
    if not sweeps:
        raise ValueError("no sweeps")
    points = [point for each in sweeps for point in each.points]
    for position, point in enumerate(points):
        point.position = position
    # A bound that one platform has no roofline for is used on none.
    bound = all(each.rule.use_bound for each in sweeps)
    return replace(sweeps[0], points=points, rule=replace(sweeps[0].rule, use_bound=bound))


def _request(base: BenchRequest, candidate: Candidate) -> BenchRequest:
    axes: dict[str, Any] = {}
    for network, each in (("ici", candidate.mesh.ici), ("dcn", candidate.mesh.dcn)):
        for name in ("data", "fsdp", "tensor"):
            axes[f"{network}_{name}_parallelism"] = getattr(each, name)
    return replace(
        base,
        **axes,
        embedding_dimension=candidate.model.embedding_dimension,
        batch_size=candidate.model.batch_per_device,
    )


class SweepStore:
    """The journal's part of sweeps."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.migrate("sweep", _STEPS)

    def save(self, sweep: Sweep) -> None:
        """Writes all of it."""
        facts = {
            "target": sweep.target,
            "context": sweep.context,
            "rule": asdict(sweep.rule),
            "stopped": sweep.stopped,
        }
        with self._journal.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO sweeps VALUES (?, ?, ?)",
                (sweep.id, sweep.started_at.timestamp(), json.dumps(facts)),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO sweep_points VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        sweep.id,
                        point.position,
                        json.dumps(point.request.to_json()),
                        point.at_most_tflops,
                        point.state.value,
                        point.bench,
                        point.note,
                        point.target,
                    )
                    for point in sweep.points
                ],
            )

    def load(self, sweep_id: str, benches: BenchManager) -> Sweep:
        """A sweep with the figures of its benchmarks.

        Raises:
            OperatorError: There is none of that id.
        """
        row = self._journal.row("SELECT * FROM sweeps WHERE id = ?", [sweep_id])
        if row is None:
            raise OperatorError(f"There is no sweep '{sweep_id}'.", f"Known: {', '.join(self.ids()) or 'none'}.")
        facts: dict[str, Any] = json.loads(row[2])
        points = []
        for _, position, request, at_most, state, bench, note, target in self._journal.rows(
            "SELECT * FROM sweep_points WHERE sweep = ? ORDER BY position", [sweep_id]
        ):
            own = BenchRequest.from_json(json.loads(request))
            point = SweepPoint(position, own, at_most, target or facts["target"], PointState(state), bench, note)
            record = benches.store.find(bench) if bench else None
            if was_left(point):
                # It went on without its console, and is not run again if it came to its end.
                done = record is not None and _is_done(record)
                point.state, point.note = PointState.DONE if done else PointState.WAITING, ""
            if record is not None and point.state == PointState.DONE:
                _take(point, record)
            points.append(point)
        started = datetime.fromtimestamp(row[1], UTC)
        return Sweep(sweep_id, facts["target"], facts["context"], points, StopRule(**facts["rule"]), started)

    def ids(self, *, limit: int = 10) -> list[str]:
        """Newest first."""
        rows = self._journal.rows("SELECT id FROM sweeps ORDER BY started_at DESC LIMIT ?", [limit])
        return [str(row[0]) for row in rows]


def was_left(point: SweepPoint) -> bool:
    """Its console died, or the operator stopped the sweep: it is still to be run."""
    return point.state in (PointState.RUNNING, PointState.WAITING) or (
        point.state == PointState.SKIPPED and point.note == OPERATOR_STOPPED
    )


def _is_done(record: BenchRecord) -> bool:
    return record.state == BenchState.DONE and record.summary.tflops_per_device is not None


def _take(point: SweepPoint, record: BenchRecord) -> None:
    point.tflops_per_device = record.summary.tflops_per_device
    point.step_time_s = record.summary.step_time_s


async def run_sweep(
    sweep: Sweep, resources: Iterable[QueuedResource], benches: BenchManager, store: SweepStore
) -> None:
    """Runs what is left, one after the other; cancelling it leaves the running benchmark to its workers.

    A point whose benchmark still runs, launched by a console that died, is waited for instead of being run again.
    Every change is kept before the next step. The stop rule holds for each queued resource by itself.

    Raises:
        OperatorError: A queued resource of the sweep is not among `resources`, or a benchmark could not be launched.
    """
    by_name = {each.name: each for each in resources}
    gone = [name for name in sweep.targets if name not in by_name]
    if gone:
        raise OperatorError(f"{', '.join(gone)} of {sweep.id} is gone.", "Ask for it again, or begin another sweep.")
    sweep.stopped = ""
    several = len(sweep.targets) > 1
    for target in sweep.targets:
        why = await _run_target(sweep, target, by_name[target], benches, store)
        if why:
            for point in sweep.left:
                if point.target == target or why == OPERATOR_STOPPED:
                    point.state, point.note = PointState.SKIPPED, why
            told = f"{target}: {why}" if several and why != OPERATOR_STOPPED else why
            sweep.stopped = "; ".join(each for each in (sweep.stopped, told) if each)
        if why == OPERATOR_STOPPED:
            break
    keep_change(sweep, store)


async def _run_target(
    sweep: Sweep, target: str, resource: QueuedResource, benches: BenchManager, store: SweepStore
) -> str:
    """Runs the points of one queued resource. Returns why it ended early, or nothing."""
    own = [point for point in sweep.points if point.target == target]
    measured: list[float | None] = [
        point.tflops_per_device if point.state == PointState.DONE else None
        for point in own
        if point.state in (PointState.DONE, PointState.FAILED)
    ]
    open_states = (PointState.WAITING, PointState.RUNNING)
    for point in [each for each in own if each.state in open_states]:
        left = [_candidate_of(each) for each in own if each.state in open_states]
        why = sweep.rule.reason(measured, left)
        if why:
            return why
        point.state = PointState.RUNNING
        keep_change(sweep, store)
        bench = benches.active.get(point.bench)
        if bench is None or bench.state in (BenchState.FAILED, BenchState.STOPPED):
            plan = await benches.plan(resource, point.request, target=target)
            if plan.refusals:
                point.state, point.note = PointState.SKIPPED, " ".join(plan.refusals)
                keep_change(sweep, store)
                continue
            bench = await benches.launch(plan)
            point.bench = bench.id
            keep_change(sweep, store)
        try:
            await benches.wait(bench)
        except asyncio.CancelledError:
            point.state = PointState.WAITING
            keep_change(sweep, store)
            raise
        record = bench.record
        _take(point, record)
        if _is_done(record):
            point.state = PointState.DONE
            measured.append(point.tflops_per_device)
        else:
            point.state = PointState.FAILED
            point.tflops_per_device = None
            point.note = record.errors[0].what if record.errors else record.state.value
            measured.append(None)
        keep_change(sweep, store)
        if record.state == BenchState.STOPPED:
            point.state = PointState.WAITING
            return OPERATOR_STOPPED
    return ""


def _candidate_of(point: SweepPoint) -> Candidate:
    return _Bounded(point.request.mesh, point.request.model, None, at_most=point.at_most_tflops)


@dataclass(frozen=True, slots=True)
class _Bounded(Candidate):
    """A candidate whose bound was kept without the prediction that gave it."""

    at_most: float = 0.0

    @property
    def at_most_tflops(self) -> float:
        return self.at_most


def keep_change(sweep: Sweep, store: SweepStore) -> None:
    """Tells those who look at `version`, and writes it."""
    sweep.version += 1
    store.save(sweep)


def parse_mesh(text: str) -> Mesh:
    """`ICI` or `ICI/DCN`, each as data x fsdp x tensor: `1x16x1/2x1x1`.

    Raises:
        OperatorError: It is not that.
    """
    parts = text.split("/")
    try:
        axes = [Axes(*(int(side) for side in part.split("x"))) for part in parts]
        if len(parts) > 2 or any(part.count("x") != 2 for part in parts) or any(min(each.sizes) < 1 for each in axes):
            raise ValueError(text)
    except (ValueError, TypeError):
        raise OperatorError(
            f"'{plain(text)}' is not a mesh.", "Write data x fsdp x tensor for ICI and DCN, such as 1x16x1/2x1x1."
        ) from None
    return Mesh(axes[0], axes[1] if len(axes) > 1 else Axes())
