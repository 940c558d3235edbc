"""Runs and benchmarks are written to files by key, and a benchmark says the command that repeats it."""

from __future__ import annotations

import csv
import json
import shlex
import threading
from pathlib import Path

import pytest
from textual.widgets import TextArea

from backend.bench.compare import CSV_COLUMNS
from backend.outcomes import OperatorError
from backend.runs.audit import AUDIT_FIELDS, audit_csv
from backend.runs.history import EVERY_RUN, RunHistory
from backend.runs.model import RunHead, RunRecord
from tests.tui.driving import MEDIUM
from tests.tui.fixed import facts
from tests.tui.fixed.scenes import run_of
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.screens.bench import BenchScreen
from tui.screens.benches import BenchesScreen
from tui.screens.confirm import Pick
from tui.screens.exports import write
from tui.screens.runs import RunsScreen
from tui.screens.same import PageDialog


async def written(driven: FixedConsole, name: str) -> Path:
    """The one file of that name, once it was told of."""
    folder = driven.app.require_tower().paths.state_dir
    await driven.until(lambda: f"{folder}/{name}" in driven.toasts(), "the file")
    (file,) = folder.glob(f"{name}*")
    assert file.stat().st_mode & 0o777 == 0o600
    return file


async def picked(driven: FixedConsole, letter: str) -> None:
    await driven.until(lambda: isinstance(driven.app.screen, Pick))
    await driven.press(letter)


async def test_every_run_is_written_as_csv_and_marked_ones_as_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("4")
        await driven.shows("6 ok, 1 failed")
        await driven.press("E")
        await picked(driven, "c")
        file = await written(driven, "runs-")
        with file.open(newline="", encoding="utf-8") as source:
            rows = list(csv.DictReader(source))
        assert tuple(rows[0]) == AUDIT_FIELDS
        assert len(rows) == 28
        failed = next(row for row in rows if row["outcome"] == "failed")
        assert (failed["run"], failed["target"], failed["exit_code"]) == (facts.RUN_ID, "train-a/0/2", "1")
        assert failed["started_at"] == "2026-11-30T13:30:00.000Z"
        file.unlink()
        screen = driven.app.screen
        assert isinstance(screen, RunsScreen)
        screen.table.move_to(facts.RUN_ID)
        await driven.press("space")
        driven.told.clear()
        await driven.command("export json")
        file = await written(driven, "runs-")
        assert file.suffix == ".jsonl"
        told = [json.loads(line) for line in file.read_text().splitlines()]
        assert [row["run"] for row in told] == [facts.RUN_ID] * 8
        assert told[2]["outcome"] == "failed"
        file.unlink()
        screen.table.clear_marks()
        await driven.press("slash")
        await driven.write("command~fsdp")
        await driven.press("enter")
        driven.told.clear()
        await driven.command("export jsonl")
        file = await written(driven, "runs-")
        told = [json.loads(line) for line in file.read_text().splitlines()]
        assert {row["run"] for row in told} == {facts.BENCH_ID, facts.SHORN_ID}


async def test_steps_of_benchmarks_are_written_as_csv_and_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("5")
        await driven.shows("done")
        await driven.press("asterisk", "E")
        await picked(driven, "c")
        file = await written(driven, "benches-")
        with file.open(newline="", encoding="utf-8") as source:
            rows = list(csv.DictReader(source))
        assert len(rows) == 40
        assert {row[CSV_COLUMNS[0]] for row in rows} == {facts.BENCH_ID, facts.SHORN_ID}
        await run_of(driven, facts.BENCH_ID)
        assert isinstance(driven.app.screen, BenchScreen)
        await driven.press("E")
        await picked(driven, "j")
        file = await written(driven, f"bench-{facts.BENCH_ID}")
        told = [json.loads(line) for line in file.read_text().splitlines()]
        assert told[0]["bench"]["command"].startswith("slicetower bench shardings train-a")
        assert [line["step"] for line in told[1:]] == list(range(20))


async def test_nothing_is_asked_where_there_is_nothing_to_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        for key, shown, told in (
            ("4", "6 ok, 1 failed", "There is no run to export. No run matches the filter."),
            ("5", "done", "There is no benchmark under the cursor."),
        ):
            await driven.press(key)
            await driven.shows(shown)
            screen = driven.app.screen
            screen.apply_filter("nobody-has-this")  # type: ignore[attr-defined]
            await driven.press("E")
            await driven.until(lambda told=told: told in driven.toasts(), told)  # type: ignore[misc]
            assert driven.app.screen is screen


async def test_what_is_no_form_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("4")
        await driven.shows("6 ok, 1 failed")
        await driven.command("export xml")
        assert "'xml' is no form of a file. Write :export csv or :export jsonl." in driven.toasts()
        await driven.press("6")
        await driven.command("export csv")
        assert "'export' does nothing on this screen." in driven.toasts()
        assert not list(driven.app.require_tower().paths.state_dir.glob("runs-*.*"))


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    def full() -> list[str]:
        raise OSError(28, "No space left on device")

    with pytest.raises(OperatorError, match="No space left"):
        write(tmp_path, "runs", "csv", (line for _ in (0,) for line in full()))
    assert not list(tmp_path.glob("runs*"))


def test_two_files_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    first, _ = write(tmp_path, "runs", "csv", ["a"])
    second, lines = write(tmp_path, "runs", "csv", ["b", "c"])
    assert (first.name, second.name, lines) == ("runs.csv", "runs-2.csv", 2)
    assert first.read_text() == "a\n"
    with pytest.raises(OperatorError, match="can't be written"):
        write(tmp_path / "none", "runs", "csv", ["a"])


def test_a_cell_of_an_export_is_never_a_formula() -> None:
    row = dict.fromkeys(AUDIT_FIELDS, None) | {"title": "=cmd()", "note": "-1", "error": "@x"}
    _, line = audit_csv([row])
    (cells,) = csv.reader([line])
    assert {cell for cell in cells if cell} == {"'=cmd()", "'-1", "'@x"}


async def test_a_benchmark_says_the_command_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("5")
        await driven.shows("done")
        await driven.press("asterisk", "g")
        await driven.until(lambda: isinstance(driven.app.screen, PageDialog))
        text = driven.app.screen.query_one(TextArea).text
        assert facts.BENCH_ID in text
        assert facts.SHORN_ID in text
        await driven.press("y")
        assert driven.app.clipboard == text
        # All of it may be pasted into a shell: what is no command is a comment.
        said = [shlex.split(line, comments=True) for line in text.splitlines()]
        assert [line[:4] for line in said if line] == [["slicetower", "bench", "shardings", "train-a"]] * 2
        await driven.press("escape")
        assert isinstance(driven.app.screen, BenchesScreen)
        await run_of(driven, facts.SHORN_ID, "g")
        await driven.until(lambda: isinstance(driven.app.screen, PageDialog))
        assert driven.app.screen.query_one(TextArea).text.count("slicetower bench shardings") == 1


@pytest.mark.parametrize("keys", [("4", "E", "c"), ("4", "X"), ("4", "X", "ctrl+r")])
async def test_every_run_is_read_beside_the_loop(
    keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand runs take a second or two, in which nothing could be typed."""
    on_loop: list[str] = []
    beside: list[str] = []

    heads, read = RunHistory.heads, RunHistory._read

    def note(what: str) -> None:
        (on_loop if threading.current_thread() is threading.main_thread() else beside).append(what)

    def all_heads(self: RunHistory, *, limit: int = 200) -> list[RunHead]:
        if limit == EVERY_RUN:
            note("heads")
        return heads(self, limit=limit)

    def one(self: RunHistory, run_id: str) -> RunRecord:
        if keys[1] == "E":
            note(run_id)
        return read(self, run_id)

    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.press("4")
        await driven.shows("6 ok, 1 failed")
        monkeypatch.setattr(RunHistory, "heads", all_heads)
        monkeypatch.setattr(RunHistory, "_read", one)
        for key in keys[1:]:
            await driven.press(key)
            await driven.settle()
        await driven.until(lambda: beside, "reading")
        await driven.until(lambda: "lines to" in driven.toasts() or "runs" in driven.text, "what was read")
        assert on_loop == []
