"""`slicetower qr wait` is over when the cloud and ssh both say so."""

from __future__ import annotations

import json
from collections.abc import Iterator

import asyncssh
import pytest

from backend.outcomes import ExitCode
from tests.simulator import Simulator, SimulatorFactory, run_cli


@pytest.fixture
def world(simulators: SimulatorFactory) -> Iterator[Simulator]:
    """The default world, its own."""
    simulator = simulators(fresh=True)
    yield simulator
    simulator.stop()


def test_a_worker_that_ssh_does_not_reach_is_waited_for_by_name_and_left_out_on_demand(world: Simulator) -> None:
    world.inject("refuse", "train-a/1/2")
    silent = world.cli("qr", "wait", "train-a", "--timeout=1s")
    assert silent.returncode == ExitCode.TIMED_OUT, silent.stderr
    assert "no ssh yet: slice 1: worker 2: trying again (network)" in silent.stderr
    assert silent.stdout == ""
    cloud = world.cli("qr", "wait", "train-a", "--timeout=60s", "--no-ssh", "--format=json")
    assert cloud.returncode == ExitCode.OK, cloud.stderr
    assert json.loads(cloud.stdout)["state"] == "ACTIVE"
    assert "ACTIVE 8/8 workers, ready" in cloud.stderr
    assert "ssh" not in cloud.stderr
    state = world.cli("qr", "wait", "train-a", "--timeout=60s", "--state=ACTIVE")
    assert state.returncode == ExitCode.OK, "the state is the cloud's word"
    world.inject("refuse", "train-a/1/2", "--off")
    ready = world.cli("qr", "wait", "train-a", "--timeout=60s", "--format=json")
    assert ready.returncode == ExitCode.OK, ready.stderr
    assert json.loads(ready.stdout)["workers_ready"] == 8
    assert "ssh answers on 8 workers" in ready.stderr


def test_a_worker_that_refuses_the_key_for_good_ends_the_wait(world: Simulator) -> None:
    key = world.directory / "id_other"
    text = world.context_file.read_text("utf-8")
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(key)
    other = world.directory / "other.toml"
    other.write_text(text.replace('key = "id_ed25519"', 'key = "id_other"'), "utf-8")
    assert "id_other" in other.read_text("utf-8")
    key.chmod(0o600)
    done = run_cli(
        "--context-file", str(other), "--read-only", "qr", "wait", "train-a", "--timeout=60s", home=world.directory
    )
    assert done.returncode == ExitCode.UNREACHABLE, done.stderr
    assert "refuses" in done.stderr
