"""The service's long-running operations: listed, followed while any of them runs, cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from textual import on
from textual.widget import Widget
from textual.worker import Worker

from backend.model import EventKind, Operation
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID, OPERATIONS, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.confirm import Choice, Question
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import utc_now

FOLLOW_S, QUIET_S = 2.0, 15.0
"""Between lists: while an operation runs, and while none does."""
COLUMNS = (
    Column("at", "BEGUN (UTC)", width=14),
    Column("state", "STATE", min_width=8, max_width=11),
    Column("verb", "VERB", min_width=6, max_width=12),
    Column("target", "ON", min_width=8, max_width=30),
    Column("took", "TOOK", width=7, align="right"),
    Column("zone", "ZONE", min_width=8, max_width=18, priority=2),
    Column("name", "OPERATION", min_width=12, max_width=60, priority=1),
    Column("detail", "WHAT", min_width=10, max_width=200, flex=1),
)
TOKENS = {"failed": "state-failed", "running": "state-provisioning", "cancelling": "stale", "done": "state-active"}


def state_of(item: Operation) -> str:
    """In one word."""
    if item.error is not None:
        return "failed"
    return "done" if item.done else "cancelling" if item.cancel_requested else "running"


def rows(items: Sequence[Operation], now: datetime) -> list[Row]:
    """One row an operation, in the order given."""
    found = []
    for item in items:
        begun = item.created_at
        took = ((item.ended_at or now) - begun).total_seconds() if begun is not None else None
        cells = (
            Cell(f"{begun:%m-%d %H:%M:%S}" if begun else "-", token="muted", sort=begun.timestamp() if begun else 0),
            Cell(state_of(item), token=TOKENS[state_of(item)]),
            item.verb,
            plain(item.target.rpartition("/")[2]),
            number_cell(took, format_duration(took) if took is not None else None),
            Cell(item.zone, token="muted"),
            Cell(item.name, token="muted"),
            plain(item.error.message if item.error is not None else item.detail),
        )
        found.append(Row(item.path, cells))
    return found


class OperationsScreen(TableScreen):
    """Asks for the list only while it is open."""

    SCOPE = OPERATIONS
    BINDINGS: ClassVar = bindings(OPERATIONS)
    crumb = "operations"

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Operation] = []
        self._asking: Worker[None] | None = None
        self._next_at = float("-inf")

    def compose_body(self) -> Iterable[Widget]:
        yield LiveTable(COLUMNS, id="table", empty="The service tells of no operation.")

    def tick(self) -> None:
        busy = self._asking is not None and not self._asking.is_finished
        if self.console.tower is None or busy or monotonic() < self._next_at:
            return
        self._asking = self.background(self._ask(), group="operations", title="list the operations")

    async def _ask(self) -> None:
        # Set before the answer: an endpoint that fails is asked no more often than a quiet one.
        self._next_at = monotonic() + QUIET_S
        self._items = await self.console.require_tower().operations()
        running = any(not item.done for item in self._items)
        self._next_at = monotonic() + (FOLLOW_S if running else QUIET_S)
        self.table.set_rows(rows(self._items, utc_now()))

    def chosen(self) -> Operation:
        """The operation of the cursor.

        Raises:
            OperatorError: There is none.
        """
        row = self.table.cursor_row
        found = next((item for item in self._items if row is not None and item.path == row.key), None)
        if found is None:
            raise OperatorError("There is no operation under the cursor.")
        return found

    def do_equivalent(self) -> None:
        """How the operation of the cursor is asked for; where there is none, how all of a zone are."""
        from backend.cloud import equivalents
        from tui.screens.deeds import rest_of

        context, row = self.console.context, self.table.cursor_row
        if row is None:
            same = equivalents.list_operations(context.project, next(iter(context.zones), "ZONE"), rest_of(context))
            self.console.show_equivalent("operations", same)
            return
        item = self.chosen()
        self.console.show_equivalent(f"operation {item.name}", equivalents.operation(item.path, rest_of(context)))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """All that the service tells of it, asked for anew."""
        from backend.cloud import equivalents
        from tui.operation_facts import facts
        from tui.screens.deeds import rest_of
        from tui.screens.describe import DescribeScreen

        item, client = self.chosen(), self.console.require_tower().client

        async def fetch() -> dict[str, Any]:
            return facts(await client.get_operation(item.path))

        same = equivalents.operation(item.path, rest_of(self.console.context))
        show = partial(self.console.show_equivalent, f"operation {item.name}", same)
        self.console.push_screen(DescribeScreen(item.name, fetch, show))

    async def do_cancel_operation(self) -> None:
        item = self.chosen()
        if item.done:
            raise OperatorError(f"{item.name} is over; there is nothing to cancel.")
        lines = [f"{item.verb} {plain(item.target)}", "It may end all the same, and what it did stays done."]
        choices = (Choice("yes", "Cancel it", "error"), Choice("no", "Let it go on"))
        if await self.console.push_screen_wait(Question("Cancel this operation?", lines, choices, chosen=1)) != "yes":
            return
        await self.console.require_tower().client.cancel_operation(item.path)
        target = plain(item.target.rpartition("/")[2])
        self.console.note(EventKind.ACTION, f"cancelled the operation {item.name}", subject=target)
        self.console.say(f"{item.verb} of {target}: asked to be cancelled.")
        self._next_at = float("-inf")
