"""Production jobs on the simulated Cloud TPU: started by the workers themselves, followed through repairs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backend.outcomes import Outcome
from backend.paths import Paths
from backend.runs.boots import BootPace
from backend.runs.manager import Run
from backend.runs.model import RunState
from backend.ssh import scripts
from backend.ssh.remote import ask, new_nonce
from backend.tower import Tower
from tests.simulator import Simulator, SimulatorFactory

SHAPE = ("--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a")
TIMEOUT_S = 120.0

COUNTER = """\
import os, pathlib, sys, time
shared, me = pathlib.Path(os.environ["SHARED"]), os.environ["HOSTNAME"]
step = max((int(path.read_text()) for path in shared.glob("*.step")), default=0)
print("restored at step", step, flush=True)
while not (shared / "finish").exists():
    step += 1
    fresh = shared / (me + ".new")
    fresh.write_text(str(step))
    fresh.replace(shared / (me + ".step"))
    print("step", step, flush=True)
    time.sleep(0.05)
print("done at", step, flush=True)
sys.exit(int((shared / "finish").read_text()))
"""


def state_of(simulator: Simulator) -> Paths:
    home = simulator.directory
    return Paths(home / ".config" / "slicetower", home / ".state" / "slicetower")


@asynccontextmanager
async def console(simulator: Simulator) -> AsyncIterator[Tower]:
    """A console on the simulator, with the state that the CLI has."""
    tower = Tower(simulator.context, state_of(simulator))
    tower.runs.boot_pace = BootPace(first_s=0.05, most_s=0.3, settle_s=1.0, gone_s=1.0)
    try:
        yield tower
    finally:
        await tower.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 (what is waited for happens in another process)
            await asyncio.sleep(0.05)


def text(run: Run, index: int) -> str:
    path = run.log_path(index)
    return path.read_text() if path.exists() else ""


def restored(run: Run, index: int) -> list[int]:
    return [int(number) for number in re.findall(r"^restored at step (\d+)$", text(run, index), re.MULTILINE)]


def steps(shared: Path) -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in shared.glob("*.step")}


async def remote_outputs(tower: Tower, run: Run, index: int) -> bytes:
    """Outputs of all boots on the worker's disk, one after the other."""
    nonce = new_nonce()
    script = scripts.line(f'cat "$HOME"/.slicetower/runs/{run.id}-b*/output')
    _, _, output = await ask(tower.pool, run.workers[index], script, nonce, timeout_s=30.0, limit=1 << 26)
    return output


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Stands for a bucket: every worker can write there, and it outlives all of them."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def create(simulator: Simulator, tmp_path: Path, name: str, *more: str, program: str = COUNTER) -> str:
    """Asks for two slices with a job; returns the run."""
    code = tmp_path / "code"
    code.mkdir(exist_ok=True)
    (code / "program.py").write_text(program)
    done = simulator.cli(
        "qr", "create", name, *SHAPE, "--node-count=2", f"--sync={code}", f"--env=SHARED={tmp_path / 'shared'}",
        *more, "--job", "--", "python3", "program.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(r"run (\S+) starts at every boot", done.stderr)
    assert found is not None, done.stderr
    return found[1]


async def test_a_repaired_job_goes_on_above_step_0_and_is_followed_as_the_same_run(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod", "--setup=echo prepared")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        everyone = range(8)
        assert [worker.address for worker in run.workers] == [f"prod/{s}/{w}" for s in (0, 1) for w in range(4)]
        await until(lambda: all("\nstep 5\n" in text(run, index) or restored(run, index) for index in everyone))
        await until(lambda: max(steps(shared).values(), default=0) > 10)
        nodes = {worker.address: worker.uid for worker in run.workers}

        simulator.inject("repair", "prod/1")
        await until(lambda: all(len(restored(run, index)) == 2 for index in everyone))

        for index in everyone:
            log = text(run, index)
            assert restored(run, index)[1] > 0
            replaced = run.workers[index].slice_index == 1
            assert log.count("was replaced") == (1 if replaced else 0)
            assert (run.workers[index].uid != nodes[run.workers[index].address]) == replaced
            boots = re.findall(r"^\[slicetower\] boot (\d+) of run", log, re.MULTILINE)
            assert boots == (["1", "1"] if replaced else ["1", "2"])
            assert log.count("prepared\n") == 2
        assert run.state is RunState.RUNNING
        assert tower.runs.active[run_id] is run

        (shared / "finish").write_text("0")
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        assert run.summary == {Outcome.OK: 8}
        for index in range(4):
            assert run.log_path(index).read_bytes() == await remote_outputs(tower, run, index)


async def test_a_console_that_was_away_during_a_reset_reads_every_boot_once(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        await until(lambda: all(restored(run, index) for index in range(8)))
        run.detach()
        await run.wait()
        assert run.state is RunState.DETACHED
    assert simulator.cli("qr", "reset", "prod", "--yes").returncode == 0
    assert simulator.cli("qr", "wait", "prod").returncode == 0
    async with console(simulator) as tower:
        await tower.refresh()
        (run,) = await tower.runs.reattach()
        assert run.id == run_id
        await until(lambda: all(len(restored(run, index)) == 2 for index in range(8)))
        (shared / "finish").write_text("3")
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        assert run.summary == {Outcome.FAILED: 8}
        assert {result.exit_code for result in run.results} == {3}
        for index in range(8):
            assert run.log_path(index).read_bytes() == await remote_outputs(tower, run, index)


async def test_what_a_power_cut_took_from_the_workers_file_is_kept_here_and_nothing_is_read_twice(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        await until(lambda: all(text(run, index).count("\nstep ") > 3 for index in range(8)))
        run.detach()
        await run.wait()
        before = [run.log_path(index).read_bytes() for index in range(8)]
    assert simulator.cli("qr", "reset", "prod", "--yes").returncode == 0
    assert simulator.cli("qr", "wait", "prod").returncode == 0
    cut = f"truncate -s 40 ~/.slicetower/runs/{run_id}-b00001/output"
    assert simulator.cli("run", "prod", "--shell", "--", cut).returncode == 0
    async with console(simulator) as tower:
        await tower.refresh()
        (run,) = await tower.runs.reattach()
        await until(lambda: all(len(restored(run, index)) == 2 for index in range(8)))
        (shared / "finish").write_text("0")
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        for index in range(8):
            second = (await remote_outputs(tower, run, index))[40:]
            assert run.log_path(index).read_bytes() == before[index] + second


FAKE_GCLOUD = """\
#!/bin/sh
# gcloud storage cp, with a folder for a bucket.
[ "$1 $2" = "storage cp" ] || exit 2
place() { case "$1" in gs://*) echo "FOLDER/${1#gs://}" ;; *) echo "$1" ;; esac; }
mkdir -p "$(dirname "$(place "$4")")" && exec cp "$(place "$3")" "$(place "$4")"
"""


async def test_code_that_is_too_large_for_the_metadata_goes_through_a_bucket(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    code = tmp_path / "code"
    code.mkdir()
    (code / "noise.bin").write_bytes(random.Random(1).randbytes(300_000))
    (code / "program.py").write_text(COUNTER)
    ask_for = ("qr", "create", "prod", *SHAPE, f"--sync={code}", f"--env=SHARED={shared}")
    job = ("--job", "--", "python3", "program.py")
    refused = simulator.cli(*ask_for, *job)
    assert refused.returncode == 2
    assert "256 KiB" in refused.stderr
    assert "--bundle gs://" in refused.stderr
    (program,) = simulator.directory.rglob("bin/hostname")
    gcloud = program.with_name("gcloud")
    gcloud.write_text(FAKE_GCLOUD.replace("FOLDER", str(tmp_path / "buckets")))
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gcloud.parent}:{os.environ['PATH']}")
    done = simulator.cli(*ask_for, "--bundle=gs://bucket/jobs", *job)
    assert done.returncode == 0, done.stderr
    async with console(simulator) as tower:
        run = tower.runs.attach(tower.runs.history()[0].id)
        await until(lambda: all(restored(run, index) for index in range(4)))
        (shared / "finish").write_text("0")
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        assert run.summary == {Outcome.OK: 4}


async def test_a_stopped_job_is_not_started_again_by_a_reset(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        await until(lambda: all(restored(run, index) for index in range(8)))
        report = await run.stop(1.0)
        assert report.clean
        assert len(report.stopped) == 8
        assert run.state is RunState.ENDED
        before = steps(shared)
    assert simulator.cli("qr", "reset", "prod", "--yes").returncode == 0
    assert simulator.cli("qr", "wait", "prod").returncode == 0
    logs = list(simulator.directory.rglob("serial.log"))
    await until(lambda: sum("was stopped by its operator" in log.read_text() for log in logs) == 8)
    assert steps(shared) == before


async def test_a_recreated_request_carries_its_job_on_as_the_same_run(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        await until(lambda: all(restored(run, index) for index in range(8)))
        recreating = asyncio.create_task(
            asyncio.to_thread(simulator.cli, "qr", "recreate", "prod", "--yes", "--wait")
        )
        await until(lambda: all(len(restored(run, index)) == 2 for index in range(8)))
        assert (await recreating).returncode == 0
        assert all(restored(run, index)[1] > 0 for index in range(8))
        assert all(text(run, index).count("was replaced") == 1 for index in range(8))
        (shared / "finish").write_text("0")
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        assert run.summary == {Outcome.OK: 8}


async def test_a_job_whose_request_is_deleted_ends_and_says_so(
    simulators: SimulatorFactory, tmp_path: Path, shared: Path
) -> None:
    simulator = simulators(fresh=True)
    run_id = create(simulator, tmp_path, "prod")
    async with console(simulator) as tower:
        run = tower.runs.attach(run_id)
        await until(lambda: all(restored(run, index) for index in range(8)))
        assert simulator.cli("qr", "delete", "prod", "--force", "--yes").returncode == 0
        async with asyncio.timeout(TIMEOUT_S):
            await run.wait()
        assert run.summary == {Outcome.UNKNOWN: 8}
        assert {result.error for result in run.results} == {"Its queued resource is gone."}


def test_a_dry_run_shows_the_exact_script_that_would_be_sent(simulators: SimulatorFactory, tmp_path: Path) -> None:
    simulator = simulators()
    done = simulator.cli("qr", "create", "prod", *SHAPE, "--dry-run", "--format=json", "--job", "--", "echo", "a b")
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout.splitlines()[-1])
    sent = view["body"]["tpu"]["nodeSpec"][0]["node"]["metadata"]
    assert sent == {"startup-script": view["startup_script"], "slicetower-run": view["run"]}
    assert "#   exec echo 'a b'" in view["startup_script"].replace("\\'", "'")
    table = simulator.cli("qr", "create", "prod", *SHAPE, "--dry-run", "--job", "--", "echo", "a b")
    assert table.stdout.startswith("#!/usr/bin/env python3\n# Made by slicetower")


def test_a_keep_takes_no_variable_of_the_operator_and_names_the_cure(simulators: SimulatorFactory) -> None:
    done = simulators().cli("qr", "keep", "train-a", "--yes", "--env", "HF_TOKEN")
    assert done.returncode == 2
    assert "--env HF_TOKEN: what is kept is made again when nobody is there" in done.stderr
    assert "Secret Manager" in done.stderr


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--job", "--env=HF_TOKEN", "--", "train"), "Secret Manager"),
        (("--job", "--metadata=startup-script=x", "--", "train"), "startup-script"),
        (("--job", "--bundle=gs://b/x", "--", "train"), "--sync"),
        (("--job",), "empty"),
        (("--", "train"), "--job"),
        (("--setup=x",), "--job"),
    ],
)
def test_what_no_job_can_be_is_refused_with_a_cure_and_nothing_is_sent(
    simulators: SimulatorFactory, more: tuple[str, ...], what: str
) -> None:
    simulator = simulators()
    done = simulator.cli("qr", "create", "prod-refused", *SHAPE, *more)
    assert done.returncode == 2
    assert what in done.stderr
    assert "prod-refused" not in simulator.cli("qr", "list").stdout
