"""What is kept of runs: verdicts, notes and tags, the audit, and how old ones go."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from tests.backend.tools.world import lines
from tests.simulator import Simulator, SimulatorFactory

PEER_LOST = Path(__file__).parents[2] / "fixtures" / "logs" / "jax_peer_lost_rank0.err"


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


def test_a_read_only_operator_keeps_notes_of_this_machine_and_removes_nothing(simulator: Simulator) -> None:
    simulator.cli("run", "train-a/0/0", "--", "true")
    assert simulator.cli("--read-only", "runs", "note", "last", "seen").returncode == 0
    assert "seen" in simulator.cli("runs", "show", "last").stdout
    done = simulator.cli("--read-only", "runs", "prune", "--yes")
    assert (done.returncode, "read-only" in done.stderr) == (2, True)


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


def test_notes_and_tags_are_found_again(simulator: Simulator) -> None:
    run = lines(simulator.cli("run", "train-a/0/0", "--format", "json", "--", "true"))[-1]["run"]
    assert simulator.cli("runs", "note", run, "the baseline").returncode == 0
    assert simulator.cli("runs", "tag", run, "good", "v5e").stdout == "good v5e\n"
    assert simulator.cli("runs", "tag", run, "--remove", "v5e").stdout == "good\n"
    (found,) = lines(simulator.cli("runs", "list", "--tag", "good", "--format", "json"))
    assert (found["run"], found["note"], found["tags"]) == (run, "the baseline", ["good"])
    shown = simulator.cli("runs", "show", run).stdout
    assert "note      the baseline\n" in shown
    assert "tags      good\n" in shown


def test_the_export_has_a_line_for_each_worker_and_no_secret(simulator: Simulator) -> None:
    options = ["--env", "SHOWN=1", "--env", "PATH", "--title", "=1+1"]
    done = simulator.cli("run", "train-a/0/0-1", *options, "--format", "json", "--", "false")
    run = lines(done)[-1]["run"]
    assert simulator.cli("runs", "tag", run, "audited").returncode == 0
    rows = lines(simulator.cli("runs", "export", "--tag", "audited", "--since", "1h"))
    assert [(row["target"], row["outcome"], row["exit_code"]) for row in rows] == [
        ("train-a/0/0", "failed", 1),
        ("train-a/0/1", "failed", 1),
    ]
    assert "PATH=***" in rows[0]["command"]
    table = simulator.cli("runs", "export", "--tag", "audited", "--format", "csv").stdout
    header, first, _ = csv.reader(io.StringIO(table))
    assert first[header.index("title")] == "'=1+1"
    assert first[header.index("target")] == "train-a/0/0"
    assert os.environ["PATH"] not in table


def test_prune_asks_lists_and_removes(simulators: SimulatorFactory) -> None:
    simulator = simulators(fresh=True)
    for _ in range(2):
        assert simulator.cli("run", "train-a/0/0", "--", "true").returncode == 0
    held = simulator.cli("run", "train-a/0/0", "--detach", "--format", "json", "--", "sleep", "600")
    running = lines(held)[-1]["run"]
    assert simulator.cli("runs", "prune").returncode == 2
    listed = lines(simulator.cli("runs", "prune", "--keep", "0", "--dry-run", "--format", "json"))
    assert listed[-1]["runs"] == 2
    unasked = simulator.cli("runs", "prune", "--keep", "0")
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert simulator.cli("--read-only", "runs", "prune", "--keep", "0", "--yes").returncode == 2
    assert len(lines(simulator.cli("runs", "list", "--format", "json"))) == 3
    done = simulator.cli("runs", "prune", "--keep", "0", "--yes")
    assert done.returncode == 0
    assert f"may still run (`runs stop` ends them): {running}" in done.stderr
    assert [each["run"] for each in lines(simulator.cli("runs", "list", "--format", "json"))] == [running]
    assert simulator.cli("runs", "stop", running).returncode == 0


def test_a_saved_group_is_a_target(simulator: Simulator) -> None:
    config = simulator.directory / ".config" / "slicetower" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[groups]\nfront = ["train-a/*/0"]\nwhole = ["train-a"]\n')
    done = simulator.cli("run", "@front", "--format", "json", "--", "true")
    assert [each["target"] for each in lines(done)[:-1]] == ["train-a/0/0", "train-a/1/0"]
    run = lines(done)[-1]["run"]
    simulator.cli("run", "train-a", "--format", "json", "--shell", "--", "echo $HOSTNAME")
    printed = simulator.cli("logs", "last", "@front").stdout.splitlines()
    assert [line.partition(": ")[0] for line in printed] == ["train-a/0/0", "train-a/1/0"]
    ranged = simulator.cli("logs", "last", "train-a/1/1-2").stdout.splitlines()
    assert [line.partition(": ")[0] for line in ranged] == ["train-a/1/1", "train-a/1/2"]
    assert simulator.cli("logs", run, "train-a/1/1").returncode == 2
    wrong = simulator.cli("run", "@frnt", "--", "true")
    assert wrong.returncode == 2
    assert "@front" in wrong.stderr
    options = ["--dry-run", "--format", "json", "-d", "64", "-b", "16", "-n", "1"]
    mesh = ["--dcn_data_parallelism", "2", "--ici_fsdp_parallelism", "16"]
    planned = simulator.cli("bench", "shardings", "@whole", *options, *mesh)
    assert planned.returncode == 0, planned.stderr
    assert lines(planned)[0]["plan"]["target"] == "train-a"
    swept = simulator.cli("bench", "sweep", "@nobody", "--dry-run")
    assert swept.returncode == 2
    assert "@front" in swept.stderr
