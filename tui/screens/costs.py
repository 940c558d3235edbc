"""What everything that was seen has used, gone or not: by request, and together by generation, tier and zone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend import inventory
from backend.cloud.gcloud_flags import parse_duration
from backend.costs import Spent, at_most, spent_in
from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from tui.actions import BY_ID, COST_STATES, COSTS, bindings
from tui.durations import DAY_S
from tui.screens.base import TableScreen
from tui.screens.cost_rows import (
    MONEY,
    REQUESTS,
    STATES,
    TOTALS,
    detail_words,
    head_words,
    period_words,
    request_rows,
    state_rows,
    total_rows,
)
from tui.screens.journal_screen import JournalScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row
from tui.widgets.state_timeline import StateTimeline, TimelineSpan
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.context import Context
    from backend.journal import Journal

PERIODS: tuple[float | None, ...] = (DAY_S, 7 * DAY_S, 30 * DAY_S, None)
"""Seconds; None counts all that the journal knows."""
DEFAULT_S = 30 * DAY_S


def period_of(text: str) -> float | None:
    """`7d`, `12h`, `3600s`, or `all`: None.

    Raises:
        OperatorError: It is no duration.
    """
    if text.strip().lower() == "all":
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise OperatorError(f"'{text}' is no time to count.", "Write 7d, 12h or all.") from error
    if seconds <= 0:
        raise OperatorError(f"'{text}' is no time to count.", "Write 7d, 12h or all.")
    return seconds


def beginning(period_s: float | None, now: datetime) -> datetime:
    """Since when is counted."""
    first = datetime.fromtimestamp(0, UTC)
    return first if period_s is None or period_s >= now.timestamp() else now - timedelta(seconds=period_s)


class CostsScreen(JournalScreen):
    """Added up when the screen opens, when the time changes, and once in a while: requests, or what they used together."""

    SCOPE = COSTS
    BINDINGS: ClassVar = bindings(COSTS)
    crumb = "costs"
    title_of_reading = "add up the costs"

    def __init__(self, period_s: float | None = DEFAULT_S, about: tuple[str, str, str] | None = None) -> None:
        """
        Args:
            period_s: How far back is counted; None: as far as the journal knows.
            about: A request to put the cursor on, once it is known.
        """
        super().__init__()
        self._period_s = period_s
        self._about = about
        self._spent: list[Spent] = []
        self._rows: dict[bool, list[Row]] = {}
        """Of each view: requests, and their totals."""
        self._at = datetime.fromtimestamp(0, UTC)

    def columns(self) -> Sequence[Column]:
        return (*(TOTALS if self.other_view else REQUESTS), *(MONEY if self.console.context.prices else ()))

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable(self.columns(), id="table")
            yield StateTimeline(classes="work-line")
            yield Static(classes="work-detail", markup=False)

    def loading_words(self) -> str:
        return f"Adding up {period_words(self._period_s)} …"

    async def read(self) -> None:
        tower, now = self.console.require_tower(), utc_now()
        since = beginning(self._period_s, now)
        self._spent, self._rows = await asyncio.to_thread(self._add_up, tower.journal, tower.context, since, now)
        self._at = now

    def forget(self) -> None:
        self._spent, self._rows = [], {}

    def _add_up(
        self, journal: Journal, context: Context, since: datetime, now: datetime
    ) -> tuple[list[Spent], dict[bool, list[Row]]]:
        """What was spent, and the rows of both views: a journal of years has thousands. In a thread."""
        spent = spent_in(journal, set(context.places), since, now, context.price)
        money = bool(context.prices)
        return spent, {False: request_rows(spent, money=money), True: total_rows(spent, money=money)}

    def _alone(self) -> float | None:
        since = beginning(self._period_s, self._at)
        standing = [each for each in self.console.fleet.standalone if each.zone != inventory.ZONE]
        known = [hours for each in standing if (hours := at_most(each, since, self._at)) is not None]
        return sum(known) if known else None

    def draw(self) -> None:
        self.table.set_message(f"No request was seen in {period_words(self._period_s)}.", kind="empty")
        self.say("\n".join(head_words(self._spent, self._period_s, self._alone())))
        self.table.set_rows(self._rows.get(self.other_view, []))
        mine = [each for each in self._spent if each.key[:3] == self._about]
        self._about = None
        if mine:
            # A name may have been used before: the request that there is now.
            self.table.move_to(max(mine, key=lambda each: each.key).key)
        self._tell()

    def chosen(self) -> Spent | None:
        """The request under the cursor; None on totals and on nothing."""
        row = self.table.cursor_row
        return next((each for each in self._spent if row is not None and each.key == row.key), None)

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        spent = self.chosen()
        line, detail = self.query_one(StateTimeline), self.query_one(".work-detail", Static)
        line.display = detail.display = spent is not None
        if spent is not None:
            spans = spent.seen.spans
            line.set_spans(
                [TimelineSpan(span.state, span.seconds(self._at), span.entered_is_lower_bound) for span in spans]
            )
            detail.update(detail_words(spent, self._at))

    # Keys

    def _change(self, step: int) -> None:
        known = [float("inf") if each is None else each for each in PERIODS]
        here = float("inf") if self._period_s is None else self._period_s
        further = [each for each in known if (each > here if step > 0 else each < here)]
        if not further:
            words = "That is all." if step > 0 else "There is no shorter one; :costs 12h counts any time."
            self.console.say(f"{period_words(self._period_s)}. {words}".capitalize())
            return
        found = min(further) if step > 0 else max(further)
        self._period_s = None if found == float("inf") else found
        self.read_anew()

    def do_longer_period(self) -> None:
        self._change(1)

    def do_shorter_period(self) -> None:
        self._change(-1)

    def do_open(self) -> None:
        row = self.table.cursor_row
        if row is None:
            raise OperatorError("Nothing is under the cursor.")
        if self.other_view:
            kind, name = cast("tuple[str, str]", row.key)
            self.show_view(other=False)
            self.apply_filter(f"{'gen' if kind == 'generation' else kind}={name}")
            return
        spent = self.chosen()
        assert spent is not None
        self.console.push_screen(CostStatesScreen(spent, self._period_s, self._at))


class CostStatesScreen(TableScreen):
    """The states of one request, as they were seen, and what each of them used."""

    SCOPE = COST_STATES
    BINDINGS: ClassVar = bindings(COST_STATES)
    CSS_PATH = "tools.tcss"

    def __init__(self, spent: Spent, period_s: float | None, at: datetime) -> None:
        super().__init__()
        self._spent, self._period_s, self._at = spent, period_s, at
        self.crumb = spent.seen.name

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable(STATES, id="table")
            yield Static(classes="work-detail", markup=False)

    def on_mount(self) -> None:
        since = beginning(self._period_s, self._at)
        self.table.set_rows(state_rows(self._spent, since, self._at))
        spent = self._spent.cost
        used = "its chips are not known" if spent is None else f"{spent.bound}{spent.chip_hours:,.1f} chip-hours"
        if spent is not None and spent.usd is not None:
            used += f", {spent.bound}{spent.usd:,.2f} USD by your prices"
        self.query_one(".work-head", Static).update(
            plain_text(f"{self._spent.seen.name} · {period_words(self._period_s)} · {used}")
        )
        detail = self.query_one(".work-detail", Static)
        detail.display = True
        detail.update(detail_words(self._spent, self._at))

    def do_open(self) -> None:
        """What else the journal has about it."""
        from tui.screens.events import EventsScreen

        self.console.push_screen(EventsScreen(f"about={self._spent.seen.name}"))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])
