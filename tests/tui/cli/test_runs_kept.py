"""What is kept of runs: verdicts, notes and tags, the audit, and how old ones go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.tools.world import lines
from tests.simulator import Simulator, SimulatorFactory

PEER_LOST = Path(__file__).parents[2] / "fixtures" / "logs" / "jax_peer_lost_rank0.err"


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


def test_the_verdict_of_a_run_names_the_dead_worker_not_the_loud_ones(simulator: Simulator) -> None:
    """Worker 2 of a slice dies in silence after the survivors have shouted that task 2 is dead."""
    here = 'case $HOSTNAME in *-w-2) sleep 1; kill -KILL $$;; *) cat "$PEER_LOST"; exit 134;; esac'
    options = ["--gang", "--shell", "--env", f"PEER_LOST={PEER_LOST}"]
    done = simulator.cli("run", "train-a/0", *options, "--format", "json", "--", here)
    told = lines(done)[-1]
    assert done.returncode == 1, done.stderr
    assert told["verdict"]["culprit"] == "train-a/0/2"
    assert told["verdict"]["why"] == "named as dead or missing by 3 others"
    assert len(told["verdict"]["symptoms"][0]["workers"]) == 3
    shown = simulator.cli("runs", "show", told["run"])
    assert "verdict   train-a/0/2: Ended by signal KILL" in shown.stdout
    assert "follows   train-a/0/0-1,3: " in shown.stdout
    again = lines(simulator.cli("runs", "show", told["run"], "--format", "json"))[-1]
    assert again["verdict"] == told["verdict"]


def test_the_verdict_stands_on_stderr_with_its_cure(simulator: Simulator) -> None:
    done = simulator.cli("run", "train-a/0/0", "--shell", "--", "echo No module named jax >&2; exit 1")
    assert "verdict: train-a/0/0: The Python that ran has no module 'jax'" in done.stderr
    assert "slicetower setup TARGET" in done.stderr
