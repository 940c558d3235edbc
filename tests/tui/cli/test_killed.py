"""A console or a verb that is killed with SIGKILL: what is told of its runs afterwards, and what is left of them."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from backend.logs.worker_log import WorkerLog
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.test_cli_run import BOUND_S, detached, holding, lines, start, wait_for


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """train-a has 2 slices of 4 workers."""
    return simulators(seed=3)


def test_a_follower_that_is_killed_leaves_a_log_that_goes_on_exactly(sim: Simulator, tmp_path: Path) -> None:
    """The program waits at 100 and 200 for its door, so that each follower finds news however slowly it starts."""
    door = f'[ $((i % 100)) = 0 ] && until [ -e {tmp_path}/$i ] || [ "$i" = 300 ]; do sleep 0.05; done'
    run = detached(sim, "sh", "-c", f'for i in $(seq 1 300); do echo "$i"; sleep 0.002; {door}; done; true')
    path = sim.directory / ".state" / "slicetower" / "runs" / run / "train-a.0.0.log"
    for reached in (100, 200):
        process = start(sim, "logs", run, "--follow")
        before = path.stat().st_size if path.exists() else 0
        wait_for(lambda before=before: path.exists() and path.stat().st_size > before, "new output")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=BOUND_S)
        (tmp_path / str(reached)).touch()
    sim.cli("logs", run, "--follow")
    expected = "".join(f"{number}\n" for number in range(1, 301)).encode()
    for worker in range(4):
        data = path.with_name(f"train-a.0.{worker}.log").read_bytes()
        assert hashlib.sha256(data).digest() == hashlib.sha256(expected).digest()
    log = WorkerLog(path, writable=False)
    assert log.total == 300
    log.close()


@pytest.mark.parametrize("batch", [0, 1])
def test_what_had_started_when_the_console_was_killed_is_never_called_not_started(
    sim: Simulator, tmp_path: Path, batch: int
) -> None:
    until = f'[ "$HOSTNAME" = "${{HOSTNAME%-w-{batch}}}" ] && exit 0; touch {tmp_path}/begun; exec sleep 631.{batch}'
    process = start(sim, "run", "train-a/0/0-1", "--batch-size", "1", "--", "sh", "-c", until)
    wait_for((tmp_path / "begun").exists, "the process of that batch")
    process.kill()
    process.communicate(timeout=BOUND_S)
    shown = sim.cli("runs", "show", "last", "--format", "json")
    last = next(item for item in lines(shown) if item.get("target") == f"train-a/0/{batch}")
    assert last["outcome"] in ("unknown", "pending"), last
    assert sim.cli("runs", "stop", "last").returncode == 0
    assert not holding(f"631.{batch}")


def test_a_run_whose_console_was_killed_is_not_listed_as_running(sim: Simulator, tmp_path: Path) -> None:
    process = start(sim, "run", "train-a/0/2", "--", "sh", "-c", f"touch {tmp_path}/begun; exec sleep 632")
    wait_for((tmp_path / "begun").exists, "its process")
    newest = lines(sim.cli("runs", "list", "--limit", "1", "--format", "json"))[0]
    assert (newest["state"], newest["summary"]) == ("running", {"pending": 1})
    process.kill()
    process.communicate(timeout=BOUND_S)
    closed = lines(sim.cli("runs", "list", "--limit", "1", "--format", "json"))[0]
    assert closed["run"] == newest["run"]
    assert (closed["state"], closed["summary"]) == ("ended", {"unknown": 1})
    assert f"slicetower runs stop {closed['run']}" in closed["first_failure"]["error"]
    wait_for(lambda: not holding("632"), "the worker to end it: nobody is there")
    assert sim.cli("runs", "stop", closed["run"]).returncode == 0
    shown = lines(sim.cli("runs", "show", closed["run"], "--format", "json"))
    assert (shown[0]["outcome"], "none of its processes is left" in shown[0]["error"]) == ("unknown", True)


def test_a_known_failure_is_told_while_the_run_lives_and_kept(sim: Simulator, tmp_path: Path) -> None:
    """Told before the run can end; the console is killed then, and another one still knows it."""
    says = "echo fine; echo 'open(/dev/vfio/1): Device or resource busy'"
    process = start(
        sim, "run", "train-a/0/1,3", "--shell", "--", f"{says}; until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    )
    assert process.stderr is not None
    told = next(line for line in process.stderr if "line 2: " in line)
    assert "The device /dev/vfio/1 is held by another process" in told
    list_of = lines(sim.cli("runs", "list", "--limit", "1", "--format", "json"))
    assert list_of[0]["state"] == "running"
    process.kill()
    process.communicate(timeout=BOUND_S)
    (tmp_path / "end").touch()
    shown = lines(sim.cli("runs", "show", "last", "--format", "json"))[-1]["symptoms"]
    assert {(each["target"], each["line"], each["signature"]) for each in shown} == {
        ("train-a/0/1", 2, "device-busy"),
        ("train-a/0/3", 2, "device-busy"),
    }
    text = sim.cli("runs", "show", "last").stdout
    assert "seen      train-a/0/1,3 (first in train-a/0/" in text


def test_a_supervised_run_that_nobody_follows_is_listed_as_detached(sim: Simulator, tmp_path: Path) -> None:
    run = detached(sim, "sh", "-c", f"until [ -e {tmp_path}/end ]; do sleep 0.1; done")
    process = start(sim, "logs", run, "--follow")

    def state() -> str:
        listed = lines(sim.cli("runs", "list", "--format", "json"))
        return str(next(item["state"] for item in listed if item["run"] == run))

    process.kill()
    process.communicate(timeout=BOUND_S)
    assert state() == "detached"
    (tmp_path / "end").touch()
    assert sim.cli("logs", run, "--follow").returncode == 0
    assert state() == "ended"
