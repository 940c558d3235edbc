"""What the journal's spans tell of requests: the stays of one, all that were seen, and how long capacity was waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backend.spans import utc

Row = tuple[Any, ...]

TIMELINE = (
    "SELECT created_at, state, entered_at, entered_is_lower_bound, left_at FROM spans "
    "WHERE project = ? AND zone = ? AND name = ? ORDER BY entered_at, id"
)
REQUESTS = (
    "SELECT project, zone, name, created_at, accelerator_type, tier, chips, state, entered_at, "
    "entered_is_lower_bound, left_at FROM spans WHERE left_at IS NULL OR left_at >= ? ORDER BY entered_at, id"
)
QUEUE_WAITS = (
    "SELECT project, zone, name, accelerator_type, tier, created_at, min(entered_at) FROM spans "
    "WHERE state IN ('PROVISIONING', 'ACTIVE') AND entered_is_lower_bound = 0 AND created_at IS NOT NULL "
    "AND entered_at > created_at GROUP BY project, zone, name, created_at ORDER BY created_at DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class StateSpan:
    """One stay of a request in one state, as it was seen."""

    state: str
    entered_at: datetime
    entered_is_lower_bound: bool
    """True: the state is at least this old; its beginning was not seen."""
    left_at: datetime | None
    """None while it lasts."""

    def seconds(self, now: datetime) -> float:
        return max(((self.left_at or now) - self.entered_at).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request that was ever seen, by its creation, with its states in order."""

    project: str
    zone: str
    name: str
    created_at: datetime | None
    accelerator_type: str
    tier: str
    chips: int
    """0: seen by a release that did not write it down."""
    spans: tuple[StateSpan, ...]

    @property
    def exists(self) -> bool:
        """Whether it was there when its zone was last seen."""
        return self.spans[-1].left_at is None


@dataclass(frozen=True, slots=True)
class QueueWait:
    """One wait for capacity that ended in PROVISIONING or ACTIVE, seen from its start."""

    project: str
    zone: str
    name: str
    accelerator_type: str
    tier: str
    asked_at: datetime
    waited_s: float


def _span(state: str, entered: float, bound: int, left: float | None) -> StateSpan:
    return StateSpan(state, utc(entered), bool(bound), None if left is None else utc(left))


def timeline(rows: Iterable[Row]) -> list[StateSpan]:
    """Of TIMELINE: the states in order; of a name that was used again, only those of the newest request."""
    stays = list(rows)
    return [_span(*stay) for created, *stay in stays if created == stays[-1][0]]


def requests(rows: Iterable[Row]) -> list[SeenRequest]:
    """Of REQUESTS: each with its states, in the order of their first sight."""
    found: dict[Row, list[Row]] = {}
    for row in rows:
        found.setdefault(row[:4], []).append(row[4:])
    return [
        SeenRequest(
            project,
            zone,
            name,
            None if created is None else utc(created),
            stays[-1][0],
            stays[-1][1],
            max(stay[2] for stay in stays),
            tuple(_span(*stay[3:]) for stay in stays),
        )
        for (project, zone, name, created), stays in found.items()
    ]


def queue_waits(rows: Iterable[Row]) -> list[QueueWait]:
    """Of QUEUE_WAITS, in their order."""
    return [
        QueueWait(project, zone, name, kind, tier, utc(created), entered - created)
        for project, zone, name, kind, tier, created, entered in rows
    ]
