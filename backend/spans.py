"""State spans of the journal: how one good poll moves them. What was not seen to begin carries a lower bound."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import UTC, datetime

from backend.model import QueuedResource, QueuedResourceState, StateSince

CLOCKS_AGREE_S = 60.0
"""How far the service's clock may be from ours. A request that is older than our last look, by more than this, and yet was
not in it, is not one that we saw come: another world answers at the same name."""

CONTINUOUS_S = 90.0
"""A change between two observations that are no further apart counts as seen, at the later one.
Longer than the slowest poll interval with its jitter and one failed poll."""


def move(
    connection: sqlite3.Connection, place: tuple[str, str], seen: Collection[QueuedResource], at: float
) -> tuple[dict[tuple[str, str, str], StateSince], set[str]]:
    """Since when each request is in its state, and the names whose spans this observation moved."""
    row = connection.execute("SELECT at FROM observed WHERE project = ? AND zone = ?", place).fetchone()
    last_seen: float | None = row[0] if row else None
    newer_exists = last_seen is not None and last_seen > at
    continuous = last_seen is not None and at - last_seen <= CONTINUOUS_S
    open_spans = {
        name: (span, created, state, entered, bool(bound))
        for span, name, created, state, entered, bound in connection.execute(
            "SELECT id, name, created_at, state, entered_at, entered_is_lower_bound FROM spans "
            "WHERE project = ? AND zone = ? AND left_at IS NULL",
            place,
        )
    }
    since: dict[tuple[str, str, str], StateSince] = {}
    left: list[tuple[float, int]] = []
    entered_rows: list[tuple[object, ...]] = []
    moved: set[str] = set()
    for item in seen:
        created = item.created_at.timestamp() if item.created_at else None
        span = open_spans.pop(item.name, None)
        same_request = span is not None and span[1] == created
        if span is not None and ((same_request and span[2] == item.state) or newer_exists):
            since[item.key] = StateSince(utc(span[3]), span[4])
            continue
        if newer_exists:
            since[item.key] = StateSince(utc(at), True)
            continue
        older_than_last_look = (
            not same_request
            and created is not None
            and last_seen is not None
            and created < last_seen - CLOCKS_AGREE_S
        )
        entered, bound = at, not continuous or older_than_last_look
        if item.state == QueuedResourceState.CREATING and created is not None:
            # The first state of all begins with the request itself.
            entered, bound = min(created, at), False
        elif not same_request and created is not None and not bound:
            # It appeared between two polls, so its state began after its creation and before now.
            entered = max(min(created, at), last_seen or created)
        moved.add(item.name)
        if span is not None:
            left.append((entered if same_request else at, span[0]))
        entered_rows.append(
            (*item.key, created, item.state, item.accelerator_type, item.tier.value, entered, int(bound), item.chips)
        )
        since[item.key] = StateSince(utc(entered), bound)
    if not newer_exists:
        left += [(at, span[0]) for span in open_spans.values()]
        moved.update(open_spans)
    connection.executemany("UPDATE spans SET left_at = ? WHERE id = ?", left)
    connection.executemany(
        "INSERT INTO spans (project, zone, name, created_at, state, accelerator_type, tier, entered_at, "
        "entered_is_lower_bound, chips) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        entered_rows,
    )
    connection.execute(
        "INSERT INTO observed VALUES (?, ?, ?) ON CONFLICT (project, zone) DO UPDATE SET at = max(at, excluded.at)",
        (*place, at),
    )
    return since, moved


def utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
