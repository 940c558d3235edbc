"""What this machine refuses (a full disk, a folder that cannot be), and words that nothing answers to: told in sentences."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from backend.outcomes import ExitCode
from backend.sqlite import told
from tests.simulator import ROOT, Simulator, SimulatorFactory, run_cli

FULL = "database or disk is full"


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """train-a has 2 slices of 4 workers."""
    return simulators(seed=3)


def full_disk(home: Path, sim: Simulator, *moments: str) -> None:
    """A journal that has all its tables, and no room for what is written at these moments."""
    done = run_cli("--context-file", str(sim.context_file), "run", "train-a/0/0", "--", "true", home=home)
    assert done.returncode == 0, done.stderr
    (journal,) = home.rglob("journal.db")
    with sqlite3.connect(journal) as connection:
        connection.execute("DELETE FROM hostkeys")
        for number, moment in enumerate(moments):
            connection.execute(
                f"CREATE TRIGGER full{number} BEFORE {moment} BEGIN SELECT RAISE(ABORT, '{FULL}'); END"
            )
    connection.close()


def run(home: Path, sim: Simulator, *arguments: str) -> tuple[int, str, str]:
    done = run_cli("--context-file", str(sim.context_file), *arguments, home=home)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_run_that_the_journal_has_no_room_for_is_refused_before_it_starts(sim: Simulator, tmp_path: Path) -> None:
    full_disk(tmp_path, sim, "INSERT ON runs")
    code, out, err = run(tmp_path, sim, "run", "train-a/0/0", "--", "touch", "started")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "the disk is full" in err
    assert "Free some space" in err
    assert run(tmp_path, sim, "run", "--shell", "train-a/0/0", "--", "true")[0] == ExitCode.USAGE


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_disk_that_fills_up_during_a_run_takes_neither_its_output_nor_its_outcome(
    sim: Simulator, tmp_path: Path, form: str
) -> None:
    full_disk(tmp_path, sim, "UPDATE ON runs", "INSERT ON hostkeys")
    code, out, err = run(tmp_path, sim, "run", "train-a/0", "--format", form, "--", "sh", "-c", "echo said; exit 3")
    assert code == ExitCode.COMMAND_FAILED
    assert "said" in out
    assert "is not recorded" in err
    assert "the disk is full" in err


@pytest.mark.parametrize("text", [FULL, "disk I/O error", "attempt to write a readonly database", "unable to open"])
def test_a_journal_that_cannot_be_written_is_not_called_damaged(text: str) -> None:
    error = told(Path("journal.db"), sqlite3.OperationalError(text))
    assert "can't be written" in error.what
    assert "damaged" not in error.what
    assert error.cure


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_cli("sim", "serve", "--dir", str(tmp_path / "file" / "sim"), home=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


def test_output_that_is_not_shown_whole_says_so_and_begins_with_a_whole_line(sim: Simulator, tmp_path: Path) -> None:
    _, out, _ = run(tmp_path, sim, "run", "train-a/0", "--", "seq", "1000000", "1020000")
    header, mark, first, *_, last = out.splitlines()
    assert header == "--- train-a/0/0-3 (4) ok ---"
    shown = 8 * (int(last) - int(first) + 1)
    assert mark.startswith(f"[{20001 * 8 - shown} bytes before this are not shown")
    _, out, _ = run(tmp_path, sim, "run", "train-a/0/0", "--", "seq", "1", "10")
    assert "not shown" not in out


@pytest.mark.parametrize("word", ["FOO", "ACTVE", "active;"])
def test_a_state_that_does_not_exist_is_not_waited_for(sim: Simulator, tmp_path: Path, word: str) -> None:
    code, _, err = run(tmp_path, sim, "qr", "wait", "train-a", "--state", word)
    assert code == ExitCode.USAGE
    assert word in err
    assert "ACTIVE" in err


def test_a_timeout_is_written_alike_everywhere(sim: Simulator, tmp_path: Path) -> None:
    assert run(tmp_path, sim, "run", "train-a/0/0", "--timeout", "5m", "--dry-run", "--", "true")[0] == ExitCode.OK
    for bad in ("x", "-1", "0", "nan"):
        code, _, err = run(tmp_path, sim, "run", "train-a/0/0", f"--timeout={bad}", "--", "true")
        assert code == ExitCode.USAGE
        assert "--timeout" in err


def test_a_target_that_nothing_is_like_tells_how_many_there_are(sim: Simulator, tmp_path: Path) -> None:
    _, _, err = run(tmp_path, sim, "run", "zzzzzz", "--", "true")
    assert "There are: big-c, notebook, old-d, sweep-b, taken-e and 1 more." in err
    _, _, err = run(tmp_path, sim, "run", "train-b", "--", "true")
    assert "Near: train-a, taken-e." in err


@pytest.mark.parametrize("places", [["pyproject.toml", "train-a/0/0:no/such/folder/x"], ["train-a/0/0:no-such", "."]])
def test_a_copy_that_fails_names_the_place(sim: Simulator, tmp_path: Path, places: list[str]) -> None:
    code, _, err = run(tmp_path, sim, "copy", *places)
    assert code == ExitCode.COMMAND_FAILED
    assert "no/such/folder/x: No such file" in err or "no-such: No such file" in err


@pytest.mark.parametrize(
    ("row", "arguments"),
    [
        ("`qr list`", ["qr", "list"]),
        ("`fleet`", ["fleet"]),
        ("`run`", ["run", "train-a/0/0"]),
        ("`check`", ["check", "train-a/0/0"]),
        ("`operations list`", ["operations", "list"]),
        ("`doctor`", ["doctor", "--offline"]),
    ],
)
def test_the_first_json_line_has_the_documented_fields(
    sim: Simulator, tmp_path: Path, row: str, arguments: list[str]
) -> None:
    page = (ROOT / "docs" / "json.md").read_text("utf-8")
    documented = next(line for line in page.splitlines() if line.startswith(f"| {row} |"))
    command = ["--", "true"] if row == "`run`" else []
    _, out, _ = run(tmp_path, sim, *arguments, "--format", "json", *command)
    lines = out.splitlines()
    assert lines or row == "`operations list`"
    for name in json.loads(lines[0]) if lines else ():
        assert f"`{name}`" in documented or (row == "`fleet`" and f"`{name}`" in page), name


@pytest.mark.parametrize(
    "arguments", [["qr", "create", "a", "--spto"], ["run", "a", "--on-failure", "x"], ["--contxt"]]
)
def test_a_mistyped_option_is_two_lines(tmp_path: Path, arguments: list[str]) -> None:
    done = run_cli(*arguments, home=tmp_path)
    assert done.returncode == ExitCode.USAGE
    what, cure = done.stderr.splitlines()
    assert what.startswith("slicetower: ")
    assert "--help" in cure


def test_a_word_too_much_is_told_by_the_verb_that_it_stands_behind(tmp_path: Path) -> None:
    done = run_cli("qr", "create", "a", "b", home=tmp_path)
    assert (done.returncode, done.stderr.splitlines()) == (
        ExitCode.USAGE,
        ["slicetower: unrecognized arguments: b", "  `slicetower qr create --help` explains it."],
    )


def test_a_demo_of_no_scenario_is_refused_as_a_simulator_of_none_is(tmp_path: Path) -> None:
    demo = run_cli("demo", "--scenario", "nowhere", home=tmp_path)
    served = run_cli("sim", "serve", "--dir", str(tmp_path / "sim"), "--scenario", "nowhere", home=tmp_path)
    assert (demo.returncode, demo.stderr) == (ExitCode.USAGE, served.stderr)
    assert served.stderr.startswith("slicetower: There is no scenario 'nowhere'.\n  Use ")
