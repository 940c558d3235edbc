"""The journal on screen: states, actions, errors and alarms, newest last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.widget import Widget

from backend.model import Event, EventKind
from backend.outcomes import OperatorError
from tui.actions import BY_ID, EVENTS, bindings
from tui.screens.base import TableScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row

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


def sentence(event: Event) -> str:
    """What happened, in words: a change of state once, with an arrow."""
    change = f"{event.before} → {event.after}" if event.before and event.after else event.after or event.before
    # Whom it is about stands in its own column.
    text = event.text.removeprefix(f"{event.subject}: ") if event.subject else event.text
    text = text.removeprefix(f"{event.subject} ") if event.subject else text
    if not text or event.kind != EventKind.STATE or not change:
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
        yield LiveTable(COLUMNS, id="table", empty="Nothing happened yet that the journal knows of.")

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
        events = tower.journal.events(limit=SHOWN) if tower is not None else list(self.console.notices)
        self.table.set_rows(rows(events))

    def do_open(self) -> None:
        """Goes to what the event is about."""
        row = self.table.cursor_row
        if row is None:
            return
        subject = row.cells[2]
        name = (subject.text if isinstance(subject, Cell) else subject).split("/")[0]
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
