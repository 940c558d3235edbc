"""The exit codes of the command line, row by row of README's table, and which wins where several hold."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.outcomes import ExitCode, Outcome
from backend.runs.fanout import WorkerResult, exit_code
from backend.targets import WorkerRef
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment
from tests.tui.test_cli_run import BOUND_S, holding, wait_for


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """Its own: a worker is made unreachable. train-a has 2 slices of 4 workers."""
    made = simulators(fresh=True, seed=3)
    made.inject("refuse", "train-a/1/3")
    return made


@dataclass(frozen=True)
class Case:
    """Command lines that must end with a code."""

    code: int
    arguments: tuple[str, ...]
    named: str


CASES = (
    Case(0, ("run", "train-a/0", "--", "true"), "all ok"),
    Case(0, ("qr", "list"), "a list"),
    Case(0, ("run", "train-a/0", "--detach", "--", "true"), "left to its supervisors"),
    Case(1, ("run", "train-a/0", "--", "false"), "failed"),
    Case(1, ("run", "train-a/0/0", "--shell", "--", "kill -9 $$"), "signalled"),
    Case(1, ("run", "train-a/0", "--sync", "tests/tui/cli", "--setup", "exit 7", "--", "true"), "setup failed"),
    Case(2, ("run", "train-a/9", "--", "true"), "no such target"),
    Case(2, ("run", "train-a", "--gang", "--batch-size", "2", "--", "true"), "a gang in batches"),
    Case(2, ("qr", "delete", "train-a"), "not confirmed"),
    Case(2, ("--read-only", "run", "train-a", "--", "true"), "read-only"),
    Case(2, ("nonsense",), "no such verb"),
    Case(3, ("run", "train-a/1/3", "--", "true"), "unreachable"),
    Case(3, ("check", "train-a/1/3"), "a check without an answer"),
    Case(3, ("copy", "README.md", "train-a/1/3:/tmp/"), "a copy to nowhere"),
    Case(4, ("qr", "describe", "--zone", "no-such-zone", "train-a"), "the cloud refused"),
    Case(124, ("run", "train-a/0/0", "--timeout", "0.2", "--", "sleep", "640"), "timed out"),
    Case(124, ("qr", "wait", "train-a", "--state", "SUSPENDED", "--timeout", "0.5"), "a wait that timed out"),
    # Where several hold: the first of 130, 4, 3, 124, 1.
    Case(3, ("run", "train-a/1", "--on-failure", "continue", "--timeout", "1", "--", "sleep", "641"), "3 before 124"),
    Case(3, ("run", "train-a/1", "--", "false"), "3 before 1"),
    Case(124, ("run", "train-a/0", "--timeout", "1", "--shell", "--", "case $HOSTNAME in *0) exit 1;; *) sleep 642;; esac"),
         "124 before 1"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.named}")
def test_each_row_of_the_table(sim: Simulator, case: Case) -> None:
    done = sim.cli(*case.arguments)
    assert done.returncode == case.code, (done.stdout, done.stderr)
    if case.code in (2, 4):
        assert done.stderr.strip(), "a refusal is said"


def test_an_interrupted_run_is_130_whatever_else_holds(sim: Simulator) -> None:
    """One worker is unreachable, one has failed, the others run when Ctrl-C comes."""
    text = "case $HOSTNAME in *-w-0) exit 1;; *) exec sleep 643;; esac"
    command = [sys.executable, "-m", "tui.cli.main", "--context-file", str(sim.context_file)]
    process = subprocess.Popen(
        [*command, "run", "train-a/1", "--on-failure", "continue", "--shell", "--", text],
        cwd=ROOT,
        env=own_environment(sim.directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for(lambda: len(holding("643")) == 2, "the two that run")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, said
    assert not holding("643")


def results(*outcomes: Outcome) -> list[WorkerResult]:
    return [WorkerResult(WorkerRef("p", "z", "a", 0, place, "n", "u"), each) for place, each in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "interrupted", "code"),
    [
        ((), False, 0),
        ((Outcome.OK, Outcome.NOT_STARTED), False, 0),
        ((Outcome.OK, Outcome.FAILED), False, 1),
        ((Outcome.SIGNALLED,), False, 1),
        ((Outcome.FAILED, Outcome.TIMED_OUT), False, 124),
        ((Outcome.TIMED_OUT, Outcome.UNKNOWN), False, 3),
        ((Outcome.UNREACHABLE, Outcome.FAILED), False, 3),
        ((Outcome.UNKNOWN, Outcome.FAILED, Outcome.TIMED_OUT), True, 130),
    ],
)
def test_what_wins_where_several_hold(outcomes: tuple[Outcome, ...], interrupted: bool, code: int) -> None:
    assert exit_code(results(*outcomes), interrupted=interrupted) == code


def test_the_table_of_the_readme_is_the_one_of_the_program_and_each_row_has_a_case() -> None:
    text = (Path(ROOT) / "README.md").read_text()
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert table == {int(code) for code in ExitCode}
    assert table - {130} == {case.code for case in CASES}
    assert "130, 4, 3, 124, 1" in text
