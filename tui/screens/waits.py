"""How long requests waited for capacity, by type, zone and tier; and how what waits now stands against it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import ClassVar, cast

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from backend.cloud.waits import Standing, Waits, standings, statistics
from backend.journal import Journal
from backend.outcomes import OperatorError
from backend.sanitize import plain, plain_text
from tui.actions import BY_ID, WAITS, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.cost_rows import moment_cell
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell, share_cell, state_cell
from tui.widgets.state_timeline import SHORT
from tui.wording import count, utc_now

EVERY_S = 10.0
"""Between two looks into the journal while the screen is open."""
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


class WaitsScreen(TableScreen):
    """The journal's waits are read in a thread; what waits now is the fleet's."""

    SCOPE = WAITS
    BINDINGS: ClassVar = bindings(WAITS)
    CSS_PATH = "tools.tcss"
    crumb = "waits"

    def __init__(self) -> None:
        super().__init__()
        self._now = False
        self._found: list[Waits] | None = None
        self._waiting: list[Standing] = []
        self._reading: Worker[None] | None = None
        self._next_at = float("-inf")
        self._head = ""

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable(SEEN, id="table")
            yield Static(classes="work-detail", markup=False)

    def tick(self) -> None:
        tower = self.console.tower
        if tower is None:
            trouble = self.console.trouble
            self.table.set_message(
                f"{trouble.what} {trouble.cure}" if trouble is not None else "Opening the journal …",
                kind="error" if trouble is not None else "loading",
            )
            return
        busy = self._reading is not None and not self._reading.is_finished
        if not busy and monotonic() >= self._next_at:
            self._next_at = monotonic() + EVERY_S
            if self._found is None:
                self.table.set_message("Reading what the journal saw …", kind="loading")
            self._reading = self.background(self._read(), group="waits", title="read the waits")
        if self._found is not None and self.second:
            self._draw()

    async def _read(self) -> None:
        tower = self.console.require_tower()
        try:
            self._found = await asyncio.to_thread(statistics_of, tower.journal, set(tower.context.places))
        except OperatorError as error:
            self._found = None
            # Asked again by key: a journal that fails would be told of again and again.
            self._next_at = float("inf")
            self.table.set_rows([])
            again = self.console.settings.keymap.shown(BY_ID["refresh"])
            self.table.set_message(f"{error.what} {error.cure}".strip() + f"\n{again} tries again.", kind="error")
            self._say("")
            raise
        self._draw()

    def _draw(self) -> None:
        found = self._found or []
        self._waiting = standings(self.console.fleet.queued_resources, found, utc_now())
        times = count(sum(each.count for each in found), "wait")
        late = sum(each.is_longest for each in self._waiting)
        words = f"{times} seen from creation to PROVISIONING · {count(len(self._waiting), 'request')} waiting now"
        self._say(words + (f", {late} of them longer than any of its kind" if late else ""))
        if self._now:
            self.table.set_message("No request waits for capacity now.", kind="empty")
            self.table.set_rows(now_rows(self._waiting))
        else:
            self.table.set_message(
                "No wait was seen from its beginning to its end yet, by any console or verb on this machine.",
                kind="empty",
            )
            self.table.set_rows(seen_rows(found, self._waiting))
        self._tell()

    def _say(self, words: str) -> None:
        if words != self._head:
            self._head = words
            self.query_one(".work-head", Static).update(plain_text(words))

    def chosen(self) -> Standing | None:
        """The waiting request under the cursor; None in the other view and on nothing."""
        row = self.table.cursor_row
        return next((each for each in self._waiting if row is not None and each.item.key == row.key), None)

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        each = self.chosen() if self._now else None
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

    def do_refresh(self) -> None:
        self._next_at = float("-inf")
        self.console.do_refresh()
        self.tick()

    def do_view(self) -> None:
        """What was seen, or what waits now."""
        self._show(now=not self._now)

    def _show(self, *, now: bool) -> None:
        self._now = now
        self.apply_filter("")
        self.table.clear_marks()
        self.table.set_columns(NOW if now else SEEN)
        if self._found is not None:
            self._draw()

    def do_open(self) -> None:
        row = self.table.cursor_row
        if row is None:
            raise OperatorError("Nothing is under the cursor.")
        each = self.chosen() if self._now else None
        if each is not None:
            self.console.show_request(each.item.name)
            return
        _, zone, kind, tier = cast("tuple[str, str, str, str]", row.key)
        self._show(now=True)
        self.apply_filter(f"type={kind} zone={zone} tier={tier}")

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])
