"""What `setup` would do: its text is valid shell whatever is asked for, and what differs is named."""

from __future__ import annotations

import subprocess

import pytest

from backend.tools.setup import SetupRequest, compare, script

HOSTILE = "$(touch /tmp/never) `id` ; 'x' \"y\""


@pytest.mark.parametrize(
    "request_",
    [
        SetupRequest(),
        SetupRequest(python="3.12", jax="0.10.2"),
        SetupRequest(packages=(HOSTILE, "b"), pip_options=(f"--find-links={HOSTILE}",), root="/a b"),
        SetupRequest(maxtext="v1.0", maxtext_source=HOSTILE, pip_options=("--no-index",)),
    ],
)
def test_the_text_is_valid_shell(request_: SetupRequest) -> None:
    done = subprocess.run(["sh", "-n"], input=script(request_), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_hostile_words_stay_words() -> None:
    text = script(SetupRequest(packages=(HOSTILE,)))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("set --")]
    done = subprocess.run(["sh", "-c", f'{line.strip()}; printf %s "$1"'], text=True, capture_output=True)
    assert done.stdout == HOSTILE


def test_the_same_wish_is_the_same_venv_and_another_is_not() -> None:
    wishes = [
        SetupRequest(),
        SetupRequest(python="3.12"),
        SetupRequest(jax="0.10.2"),
        SetupRequest(packages=("a", "b")),
        SetupRequest(packages=("a b",)),
        SetupRequest(maxtext="v1"),
    ]
    assert len({each.digest for each in wishes}) == len(wishes)
    assert SetupRequest().digest == SetupRequest(apt_wait_s=1).digest


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (SetupRequest(python="-c"), "Python"),
        (SetupRequest(packages=("--index-url=x",)), "--pip-option"),
        (SetupRequest(pip_options=("x",)), "option of pip"),
        (SetupRequest(maxtext="--upload-pack=x"), "branch, tag or commit"),
        (SetupRequest(jax="0.1;x"), "version"),
        (SetupRequest(apt_wait_s=-1), "86400"),
    ],
)
def test_what_cannot_be_is_refused_by_name(request_: SetupRequest, word: str) -> None:
    (problem,) = request_.problems()
    assert word in problem


def test_the_worker_that_differs_is_named_with_the_difference() -> None:
    same = frozenset({"jax==1", "python==3.11.7"})
    told = {"a/0/0": same, "a/0/1": same, "a/1/0": frozenset({"jax==2", "python==3.11.7"})}
    found = compare(told, [*told, "a/1/1"])
    assert not found.equal
    assert found.missing == ("a/1/1",)
    assert found.differences == ("a/1/0 has jax==2, where the others have jax==1",)
    assert found.common == ("python==3.11.7",)
    assert compare({"a/0/0": same}, ["a/0/0"]).equal
