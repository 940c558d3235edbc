"""`slicetower setup` on simulated workers: real venvs, real pip, a package index in a folder."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.tools.wheels import make_wheel
from tests.backend.tools.world import home_of, lines
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment

TARGET = "train-a/0/0-1"
BOUND_S = 120.0


@pytest.fixture(scope="module")
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    make_wheel(folder, "jax", "0.0.1")
    make_wheel(folder, "tinytool", "1.0")
    return folder


def from_index(index: Path) -> list[str]:
    return ["--python", sys.executable, "--pip-option=--no-index", f"--pip-option=--find-links={index}"]


def test_a_dry_run_shows_the_text_and_sends_nothing(simulator: Simulator) -> None:
    done = simulator.cli("setup", TARGET, "--dry-run", "--jax", "0.10.2")
    assert done.returncode == 0
    assert "set -- 'jax[tpu]==0.10.2'" in done.stdout
    assert simulator.cli("runs", "list", "--format", "json").stdout == ""


def test_cpu_workers_get_plain_jax_equal_everywhere_and_only_once(simulator: Simulator, index: Path) -> None:
    done = simulator.cli("setup", TARGET, *from_index(index), timeout_s=BOUND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train-a/0/1: setup: installs jax\n" in done.stdout
    assert "equal on 2 workers: jax==0.0.1, python==" in done.stderr
    home = home_of(simulator, "train-a/0/1")
    python = home / ".slicetower" / "venv" / "bin" / "python"
    told = subprocess.run([python, "-c", "import jax; print(jax.VERSION)"], capture_output=True, text=True)
    assert told.stdout == "0.0.1\n"
    again = simulator.cli("setup", TARGET, *from_index(index), "--format", "json", timeout_s=BOUND_S)
    *workers, summary = lines(again)
    assert (again.returncode, summary["equal"]) == (0, True)
    assert [each["packages"][0] for each in workers] == ["jax==0.0.1"] * 2
    shown = simulator.cli("logs", summary["run"])
    assert shown.stdout.count("is there already") == 2
    assert "installs" not in shown.stdout
    checked = simulator.cli("check", TARGET, "--format", "json")
    found = [each for each in lines(checked) if each.get("check") == "versions" and each["severity"] == "ok"]
    assert "jax 0.0.1" in found[0]["what"]


def test_a_benchmark_takes_the_python_of_setup_without_being_told(simulator: Simulator, index: Path) -> None:
    """The workers that were set up have another jax than the image: who plans a benchmark is told so."""
    assert simulator.cli("setup", TARGET, *from_index(index), timeout_s=BOUND_S).returncode == 0
    axes = ["--dcn_data_parallelism", "2", "--ici_fsdp_parallelism", "16"]
    done = simulator.cli("bench", "shardings", "train-a", *axes, "--dry-run")
    assert "0.0.1" in done.stdout + done.stderr


def test_a_worker_that_differs_is_found(simulator: Simulator, index: Path) -> None:
    options = ["train-a/0/2", *from_index(index)]
    assert simulator.cli("setup", *options, timeout_s=BOUND_S).returncode == 0
    kept = home_of(simulator, "train-a/0/2") / ".slicetower" / "venv" / ".packages"
    kept.write_text(kept.read_text().replace("jax==0.0.1", "jax==0.0.0"))
    done = simulator.cli("setup", "train-a/0/0-2", *from_index(index), timeout_s=BOUND_S)
    assert done.returncode == 1
    assert "NOT equal: train-a/0/2 has jax==0.0.0, where the others have jax==0.0.1" in done.stderr


def test_a_package_that_is_nowhere_fails_with_pips_words(simulator: Simulator, index: Path) -> None:
    options = [*from_index(index), "--package", "no-such-tool"]
    done = simulator.cli("setup", "train-a/0/0", *options, timeout_s=BOUND_S)
    assert done.returncode == 1
    assert "setup: failed: pip" in done.stdout
    assert "No matching distribution found" in simulator.cli("logs", "last").stdout


def test_apts_locks_are_waited_for(simulator: Simulator, index: Path, tmp_path: Path) -> None:
    lock = tmp_path / "var" / "lib" / "dpkg" / "lock-frontend"
    lock.parent.mkdir(parents=True)
    options = [*from_index(index), "--package", "tinytool", "--package", "jax", "--root", str(tmp_path)]
    before = ("--context-file", str(simulator.context_file))
    with lock.open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "tui.cli.main", *before, "setup", "train-a/0/0", *options],
            cwd=ROOT,
            env=own_environment(simulator.directory),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "setup: waits for apt, 0 s\n"
    rest, _ = process.communicate(timeout=BOUND_S)
    assert "installs tinytool jax" in rest
    assert process.returncode == 0


def test_maxtext_is_found_wherever_it_trains(simulator: Simulator, index: Path, tmp_path: Path) -> None:
    source = tmp_path / "maxtext.git-source"
    train = source / "src" / "MaxText" / "trainers" / "train.py"
    train.parent.mkdir(parents=True)
    train.write_text("print('trains')\n")
    (source / "deps").mkdir()
    (source / "deps" / "requirements.txt").write_text("tinytool\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(source), *words]
        subprocess.run(git, check=True, capture_output=True)
    options = [*from_index(index), "--maxtext", "v1", "--maxtext-source", str(source)]
    done = simulator.cli("setup", "train-a/0/0", *options, timeout_s=BOUND_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/.slicetower/venv/maxtext/src/MaxText/trainers/train.py" in done.stdout
    listed = simulator.cli("logs", "last").stdout
    assert "has tinytool==1.0" in listed
