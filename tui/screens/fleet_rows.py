"""The fleet as rows of a table: pure functions of the model and the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from tui.durations import format_duration
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
    Column("note", "NOTE", min_width=10, max_width=60, flex=1, priority=3),
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


def rows(
    fleet: Fleet,
    now: datetime,
    *,
    narrow: bool,
    short: bool,
    keys: str,
    ssh: SshOf,
) -> list[Row]:
    """One row a queued resource, then the TPU VMs made by themselves; a stale zone's states carry a question mark.

    Args:
        fleet: What is known.
        now: The present, UTC.
        narrow: Only the columns that matter.
        short: Short names of states.
        keys: What to press for a dead request.
        ssh: The piece of readiness that the cloud can't tell.
    """
    stale_zones = _stale_zones(fleet)
    result = []
    for item in fleet.queued_resources:
        since = fleet.since.get(item.key)
        stale = (item.project, item.zone) in stale_zones
        since_s = (now - since.at).total_seconds() if since is not None else None
        since_cell = number_cell(since_s, in_state(since, now))
        type_name = item.accelerator_type or "-"
        answers = ssh(item)
        workers = workers_cell(item.workers_ready, item.workers_expected, answers)
        state = _state(item.state, short=short, stale=stale)
        if narrow:
            shape = Cell(f"{item.slice_count} × {type_name}", sort=(type_name, item.slice_count))
            result.append(Row(item.key, (item.name, state, shape, workers, since_cell)))
            continue
        age_s = (now - item.created_at).total_seconds() if item.created_at is not None else None
        result.append(
            Row(
                item.key,
                (
                    item.name,
                    state,
                    number_cell(item.slice_count),
                    type_name,
                    item.tier.value,
                    number_cell(item.chips or None),
                    workers,
                    number_cell(age_s, age(item.created_at, now)),
                    since_cell,
                    Cell(item.zone, token="muted"),
                    note_cell(item, since, now, keys, answers),
                ),
            )
        )
    result.extend(
        _standalone_row(one, now, ssh(one), narrow=narrow, short=short, stale_zones=stale_zones)
        for one in fleet.standalone
    )
    return result


def _standalone_row(
    item: Slice, now: datetime, ssh: SshWord | None, *, narrow: bool, short: bool, stale_zones: set[tuple[str, str]]
) -> Row:
    stale = (item.project, item.zone) in stale_zones
    state = _state(item.state, short=short, stale=stale)
    workers = workers_cell(len(item.workers) if ssh is not None else 0, len(item.workers), ssh)
    type_name = item.accelerator_type or "-"
    if narrow:
        shape = Cell(f"1 × {type_name}", sort=(type_name, 1))
        return Row(key_of(item), (item.node_id, state, shape, workers, Cell("-", token="muted")))
    age_s = (now - item.created_at).total_seconds() if item.created_at is not None else None
    age_text = format_duration(age_s) if age_s is not None else "-"
    cells: tuple[Cell | str, ...] = (
        item.node_id,
        state,
        number_cell(1),
        type_name,
        Cell("-", token="muted"),
        number_cell(None),
        workers,
        number_cell(age_s, age_text),
        Cell("-", token="muted"),
        Cell(item.zone, token="muted"),
        alone_cell(item, ssh),
    )
    return Row(key_of(item), cells)


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
