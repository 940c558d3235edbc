"""The command line: words, targets and what follows `--`, completion, history."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from tests.tui.parity.answers import Field
from tests.tui.parity.verbs import VERBS
from tui.command_line import HISTORY_LIMIT, History, parse
from tui.completion import Known, complete, usage
from tui.run_words import OPTIONS, read_options


def test_a_command_after_the_dashes_is_kept_as_typed() -> None:
    line = parse("run train-a/0 train-b -- echo '$HOME' ; ls  -l")
    assert line is not None
    assert line.action.id == "run-command"
    assert line.targets == ("train-a/0", "train-b")
    assert line.rest == "echo '$HOME' ; ls  -l"


def test_an_empty_line_is_nothing() -> None:
    assert parse("  : ") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qrr", "Near: qr"),
        ("events state ' x", "Close the quotes"),
        ("refresh now", "takes no arguments"),
        ("zzzzzz", "no command 'zzzzzz'"),
        ("sweep", "it goes by key, f6 in bench form"),
    ],
)
def test_what_cannot_be_understood_says_why_and_what_to_do(text: str, words: str) -> None:
    with pytest.raises(OperatorError) as caught:
        parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("ev", "events"),
        ("w tr", "w train-a"),
        ("w train-a/0/", "w train-a/0/0"),
        ("run train-a tr", "run train-a train-a"),
        ("theme tower-l", "theme tower-light"),
        ("again tr", "again train-a"),
        ("plan v5p-12", "plan v5p-128"),
        ("plan v5p-128 v5", None),
        ("ctx de", "ctx demo"),
        ("costs 7", "costs 7d"),
        ("costs 7d 3", None),
        ("export j", "export jsonl"),
        ("run train-a --de", "run train-a --detach"),
        ("w train-a --de", None),
        ("zz", None),
        ("run train-a -- ho", None),
        ("", None),
    ],
)
def test_completion(text: str, completed: str | None) -> None:
    targets = ["train-a", "train-a/0", "train-a/0/0", "train-a/0/1"]
    assert complete(text, Known(targets, ["tower-dark", "tower-light"], ["demo"])) == completed


def test_a_word_says_what_it_takes_or_does_while_it_is_typed() -> None:
    known = Known(faults=lambda: {"preempt": ("--notice",)})
    assert usage("run", known).startswith("TARGET... [OPTIONS] [-- COMMAND]  Run a command")
    assert usage("run train-a -- ho", known) == usage("run", known)
    assert usage("refresh", known) == "Ask the API now."
    assert usage("inject preempt tr", known).startswith("TARGET [--notice NOTICE]  take the capacity")
    assert usage("inject", Known()) == ""
    assert usage("inject zz", known) == usage("zz", known) == usage("", known) == ""


def test_files_are_completed_where_a_file_may_stand(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("")
    for word in ("plot", "ctx"):
        assert complete(f"{word} {tmp_path}/tr", Known()) == f"{word} {tmp_path}/train.log"
    assert complete(f"theme {tmp_path}/tr", Known()) is None


def test_history_walks_back_and_forth_without_doubles() -> None:
    history = History()
    for line in ("qr", "w train-a", "qr"):
        history.add(line)
    assert history.lines == ("w train-a", "qr")
    assert [history.older(), history.older(), history.older()] == ["qr", "w train-a", None]
    assert [history.newer(), history.newer(), history.newer()] == ["qr", "", None]


def test_history_outlives_the_console_but_for_lines_that_begin_with_a_blank(tmp_path: Path) -> None:
    file = tmp_path / "history"
    first, other = History(), History()
    first.add("typed before the file was known")
    first.keep_in(file)
    other.keep_in(file)
    first.add("run train-a -- hostname")
    other.add("theme tower-light")
    first.add(" run train-a -- echo secret")
    assert first.older() == "run train-a -- echo secret", "this console remembers it"
    assert file.stat().st_mode & 0o777 == 0o600
    later = History()
    later.keep_in(file)
    assert later.lines == ("run train-a -- hostname", "theme tower-light")
    for number in range(3 * HISTORY_LIMIT):
        later.add(f"line {number}")
    History().keep_in(file)
    assert len(file.read_text().splitlines()) == HISTORY_LIMIT
    broken = History(["kept"])
    broken.keep_in(tmp_path)
    broken.add("goes on")
    assert broken.lines == ("kept", "goes on")


@pytest.mark.parametrize(
    ("line", "targets", "texts"),
    [
        ("run a b --detach --gang", ("a", "b"), {"detach": "yes", "gang": "yes"}),
        ("run --batch-size 1,5,25% a --timeout=5m", ("a",), {"batch": "1,5,25%", "timeout": "5m"}),
        ("x a --title 'two words' --shell", ("a",), {"title": "two words", "shell": "yes"}),
        ("run a --env A='x y' --env B", ("a",), {"environment": "'A=x y' B"}),
        ("run a --max-failures 10% --force", ("a",), {"max_failures": "10%", "force": "yes"}),
        ("run a --on-failure continue --sync ~/code", ("a",), {"on_failure": "continue", "sync": "~/code"}),
        ("run a --setup 'pip install x'", ("a",), {"setup": "pip install x"}),
        ("run a -- --detach", ("a",), {}),
    ],
)
def test_options_of_a_run_fill_its_fields(line: str, targets: tuple[str, ...], texts: dict[str, str]) -> None:
    parsed = parse(line)
    assert parsed is not None
    assert read_options(parsed.targets) == (targets, texts)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run a --detatch", "no option '--detatch'. --detach is near."),
        ("run a --nothing-alike-at-all", "There are --detach, --gang, --batch-size"),
        ("run a -b 3", "no option '-b'"),
        ("run a --timeout", "--timeout is followed by nothing. Write --timeout S"),
        ("run a --timeout --detach", "--timeout is followed by nothing"),
        ("run a --detach=yes", "--detach takes no value"),
        ("run a --on-failure retry", "--on-failure is not 'retry'. Write stop or continue."),
    ],
)
def test_an_option_that_a_run_has_not_is_said_and_never_taken_for_a_target(line: str, words: str) -> None:
    parsed = parse(line)
    assert parsed is not None
    with pytest.raises(OperatorError) as told:
        read_options(parsed.targets)
    assert words in str(told.value)
    assert "up bring it back" in str(told.value)


def test_options_of_a_run_are_told_while_they_are_typed() -> None:
    known = Known()
    assert usage("run a --", known).startswith("--detach --gang --batch-size N --timeout S --shell --title T")
    assert usage("run a --ba", known) == "--batch-size N  4, all, or 1,5,25%"
    assert usage("run a --batch-size 3", known) == "N  4, all, or 1,5,25%"
    assert usage("x a --zz", known) == "there is no option --zz"
    assert usage("run a --detach b", known) == usage("run a --detach -- x --ba", known) == usage("run", known)


def test_the_line_has_every_option_of_the_verb_that_is_on_the_form() -> None:
    on_form = {
        option: answer.name
        for option, answer in VERBS["run"].items()
        if option.startswith("--") and isinstance(answer, Field)
    }
    assert {name: option.field for name, option in OPTIONS.items()} == on_form
