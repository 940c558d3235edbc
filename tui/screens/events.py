"""The journal on screen: states, actions, errors and alarms, newest last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.model import Event, EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from tui.actions import BY_ID, EVENTS, bindings
from tui.screens.base import TableScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row
from tui.widgets.table_filter import cell_text

SHOWN = 2000
COLUMNS = (
    Column("at", "AT (UTC)", width=14),
    Column("kind", "KIND", min_width=7, max_width=12),
    Column("subject", "ABOUT", min_width=8, max_width=26),
    Column("text", "WHAT", min_width=20, max_width=400, flex=1),
)
KIND_TOKENS = {
    EventKind.ERROR: "state-failed",
    EventKind.ALARM: "stale",
    EventKind.ACTION: "mark",
    EventKind.NODE_HEALTH: "stale",
}


CHANGES = frozenset({EventKind.STATE, EventKind.NODE_STATE})
TEXT = 3
"""The place of what happened among the cells."""


def sentence(event: Event) -> str:
    """What happened, in words: a change of state once, with an arrow."""
    change = f"{event.before} → {event.after}" if event.before and event.after else event.after or event.before
    # Whom it is about stands in its own column.
    text = event.text
    for opening in (f"{event.subject}: ", f"Run {event.subject} ", f"{event.subject} ") if event.subject else ():
        text = text.removeprefix(opening)
    if not text or event.kind not in CHANGES or not change:
        return text or change
    told = f"{event.before} -> {event.after}"
    if text.startswith(told):
        return change + text.removeprefix(told)
    return text if event.after and event.after in text else f"{change}: {text}"


def rows(events: Sequence[Event]) -> list[Row]:
    """One row an event, the newest first."""
    result = []
    for ordinal, event in reversed(list(enumerate(events))):
        token = KIND_TOKENS.get(event.kind, "muted")
        key = event.sequence or (ordinal, event.at, event.text)
        cells = (
            Cell(f"{event.at:%m-%d %H:%M:%S}", token="muted", sort=event.at.timestamp()),
            Cell(event.kind.value, token=token),
            event.subject,
            Cell(sentence(event), token="state-failed" if event.kind == EventKind.ERROR else ""),
        )
        result.append(Row(key, cells, version=1))
    return result


class EventsScreen(TableScreen):
    """What was seen and done."""

    SCOPE = EVENTS
    BINDINGS: ClassVar = bindings(EVENTS)
    CSS_PATH = "pages.tcss"
    crumb = "events"

    def __init__(self, only: str = "") -> None:
        """
        Args:
            only: A filter to begin with.
        """
        super().__init__()
        self._only = only
        self._seen: tuple[int, int] | None = None

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="events"):
            yield LiveTable(COLUMNS, id="table", empty="Nothing happened yet that the journal knows of.")
            yield Static(id="event-words", markup=False)

    def on_mount(self) -> None:
        if self._only:
            self.apply_filter(self._only)

    def tick(self) -> None:
        tower = self.console.tower
        seen = (tower.watch.events_version if tower is not None else -1, self.console.notices_version)
        if seen == self._seen:
            return
        self._seen = seen
        # The journal holds ours and those of other consoles; without it there are only ours.
        try:
            events = tower.journal.events(limit=SHOWN) if tower is not None else list(self.console.notices)
        except OperatorError as error:
            self.table.set_message(f"{error.what} {error.cure}".strip(), kind="error")
            self.table.set_rows(rows(list(self.console.notices)))
            raise
        self.table.set_message("")
        self.table.set_rows(rows(events))
        self._tell()

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        """The event of the cursor to its last word: columns cut it."""
        row = self.table.cursor_row
        words = " ".join(cell_text(cell) for cell in row.cells[TEXT - 1 :]).strip() if row is not None else ""
        self.query_one("#event-words", Static).update(plain_text(words))

    def do_open(self) -> None:
        """Goes to what the event is about."""
        row = self.table.cursor_row
        if row is None:
            return
        name = cell_text(row.cells[TEXT - 1]).split("/")[0]
        if not name:
            return
        try:
            run = self.console.find_run(name)
        except OperatorError:
            if not self.console.open_refused(name):
                self.console.show_request(name)
        else:
            self.console.open_run(run)

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])
