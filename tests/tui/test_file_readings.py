"""The readings behind a plotted file lead back to its lines; what was written on since is read by key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from textual.widgets import TextArea

from tests.tui.driving import MEDIUM
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.screens.readings import FileReadingsScreen
from tui.screens.run_plot import FilePlotScreen
from tui.screens.same import PageDialog

LOG = Path(__file__).parent.parent / "fixtures" / "logs" / "maxtext_classic.log"


async def plotted(driven: FixedConsole, file: Path) -> FilePlotScreen:
    await driven.settle()
    await driven.command(f"plot {file}")
    await driven.until(lambda: isinstance(driven.app.screen, FilePlotScreen))
    await driven.shows("over 8 steps")
    screen = driven.app.screen
    assert isinstance(screen, FilePlotScreen)
    return screen


async def readings(driven: FixedConsole) -> FileReadingsScreen:
    await driven.press("v")
    await driven.until(lambda: isinstance(driven.app.screen, FileReadingsScreen))
    screen = driven.app.screen
    assert isinstance(screen, FileReadingsScreen)
    return screen


async def test_each_reading_of_a_file_says_its_line_and_why_it_counts_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        await plotted(driven, LOG)
        screen = await readings(driven)
        await driven.shows(
            "8 steps that count, each as the log tells it", "line 31:", "completed step: 0, seconds: 44.923"
        )
        cells = [
            [cell if isinstance(cell, str) else cell.text for cell in row.cells] for row in screen.table.visible_rows
        ]
        assert [row[4] for row in cells] == ["first step", "above peak", *["yes"] * 8]
        assert [row[5] for row in cells] == [str(line) for line in range(31, 41)]
        await driven.press("j", "j", "enter")
        await driven.until(lambda: isinstance(driven.app.screen, PageDialog))
        text = driven.app.screen.query_one(TextArea).text
        lines = LOG.read_text().splitlines()
        assert f"▌ 33  {lines[32]}" in text
        assert "  32  " in text
        assert "  34  " in text
        await driven.press("escape", "escape")
        await driven.until(lambda: isinstance(driven.app.screen, FilePlotScreen))


async def test_a_file_that_grew_is_read_again_and_one_that_went_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.log"
    shutil.copy(LOG, file)
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        plot = await plotted(driven, file)
        with file.open("a", encoding="utf-8") as log:
            log.write("completed step: 10, seconds: 5.6, TFLOP/s/device: 135.0, loss: 9.1\n")
        await driven.press("r")
        await driven.until(lambda: len(plot.record().points) == 11)
        screen = await readings(driven)
        assert screen.table.row_count == 11
        file.unlink()
        await driven.press("G")
        await driven.shows("no longer kept")
        await driven.press("enter")
        await driven.until(lambda: "can't be read any more" in driven.toasts())
        assert driven.app.screen is screen


@pytest.mark.parametrize(
    ("name", "why"), [("missing.log", "No such file or directory"), ("empty.log", "holds no step of a known kind")]
)
async def test_why_a_file_was_not_plotted_stays_on_its_screen(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.log").touch()
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.settle()
        await driven.command(f"plot {tmp_path / name}")
        await driven.until(lambda: isinstance(driven.app.screen, FilePlotScreen))
        await driven.until(lambda: why in " ".join(str(driven.app.screen.query_one("#bench-head").render()).split()))
