"""Sweeps run every point once, keep what they know, and go on where they stopped."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backend.bench.manager import BenchManager
from backend.bench.model import BenchRequest, WorkerSurvey
from backend.bench.sweep import (
    OPERATOR_STOPPED,
    PointState,
    Sweep,
    SweepStore,
    join_sweeps,
    parse_mesh,
    plan_sweep,
    run_sweep,
)
from backend.bench.sweeps import SweepManager
from backend.journal import Journal
from backend.model import QueuedResource
from backend.outcomes import OperatorError
from backend.targets import WorkerRef, workers_of
from jobs.meshes import Axes, Mesh
from jobs.sweep import StopRule
from tests.backend.bench.bench_world import CPU, LocalRuns, resource
from tests.backend.bench.test_bench import NoPool

PROGRAM = """#!{python}
import json, os, sys
flags = dict(zip(sys.argv[3::2], sys.argv[4::2]))
rows = int(flags["--batch_size"])
if rows == 13:
    print(json.dumps({{"error": {{"kind": "memory", "what": "no room for 13", "cure": ""}}}}), flush=True)
    os._exit(1)
for step in range(3):
    print(json.dumps({{"step": step, "step_time_s": 1 / rows, "tflops_per_device": float(rows)}}), flush=True)
"""
"""Stands for python3 on the workers: a program that is as fast as its batch is large."""


class Surveyed(BenchManager):
    """Every worker answers as a CPU with jax."""

    async def survey(self, workers: object, request: BenchRequest) -> dict[str, WorkerSurvey]:
        assert isinstance(workers, tuple)
        return {worker.address: CPU for worker in workers if isinstance(worker, WorkerRef)}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db")
    yield opened
    opened.close()


@pytest.fixture
async def manager(journal: Journal, tmp_path: Path) -> AsyncIterator[BenchManager]:
    launcher = LocalRuns(tmp_path / "runs")
    made = Surveyed(launcher, NoPool(), journal, context="demo")
    yield made
    await made.close()
    await launcher.close()


@pytest.fixture
def base(tmp_path: Path) -> BenchRequest:
    python = tmp_path / "python"
    python.write_text(PROGRAM.format(python=sys.executable))
    python.chmod(0o700)
    return BenchRequest(python=str(python), embedding_dimension=64, num_layers=2, steps=3)


MESHES = (Mesh(Axes(1, 4, 1), Axes(2)), Mesh(Axes(4, 1, 1), Axes(2)))


def planned(train: QueuedResource, base: BenchRequest, *rows: int, **other: object) -> Sweep:
    return plan_sweep(
        train,
        base,
        target=train.name,
        context="demo",
        meshes=MESHES,
        batch_sizes=rows,
        platform="cpu",
        limit=int(str(other.get("limit", 0))),
        rule=StopRule(failures=2),
    )


async def test_every_point_is_run_and_the_best_is_known(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    train = resource(kind="v5litepod-4")
    assert len(workers_of(train)) == 2
    sweep, store = planned(train, base, 16, 64, 32), SweepStore(journal)
    await run_sweep(sweep, [train], manager, store)
    assert [point.state for point in sweep.points] == [PointState.DONE] * 6
    assert sweep.best is not None
    assert sweep.best.request.batch_size == 64
    assert len(manager.store.records()) == 6
    loaded = store.load(sweep.id, manager)
    assert [(p.bench, p.tflops_per_device) for p in loaded.points] == [
        (p.bench, p.tflops_per_device) for p in sweep.points
    ]
    with pytest.raises(OperatorError, match=sweep.id):
        store.load("nothing", manager)


async def test_a_failure_is_told_and_two_in_a_row_end_it(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    train = resource(kind="v5litepod-4")
    sweep = planned(train, base, 16, 13)
    sweep.points.sort(key=lambda point: point.request.batch_size != 13)
    await run_sweep(sweep, [train], manager, SweepStore(journal))
    assert [point.state for point in sweep.points] == [PointState.FAILED] * 2 + [PointState.SKIPPED] * 2
    assert sweep.points[0].note == "no room for 13"
    assert sweep.stopped == "2 in a row failed"


async def test_what_was_left_is_run_later_and_what_was_done_is_not_run_again(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    train, store = resource(kind="v5litepod-4"), SweepStore(journal)
    sweep = planned(train, base, 16, 32)
    await run_sweep(sweep, [train], manager, store)
    first = [point.bench for point in sweep.points]
    sweep.points[2].state, sweep.points[2].bench = PointState.RUNNING, "gone"
    sweep.points[3].state, sweep.points[3].note, sweep.points[3].bench = PointState.SKIPPED, OPERATOR_STOPPED, ""
    store.save(sweep)
    again = store.load(sweep.id, manager)
    assert [point.state for point in again.points] == [PointState.DONE] * 2 + [PointState.WAITING] * 2
    await run_sweep(again, [train], manager, store)
    assert [point.state for point in again.points] == [PointState.DONE] * 4
    assert [point.bench for point in again.points[:2]] == first[:2]
    assert not {point.bench for point in again.points[2:]} & set(first)


def test_a_limit_skips_the_least_promising(base: BenchRequest) -> None:
    sweep = planned(resource(kind="v5litepod-4"), base, 16, 32, limit=1)
    assert [point.state for point in sweep.points] == [PointState.WAITING] + [PointState.SKIPPED] * 3
    assert sweep.points[1].note == "beyond the limit of 1"


def test_what_cannot_be_planned_is_refused(base: BenchRequest) -> None:
    train = resource(kind="v5litepod-4")
    with pytest.raises(OperatorError, match="No point of this sweep"):
        plan_sweep(train, base, target="x", context="c", embedding_dimensions=[63], meshes=MESHES[:1], platform="cpu")
    with pytest.raises(OperatorError, match="No point"):
        plan_sweep(train, base, target="x", context="c", batch_sizes=[10**7])


@pytest.mark.parametrize("text", ["", "1x2", "1x2x3x4", "axbxc", "1x1x1/1x1x1/1x1x1", "1x16x1/"])
def test_a_mesh_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="is not a mesh"):
        parse_mesh(text)


def test_meshes_are_read_as_they_are_shown() -> None:
    assert parse_mesh("1x16x1/2x1x1") == Mesh(Axes(1, 16, 1), Axes(2))
    assert parse_mesh("4x1x2") == Mesh(Axes(4, 1, 2))


async def test_a_sweep_over_slice_counts_runs_each_request_and_stops_each_by_itself(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    one, two = resource("one", kind="v5litepod-4", slices=1), resource("two", kind="v5litepod-4", slices=2)
    parts = [
        plan_sweep(
            item,
            base,
            target=item.name,
            context="demo",
            meshes=[Mesh(Axes(1, 4, 1), Axes(item.slice_count))],
            batch_sizes=rows,
            platform="cpu",
            rule=StopRule(failures=2),
        )
        for item, rows in ((one, (13, 13, 16)), (two, (16, 32)))
    ]
    parts[0].points.sort(key=lambda point: point.request.batch_size != 13)
    sweep, store = join_sweeps(parts), SweepStore(journal)
    assert sweep.targets == ("one", "two")
    assert [point.position for point in sweep.points] == list(range(5))
    await run_sweep(sweep, [one, two], manager, store)
    states = [(point.target, point.state) for point in sweep.points]
    assert states[2:] == [("one", PointState.SKIPPED), ("two", PointState.DONE), ("two", PointState.DONE)]
    assert sweep.stopped == "one: 2 in a row failed"
    assert {(each.target, each.slices) for each in manager.store.records()} == {("one", 1), ("two", 2)}
    assert [point.target for point in store.load(sweep.id, manager).points] == ["one"] * 3 + ["two"] * 2
    with pytest.raises(OperatorError, match="one of sweep"):
        await run_sweep(sweep, [two], manager, store)


async def test_a_point_that_went_on_without_its_console_is_not_run_again(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    train, store = resource(kind="v5litepod-4"), SweepStore(journal)
    sweep = planned(train, base, 16)
    await run_sweep(sweep, [train], manager, store)
    first = [point.bench for point in sweep.points]
    sweep.points[1].state = PointState.RUNNING
    store.save(sweep)
    again = store.load(sweep.id, manager)
    assert [(point.state, point.bench) for point in again.points] == [(PointState.DONE, each) for each in first]
    assert again.points[1].tflops_per_device == 16.0


async def test_a_console_runs_a_sweep_and_takes_it_up_after_a_restart(
    manager: BenchManager, journal: Journal, base: BenchRequest
) -> None:
    train = resource(kind="v5litepod-4")
    sweeps = SweepManager(manager, journal)
    sweep = planned(train, base, 16, 32)
    sweeps.begin(sweep, [train])
    with pytest.raises(OperatorError, match="runs on train-a"):
        sweeps.begin(planned(train, base, 16), [train])
    async with asyncio.timeout(30):
        while not sweep.points[0].bench:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await sweeps.close()
    assert not sweeps.is_running(sweep.id)
    with pytest.raises(OperatorError, match="nothing to stop"):
        await sweeps.stop(sweep)
    after = SweepManager(manager, journal)
    found = after.find(sweep.id)
    assert found is not sweep
    assert PointState.WAITING in [point.state for point in found.points]
    after.begin(found, [train])
    await after.wait(found)
    assert [point.state for point in found.points] == [PointState.DONE] * 4
    assert found.points[0].bench == sweep.points[0].bench, "what the first console launched was waited for"
    assert len(manager.store.records()) == 4
