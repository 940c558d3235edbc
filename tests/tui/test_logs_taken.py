"""All logs of a run searched at once, and logs taken out of the console into files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from tests.tui.fixed.scenes import at_train
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.screens.confirm import Ask, Pick
from tui.screens.log_search import LogSearchScreen, pattern_of, search_one
from tui.screens.logs import LogsScreen
from tui.widgets.log_view import LogView


def test_a_pattern_minds_case_once_it_has_a_capital(tmp_path: Path) -> None:
    log = tmp_path / "a.0.0.log"
    log.write_bytes(b"one\n\x1b[31mERROR: a\x1b[0m\nerror b\nlast error")
    assert (
        search_one("a/0/0", log, pattern_of("error")).lines,
        search_one("a/0/0", log, pattern_of("ERR")).lines,
    ) == (
        3,
        1,
    )
    found = search_one("a/0/0", log, pattern_of("error"))
    assert (found.number, found.text) == (1, "ERROR: a")
    with pytest.raises(OperatorError, match="no regular expression"):
        pattern_of("(")
    with pytest.raises(OperatorError, match="missing"):
        pattern_of("")


async def logs(driven: FixedConsole) -> LogsScreen:
    await at_train(driven, "l")
    await driven.shows("merged", "train.sh")
    screen = driven.app.screen
    assert isinstance(screen, LogsScreen)
    return screen


async def test_all_logs_are_searched_with_counts_and_enter_opens_one_at_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        await logs(driven)
        await driven.press("a")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.write("(")
        await driven.press("enter")
        await driven.shows("no regular expression")
        await driven.press("backspace")
        await driven.write("step")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, LogSearchScreen))
        screen = driven.app.screen
        assert isinstance(screen, LogSearchScreen)
        await driven.until(lambda: not screen.is_working)
        run = driven.app.live_runs()[0]
        first = run.log_path(0).read_text().splitlines()
        numbers = [number for number, line in enumerate(first) if "step" in line.lower()]
        assert numbers
        text = await driven.shows("lines in 8 logs", "8 logs", "train-a/0/0")
        assert re.search(rf"train-a/0/0\s+{len(numbers)}\s+{numbers[0] + 1}\b", text)
        driven.app.screen.query_one("#table").move_to("train-a/1/2")  # type: ignore[attr-defined]
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        opened = driven.app.screen
        assert isinstance(opened, LogsScreen)
        await driven.until(lambda: opened.query(LogView) and opened.filter_text() == "step")
        view = opened.view()
        assert view is not None
        assert view.log_title == "train-a/1/2"
        await driven.until(lambda: view.reader is not None and view.reader.cursor == numbers[0])


async def test_a_pattern_that_no_log_has_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(80, 24)) as driven:
        await logs(driven)
        await driven.press("a")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.write("zebra")
        await driven.press("enter")
        await driven.shows("No log has 'zebra'.", "0 lines in 0 logs")


LETTERS = {"one": "o", "merged": "m", "each": "e"}


@pytest.mark.parametrize("what", LETTERS)
async def test_logs_are_saved_whole_privately_and_never_over_a_file(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    async with fixed_console(tmp_path, monkeypatch, size=(80, 24)) as driven:
        driven.listen(monkeypatch)
        await logs(driven)
        await driven.press("o")
        await driven.until(lambda: isinstance(driven.app.screen, Pick))
        await driven.shows("all 8, merged, as text", "all 8, a file each")
        await driven.press(LETTERS[what])
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("ctrl+u")
        await driven.write("taken")
        await driven.press("enter")
        if what != "each":
            await driven.shows("taken exists already")
            assert (tmp_path / "taken").read_text() == "mine"
            await driven.write(".log")
            await driven.press("enter")
            target = tmp_path / "taken.log"
        else:
            await driven.until(lambda: "can't be made" in driven.toasts())
            await driven.press("o")
            await driven.until(lambda: isinstance(driven.app.screen, Pick))
            await driven.press(LETTERS[what])
            await driven.until(lambda: isinstance(driven.app.screen, Ask))
            await driven.press("ctrl+u")
            await driven.write("all")
            await driven.press("enter")
            target = tmp_path / "all"
        await driven.until(lambda: "Saved " in driven.toasts())
        run = driven.app.live_runs()[0]
        raw = [run.log_path(place).read_bytes() for place in range(len(run.workers))]
        if what == "each":
            assert sorted(path.read_bytes() for path in target.iterdir()) == sorted(raw)
            kept = next(target.iterdir())
        else:
            kept = target
        assert kept.stat().st_mode & 0o777 == 0o600
        if what == "one":
            assert target.read_bytes() == raw[0]
        if what == "merged":
            lines = target.read_text().splitlines()
            assert len(lines) == sum(len(each.splitlines()) for each in raw)
            assert lines[0].startswith("train-a/")
