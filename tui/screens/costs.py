"""What everything that was seen has used, gone or not: by request, and together by generation, tier and zone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

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
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Row
from tui.widgets.state_timeline import StateTimeline, TimelineSpan
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.context import Context
    from backend.journal import Journal

PERIODS: tuple[float | None, ...] = (DAY_S, 7 * DAY_S, 30 * DAY_S, None)
"""Seconds; None counts all that the journal knows."""
DEFAULT_S = 30 * DAY_S
EVERY_S = 10.0
"""Between two sums while the screen is open: chip-hours grow slowly, and the journal is read whole."""


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


class CostsScreen(TableScreen):
    """Added up in a thread when the screen opens, when the time changes, and once in a while."""

    SCOPE = COSTS
    BINDINGS: ClassVar = bindings(COSTS)
    CSS_PATH = "tools.tcss"
    crumb = "costs"

    def __init__(self, period_s: float | None = DEFAULT_S) -> None:
        """
        Args:
            period_s: How far back is counted; None: as far as the journal knows.
        """
        super().__init__()
        self._period_s = period_s
        self._totals = False
        self._spent: list[Spent] | None = None
        self._rows: dict[bool, list[Row]] = {}
        """Of each view: requests, and their totals."""
        self._at = datetime.fromtimestamp(0, UTC)
        self._reading: Worker[None] | None = None
        self._next_at = float("-inf")

    @property
    def _money(self) -> bool:
        return bool(self.console.context.prices)

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable((*REQUESTS, *(MONEY if self._money else ())), id="table")
            yield StateTimeline(classes="work-line")
            yield Static(classes="work-detail", markup=False)

    def tick(self) -> None:
        if self.console.tower is None:
            trouble = self.console.trouble
            self.table.set_message(
                f"{trouble.what} {trouble.cure}" if trouble is not None else "Opening the journal …",
                kind="error" if trouble is not None else "loading",
            )
            return
        busy = self._reading is not None and not self._reading.is_finished
        if not busy and monotonic() >= self._next_at:
            self._next_at = monotonic() + EVERY_S
            if self._spent is None:
                self.table.set_message(f"Adding up {period_words(self._period_s)} …", kind="loading")
            self._reading = self.background(self._read(), group="costs", title="add up the costs")

    async def _read(self) -> None:
        tower, now = self.console.require_tower(), utc_now()
        since = beginning(self._period_s, now)
        context = tower.context
        try:
            spent, rows = await asyncio.to_thread(self._add_up, tower.journal, context, since, now)
        except OperatorError as error:
            self._spent, self._rows = None, {}
            # Asked again by key: a journal that fails would be told of again and again.
            self._next_at = float("inf")
            self.table.set_rows([])
            again = self.console.settings.keymap.shown(BY_ID["refresh"])
            self.table.set_message(f"{error.what} {error.cure}".strip() + f"\n{again} tries again.", kind="error")
            self._say([])
            raise
        self._spent, self._rows, self._at = spent, rows, now
        self._draw()

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

    def _draw(self) -> None:
        spent = self._spent or []
        self.table.set_message(f"No request was seen in {period_words(self._period_s)}.", kind="empty")
        self._say(head_words(spent, self._period_s, self._alone()))
        self.table.set_rows(self._rows.get(self._totals, []))
        self._tell()

    def _say(self, lines: list[str]) -> None:
        self.query_one(".work-head", Static).update(plain_text("\n".join(lines)))

    def chosen(self) -> Spent | None:
        """The request under the cursor; None on totals and on nothing."""
        row = self.table.cursor_row
        return next((each for each in self._spent or () if row is not None and each.key == row.key), None)

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

    def do_refresh(self) -> None:
        self._next_at = float("-inf")
        self.console.do_refresh()
        self.tick()

    def do_view(self) -> None:
        """Requests, or what they have used together."""
        self._show(totals=not self._totals)

    def _show(self, *, totals: bool) -> None:
        self._totals = totals
        self.apply_filter("")
        self.table.clear_marks()
        self.table.set_columns((*(TOTALS if totals else REQUESTS), *(MONEY if self._money else ())))
        if self._spent is not None:
            self._draw()

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
        # What was being added up is of another time.
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._next_at = float("-inf")
        self._say([f"Adding up {period_words(self._period_s)} …"])
        self.tick()

    def do_longer_period(self) -> None:
        self._change(1)

    def do_shorter_period(self) -> None:
        self._change(-1)

    def do_open(self) -> None:
        row = self.table.cursor_row
        if row is None:
            raise OperatorError("Nothing is under the cursor.")
        if self._totals:
            kind, name = cast("tuple[str, str]", row.key)
            self._show(totals=False)
            self.apply_filter(f"{'gen' if kind == 'generation' else kind}={name}")
            return
        spent = self.chosen()
        assert spent is not None
        self.console.push_screen(CostStatesScreen(spent, self._period_s, self._at))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])


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
