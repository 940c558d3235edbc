"""The open forwards: which port of which worker is where on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from tui.actions import BY_ID, FORWARDS, bindings
from tui.durations import format_duration
from tui.forwards import CLOSED, LOST, OPEN, OPENING, OpenForward
from tui.screens.base import TableScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import utc_now

COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=26),
    Column("port", "ITS PORT", width=8, align="right"),
    Column("here", "HERE", min_width=16, max_width=30),
    Column("state", "STATE", min_width=9, max_width=12),
    Column("age", "FOR", width=7, align="right"),
    Column("why", "WHY", min_width=6, max_width=300, flex=1),
)
TOKENS = {OPENING: "outcome-pending", OPEN: "outcome-ok", LOST: "outcome-unreachable", CLOSED: "muted"}


def rows(items: Sequence[OpenForward], now: datetime) -> list[Row]:
    """One row a forward."""
    found = []
    for each in items:
        age = (now - each.since).total_seconds()
        found.append(
            Row(
                each.id,
                (
                    each.worker.address,
                    number_cell(each.ports.remote),
                    each.url or Cell("-", token="muted"),
                    Cell(each.state, token=TOKENS.get(each.state, "outcome-failed")),
                    number_cell(age, format_duration(age)),
                    each.error,
                ),
            )
        )
    return found


class ForwardsScreen(TableScreen):
    """Opened, copied and closed by key; they stay open on every other screen."""

    SCOPE = FORWARDS
    BINDINGS: ClassVar = bindings(FORWARDS)
    CSS_PATH = "tools.tcss"
    crumb = "forwards"

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield LiveTable(COLUMNS, id="table", empty="No port is forwarded. f on a worker opens one.")
            yield Static(classes="work-detail", markup=False)

    def tick(self) -> None:
        self.table.set_rows(rows(self.console.forwards.items, utc_now()))
        self._show()

    @on(LiveTable.RowHighlighted)
    def _show(self) -> None:
        place = self.query_one(".work-detail", Static)
        row = self.table.cursor_row
        place.display = row is not None
        if row is not None:
            item = self.chosen()
            copy, close = (self.console.settings.keymap.shown(BY_ID[name]) for name in ("copy", "close-forward"))
            words = item.error or f"port {item.ports.remote} of {item.worker.address} is {item.state}"
            if item.url:
                words = f"{item.url} is port {item.ports.remote} of {item.worker.address}: {copy} copies it, {close} closes it"
            place.update(words)

    def chosen(self) -> OpenForward:
        """The forward of the cursor.

        Raises:
            OperatorError: There is none.
        """
        row = self.table.cursor_row
        found = next((each for each in self.console.forwards.items if row is not None and each.id == row.key), None)
        if found is None:
            raise OperatorError("There is no forward under the cursor.")
        return found

    def targets_here(self) -> list[str]:
        return [self.chosen().worker.address] if self.table.cursor_row is not None else []

    def do_copy(self) -> None:
        self.console.copy(self.chosen().url or self.table.copy_text())

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """An open one: its address is copied; one that is over is opened anew."""
        item = self.chosen()
        if item in self.console.forwards.living:
            self.do_copy()
            return
        worker = self.console.worker_at(item.worker.address)
        if worker is None:
            raise OperatorError(f"{item.worker.address} does not exist now.")
        self.console.forwards.again(self.console.require_tower().pool, item, worker)
        self.tick()

    def do_close_forward(self) -> None:
        self.console.forwards.close(self.chosen())
        self.tick()
