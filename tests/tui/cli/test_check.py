"""`slicetower check` on simulated workers: real probes, injected faults, exit codes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.tools.world import HOLD, fake_python, home_of, lines
from tests.simulator import Simulator, SimulatorFactory


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


def empty_root(path: Path) -> Path:
    """A root that holds no lockfile of this machine."""
    for name in ("dev", "tmp", "var"):
        (path / name).mkdir(parents=True)
    return path


def test_cpu_workers_that_are_well_pass(simulator: Simulator, tmp_path: Path) -> None:
    root = empty_root(tmp_path / "root")
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = str(chosen.getsockname()[1])
    options = ["--root", str(root), "--coordinator-port", port]
    done = simulator.cli("check", "train-a", *options, "--format", "json", "--facts")
    told = lines(done)
    findings = {each["check"]: each for each in told if "check" in each and each["severity"] == "ok"}
    assert findings["devices"]["what"].startswith("CPU workers")
    assert len(findings["devices"]["workers"]) == 8
    assert findings["coordinator"]["what"].endswith("its port is free")
    assert told[-1]["errors"] == {}
    assert len([each for each in told if "facts" in each]) == 8
    assert told[-1]["summary"]["fail"] == 0, told
    assert done.returncode == 0


def test_a_worker_with_another_version_is_named(simulator: Simulator, tmp_path: Path) -> None:
    root = empty_root(tmp_path / "root")
    home = home_of(simulator, "train-a/1/2")
    fake_python(home, "0.9.9")
    done = simulator.cli("check", "train-a", "--root", str(root), "--format", "json")
    found = [each for each in lines(done) if each.get("check") == "versions" and each["severity"] == "fail"]
    assert [each["workers"] for each in found if each["what"].startswith("jax is 0.9.9 here")] == [["train-a/1/2"]]
    assert done.returncode == 1


def test_a_holder_is_named_freed_and_gone(simulator: Simulator, tmp_path: Path) -> None:
    root = empty_root(tmp_path / "root")
    (root / "dev" / "accel0").write_bytes(bytes(4096))
    (root / "tmp" / "libtpu_lockfile").write_bytes(b"")
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(root / "dev" / "accel0")], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = simulator.cli("check", "train-a/0/0", "--root", str(root))
        assert done.returncode == 1
        assert f"the TPU is held by pid {holder.pid} of" in done.stdout
        assert "slicetower free TARGET" in done.stdout
        unasked = simulator.cli("free", "train-a/0/0", "--root", str(root))
        assert (unasked.returncode, holder.poll()) == (2, None)
        planned = simulator.cli("free", "train-a/0/0", "--root", str(root), "--dry-run")
        assert (planned.returncode, holder.poll()) == (0, None)
        assert f"pid {holder.pid} of" in planned.stdout
        freed = simulator.cli("free", "train-a/0/0", "--root", str(root), "--yes", "--format", "json")
        (told,) = lines(freed)
        assert (freed.returncode, told["free"], told["terminated"]) == (0, True, [holder.pid])
        assert told["lockfile"]["removed"] is True
        assert holder.wait(10) == -signal.SIGTERM
        again = simulator.cli("free", "train-a/0/0", "--root", str(root))
        assert (again.returncode, again.stdout) == (0, "train-a/0/0: free\n")
    finally:
        holder.kill()
        holder.communicate()


def test_a_read_only_context_frees_nothing(simulator: Simulator) -> None:
    done = simulator.cli("--read-only", "free", "train-a", "--yes")
    assert done.returncode == 2
    assert "read-only" in done.stderr


def test_an_unreachable_worker_is_told_beside_the_others(simulators: SimulatorFactory, tmp_path: Path) -> None:
    simulator = simulators(fresh=True)
    simulator.inject("refuse", "train-a/0/1")
    root = empty_root(tmp_path / "root")
    done = simulator.cli("check", "train-a/0", "--root", str(root), "--format", "json")
    told = lines(done)
    assert done.returncode == 3
    assert list(told[-1]["errors"]) == ["train-a/0/1"]
    assert told[0]["check"] == "reach"
    assert len(next(each for each in told if each.get("check") == "devices")["workers"]) == 3


def test_a_node_before_its_maintenance_is_warned_of(simulators: SimulatorFactory, tmp_path: Path) -> None:
    simulator = simulators(fresh=True)
    simulator.inject("unhealthy", "train-a/1", "--health", "UNHEALTHY_MAINTENANCE")
    done = simulator.cli("check", "train-a", "--root", str(empty_root(tmp_path / "root")), "--format", "json")
    (found,) = [each for each in lines(done) if each.get("check") == "node"]
    assert found["severity"] == "warn"
    assert found["workers"] == [f"train-a/1/{number}" for number in range(4)]
    assert "UNHEALTHY_MAINTENANCE" in found["what"]


def test_workers_are_asked_what_they_reach_and_which_code_they_have(simulator: Simulator, tmp_path: Path) -> None:
    root = empty_root(tmp_path / "root")
    (root / "code").mkdir()
    (root / "code" / "a.py").touch()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"https://127.0.0.1:{gone.getsockname()[1]}/"
    done = simulator.cli("check", "train-a/0", "--root", str(root), "--reach", url, "--code", "/code")
    assert done.returncode == 1, done.stderr
    assert f"{url} can't be reached" in done.stdout
    assert "everywhere" in done.stdout
    assert simulator.cli("check", "train-a/0", "--reach", "pypi.org").returncode == 2
