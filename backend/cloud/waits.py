"""How long requests waited for capacity, by type, zone and tier: only waits that the journal saw whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from backend.journal import QueueWait


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
