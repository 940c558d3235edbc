"""What requests hold is counted, and a limit is only ever one that an error has told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.cloud.requests import CreateRequest
from backend.cloud.usage import Held, LimitStore, configured, held, parse_limit, standing, warn_of_limit
from backend.journal import Journal
from backend.model import QueuedResource, Tier

AT = datetime(2026, 11, 30, tzinfo=UTC)
TOLD = "Quota 'TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI' exhausted. Limit 64 in zone us-west4-a"
ASKED = CreateRequest("x", "p", "us-west4-a", "v5litepod-16", tier=Tier.SPOT, node_count=2)


def qr(name: str, state: str, slices: int = 1, tier: Tier = Tier.SPOT) -> QueuedResource:
    return QueuedResource(
        "p",
        "us-west4-a",
        name,
        state,
        accelerator_type="v5litepod-16",
        slice_count=slices,
        chips_per_slice=16,
        tier=tier,
    )


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[LimitStore]:
    journal = Journal.open(tmp_path / "j.db")
    yield LimitStore(journal, clock=AT.timestamp)
    journal.close()


def test_dead_requests_count_and_tiers_are_kept_apart() -> None:
    found = held(
        [
            qr("a", "ACTIVE", 2),
            qr("b", "FAILED"),
            qr("c", "WAITING_FOR_RESOURCES"),
            qr("d", "ACTIVE", 1, Tier.RESERVED),
        ]
    )
    assert found["p", "us-west4-a", "v5e", "spot"] == Held(active=32, coming=16, dead=16)
    assert found["p", "us-west4-a", "v5e", "reserved"] == Held(active=16)


@pytest.mark.parametrize(
    ("message", "generation", "kind", "place", "value"),
    [
        (TOLD, "v5e", "spot", "us-west4-a", 64),
        ("Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
         "v4", "spot", "us-central2", 20800),
        ("Quota limit 'TPUV6EPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone us-east5-a.",
         "v6e", "on-demand", "us-east5-a", 8),
        ("Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone us-east5-a.",
         "v6e", "spot", "us-east5-a", 8),
        ("Quota 'TPUV5PReservedPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in zone us-east5-a",
         "v5p", "reserved", "us-east5-a", 4),
    ],
)  # fmt: skip
def test_a_limit_is_read_out_of_the_error_that_tells_it(
    message: str, generation: str, kind: str, place: str, value: float
) -> None:
    found = parse_limit(message, AT)
    assert found is not None
    assert (found.generation, found.kind, found.place, found.value) == (generation, kind, place, value)


def test_an_error_that_tells_no_limit_teaches_none(limits: LimitStore) -> None:
    assert limits.learn("p", "There is no more capacity in the zone") is None
    assert limits.known("p") == []


def test_a_request_beyond_a_told_limit_is_warned_of_with_its_source(limits: LimitStore) -> None:
    limits.learn("p", TOLD)
    known = limits.known("p")
    (item,) = warn_of_limit(ASKED, [qr("a", "ACTIVE", 2), qr("b", "FAILED")], known)
    assert "48 chips held (16 by dead requests), 32 more asked for; the last limit told was 64" in item.what
    assert "error of 2026-11-30" in item.what
    assert warn_of_limit(ASKED, [qr("a", "ACTIVE", 2)], known) == []
    assert warn_of_limit(replace(ASKED, tier=Tier.ON_DEMAND), [qr("a", "ACTIVE", 9)], known) == []
    assert warn_of_limit(replace(ASKED, zone="us-east5-a"), [qr("a", "ACTIVE", 9)], known) == []
    assert limits.known("another") == []


def test_a_newer_error_replaces_the_limit(limits: LimitStore) -> None:
    limits.learn("p", TOLD)
    limits.learn("p", TOLD.replace("64", "128"))
    assert [limit.value for limit in limits.known("p")] == [128.0]


def test_where_a_request_stands_is_said_with_the_source_of_each_limit(limits: LimitStore) -> None:
    items = [qr("a", "ACTIVE", 2), qr("b", "FAILED")]
    bare = standing(ASKED, items, [])
    assert bare is not None
    assert bare.sentence == (
        "v5e spot in us-west4-a: 48 chips held (16 by dead requests), 32 more asked for; no limit is known"
    )
    limits.learn("p", TOLD)
    known = [*configured([("v5e", "spot", 128.0), ("v5e", "reserved", 8.0)]), *limits.known("p")]
    told = standing(ASKED, items, known)
    assert told is not None
    assert told.sentence.endswith("limit last told: 128 (by your configuration), 64 (by an error of 2026-11-30)")


def test_a_configured_limit_is_warned_of_as_such() -> None:
    known = configured([("v5e", "spot", 40.0)])
    (item,) = warn_of_limit(ASKED, [qr("a", "ACTIVE")], known)
    assert "the last limit told was 40 (by your configuration)" in item.what
    assert warn_of_limit(replace(ASKED, tier=Tier.ON_DEMAND), [qr("a", "ACTIVE", 9)], known) == []
