"""What a run would do, and what is refused before anything is sent."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest

from backend.runs.model import RunRequest
from backend.runs.plan import make_plan
from tests.backend.openssh import worker

GANG = [worker(index) for index in range(100)]


def test_a_gang_in_batches_is_refused_with_the_numbers() -> None:
    request = RunRequest(("bash", "go.sh"), batch="64", gang=True)
    plan = make_plan(request, GANG)
    assert len(plan.refusals) == 1
    for number in ("100", "64", "36"):
        assert number in plan.refusals[0]
    assert not make_plan(replace(request, force=True), GANG).refusals
    assert not make_plan(replace(request, batch="all"), GANG).refusals


@pytest.mark.parametrize("kind", ["bench", "job"])
def test_a_bench_or_a_job_is_a_gang_without_being_told(kind: str) -> None:
    assert make_plan(RunRequest(("python3", "x.py"), batch="4", kind=kind), GANG).refusals


def test_a_command_in_batches_is_warned_of_not_refused() -> None:
    plan = make_plan(RunRequest(("hostname",), batch="4"), GANG)
    assert not plan.refusals
    assert "25 batches" in plan.warnings[0]


def test_a_gang_with_a_hole_is_warned_of() -> None:
    members = [worker(index, slice_index=slice_index) for slice_index in (0, 1) for index in range(4)]
    del members[5]
    plan = make_plan(RunRequest(("bash", "go.sh"), gang=True), members)
    assert any("train-a/1/1" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (RunRequest(()), "empty"),
        (RunRequest(("",)), "empty"),
        (RunRequest(("a\0b",)), "NUL"),
        (RunRequest(("--batch-size", "4")), "dash"),
        (RunRequest(("true",), environment=(("A-B", "1"),)), "A-B"),
        (RunRequest(("true",), secret_environment=("1X",)), "1X"),
        (RunRequest(("true",), timeout_s=0.0), "timeout"),
        (RunRequest(("echo", "x" * 200_000)), "120 KiB"),
        (RunRequest(("true",), worker_environment={"train-a/0/999": {"A": "1"}}), "train-a/0/999"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(request_: RunRequest, says: str) -> None:
    refusals = make_plan(request_, GANG).refusals
    assert any(says in refusal for refusal in refusals), refusals


def test_no_workers_is_refused() -> None:
    assert make_plan(RunRequest(("true",)), []).refusals


def test_one_word_that_looks_like_shell_text_is_warned_of() -> None:
    assert "--shell" in make_plan(RunRequest(("cd /tmp && ls",)), [worker(0)]).warnings[0]
    assert not make_plan(RunRequest(("cd /tmp && ls",), shell=True), [worker(0)]).warnings


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("for i in 1 2; do echo $i; done", "for"),
        ("cd code", "cd"),
        ("ls | wc -l", "|"),
        ("make && make test", "&&"),
        ("sleep 1; hostname", "1;"),
        ("dmesg > /tmp/out", ">"),
        ("dmesg 2>&1", "2>&1"),
        ("dmesg >/tmp/out", ">/tmp/out"),
        ("echo $HOSTNAME", "$HOSTNAME"),
        ("echo $(hostname)", "$(hostname)"),
        ("ls /tmp/*.log", "/tmp/*.log"),
    ],
)
def test_words_that_only_a_shell_understands_are_warned_of(line: str, word: str) -> None:
    words = tuple(shlex.split(line))
    (warning,) = make_plan(RunRequest(words), [worker(0)]).warnings
    assert f"'{word}'" in warning
    assert "--shell" in warning
    assert make_plan(RunRequest(words, shell=True), [worker(0)]).warnings == ()


@pytest.mark.parametrize(
    "line",
    ["hostname", "python3 -c 'import os; print(os.getcwd())'", "grep -E 'a|b' file", "python3 a.py --glob=*.py x=1"],
)
def test_words_that_a_program_takes_as_they_are_are_not_warned_of(line: str) -> None:
    assert make_plan(RunRequest(tuple(shlex.split(line))), [worker(0)]).warnings == ()


def test_the_text_that_is_shown_does_what_the_workers_do() -> None:
    """Typed into a shell by hand it is the same command."""
    words = ["$HOME", "`id`", "a b  c", "'", '"', "*", "back\\slash", "", "new\nline", "\u00e9", "-n"]
    request = RunRequest(("printf", "%s|", *words), environment=(("A", "$x 'y'"),))
    text = make_plan(request, [worker(0)]).remote_text
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{word}|" for word in words)
    text = make_plan(
        RunRequest(('printf %s "$A"',), shell=True, environment=request.environment), [worker(0)]
    ).remote_text
    assert subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=True).stdout == "$x 'y'"


def test_the_text_that_is_shown_hides_values_of_secrets() -> None:
    request = RunRequest(("env",), environment=(("A", "two words"),), secret_environment=("TOKEN",))
    text = make_plan(request, [worker(0)]).remote_text
    assert text == "export A='two words'; export TOKEN=***; exec env"
