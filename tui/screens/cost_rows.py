"""Rows and words of the costs screens: what each request has used, what they have used together, and its states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from backend.costs import KINDS, Cost, Share, Spent, Total, shares, total
from backend.model import QueuedResourceState
from backend.sanitize import plain
from backend.stays import StateSpan
from tui.durations import DAY_S, format_duration
from tui.widgets.rows import Cell, Column, Row, number_cell, share_cell, state_cell
from tui.widgets.state_timeline import SHORT
from tui.wording import count

MONEY = (
    Column("usd", "USD", min_width=9, max_width=14, align="right"),
    Column("rate", "USD/H NOW", min_width=9, max_width=11, align="right", priority=4),
)
"""Only with prices."""
HOURS = Column("hours", "CHIP-HOURS", min_width=10, max_width=16, align="right")
SHARE = Column("share", "SHARE", min_width=12, max_width=60, flex=1)
REQUESTS = (
    Column("name", "NAME", min_width=8, max_width=26),
    Column("state", "STATE", min_width=8, max_width=15),
    Column("gen", "GEN", min_width=4, max_width=8, priority=3),
    Column("type", "TYPE", min_width=8, max_width=16, priority=2),
    Column("tier", "TIER", min_width=8, max_width=12, priority=3),
    Column("zone", "ZONE", min_width=8, max_width=18, priority=2),
    Column("chips", "CHIPS", width=6, align="right", priority=3),
    Column("created", "CREATED (UTC)", width=14, priority=1),
    HOURS,
    SHARE,
)
TOTALS = (
    Column("by", "BY", min_width=10, max_width=10),
    Column("name", "NAME", min_width=8, max_width=18),
    Column("requests", "REQUESTS", width=8, align="right", priority=2),
    Column("chips", "CHIPS NOW", width=9, align="right", priority=3),
    HOURS,
    SHARE,
)
STATES = (
    Column("state", "STATE", min_width=10, max_width=24),
    Column("entered", "ENTERED (UTC)", width=14),
    Column("left", "LEFT (UTC)", width=14, priority=1),
    Column("took", "TOOK", min_width=8, max_width=12, align="right"),
    HOURS,
    SHARE,
)
GONE = Cell("gone", token="muted")


def moment_cell(at: datetime | None, *, bound: str = "") -> Cell:
    """`11-30 12:04:09`; `-` for one that is not known."""
    if at is None:
        return Cell("-", token="muted")
    return Cell(f"{bound}{at:%m-%d %H:%M:%S}", token="muted", sort=at.timestamp())


def hours_cell(spent: Cost | Total | None) -> Cell:
    """Chip-hours, a lower bound as one."""
    if spent is None:
        return Cell("not known", token="muted")
    bound = ">= " if spent.is_lower_bound else ""
    return number_cell(spent.chip_hours, f"{bound}{spent.chip_hours:,.1f}")


def money_cells(spent: Cost | Total | None) -> tuple[Cell, Cell]:
    """What it has cost, and costs an hour now."""
    if spent is None or spent.usd is None:
        return number_cell(None), number_cell(None)
    bound = spent.bound if isinstance(spent, Cost) else spent.usd_bound
    rate = spent.usd_per_hour or 0.0
    return number_cell(spent.usd, f"{bound}{spent.usd:,.2f}"), number_cell(rate, f"{rate:,.2f}" if rate else "-")


def _part(spent: Cost | Total | None, whole: float) -> Cell:
    return share_cell(spent.chip_hours / whole if spent is not None and whole else None, token="plot-median")


def request_rows(spent: Sequence[Spent], *, money: bool) -> list[Row]:
    """One row a request, the dearest first; what is not known last."""
    whole = sum(each.cost.chip_hours for each in spent if each.cost is not None)
    found = []
    for each in sorted(spent, key=lambda item: -(item.cost.chip_hours if item.cost is not None else -1.0)):
        seen = each.seen
        state = seen.spans[-1].state
        cells = (
            plain(seen.name),
            state_cell(SHORT.get(state, state)) if seen.exists else GONE,
            each.generation,
            seen.accelerator_type,
            seen.tier,
            Cell(seen.zone, token="muted"),
            number_cell(seen.chips or None),
            moment_cell(seen.created_at),
            hours_cell(each.cost),
            _part(each.cost, whole),
        )
        found.append(Row(each.key, (*cells, *money_cells(each.cost)) if money else cells))
    return found


def total_rows(spent: Sequence[Spent], *, money: bool) -> list[Row]:
    """One row a generation, tier and zone."""
    whole = sum(each.cost.chip_hours for each in spent if each.cost is not None)
    return [_total_row(each, whole, money=money) for kind in KINDS for each in shares(spent, kind)]


def _total_row(each: Share, whole: float, *, money: bool) -> Row:
    cells = (
        Cell(each.kind, token="muted"),
        each.name,
        number_cell(each.requests),
        number_cell(each.total.running_chips, f"{each.total.running_chips:,}" if each.total.running_chips else "-"),
        hours_cell(each.total),
        _part(each.total, whole),
    )
    return Row((each.kind, each.name), (*cells, *money_cells(each.total)) if money else cells)


def state_rows(spent: Spent, since: datetime, now: datetime) -> list[Row]:
    """The states of a request in order, with what each used after `since`."""
    whole = spent.cost.chip_hours if spent.cost is not None else 0.0
    found = []
    for place, span in enumerate(spent.seen.spans):
        used = _used(spent, span, since, now)
        found.append(
            Row(
                place,
                (
                    state_cell(span.state),
                    moment_cell(span.entered_at),
                    moment_cell(span.left_at) if span.left_at is not None else Cell("lasts", token="muted"),
                    number_cell(
                        span.seconds(now),
                        format_duration(span.seconds(now), is_lower_bound=span.entered_is_lower_bound),
                    ),
                    Cell("") if used is None else number_cell(used, f"{used:,.1f}"),
                    share_cell(used / whole if used is not None and whole else None, token="plot-median"),
                ),
            )
        )
    return found


def _used(spent: Spent, span: StateSpan, since: datetime, now: datetime) -> float | None:
    """Chip-hours of one stay; None where none count."""
    if span.state != QueuedResourceState.ACTIVE or not spent.seen.chips:
        return None
    begun = max(span.entered_at, since)
    return max(((span.left_at or now) - begun).total_seconds(), 0.0) * spent.seen.chips / 3600


def period_words(period_s: float | None) -> str:
    """`the last 7 days`, `the last 12h`, `all that the journal knows`."""
    if period_s is None:
        return "all that the journal knows"
    days = period_s / DAY_S
    if days >= 1 and days == int(days):
        return f"the last {count(int(days), 'day')}" if days > 1 else "the last day"
    return f"the last {format_duration(period_s)}"


def head_words(spent: Sequence[Spent], period_s: float | None, alone: float | None) -> list[str]:
    """What was used together, and what is used now."""
    whole = total(each.cost for each in spent if each.cost is not None)
    gone = sum(not each.seen.exists for each in spent)
    requests = count(len(spent), "request") + (f", {gone} of them gone" if gone else "")
    bound = ">= " if whole.is_lower_bound else ""
    used = f"{bound}{whole.chip_hours:,.1f} chip-hours"
    if whole.usd is not None:
        used += f", {whole.usd_bound}{whole.usd:,.2f} USD by your prices"
    now = "nothing runs now"
    if whole.running_chips:
        now = f"now {whole.running_chips:,} chip-hours with every hour"
        if whole.usd_per_hour is not None:
            now += f", {whole.usd_per_hour:,.2f} USD"
    notes = [requests, now]
    unknown = sum(each.cost is None for each in spent)
    if unknown:
        notes.append(f"{count(unknown, 'request')} in no sum: their chips were never written down")
    if alone is not None:
        notes.append(f"besides, TPU VMs that stand alone: at most {alone:,.1f} chip-hours")
    return [f"{period_words(period_s)}: {used}", " · ".join(notes)]


def detail_words(each: Spent, now: datetime) -> str:
    """What is known of one request, and why its figure is a bound."""
    seen = each.seen
    facts = [
        seen.name,
        f"{seen.accelerator_type or 'an unknown type'}, {seen.tier or 'an unknown tier'}, {seen.zone}",
    ]
    if seen.created_at is not None:
        facts.append(f"made {format_duration((now - seen.created_at).total_seconds())} ago")
    if not seen.exists and (left := seen.spans[-1].left_at) is not None:
        facts.append(f"gone for {format_duration((now - left).total_seconds())}")
    if each.cost is None:
        facts.append("how many chips it had was never written down")
    elif each.cost.is_lower_bound:
        facts.append(">=: its beginning was not seen, and what it used before is not counted")
    return plain(" · ".join(facts))
