"""How long requests waited for capacity, by type, zone and tier: only waits that the journal saw whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from backend.model import WAITING_STATES, QueuedResource
from backend.stays import QueueWait


@dataclass(frozen=True, slots=True)
class Waits:
    """Of one type in one zone and tier. Figures are seconds from creation to PROVISIONING."""

    project: str
    zone: str
    accelerator_type: str
    tier: str
    count: int
    shortest_s: float
    median_s: float
    longest_s: float
    last_s: float
    last_at: datetime
    """When the newest of them was asked for."""


def statistics(waits: Iterable[QueueWait]) -> list[Waits]:
    """One entry a type, zone and tier, in the order of these."""
    groups: dict[tuple[str, str, str, str], list[QueueWait]] = {}
    for each in waits:
        groups.setdefault((each.accelerator_type, each.zone, each.tier, each.project), []).append(each)
    return [_of(groups[key]) for key in sorted(groups)]


def _of(waits: list[QueueWait]) -> Waits:
    newest = max(waits, key=lambda each: each.asked_at)
    seconds = [each.waited_s for each in waits]
    return Waits(
        newest.project,
        newest.zone,
        newest.accelerator_type,
        newest.tier,
        len(waits),
        min(seconds),
        median(seconds),
        max(seconds),
        newest.waited_s,
        newest.asked_at,
    )


def find(found: Iterable[Waits], project: str, zone: str, accelerator_type: str, tier: str) -> Waits | None:
    """The statistics of what a request would ask for; None where nothing was seen."""
    wanted = (project, zone, accelerator_type, tier)
    return next(
        (each for each in found if (each.project, each.zone, each.accelerator_type, each.tier) == wanted), None
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """A request that waits now, beside the waits that were seen of its type, zone and tier."""

    item: QueuedResource
    waited_s: float | None
    """Since it was made; None where the service does not say when."""
    seen: Waits | None
    """None where nothing of its kind was seen to come."""

    @property
    def ratio(self) -> float | None:
        """Of the median; None where there is nothing to compare with."""
        if self.seen is None or self.waited_s is None or self.seen.median_s <= 0:
            return None
        return self.waited_s / self.seen.median_s

    @property
    def is_longest(self) -> bool:
        """Longer than any wait of its kind that was seen to end."""
        return self.seen is not None and self.waited_s is not None and self.waited_s > self.seen.longest_s

    @property
    def words(self) -> str:
        """How it stands against them."""
        if self.seen is None:
            return "none of its kind was seen yet"
        if self.waited_s is None:
            return "when it was asked for is not known"
        times = f"{self.seen.count} wait{'' if self.seen.count == 1 else 's'}"
        if self.is_longest:
            return f"longer than all of {times} seen"
        if self.waited_s > self.seen.median_s:
            return f"longer than the median of {times} seen"
        return f"within the median of {times} seen"


def standings(items: Iterable[QueuedResource], found: Iterable[Waits], now: datetime) -> list[Standing]:
    """Requests that wait for capacity now, the longest first."""
    known = list(found)
    waiting = [
        Standing(
            item,
            max((now - item.created_at).total_seconds(), 0.0) if item.created_at is not None else None,
            find(known, item.project, item.zone, item.accelerator_type, item.tier.value),
        )
        for item in items
        if item.state in WAITING_STATES
    ]
    return sorted(waiting, key=lambda each: -(each.waited_s or 0.0))
