"""Queue waits are told apart by type, zone and tier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.cloud.waits import find, statistics
from backend.journal import QueueWait

AT = datetime(2026, 11, 30, tzinfo=UTC)


def wait(kind: str, zone: str, tier: str, waited_s: float, hour: int = 0) -> QueueWait:
    return QueueWait("p", zone, f"{kind}-{hour}", kind, tier, AT + timedelta(hours=hour), waited_s)


def test_each_type_zone_and_tier_has_its_own_figures() -> None:
    found = statistics(
        [
            wait("v5litepod-16", "z", "spot", 60, 3),
            wait("v5litepod-16", "z", "spot", 600, 1),
            wait("v5litepod-16", "z", "spot", 90, 2),
            wait("v5litepod-16", "z", "reserved", 5),
            wait("v5litepod-16", "y", "spot", 7),
        ]
    )
    assert [(each.zone, each.tier, each.count) for each in found] == [
        ("y", "spot", 1),
        ("z", "reserved", 1),
        ("z", "spot", 3),
    ]
    spot = find(found, "p", "z", "v5litepod-16", "spot")
    assert spot is not None
    assert (spot.shortest_s, spot.median_s, spot.longest_s, spot.last_s) == (60, 90, 600, 60)
    assert spot.last_at == AT + timedelta(hours=3)
    assert find(found, "p", "z", "v6e-8", "spot") is None
