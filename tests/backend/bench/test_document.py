"""The document's own benchmark on 2 x v5litepod-16: eight workers with four devices each, all of it real JAX on CPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from backend.outcomes import ExitCode
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("jax"), pytest.mark.timeout(900)]

LIMIT_S = 600.0
SMALL = ("-b", "16", "-n", "2", "--steps", "3")
AXES = ("--dcn_data_parallelism", "2", "--ici_fsdp_parallelism", "16")
"""Of the document's multislice run."""
WANTED = 6


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Iterator[Simulator]:
    made = simulators(fresh=True)
    yield made
    made.stop()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_documents_multislice_run_with_its_axes(simulator: Simulator) -> None:
    done = simulator.cli(
        *("bench", "shardings", "train-a", *AXES, "--embedding_dimension", "256", *SMALL, "--format", "json"),
        timeout_s=LIMIT_S,
    )
    assert done.returncode == ExitCode.OK, done.stderr
    *steps, last = objects(done.stdout)
    summary = last["summary"]
    assert [each["step"] for each in steps] == [0, 1, 2, 3]
    assert all(each["workers"] == 8 for each in steps)
    assert (summary["state"], summary["devices"], summary["steps"]) == ("done", 32, 3)
    assert summary["tflops_per_device"] > 0
    (first, *_) = objects(simulator.cli("bench", "show", summary["bench"], "--format", "json").stdout)
    record = first["bench"]
    assert (record["slices"], record["accelerator_type"], record["topology"]) == (2, "v5litepod-16", "4x4")
    assert len(record["program_digest"]) == 64
    assert {"jax", "jaxlib", "python"} <= set(record["versions"])
    assert {" ".join(AXES[:2]), " ".join(AXES[2:])} <= set(map(" ".join, pairwise(record["command"].split())))


def test_a_sweep_of_six_meshes_survives_its_console_and_repeats_nothing(simulator: Simulator) -> None:
    flags = ("train-a", "-d", "64", *SMALL, "--limit", str(WANTED), "--format", "json")
    before = killed_after(simulator, 2, "bench", "sweep", *flags)
    assert [each["state"] for each in before] == ["done", "done"]
    known = objects(simulator.cli("bench", "list", "--format", "json").stdout)
    (identity,) = sweeps(simulator)
    done = simulator.cli("bench", "sweep", "--resume", identity, "--format", "json", timeout_s=LIMIT_S)
    assert done.returncode == ExitCode.OK, done.stderr
    *told, last = objects(done.stdout)
    points = [each["point"] for each in told]
    assert [each["bench"] for each in points[:2]] == [each["bench"] for each in before], "they were measured once"
    assert [each["state"] for each in points] == ["done"] * WANTED
    assert len({each["mesh"] for each in points}) == WANTED
    assert len({each["bench"] for each in points}) == WANTED
    assert all(each["tflops_per_device"] > 0 for each in points)
    best = max(points, key=lambda each: float(each["tflops_per_device"]))
    assert last["sweep"]["best"]["bench"] == best["bench"]
    after = objects(simulator.cli("bench", "list", "--format", "json").stdout)
    begun = {each["bench"] for each in points}
    assert len(after) - len([each for each in known if each["id"] not in begun]) == WANTED, "nothing ran beside them"
    table = simulator.cli("bench", "sweep", "--resume", identity, "--dry-run").stdout.splitlines()
    assert len([line for line in table if " done " in line]) == WANTED
    assert [line.split()[0] for line in table if line.startswith("best ")] == ["best"]


def killed_after(simulator: Simulator, count: int, *arguments: str) -> list[dict[str, Any]]:
    """A console that dies of KILL once it has told so many points; those points."""
    console = subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", "--context-file", str(simulator.context_file), *arguments],
        cwd=ROOT,
        env=own_environment(simulator.directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert console.stdout is not None
    lines = [console.stdout.readline() for _ in range(count)]
    console.send_signal(signal.SIGKILL)
    _, errors = console.communicate()
    assert all(lines), errors.decode()
    return [json.loads(line)["point"] for line in lines]


def sweeps(simulator: Simulator) -> list[str]:
    """Ids of the sweeps that the journal knows: named by what asks for one that is not there."""
    said = simulator.cli("bench", "sweep", "--resume", "nothing").stderr
    return [word.strip(".,") for word in said.split() if word.startswith("sweep-")]
