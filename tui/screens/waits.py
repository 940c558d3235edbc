"""How long requests waited for capacity, by type, zone and tier; and how what waits now stands against it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.cloud.waits import Standing, Waits, standings, statistics
from backend.journal import Journal
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import WAITS, bindings
from tui.durations import format_duration
from tui.screens.cost_rows import moment_cell
from tui.screens.journal_screen import JournalScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell, share_cell, state_cell
from tui.widgets.state_timeline import SHORT
from tui.wording import count, utc_now

MOST_WAITS = 10_000
"""Newest waits that the figures are made of."""
SEEN = (
    Column("type", "TYPE", min_width=8, max_width=18),
    Column("zone", "ZONE", min_width=8, max_width=18, priority=2),
    Column("tier", "TIER", min_width=6, max_width=12),
    Column("waits", "WAITS", width=6, align="right"),
    Column("shortest", "SHORTEST", width=8, align="right", priority=3),
    Column("median", "MEDIAN", width=8, align="right"),
    Column("longest", "LONGEST", width=8, align="right"),
    Column("last", "LAST", width=8, align="right", priority=1),
    Column("last-at", "LAST ASKED AT", width=14, priority=1),
    Column("now", "NOW WAITING", min_width=11, max_width=40, flex=1),
)
NOW = (
    Column("name", "NAME", min_width=8, max_width=26),
    Column("state", "STATE", min_width=8, max_width=14),
    Column("type", "TYPE", min_width=8, max_width=18, priority=2),
    Column("zone", "ZONE", min_width=8, max_width=18, priority=1),
    Column("tier", "TIER", min_width=6, max_width=12, priority=2),
    Column("waited", "WAITED", width=8, align="right"),
    Column("median", "MEDIAN", width=8, align="right"),
    Column("longest", "LONGEST", width=8, align="right", priority=3),
    Column("part", "OF LONGEST", min_width=14, max_width=40, flex=1, priority=0),
    Column("stands", "AGAINST WHAT WAS SEEN", min_width=21, max_width=48, flex=1),
)


def statistics_of(journal: Journal, places: set[tuple[str, str]]) -> list[Waits]:
    """Of some (project, zone). Reads the journal: for any thread."""
    return [each for each in statistics(journal.queue_waits(limit=MOST_WAITS)) if (each.project, each.zone) in places]


def _seconds(value: float | None) -> Cell:
    return number_cell(value, format_duration(value) if value is not None else None)


def seen_rows(found: Sequence[Waits], waiting: Sequence[Standing]) -> list[Row]:
    """One row a type, zone and tier; also those of which only a request that waits now is known."""
    now: dict[tuple[str, ...], list[Standing]] = {}
    for each in waiting:
        item = each.item
        now.setdefault((item.project, item.zone, item.accelerator_type, item.tier.value), []).append(each)
    rows = []
    for waits in found:
        key = (waits.project, waits.zone, waits.accelerator_type, waits.tier)
        figures = (
            number_cell(waits.count),
            _seconds(waits.shortest_s),
            _seconds(waits.median_s),
            _seconds(waits.longest_s),
            _seconds(waits.last_s),
            moment_cell(waits.last_at),
        )
        rows.append(_seen_row(key, figures, now.pop(key, [])))
    none = (number_cell(0), *(number_cell(None) for _ in range(4)), moment_cell(None))
    return [*rows, *(_seen_row(key, none, members) for key, members in sorted(now.items()))]


def _seen_row(key: tuple[str, ...], figures: Iterable[Cell], waiting: Sequence[Standing]) -> Row:
    _, zone, kind, tier = key
    longest = max((each.waited_s or 0.0 for each in waiting), default=0.0)
    told = Cell("-", token="muted")
    if waiting:
        late = any(each.is_longest for each in waiting)
        words = f"{len(waiting)}, for {format_duration(longest)}" + (": longer than any seen" if late else "")
        told = Cell(words, token="stale" if late else "state-waiting", sort=longest)
    return Row(key, (kind, Cell(zone, token="muted"), tier, *figures, told))


def now_rows(waiting: Sequence[Standing]) -> list[Row]:
    """One row a request that waits, the longest first."""
    rows = []
    for each in waiting:
        item, seen = each.item, each.seen
        part = each.waited_s / seen.longest_s if seen is not None and each.waited_s and seen.longest_s else None
        rows.append(
            Row(
                item.key,
                (
                    item.name,
                    state_cell(SHORT.get(item.state, item.state)),
                    item.accelerator_type,
                    Cell(item.zone, token="muted"),
                    item.tier.value,
                    _seconds(each.waited_s),
                    _seconds(seen.median_s if seen is not None else None),
                    _seconds(seen.longest_s if seen is not None else None),
                    share_cell(part, token="stale" if each.is_longest else "state-waiting"),
                    Cell(each.words, token="stale" if each.is_longest else "muted"),
                ),
            )
        )
    return rows


class WaitsScreen(JournalScreen):
    """The journal's waits, which are read, or what waits now, which is the fleet's."""

    SCOPE = WAITS
    BINDINGS: ClassVar = bindings(WAITS)
    crumb = "waits"
    title_of_reading = "read the waits"

    def __init__(self) -> None:
        super().__init__()
        self._found: list[Waits] = []
        self._waiting: list[Standing] = []

    def columns(self) -> Sequence[Column]:
        return NOW if self.other_view else SEEN

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable(SEEN, id="table")
            yield Static(classes="work-detail", markup=False)

    def loading_words(self) -> str:
        return "Reading what the journal saw …"

    def tick(self) -> None:
        super().tick()
        if self.second:
            self.redraw()

    async def read(self) -> None:
        tower = self.console.require_tower()
        self._found = await asyncio.to_thread(statistics_of, tower.journal, set(tower.context.places))

    def forget(self) -> None:
        self._found = []

    def draw(self) -> None:
        found = self._found
        self._waiting = standings(self.console.fleet.queued_resources, found, utc_now())
        times = count(sum(each.count for each in found), "wait")
        late = sum(each.is_longest for each in self._waiting)
        words = f"{times} seen from creation to PROVISIONING · {count(len(self._waiting), 'request')} waiting now"
        self.say(words + (f", {late} of them longer than any of its kind" if late else ""))
        if self.other_view:
            self.table.set_message("No request waits for capacity now.", kind="empty")
            self.table.set_rows(now_rows(self._waiting))
        else:
            self.table.set_message(
                "No wait was seen from its beginning to its end yet, by any console or verb on this machine.",
                kind="empty",
            )
            self.table.set_rows(seen_rows(found, self._waiting))
        self._tell()

    def chosen(self) -> Standing | None:
        """The waiting request under the cursor; None in the other view and on nothing."""
        row = self.table.cursor_row
        return next((each for each in self._waiting if row is not None and each.item.key == row.key), None)

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        each = self.chosen() if self.other_view else None
        detail = self.query_one(".work-detail", Static)
        detail.display = each is not None
        if each is None:
            return
        waited = format_duration(each.waited_s) if each.waited_s is not None else "an unknown time"
        words = f"{each.item.name} has waited {waited}: {each.words}"
        if each.seen is not None:
            seen = each.seen
            words += (
                f" (shortest {format_duration(seen.shortest_s)}, median {format_duration(seen.median_s)},"
                f" longest {format_duration(seen.longest_s)})"
            )
        detail.update(plain(words))

    # Keys

    def do_open(self) -> None:
        row = self.table.cursor_row
        if row is None:
            raise OperatorError("Nothing is under the cursor.")
        each = self.chosen() if self.other_view else None
        if each is not None:
            self.console.show_request(each.item.name)
            return
        _, zone, kind, tier = cast("tuple[str, str, str, str]", row.key)
        self.show_view(other=True)
        self.apply_filter(f"type={kind} zone={zone} tier={tier}")
