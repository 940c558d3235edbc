"""Queue waits are told apart by type, zone and tier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.cloud.waits import find, standings, statistics
from backend.model import QueuedResource, Tier
from backend.stays import QueueWait

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


def test_what_waits_now_is_told_beside_what_was_seen_the_longest_first() -> None:
    found = statistics([wait("v5litepod-16", "z", "spot", each, each) for each in (60, 100, 300)])

    def asked(name: str, waited_s: float | None, **other: str) -> QueuedResource:
        made = AT - timedelta(seconds=waited_s) if waited_s is not None else None
        facts = {"accelerator_type": "v5litepod-16", "state": "WAITING_FOR_RESOURCES"} | other
        return QueuedResource(
            "p", "z", name, facts["state"], facts["accelerator_type"], tier=Tier.SPOT, created_at=made
        )

    items = [
        asked("early", 50),
        asked("late", 250),
        asked("latest", 400),
        asked("alone", 90, accelerator_type="v6e-8"),
        asked("ageless", None),
        asked("done", 999, state="ACTIVE"),
    ]
    told = {each.item.name: each for each in standings(items, found, AT)}
    assert list(told) == ["latest", "late", "alone", "early", "ageless"]
    assert told["latest"].words == "longer than all of 3 waits seen"
    assert told["latest"].ratio == 4.0
    assert told["late"].words == "longer than the median of 3 waits seen"
    assert told["early"].words == "within the median of 3 waits seen"
    assert told["early"].ratio == 0.5
    assert told["alone"].words == "none of its kind was seen yet"
    assert told["alone"].ratio is None
    assert told["ageless"].words == "when it was asked for is not known"
