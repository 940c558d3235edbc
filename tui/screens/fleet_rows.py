"""The fleet as rows of a table: pure functions of the model and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tui.durations import MINUTE_S
from tui.look import state_token
from tui.widgets.rows import Cell, Column, Key, Row, number_cell
from tui.wording import age, in_state

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from backend.model import Fleet, QueuedResource, Slice, SshWord, StateSince

SHORT_STATES = {"WAITING_FOR_RESOURCES": "WAITING"}
STANDALONE = "node"
"""First part of the key of a TPU VM that no queued resource owns."""

NARROW_COLUMNS = (
    Column("name", "NAME", min_width=12, max_width=24, flex=1),
    Column("state", "STATE", min_width=14, max_width=16),
    Column("type", "SLICES × TYPE", min_width=13, max_width=20),
    Column("workers", "WORKERS", width=8),
    Column("in", "IN STATE", width=9),
)
WIDE_COLUMNS = (
    Column("name", "NAME", min_width=12, max_width=40),
    Column("state", "STATE", min_width=14, max_width=24),
    Column("slices", "SLICES", width=6, align="right"),
    Column("type", "TYPE", min_width=10, max_width=20),
    Column("tier", "TIER", min_width=9, max_width=11, priority=4),
    Column("chips", "CHIPS", width=6, align="right", priority=6),
    Column("workers", "WORKERS", width=8),
    Column("age", "AGE", width=6, priority=2),
    Column("in", "IN STATE", width=9),
    Column("zone", "ZONE", min_width=8, max_width=18, priority=1),
    Column("note", "NOTE", min_width=24, max_width=60, flex=1, priority=3),
)


def is_request(item: QueuedResource | Slice | None) -> TypeIs[QueuedResource]:
    """Whether it is a queued resource. What a fleet is made of is imported when there is one, after the first frame."""
    if item is None:
        return False
    from backend.model import QueuedResource

    return isinstance(item, QueuedResource)


def is_slice(item: QueuedResource | Slice | None) -> TypeIs[Slice]:
    """Whether it is a TPU VM made by itself."""
    return item is not None and not is_request(item)


def key_of(item: Slice) -> tuple[str, str, str, str]:
    """The row key of a TPU VM made by itself."""
    return (STANDALONE, item.project, item.zone, item.node_id)


def find(fleet: Fleet, key: Key) -> QueuedResource | Slice | None:
    """What a row is about, as it is now; None when it is gone."""
    for item in fleet.queued_resources:
        if item.key == key:
            return item
    return next((one for one in fleet.standalone if key_of(one) == key), None)


def workers_cell(ready: int, expected: int, ssh: SshWord | None = None) -> Cell:
    """`8/8`, `9/16`, `-`: workers that are ready, of those that will be; `8/8?` by the cloud's word alone.

    Args:
        ready: By the cloud's word.
        expected: In all.
        ssh: Whether ssh answers on them; None where nobody asks.
    """
    if not expected or (ssh is None and not ready):
        return Cell("-", token="muted", sort=0)
    if ssh is None:
        return Cell(f"{ready}/{expected}?", token="muted", sort=ready)
    unasked = ssh.standing.value == "not asked"
    shown = ready if unasked else ssh.answered
    token = "" if shown == expected else "stale" if ssh.standing.value == "lacks" else "state-provisioning"
    return Cell(f"{shown}/{expected}{'?' if unasked else ''}", token="muted" if unasked else token, sort=shown)


def _stale_zones(fleet: Fleet) -> set[tuple[str, str]]:
    return {(poll.project, poll.zone) for poll in fleet.polls if poll.failures}


def _state(state: str, *, short: bool, stale: bool) -> Cell:
    word = SHORT_STATES.get(state, state) if short else state
    return Cell(
        f"{word} ?" if stale else word, token="stale" if stale else state_token(state), glyph=state_token(state)
    )


_URGENCY_TOKENS = {"warning": "stale", "alarm": "state-failed"}
"""By `backend.cloud.advice.Urgency`."""


SshOf = Callable[["QueuedResource | Slice"], "SshWord | None"]
"""Whether ssh answers on what the cloud calls ready; None where it calls nothing so."""


def note_cell(item: QueuedResource, since: StateSince | None, now: datetime, keys: str, ssh: SshWord | None) -> Cell:
    """The remark beside a request; where the console's keys help, they are named.

    Args:
        keys: What to press for a dead request.
        ssh: Whether ssh answers.
    """
    # Not at the top: nothing of it is needed before the first paint.
    from backend.cloud.advice import advice
    from backend.model import DEAD_STATES

    said = advice(item, since, now, ssh)
    # The cause stands in the detail; here is no room for both, and the keys are what helps.
    text = f"holds quota: {keys}" if said.keys and item.state in DEAD_STATES else said.text
    return Cell(text, token=_URGENCY_TOKENS.get(said.urgency.value, "muted"))


def _told(seconds: float) -> tuple[float, float]:
    """A duration as `format_duration` tells it, and for how many seconds it tells the same.

    A row that is kept sorts and filters by what it says, so that rows made at different times stand in one order.
    """
    step = 1.0 if seconds < 2 * MINUTE_S else MINUTE_S
    floor = seconds // step * step
    return floor, floor + step - seconds


@dataclass(slots=True)
class _Kept:
    """A row, what it was made of, and until when it says so."""

    facts: tuple[object, ...]
    until_s: float
    row: Row


class FleetRows:
    """Rows of the fleet, made again only when they say something else: a thousand are asked for every second."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._how: tuple[object, ...] = ()

    def rows(self, fleet: Fleet, now: datetime, *, narrow: bool, short: bool, keys: str, ssh: SshOf) -> list[Row]:
        """One row a queued resource, then the TPU VMs made by themselves; a stale zone's states carry a question mark.

        Args:
            fleet: What is known.
            now: The present, UTC.
            narrow: Only the columns that matter.
            short: Short names of states.
            keys: What to press for a dead request.
            ssh: The piece of readiness that the cloud can't tell.
        """
        if self._how != (narrow, short, keys):
            self._how, self._kept = (narrow, short, keys), {}
        before, self._kept = self._kept, {}
        stale_zones = _stale_zones(fleet)
        now_s = now.timestamp()
        named = Counter(item.name for item in fleet.queued_resources)
        for item in fleet.queued_resources:
            since, answers = fleet.since.get(item.key), ssh(item)
            stale = (item.project, item.zone) in stale_zones
            name = item.name if named[item.name] == 1 else f"{item.name} · {item.zone}"
            facts: tuple[object, ...] = (item, since, answers, stale, name)
            kept = before.get(item.key)
            if kept is None or now_s >= kept.until_s or kept.facts != facts:
                row, holds_s = _request_row(
                    item, name, since, now, answers, keys, narrow=narrow, short=short, stale=stale
                )
                kept = _Kept(facts, now_s + holds_s, row)
            self._kept[item.key] = kept
        for one in fleet.standalone:
            answers, stale = ssh(one), (one.project, one.zone) in stale_zones
            key, facts = key_of(one), (one, answers, stale)
            kept = before.get(key)
            if kept is None or now_s >= kept.until_s or kept.facts != facts:
                row, holds_s = _standalone_row(one, now, answers, narrow=narrow, short=short, stale=stale)
                kept = _Kept(facts, now_s + holds_s, row)
            self._kept[key] = kept
        return [kept.row for kept in self._kept.values()]


def _request_row(
    item: QueuedResource,
    name: str,
    since: StateSince | None,
    now: datetime,
    ssh: SshWord | None,
    keys: str,
    *,
    narrow: bool,
    short: bool,
    stale: bool,
) -> tuple[Row, float]:
    """The row of a queued resource, and for how many seconds it stays true of the same facts.

    Args:
        name: With its zone, where another zone has one of the same name, as a race does.
    """
    holds_s = float(MINUTE_S)
    since_s: float | None = None
    age_s: float | None = None
    if since is not None:
        since_s, holds_s = _told((now - since.at).total_seconds())
    since_cell = number_cell(since_s, in_state(since, now))
    type_name = item.accelerator_type or "-"
    workers = workers_cell(item.workers_ready, item.workers_expected, ssh)
    state = _state(item.state, short=short, stale=stale)
    if narrow:
        shape = Cell(f"{item.slice_count} × {type_name}", sort=(type_name, item.slice_count))
        return Row(item.key, (name, state, shape, workers, since_cell)), holds_s
    if item.created_at is not None:
        age_s, age_holds_s = _told((now - item.created_at).total_seconds())
        holds_s = min(holds_s, age_holds_s)
    row = Row(
        item.key,
        (
            name,
            state,
            number_cell(item.slice_count),
            type_name,
            item.tier.value,
            number_cell(item.chips or None),
            workers,
            number_cell(age_s, age(item.created_at, now)),
            since_cell,
            Cell(item.zone, token="muted"),
            note_cell(item, since, now, keys, ssh),
        ),
    )
    return row, holds_s


def _standalone_row(
    item: Slice, now: datetime, ssh: SshWord | None, *, narrow: bool, short: bool, stale: bool
) -> tuple[Row, float]:
    state = _state(item.state, short=short, stale=stale)
    workers = workers_cell(len(item.workers) if ssh is not None else 0, len(item.workers), ssh)
    type_name = item.accelerator_type or "-"
    if narrow:
        shape = Cell(f"1 × {type_name}", sort=(type_name, 1))
        return Row(key_of(item), (item.node_id, state, shape, workers, Cell("-", token="muted"))), MINUTE_S
    age_s: float | None = None
    holds_s = float(MINUTE_S)
    if item.created_at is not None:
        age_s, holds_s = _told((now - item.created_at).total_seconds())
    cells: tuple[Cell | str, ...] = (
        item.node_id,
        state,
        number_cell(1),
        type_name,
        Cell("-", token="muted"),
        number_cell(None),
        workers,
        number_cell(age_s, age(item.created_at, now)),
        Cell("-", token="muted"),
        Cell(item.zone, token="muted"),
        alone_cell(item, ssh),
    )
    return Row(key_of(item), cells), holds_s


def alone_cell(item: Slice, ssh: SshWord | None) -> Cell:
    """The remark beside a TPU VM that no request owns, or a machine that is only listed."""
    what = "a machine of the inventory" if item.state == "LISTED" else "a TPU VM without a queued resource"
    if ssh is None:
        return Cell(what, token="muted")
    if ssh.standing.value == "answers":
        return Cell(f"ready: {what}", token="muted")
    return Cell(ssh.text, token="stale" if ssh.standing.value == "lacks" else "muted")


def summary(item: QueuedResource, now: datetime) -> str:
    """What the narrow table leaves out, on one line."""
    parts = [
        item.tier.value,
        f"{item.chips} chips" if item.chips else "",
        item.zone,
        f"age {age(item.created_at, now)}",
    ]
    if item.reservation:
        parts.append(f"reservation {item.reservation}")
    if item.runtime_version:
        parts.append(item.runtime_version)
    return " · ".join(part for part in parts if part)
