"""A benchmark is launched, read while it runs, kept, compared and found again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from backend.bench.afterwards import read_run
from backend.bench.compare import compare, to_csv, to_json_lines, weak_scaling
from backend.bench.live import Bench
from backend.bench.manager import BenchManager, read_survey
from backend.bench.model import BenchRecord, BenchRequest, BenchState
from backend.bench.store import BenchStore
from backend.journal import Journal
from backend.logs.worker_log import WorkerLog
from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import WorkerResult
from backend.runs.model import RunPlan, RunState
from backend.targets import WorkerRef, workers_of
from tests.backend.bench.bench_world import CPU, LocalRun, LocalRuns, resource, survey_of

REQUEST = BenchRequest(
    dcn_data_parallelism=2, ici_fsdp_parallelism=4, embedding_dimension=64, batch_size=32, num_layers=2, steps=4
)
LIMIT_S = 150.0


class NoPool:
    """Nobody is asked in these tests: surveys are given."""

    async def connection(self, worker: WorkerRef) -> asyncssh.SSHClientConnection:
        raise OperatorError(f"{worker.address} is not reachable.")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db")
    yield opened
    opened.close()


@pytest.fixture
async def runs(tmp_path: Path) -> AsyncIterator[LocalRuns]:
    launcher = LocalRuns(tmp_path / "runs")
    yield launcher
    await launcher.close()


def step(number: int, seconds: float, *, warmup: bool = False) -> bytes:
    told: dict[str, Any] = {"step": number, "step_time_s": seconds, "tflops_per_device": 1 / seconds}
    return json.dumps({**told, "warmup": True} if warmup else told).encode() + b"\n"


class Logged:
    """A run as a benchmark sees it, whose logs the test writes."""

    def __init__(self, folder: Path, slices: int = 1) -> None:
        train = resource(kind="v5litepod-8", slices=slices)
        self.run = LocalRun(RunPlan(_run_request(), workers_of(train), ((0,),), ""), folder)
        for worker in self.run.workers:
            self.run.logs[worker.address] = WorkerLog(folder / f"{worker.file_stem}.log")

    def say(self, address: str, *data: bytes) -> None:
        for each in data:
            self.run.logs[address].append(each)

    def end(self, outcome: Outcome = Outcome.OK) -> None:
        self.run.state = RunState.ENDED
        self.run.results = [WorkerResult(worker, outcome=outcome) for worker in self.run.workers]


def _run_request() -> Any:
    from backend.runs.model import RunRequest

    return RunRequest(argv=("true",), kind="bench")


def record(run: LocalRun, **other: Any) -> BenchRecord:
    facts: dict[str, Any] = {
        "id": run.id,
        "request": REQUEST,
        "target": "train-a",
        "project": "demo",
        "zone": "us-west4-a",
        "queued_resource": "train-a",
        "accelerator_type": "v5litepod-8",
        "slices": 2,
        "devices": 16,
        "platform": "tpu",
        "state": BenchState.STARTING,
        "context": "demo",
        "started_at": run.started_at,
        "peak_tflops_per_device": 100.0,
    }
    return BenchRecord(**{**facts, **other})


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    made = Logged(tmp_path, slices=2)
    yield made
    made.run.close()


def test_steps_are_read_as_they_are_written_and_half_a_line_waits(logged: Logged) -> None:
    bench = Bench(logged.run, record(logged.run))
    assert bench.state.value == "starting"
    line = step(1, 0.5)
    logged.say("train-a/0/0", step(0, 9.0, warmup=True), line[:10])
    assert bench.refresh()
    assert [point.step for point in bench.points] == [0]
    assert not bench.refresh(), "nothing is new"
    before = bench.version
    logged.say("train-a/0/0", line[10:])
    logged.say("train-a/1/0", step(1, 0.7))
    bench.refresh()
    assert bench.version > before
    assert bench.state.value == "stepping"
    point = bench.point(1)
    assert point is not None
    assert (point.workers, point.step_time_low_s, point.step_time_high_s) == (2, 0.5, 0.7)
    assert point.step_time_s == pytest.approx(0.6)
    assert bench.points[0].set_aside == "first step"


def test_the_summary_is_of_counted_steps_and_names_the_straggler(logged: Logged) -> None:
    bench = Bench(logged.run, record(logged.run))
    messages = b'{"device":{"platform":"tpu","jax":"0.9"}}\n{"compiled":{"compile_s":2.5,"flops_per_device":5.0,'
    messages += b'"claimed_flops_per_device":6.0,"compiler_ratio":1.01}}\n'
    for address, seconds in (("train-a/0/0", 0.1), ("train-a/1/0", 0.2)):
        logged.say(address, messages, step(0, 9.0, warmup=True), *(step(n, seconds) for n in range(1, 6)))
        logged.say(address, step(6, 0.001), b'{"summary":{"exposed_communication":0.25}}\n')
    logged.end()
    bench.refresh()
    figures = bench.summary()
    assert bench.state == BenchState.DONE
    assert figures.steps == 5
    assert figures.set_aside == {"first step": 1, "above peak": 1}
    assert figures.step_time_s == pytest.approx(0.15)
    assert figures.tflops_per_device == pytest.approx(7.5)
    assert figures.claimed_tflops_per_device == pytest.approx(9.0)
    assert figures.tflops_total == pytest.approx(7.5 * 16)
    assert figures.mfu == pytest.approx(0.075)
    assert figures.exposed_communication == 0.25
    assert figures.slowest_worker == "train-a/1/0"
    assert bench.versions()["jax"] == "0.9"
    assert "7.5 % of peak" in bench.words().replace("7.5%", "7.5 %")


def test_no_utilisation_is_told_of_a_cpu(logged: Logged) -> None:
    logged.say("train-a/0/0", b'{"device":{"platform":"cpu"}}\n', step(1, 0.5))
    bench = Bench(logged.run, record(logged.run))
    assert bench.summary().tflops_per_device == 2.0
    assert bench.summary().mfu is None


def test_the_headline_of_a_cpu_speaks_in_the_unit_of_its_plot(logged: Logged) -> None:
    logged.say("train-a/0/0", b'{"step":1,"step_time_s":0.5,"tflops_per_device":0.0003348}\n')
    assert "0.3348 GFLOP/s a device" in Bench(logged.run, record(logged.run, platform="cpu")).words()


def test_an_error_of_a_program_is_told_and_made_safe(logged: Logged) -> None:
    bench = Bench(logged.run, record(logged.run))
    logged.say("train-a/1/0", b'{"error":{"kind":"port","what":"Failed\\u001b[2J","cure":""}}\n')
    logged.end(Outcome.FAILED)
    bench.refresh()
    assert bench.state == BenchState.FAILED
    (error,) = bench.errors
    assert (error.address, error.kind) == ("train-a/1/0", "port")
    assert "\x1b" not in error.what


def test_a_log_read_from_its_beginning_gives_the_same_figures(logged: Logged) -> None:
    live = Bench(logged.run, record(logged.run))
    for number in range(50):
        logged.say("train-a/0/0", step(number, 0.1 + number / 1000))
        logged.say("train-a/1/0", b"[Gloo] Rank 1 is connected\n", step(number, 0.2))
        live.refresh()
    logged.end()
    live.refresh()
    assert Bench(logged.run, record(logged.run)).points == live.points
    assert len(live.points) == 50


def test_any_training_run_can_be_read(logged: Logged) -> None:
    bench = read_run(logged.run, peak_tflops_per_device=200.0)
    for number in range(3):
        text = f"I0706 16:50:26.230209 140110937163584 metric_logger.py:214] completed step: {number}, seconds: 0.25,"
        logged.say("train-a/0/0", f"{text} TFLOP/s/device: 86.0, Tokens/s/device: 1.0, loss: 2.0\n".encode())
    bench.refresh()
    assert [point.tflops_per_device for point in bench.points] == [86.0, 86.0, 86.0]
    assert bench.summary().mfu == 0.43
    assert bench.words() == "stepping: 2 steps, 0.25 s a step, 86 TFLOP/s a device (43.0% of peak)"
    own = read_run(logged.run, pattern=r"step: (?P<step>\d+), seconds: (?P<seconds>[\d.]+)")
    assert [point.step_time_s for point in own.points] == [0.25, 0.25, 0.25]
    with pytest.raises(ValueError, match="position"):
        read_run(logged.run, pattern="(")


def test_records_survive_the_journal_and_are_found_by_a_beginning(logged: Logged, journal: Journal) -> None:
    logged.say("train-a/0/0", step(1, 0.5), step(2, 0.4))
    kept = Bench(logged.run, record(logged.run, topology="2x4", program_digest="d" * 64, note="first")).record
    store = BenchStore(journal)
    store.save(kept)
    assert store.get(kept.id[:8]) == kept
    assert store.records(queued_resource="train-a") == [kept]
    assert store.records(queued_resource="train") == []
    with pytest.raises(OperatorError, match="no benchmark 'nothing'"):
        store.get("nothing")
    store.save(replace(kept, id=kept.id + "x"))
    with pytest.raises(OperatorError, match="several"):
        store.get(kept.id[:8])


def test_comparisons_know_their_noise(logged: Logged) -> None:
    for number in range(10):
        logged.say("train-a/0/0", step(number + 1, 0.1 + number / 1000))
    base = Bench(logged.run, record(logged.run)).record
    rate = base.summary.tflops_per_device
    assert rate is not None
    close = replace(base, id="b", summary=replace(base.summary, tflops_per_device=rate * 1.01))
    fast = replace(base, id="c", versions={"jax": "9"}, summary=replace(base.summary, tflops_per_device=rate * 2))
    empty = replace(base, id="d", summary=replace(base.summary, tflops_per_device=None))
    told = compare([base, close, fast, empty])
    assert [each.verdict for each in told] == ["same", "same", "faster", "no figures"]
    assert told[2].differences == ("jax 9",)
    scaling = weak_scaling([replace(base, slices=1, devices=8), replace(close, slices=4, devices=32)])
    assert [(each.slices, round(each.efficiency, 2)) for each in scaling] == [(1, 1.0), (4, 1.01)]


def test_exports_hold_every_step_and_the_command(logged: Logged) -> None:
    logged.say("train-a/0/0", step(1, 0.5), step(2, 0.4))
    kept = Bench(logged.run, record(logged.run)).record
    rows = to_csv([kept]).splitlines()
    assert rows[0].startswith("bench,target,")
    assert len(rows) == 3
    assert len(rows[1].split(",")) == len(rows[0].split(","))
    head, *steps = [json.loads(line) for line in to_json_lines([kept])]
    assert head["bench"]["command"].startswith("slicetower bench shardings train-a --dcn_data_parallelism 2")
    assert [each["step"] for each in steps] == [1, 2]


@pytest.mark.parametrize(
    ("stdout", "stderr", "error"),
    [
        (b'noise\n{"jax": "0.10", "cpus": 4, "jax_platforms": "cpu"}\n', b"", ""),
        (b"", b"sh: python9: not found\n", "exit code 127 and: sh: python9: not found"),
        (b'{"jax": ', b"", 'and: {"jax":'),
        (b"[1]\n", b"", "and: [1]"),
    ],
)
def test_an_answer_that_is_none_is_told(stdout: bytes, stderr: bytes, error: str) -> None:
    told = read_survey(stdout, stderr, 127)
    assert error in told.error
    if not error:
        assert (told.jax, told.cpus, told.is_cpu) == ("0.10", 4, True)


async def test_a_worker_that_cannot_be_asked_refuses_the_plan(journal: Journal, runs: LocalRuns) -> None:
    manager = BenchManager(runs, NoPool(), journal, context="demo")
    plan = await manager.plan(resource(kind="v5litepod-4"), REQUEST)
    assert "can't be asked: train-a/0/0 is not reachable." in plan.refusals[0]
    with pytest.raises(OperatorError, match="can't be asked"):
        await manager.launch(plan)
    assert runs.runs == []


@pytest.mark.xdist_group("jax")
async def test_two_slices_run_the_shipped_program_and_are_kept(journal: Journal, runs: LocalRuns) -> None:
    manager = BenchManager(runs, NoPool(), journal, context="demo")
    train = resource(kind="v5litepod-4")
    plan = await manager.plan(train, REQUEST, survey=survey_of(workers_of(train), CPU))
    assert plan.refusals == ()
    async with asyncio.timeout(LIMIT_S):
        bench = await manager.launch(plan)
        await manager.wait(bench)
    assert bench.state == BenchState.DONE, bench.errors
    assert [len(readings) for readings in bench.readings.values()] == [5, 5]
    kept = manager.store.get(bench.id)
    assert kept.state == BenchState.DONE
    assert kept.summary.steps == 4
    assert kept.platform == "cpu"
    assert kept.summary.mfu is None
    assert kept.summary.exposed_communication is not None
    assert kept.versions["jax"]
    assert len(kept.points) == 5
    again = BenchManager(runs, NoPool(), journal, context="demo")
    (found,) = again.reattach(runs.runs)
    await again.wait(found)
    assert found.record == kept
    await manager.close()


@pytest.mark.xdist_group("jax")
async def test_a_stopped_benchmark_is_no_failure(journal: Journal, runs: LocalRuns) -> None:
    manager = BenchManager(runs, NoPool(), journal, context="demo")
    train = resource(kind="v5litepod-4", slices=1)
    endless = replace(REQUEST, dcn_data_parallelism=1, steps=1_000_000)
    plan = await manager.plan(train, endless, survey=survey_of(workers_of(train), CPU))
    async with asyncio.timeout(LIMIT_S):
        bench = await manager.launch(plan)
        while not bench.points and not bench.state.is_over:
            await manager.changed(bench)
        assert bench.points
        await manager.stop(bench)
        await manager.wait(bench)
    assert bench.state == BenchState.STOPPED
    assert manager.store.get(bench.id).state == BenchState.STOPPED
