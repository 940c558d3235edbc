"""This machine, as the program sees it: whether it is ready, and where files are."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from textual import on

from backend.sanitize import plain
from tui.actions import BY_ID, DOCTOR, PLACES, bindings
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import count, size

if TYPE_CHECKING:
    from backend.context import Context
    from backend.doctor import Finding
    from backend.own_places import Place

VERDICTS = {"ok": "outcome-ok", "warn": "log-warning", "fail": "outcome-failed"}
"""Each with its glyph and colour."""
FINDINGS = (
    Column("verdict", "VERDICT", width=7),
    Column("check", "CHECK", min_width=10, max_width=18),
    Column("what", "WHAT", min_width=20, max_width=400, flex=1),
)
FOUND = (
    Column("what", "WHAT", min_width=11, max_width=14),
    Column("size", "ON DISK", width=9, align="right"),
    Column("files", "FILES", width=7, align="right", priority=1),
    Column("state", "STATE", min_width=8, max_width=24),
    Column("path", "PATH", min_width=20, max_width=300, flex=1),
)


def _verdict(row: Row) -> str:
    cell = row.cells[0]
    return cell.text if isinstance(cell, Cell) else cell


class DoctorScreen(WorkScreen):
    """Every check as it comes; the words about the cursor's below."""

    SCOPE = DOCTOR
    BINDINGS: ClassVar = bindings(DOCTOR)
    COLUMNS = FINDINGS
    word = "doctor"

    def __init__(self) -> None:
        super().__init__(())
        self.crumb = "doctor"
        self._findings: list[Finding] = []

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        self._findings = []
        self.detail("")
        self.begin(self._look(), "Checking configuration, credentials, keys and terminal")

    def _load(self) -> Context:
        """Read anew, so that a mistake that was made since the console was opened is found."""
        from backend.context import load_context

        own = self.console.context_arguments
        given = dict(zip(own[::2], own[1::2], strict=False))
        if "--context-file" in given:
            from pathlib import Path

            return load_context(None, Path(given["--context-file"]))
        return load_context(given["--context"]) if "--context" in given else self.console.context

    async def _look(self) -> None:
        from backend import doctor

        # Textual has taken stdout, and the driver draws on a terminal of its own.
        encoding = getattr(sys.__stdout__, "encoding", None) or ""
        terminal = doctor.Terminal(os.environ, encoding, not self.app.is_headless)
        async for each in doctor.examine(self._load, terminal):
            self._findings.append(each)
            self._draw()
            self.head(f"checking … {self._counted()}")
        self.head(self._counted())
        worst = [
            row.key for verdict in ("fail", "warn") for row in self.table.visible_rows if _verdict(row) == verdict
        ]
        if worst and self.table.model.cursor == 0:
            self.table.move_to(worst[0])
        self.refresh_frame()

    def _counted(self) -> str:
        numbers = Counter(each.verdict for each in self._findings)
        words = {"fail": "to mend", "warn": "to look at", "ok": "ok"}
        return " · ".join(f"{numbers[verdict]} {text}" for verdict, text in words.items() if numbers[verdict])

    def _draw(self) -> None:
        rows = [
            Row(
                (each.check, place),
                (
                    Cell(each.verdict, token=VERDICTS[each.verdict], glyph=VERDICTS[each.verdict]),
                    each.check,
                    plain(f"{each.what} {each.cure}".strip()),
                ),
            )
            for place, each in enumerate(self._findings)
        ]
        self.table.set_rows(rows)

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        row = self.table.cursor_row
        if row is None or not isinstance(row.key, tuple):
            self.detail("")
            return
        each = self._findings[row.key[1]]
        self.detail(plain(f"{each.check}: {each.what} {each.cure}".strip()))


class PlacesScreen(WorkScreen):
    """Where configuration, themes, journal, runs and logs are, and how much they hold."""

    SCOPE = PLACES
    BINDINGS: ClassVar = bindings(PLACES)
    COLUMNS = FOUND
    word = "locate"

    def __init__(self) -> None:
        super().__init__(())
        self.crumb = "locate"
        self._places: list[Place] = []

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        self._places = []
        self.begin(self._look(), "Looking how much is there")

    async def _look(self) -> None:
        from backend.own_places import look_at, own_places
        from backend.paths import paths

        for name, path in own_places(paths(create=False)).items():
            self.head(f"looking … {path}")
            self._places.append(await asyncio.to_thread(look_at, name, path))
            self.table.set_rows([self._row(each) for each in self._places])
        whole = sum(each.bytes for each in self._places)
        runs = self.console.settings.keymap.shown(BY_ID["prune"])
        files = count(sum(each.files for each in self._places), "file")
        self.head(f"{size(whole)} in {files} · {runs} on the runs cleans up · y copies a row with its path")
        self.refresh_frame()

    def _row(self, each: Place) -> Row:
        state = Cell("not made yet", token="muted") if not each.exists else Cell("there")
        if each.problem:
            # What to do about it stands below the table.
            state = Cell(plain(each.problem.partition(":")[0]), token="stale")
        cells = (
            each.name.replace("_", " "),
            number_cell(each.bytes if each.exists else None, size(each.bytes) if each.exists else None),
            number_cell(each.files if each.exists else None),
            state,
            plain(str(each.path)),
        )
        return Row(each.name, cells)

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        row = self.table.cursor_row
        each = next((one for one in self._places if row is not None and one.name == row.key), None)
        self.detail(plain(f"{each.path}{f': {each.problem}' if each.problem else ''}") if each is not None else "")
