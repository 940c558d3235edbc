"""Figures and times in words: what tables, headers and advice say. Pure functions, no widget, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backend.sanitize import plain
from tui.durations import format_duration

if TYPE_CHECKING:
    from backend.model import Fleet, QueuedResource, Slice, SshWord, StateSince


def age(since: datetime | None, now: datetime) -> str:
    """Time since a moment; `-` when it is unknown."""
    return format_duration((now - since).total_seconds()) if since is not None else "-"


def in_state(since: StateSince | None, now: datetime) -> str:
    """Time in the present state; a lower bound is shown as one."""
    if since is None:
        return "-"
    return format_duration((now - since.at).total_seconds(), is_lower_bound=since.is_lower_bound)


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`, `16,384 workers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Bytes in words: `812 B`, `1.4 MB`."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def totals(fleet: Fleet) -> tuple[int, int, int]:
    """Chips that are active, waiting (also provisioning), and held by dead requests."""
    from backend.model import DEAD_STATES, WAITING_STATES, QueuedResourceState

    active = waiting = dead = 0
    for item in fleet.queued_resources:
        if item.state == QueuedResourceState.ACTIVE:
            active += item.chips
        elif item.state in WAITING_STATES or item.state == QueuedResourceState.PROVISIONING:
            waiting += item.chips
        elif item.state in DEAD_STATES:
            dead += item.chips
    return active, waiting, dead


def sentences(item: QueuedResource, since: StateSince | None, now: datetime, ssh: SshWord | None = None) -> list[str]:
    """What is known of a request beyond its row: advice, what is missing, the cloud's own words, maintenance."""
    from backend.cloud.advice import Urgency, advice, readiness
    from backend.model import QueuedResourceState

    lines = []
    said = advice(item, since, now, ssh)
    if said.text and said.urgency not in (Urgency.NONE, Urgency.OK) and (ssh is None or said.text != ssh.text):
        lines.append(said.text[:1].upper() + said.text[1:] + ".")
    if item.state == QueuedResourceState.ACTIVE:
        lines += [f"Slice {lacking.slice_index}: {lacking.what}." for lacking in readiness(item)]
    if item.error is not None:
        lines.append(f"The cloud says (code {item.error.code}): {plain(item.error.message)}")
    for one in item.slices:
        if one.maintenance is not None:
            window = one.maintenance.window_start or one.maintenance.latest_start or "a time not told"
            lines.append(f"Slice {one.index}: {one.maintenance.kind or 'maintenance'} at {window}.")
        if one.health_description and not one.ready:
            lines.append(f"Slice {one.index}: {plain(one.health_description)}")
    return lines


def poll_age_s(fleet: Fleet, now: datetime) -> float | None:
    """Seconds since the last good poll of the zone that is worst off; None while one was never polled well."""
    goods = [poll.last_good_at for poll in fleet.polls]
    known = [good for good in goods if good is not None]
    if not known or len(known) < len(goods):
        return None
    return max((now - good).total_seconds() for good in known)


def poll_error(fleet: Fleet) -> str:
    """What is wrong with the worst zone, in few words; empty while all is well."""
    failing = [poll for poll in fleet.polls if poll.error]
    if not failing:
        return ""
    worst = max(failing, key=lambda poll: poll.failures)
    more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
    return f"{worst.zone}: {worst.error}{more}"


def stale_words(fleet: Fleet, item: QueuedResource | Slice, now: datetime) -> str:
    """Why an item is not what is now but what was last heard of its zone, in a sentence; empty while it is fresh."""
    for poll in fleet.polls:
        if poll.error and (poll.project, poll.zone) == (item.project, item.zone):
            age = (now - poll.last_good_at).total_seconds() if poll.last_good_at is not None else None
            heard = f"as last heard {format_duration(age)} ago" if age is not None else "never heard of"
            return f"? {heard}: {plain(poll.error)} {plain(poll.cure)}".strip()
    return ""


def fold(names: Iterable[str], *, limit: int = 6) -> str:
    """A short list of names: `a, b, c and 4 more`."""
    items = list(names)
    if len(items) <= limit:
        return ", ".join(items)
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"


def utc_now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)
