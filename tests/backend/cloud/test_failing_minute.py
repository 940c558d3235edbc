"""A minute in which the API fails, on a clock of the test's own: rows stay, are marked, heal, and few calls are made."""

from __future__ import annotations

import grpc
import pytest

from backend.cloud import channel, watch
from backend.cloud.client import CloudClient
from backend.cloud.watch import FleetWatch
from backend.model import EventKind
from tests.fake_cloud import fake_cloud, parent, raw_node, raw_request

MINUTE_S = 60.0


@pytest.mark.parametrize(
    ("code", "retry_delay_s", "most_polls"),
    [
        (grpc.StatusCode.UNAVAILABLE, None, 6),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 20.0, 4),
        (grpc.StatusCode.UNAUTHENTICATED, None, 6),
        (grpc.StatusCode.INTERNAL, None, 6),
    ],
)
async def test_rows_stay_and_heal_and_calls_are_few(
    monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode, retry_delay_s: float | None, most_polls: int
) -> None:
    monkeypatch.setattr(channel, "FIRST_PAUSE_S", 0.001)
    async with fake_cloud() as cloud:
        cloud.queued[parent()] = [raw_request("a", "ACTIVE")]
        cloud.nodes[parent()] = [raw_node("a-0", "a")]
        client = CloudClient(cloud.context())
        made = FleetWatch(client, client.context, None)
        before = (await made.refresh()).queued_resources
        cloud.calls.clear()
        for method in ("ListQueuedResources", "ListNodes"):
            cloud.fail(method, code, "not now", retry_delay_s=retry_delay_s)
        (zone,) = made._zones
        clock, polls = 0.0, 0
        while clock < MINUTE_S:
            await made._poll(zone, attempts=watch.POLL_ATTEMPTS)
            polls += 1
            assert made.fleet.queued_resources == before
            assert made.fleet.polls[0].failures == polls
            assert made.fleet.polls[0].error
            clock += zone.pause_s(0.0)
        assert 2 <= polls <= most_polls
        assert cloud.calls["ListQueuedResources"] <= polls * watch.POLL_ATTEMPTS
        assert not [event for event in made.events if event.kind in (EventKind.GONE, EventKind.STATE)]
        cloud.heal()
        await made._poll(zone, attempts=watch.POLL_ATTEMPTS)
        assert made.fleet.polls[0].failures == 0
        assert made.fleet.queued_resources == before
        await client.close()
