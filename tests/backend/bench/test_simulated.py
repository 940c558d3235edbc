"""Benchmarks on the simulated Cloud TPU: real SSH, real supervisor, real multi-process JAX."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from backend.bench.model import BenchRequest, BenchState
from backend.cloud.requests import CreateRequest
from backend.model import Fleet, QueuedResource, Tier
from backend.outcomes import ExitCode
from backend.tower import Tower
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

pytestmark = pytest.mark.xdist_group("jax")

BOUND_S = 120.0
RUN_LIMIT_S = 150.0
SIZES = ("-d", "64", "-b", "16", "-n", "2")
MESH = ("--dcn_data_parallelism", "2", "--ici_fsdp_parallelism", "4")
ENDLESS = "777777"


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Iterator[Simulator]:
    made = simulators(fresh=True)
    yield made
    made.stop()


@pytest.fixture
async def tower(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tower]:
    for name, value in own_environment(simulator.directory).items():
        if name.startswith("XDG_"):
            monkeypatch.setenv(name, value)
    async with Tower.open(simulator.context) as made:
        yield made


@pytest.fixture
async def pair(tower: Tower) -> str:
    """Two slices of one worker with four chips each: the smallest Multislice."""
    name = f"pair-{uuid4().hex[:6]}"
    request = CreateRequest(
        name=name,
        project=tower.context.project,
        zone=tower.context.zones[0],
        accelerator_type="v5litepod-4",
        runtime_version="v2-alpha-tpuv5-lite",
        node_count=2,
        tier=Tier.SPOT,
    )
    await tower.client.create_queued_resource(request, request_id=str(uuid4()))

    def ready(fleet: Fleet) -> QueuedResource | None:
        return next((item for item in fleet.find(name) if item.ready), None)

    await tower.watch.wait_for(ready, BOUND_S)
    return name


def test_the_documents_run_is_refused_on_cpu_workers_with_sizes_that_fit(simulator: Simulator) -> None:
    done = simulator.cli("bench", "shardings", "train-a", "-dd", "2", "-if", "16", "--dry-run", "--format", "json")
    assert done.returncode == ExitCode.USAGE
    plan = json.loads(done.stdout)["plan"]
    assert (plan["platform"], plan["devices"], plan["workers"]) == ("cpu", 32, 8)
    assert "--embedding_dimension 256" in plan["refusals"][0]
    small = simulator.cli("bench", "shardings", "train-a", "-dd", "2", "-if", "16", *SIZES, "--dry-run")
    assert small.returncode == ExitCode.OK, small.stderr
    wrong = simulator.cli("bench", "shardings", "train-a", "-if", "4", *SIZES)
    assert wrong.returncode == ExitCode.USAGE
    assert "multiply to 4, but a v5litepod-16 slice has 16 chips" in wrong.stderr
    assert wrong.stdout == ""


async def test_every_step_is_printed_and_kept(simulator: Simulator, pair: str) -> None:
    arguments = ("bench", "shardings", pair, *MESH, *SIZES, "--steps", "3", "--format", "json")
    done = simulator.cli(*arguments, timeout_s=RUN_LIMIT_S)
    assert done.returncode == ExitCode.OK, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["step"] for line in lines[:-1]] == [0, 1, 2, 3]
    assert all(line["workers"] == 2 for line in lines[:-1])
    summary = lines[-1]["summary"]
    assert (summary["state"], summary["steps"], summary["devices"], summary["mfu"]) == ("done", 3, 8, None)
    shown = simulator.cli("bench", "export", summary["bench"], "--format", "jsonl")
    assert len(shown.stdout.splitlines()) == 5


async def test_a_console_that_is_killed_finds_its_benchmark_again(
    simulator: Simulator, tower: Tower, pair: str
) -> None:
    seen = await asyncio.to_thread(kill_after_steps, simulator, pair)
    assert seen == [0, 1, 2]
    runs = await tower.runs.reattach()
    (bench,) = tower.benches.reattach(runs)
    await tower.benches.wait(bench)
    assert bench.state == BenchState.DONE, bench.words()
    assert [point.step for point in bench.points] == list(range(61))
    assert all(point.workers == 2 for point in bench.points)


@pytest.mark.heavy
async def test_a_preempted_benchmark_fails_and_says_who_was_first(
    simulator: Simulator, tower: Tower, pair: str
) -> None:
    (resource,) = tower.watch.fleet.find(pair)
    request = BenchRequest(
        dcn_data_parallelism=2,
        ici_fsdp_parallelism=4,
        embedding_dimension=64,
        batch_size=16,
        num_layers=2,
        steps=1_000_000,
    )
    plan = await tower.benches.plan(resource, request)
    assert plan.refusals == ()
    bench = await tower.benches.launch(plan)
    async with asyncio.timeout(RUN_LIMIT_S):
        while not bench.points and not bench.state.is_over:
            await tower.benches.changed(bench)
        await asyncio.to_thread(simulator.inject, "preempt", pair)
        await tower.benches.wait(bench)
    assert bench.state == BenchState.FAILED
    assert bench.run.first_failure is not None


async def test_an_interrupted_benchmark_is_gone_from_its_workers(simulator: Simulator, pair: str) -> None:
    code, output, errors = await asyncio.to_thread(interrupt_after_a_step, simulator, pair)
    assert code == ExitCode.INTERRUPTED, errors
    assert json.loads(output.splitlines()[-1])["summary"]["state"] == "stopped"
    assert running_programs(simulator) == []


def shardings(simulator: Simulator, pair: str, *flags: str) -> subprocess.Popen[bytes]:
    command = ["--context-file", str(simulator.context_file), "bench", "shardings", pair, *MESH, *SIZES, *flags]
    return subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", *command, "--format", "json"],
        cwd=ROOT,
        env=own_environment(simulator.directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def kill_after_steps(simulator: Simulator, pair: str) -> list[int]:
    """A console that dies of KILL after three steps of sixty; returns the steps that it showed."""
    console = shardings(simulator, pair, "--steps", "60")
    assert console.stdout is not None
    lines = [console.stdout.readline() for _ in range(3)]
    console.send_signal(signal.SIGKILL)
    _, errors = console.communicate()
    assert all(lines), errors.decode()
    return [json.loads(line)["step"] for line in lines]


def interrupt_after_a_step(simulator: Simulator, pair: str) -> tuple[int, bytes, str]:
    console = shardings(simulator, pair, "--steps", ENDLESS)
    assert console.stdout is not None
    console.stdout.readline()
    console.send_signal(signal.SIGINT)
    output, errors = console.communicate(timeout=RUN_LIMIT_S)
    return console.returncode, output, errors.decode()


def running_programs(simulator: Simulator) -> list[str]:
    """Processes of endless benchmarks that are alive on the workers of this simulator, and of no other on this machine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            ours = f"{simulator.directory}/".encode() in (entry.parent / "environ").read_bytes()
            if ours and b"jobs.programs.shardings" in words and ENDLESS.encode() in words:
                found.append(entry.parent.name)
    return found
