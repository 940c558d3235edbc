from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from backend import outages
from backend.cloud import channel, convert, pace, watch
from backend.cloud.client import CloudClient
from backend.cloud.watch import FleetWatch
from backend.journal import Journal
from backend.model import Event, EventKind, Fleet, QueuedResource, Slice
from backend.outcomes import ExitCode, OperatorError
from tests.fake_cloud import CREATED, FakeCloud, fake_cloud, parent, raw_node, raw_request

BOUND_S = 90.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules, in shorter time."""
    monkeypatch.setattr(channel, "FIRST_PAUSE_S", 0.001)
    for name in ("FAST_S", "MOVING_S", "WAITING_S", "SLOW_S", "FIRST_BACK_OFF_S"):
        monkeypatch.setattr(pace, name, 0.01)
    monkeypatch.setattr(pace, "MOST_BACK_OFF_S", 0.05)
    monkeypatch.setattr(watch, "LEAST_GAP_S", 0.01)


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as fake:
        yield fake


@asynccontextmanager
async def watching(cloud: FakeCloud, *zones: str, journal: Journal | None = None) -> AsyncIterator[FleetWatch]:
    client = CloudClient(cloud.context(*zones))
    made = FleetWatch(client, client.context, journal)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()


async def until(made: FleetWatch, condition: Callable[[Fleet], bool]) -> Fleet:
    async with asyncio.timeout(BOUND_S):
        while not condition(made.fleet):
            await made.next_snapshot()
    return made.fleet


def name_states(fleet: Fleet) -> list[tuple[str, str]]:
    return [(item.name, item.state) for item in fleet.queued_resources]


async def test_an_unknown_fleet_is_not_an_empty_one(cloud: FakeCloud) -> None:
    client = CloudClient(cloud.context())
    made = FleetWatch(client, client.context, None)
    assert not made.fleet.loaded
    assert (await made.refresh()).loaded
    assert made.fleet.queued_resources == ()
    await client.close()


async def test_requests_and_nodes_come_joined_over_zones_in_two_calls_each(cloud: FakeCloud) -> None:
    cloud.queued[parent("z")] = [raw_request("b-10"), raw_request("b-2", slices=2)]
    cloud.nodes[parent("z")] = [raw_node("b-2-1", "b-2"), raw_node("b-2-0", "b-2"), raw_node("alone")]
    cloud.queued[parent("y")] = [raw_request("a", zone="y")]
    client = CloudClient(cloud.context("z", "y"))
    fleet = await FleetWatch(client, client.context, None).refresh()
    assert [item.name for item in fleet.queued_resources] == ["a", "b-2", "b-10"]
    assert [each.node_id for each in fleet.find("b-2")[0].slices] == ["b-2-0", "b-2-1"]
    assert [each.node_id for each in fleet.standalone] == ["alone"]
    assert (cloud.calls["ListQueuedResources"], cloud.calls["ListNodes"]) == (2, 2)
    await client.close()


async def test_a_poll_of_many_requests_lets_others_have_their_turn(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * watch.JOINED_AT_ONCE
    cloud.queued[parent()] = [raw_request(f"a-{number}") for number in range(count)]
    cloud.nodes[parent()] = [raw_node(f"a-{number}-0", f"a-{number}") for number in range(count)]
    since_turn, longest = 0, 0
    with_slices = convert.with_slices

    def counted(request: QueuedResource, nodes: list[Slice]) -> QueuedResource:
        nonlocal since_turn, longest
        since_turn += 1
        longest = max(longest, since_turn)
        return with_slices(request, nodes)

    async def others() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(watch, "with_slices", counted)
    client = CloudClient(cloud.context())
    other = asyncio.create_task(others())
    fleet = await FleetWatch(client, client.context, None).refresh()
    other.cancel()
    await client.close()
    assert [len(item.slices) for item in fleet.queued_resources] == [1] * count
    assert 0 < longest <= watch.JOINED_AT_ONCE


async def test_changes_become_events_with_reasons(cloud: FakeCloud) -> None:
    raw = raw_request("a", "PROVISIONING")
    cloud.queued[parent()] = [raw]
    async with watching(cloud) as made:
        await until(made, lambda fleet: fleet.loaded)
        assert list(made.events) == []
        raw.state.state = "FAILED"
        raw.state.failed_data.error.code = 13
        raw.state.failed_data.error.message = "an internal error has occurred"
        await until(made, lambda fleet: name_states(fleet) == [("a", "FAILED")])
        (event,) = made.events
        assert (event.kind, event.subject, event.after) == (EventKind.STATE, "a", "FAILED")
        assert "an internal error has occurred" in event.text


async def test_a_preemption_alarm_is_raised(cloud: FakeCloud) -> None:
    node = raw_node("a-0", "a")
    cloud.queued[parent()], cloud.nodes[parent()] = [raw_request("a")], [node]
    async with watching(cloud) as made:
        await until(made, lambda fleet: fleet.loaded)
        node.health = "UNHEALTHY_MAINTENANCE"
        await until(made, lambda fleet: any(event.kind is EventKind.ALARM for event in made.events))
        assert not made.fleet.queued_resources[0].ready


async def test_an_error_keeps_the_rows_marks_them_stale_and_heals(cloud: FakeCloud) -> None:
    cloud.queued[parent()] = [raw_request("a")]
    async with watching(cloud) as made:
        good = await until(made, lambda fleet: fleet.loaded)
        cloud.fail("ListQueuedResources", grpc.StatusCode.UNAVAILABLE, "try later")
        bad = await until(made, lambda fleet: fleet.polls[0].failures >= 3)
        assert bad.queued_resources is good.queued_resources
        assert bad.polls[0].error
        assert bad.polls[0].last_good_at is not None
        cloud.heal()
        healed = await until(made, lambda fleet: fleet.polls[0].failures == 0)
        assert healed.polls[0].error == ""
        assert name_states(healed) == [("a", "ACTIVE")]
        assert [event.kind for event in made.events] == [EventKind.ERROR, EventKind.ERROR]


async def test_an_outage_is_in_the_journal_once_with_its_end_whoever_sees_it(
    cloud: FakeCloud, tmp_path: Path
) -> None:
    cloud.queued[parent()] = [raw_request("a")]
    journal = Journal.open(tmp_path / "j.db")
    other = Journal.open(tmp_path / "j.db")
    async with watching(cloud, journal=journal) as made:
        await until(made, lambda fleet: fleet.loaded)
        cloud.fail("ListQueuedResources", grpc.StatusCode.UNAVAILABLE, "try later")
        await until(made, lambda fleet: fleet.polls[0].failures >= 3)
        async with watching(cloud, journal=other) as second:
            await until(second, lambda fleet: fleet.polls[0].failures >= 2)
        assert [event.after for event in errors(journal)] == [outages.SILENT], "once, not per poll or console"
        cloud.heal()
        await until(made, lambda fleet: fleet.polls[0].failures == 0 and len(errors(journal)) == 2)
    cloud.fail("ListNodes", grpc.StatusCode.UNAVAILABLE, "again")
    async with watching(cloud, journal=journal) as made:
        await until(made, lambda _fleet: len(errors(journal)) == 3)
    cloud.heal()
    async with watching(cloud, journal=other) as later:
        await until(later, lambda fleet: fleet.loaded)
        told = [event.text for event in later.events if event.kind is EventKind.ERROR]
        assert len(told) == 1
        assert "answers again; the first failure was" in told[0], "a console that did not see it fail tells its end"
    found = errors(journal)
    assert [event.after for event in found] == [outages.SILENT, outages.ANSWERING] * 2
    assert {event.subject for event in found} == {"z"}
    assert "nodes of p, z" in found[2].text
    journal.close()
    other.close()


def errors(journal: Journal) -> list[Event]:
    return [event for event in journal.events() if event.kind is EventKind.ERROR]


async def test_an_error_of_the_nodes_alone_does_not_empty_the_slices(cloud: FakeCloud) -> None:
    cloud.queued[parent()], cloud.nodes[parent()] = [raw_request("a")], [raw_node("a-0", "a")]
    async with watching(cloud) as made:
        await until(made, lambda fleet: fleet.loaded)
        cloud.fail("ListNodes", grpc.StatusCode.INTERNAL, "boom")
        fleet = await until(made, lambda fleet: fleet.polls[0].failures >= 1)
        assert len(fleet.queued_resources[0].slices) == 1


async def test_one_failing_zone_leaves_the_others_alone(cloud: FakeCloud) -> None:
    cloud.queued[parent("y")] = [raw_request("a", zone="y")]
    cloud.fail("ListQueuedResources", grpc.StatusCode.PERMISSION_DENIED, "denied", parent=parent("z"))
    client = CloudClient(cloud.context("z", "y"))
    made = FleetWatch(client, client.context, None)
    fleet = await made.refresh()
    assert fleet.loaded
    assert [poll.error != "" for poll in fleet.polls] == [True, False]
    assert [item.name for item in fleet.queued_resources] == ["a"]
    cloud.fail("ListQueuedResources", grpc.StatusCode.PERMISSION_DENIED, "denied")
    with pytest.raises(OperatorError):
        await made.refresh()
    assert [item.name for item in made.fleet.queued_resources] == ["a"]
    await client.close()


async def test_the_pause_that_the_service_asks_for_is_kept_even_when_poked(cloud: FakeCloud) -> None:
    cloud.fail(
        "ListNodes", grpc.StatusCode.RESOURCE_EXHAUSTED, "requests per minute", retry_delay_s=3600, parent=parent("z")
    )
    async with watching(cloud, "z", "y") as made:
        await until(made, lambda fleet: fleet.polls[0].failures == 1)
        for _ in range(10):
            seen = made.fleet.polls[1].last_good_at
            made.poke()
            await until(made, lambda fleet: fleet.polls[1].last_good_at != seen)  # noqa: B023
        assert made.fleet.polls[0].failures == 1


def test_the_pace_follows_what_moves_and_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FAST_S", 1.0), ("MOVING_S", 2.0), ("WAITING_S", 5.0), ("SLOW_S", 10.0)):
        monkeypatch.setattr(pace, name, value)
    monkeypatch.setattr(pace, "FIRST_BACK_OFF_S", 2.0)
    monkeypatch.setattr(pace, "MOST_BACK_OFF_S", 60.0)
    from dataclasses import replace

    from backend.cloud.changes import Look
    from backend.model import QueuedResource, Slice, Worker, ZonePoll

    zone = pace.Zone("p", "z")
    now = 10_000.0

    def pause(state: str, *, changed_s_ago: float = 1000.0) -> float:
        whole = (Slice("p", "z", "a-0", 0, "READY", workers=(Worker(0),)),)
        zone.look = Look("p", "z", (QueuedResource("p", "z", "a", state, slices=whole),), ())
        zone.changed_at = now - changed_s_ago
        return zone.pause_s(now)

    assert [pause(state) for state in ("ACTIVE", "FAILED", "SUSPENDED")] == [10.0, 10.0, 10.0]
    assert pause("WAITING_FOR_RESOURCES") == 5.0
    assert pause("PROVISIONING", changed_s_ago=100) == 2.0
    assert pause("PROVISIONING", changed_s_ago=1000) == 5.0
    assert pause("ACTIVE", changed_s_ago=3) == 1.0
    zone.look = Look("p", "z", (QueuedResource("p", "z", "a", "ACTIVE"),), ())
    zone.changed_at = now - 100
    assert zone.pause_s(now) == 2.0, "an ACTIVE request that lacks a slice is being mended"
    zone.fast_until = now + 1
    assert pause("ACTIVE") == 1.0
    pauses = []
    for failures in range(1, 9):
        zone.poll = replace(ZonePoll("p", "z"), failures=failures)
        pauses.append(zone.pause_s(now))
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


async def test_since_is_a_bound_for_what_was_there_and_true_for_what_was_seen(
    cloud: FakeCloud, tmp_path: Path
) -> None:
    raw = raw_request("a", "WAITING_FOR_RESOURCES")
    cloud.queued[parent()] = [raw]
    journal = Journal.open(tmp_path / "j.db")
    async with watching(cloud, journal=journal) as made:
        fleet = await until(made, lambda fleet: fleet.loaded)
        assert fleet.since["p", "z", "a"].is_lower_bound
        raw.state.state = "ACTIVE"
        fleet = await until(made, lambda fleet: name_states(fleet) == [("a", "ACTIVE")])
        assert not fleet.since["p", "z", "a"].is_lower_bound
    assert [span.state for span in journal.timeline(("p", "z", "a"))] == ["WAITING_FOR_RESOURCES", "ACTIVE"]
    assert [event.after for event in journal.events(subject="a")] == ["ACTIVE"]
    async with watching(cloud, journal=journal) as again:
        fleet = await until(again, lambda fleet: fleet.loaded)
        assert not fleet.since["p", "z", "a"].is_lower_bound
    journal.close()


async def test_two_consoles_on_one_journal_agree(cloud: FakeCloud, tmp_path: Path) -> None:
    raw = raw_request("a", "PROVISIONING")
    cloud.queued[parent()] = [raw]
    one, two = Journal.open(tmp_path / "j.db"), Journal.open(tmp_path / "j.db")
    async with watching(cloud, journal=one) as left, watching(cloud, journal=two) as right:
        await until(left, lambda fleet: fleet.loaded)
        await until(right, lambda fleet: fleet.loaded)
        for state in ("ACTIVE", "SUSPENDING", "SUSPENDED"):
            raw.state.state = state
            for made in (left, right):
                await until(made, lambda fleet: name_states(fleet) == [("a", state)])  # noqa: B023
        assert left.fleet.since == right.fleet.since
    assert [span.state for span in one.timeline(("p", "z", "a"))] == [
        "PROVISIONING",
        "ACTIVE",
        "SUSPENDING",
        "SUSPENDED",
    ]
    assert [event.after for event in one.events()] == ["ACTIVE", "SUSPENDING", "SUSPENDED"]
    one.close()
    two.close()


async def test_what_changed_while_no_console_ran_is_an_event(cloud: FakeCloud, tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j.db")
    raw = raw_request("a", "PROVISIONING")
    cloud.queued[parent()] = [raw, raw_request("b")]
    async with watching(cloud, journal=journal) as made:
        await until(made, lambda fleet: fleet.loaded)
    raw.state.state = "SUSPENDED"
    cloud.queued[parent()] = [raw]
    async with watching(cloud, journal=journal) as made:
        await until(made, lambda fleet: fleet.loaded)
        assert [(event.kind, event.subject) for event in made.events] == [
            (EventKind.STATE, "a"),
            (EventKind.GONE, "b"),
        ]
    journal.close()


async def test_a_journal_that_fails_does_not_stop_the_watching(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.queued[parent()] = [raw_request("a")]
    journal = Journal.open(tmp_path / "j.db")
    journal.connection.execute("DROP TABLE spans")
    async with watching(cloud, journal=journal) as made:
        fleet = await until(made, lambda fleet: fleet.version >= 4)
        assert name_states(fleet) == [("a", "ACTIVE")]
        assert fleet.since["p", "z", "a"].is_lower_bound
        assert [event.kind for event in made.events] == [EventKind.ERROR]
    journal.close()


async def test_a_quiet_fleet_keeps_its_objects(cloud: FakeCloud) -> None:
    cloud.queued[parent("z")], cloud.nodes[parent("z")] = [raw_request("a", slices=2)], [raw_node("a-1", "a")]
    cloud.queued[parent("y")] = [raw_request("b", zone="y")]
    client = CloudClient(cloud.context("z", "y"))
    made = FleetWatch(client, client.context, None)
    first = await made.refresh()
    second = await made.refresh()
    assert second.version > first.version
    assert second.queued_resources is first.queued_resources
    assert second.standalone is first.standalone
    await client.close()


async def test_waiting_works_with_and_without_a_running_watch(cloud: FakeCloud) -> None:
    raw = raw_request("a", "CREATING")
    cloud.queued[parent()] = [raw]

    def active(fleet: Fleet) -> str | None:
        return next((item.name for item in fleet.queued_resources if item.state == "ACTIVE"), None)

    client = CloudClient(cloud.context())
    made = FleetWatch(client, client.context, None)
    waiting = asyncio.create_task(made.wait_for(active, BOUND_S))
    await until(made, lambda fleet: fleet.loaded)
    assert not waiting.done()
    raw.state.state = "ACTIVE"
    assert await waiting == "a"
    await client.close()
    async with watching(cloud) as running:
        assert await running.wait_for(active, BOUND_S) == "a"


async def test_gone_is_not_believed_of_a_zone_that_was_never_seen(cloud: FakeCloud) -> None:
    cloud.fail("ListQueuedResources", grpc.StatusCode.UNAVAILABLE, "try later", parent=parent("y"))
    client = CloudClient(cloud.context("z", "y"))
    made = FleetWatch(client, client.context, None)
    with pytest.raises(OperatorError) as caught:
        await made.wait_for(lambda fleet: not fleet.find("a"), 0.5)
    assert caught.value.exit_code == ExitCode.TIMED_OUT
    assert made.fleet.loaded
    await client.close()


async def test_waiting_ends_at_once_when_waiting_cannot_help(cloud: FakeCloud) -> None:
    cloud.fail("ListQueuedResources", grpc.StatusCode.UNAUTHENTICATED, "expired")
    client = CloudClient(cloud.context())
    with pytest.raises(OperatorError) as caught:
        await FleetWatch(client, client.context, None).wait_for(lambda fleet: True, BOUND_S)
    assert "gcloud auth application-default login" in caught.value.cure
    await client.close()


async def test_a_minute_of_failures_is_not_hammered(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "FIRST_BACK_OFF_S", 0.2)
    monkeypatch.setattr(pace, "MOST_BACK_OFF_S", 60.0)
    cloud.fail("ListQueuedResources", grpc.StatusCode.UNAVAILABLE, "try later")
    async with watching(cloud) as made:
        await until(made, lambda fleet: fleet.polls[0].failures == 4)
        assert cloud.calls["ListQueuedResources"] == 4 * watch.POLL_ATTEMPTS


def test_the_clock_is_utc() -> None:
    assert abs(watch.now_utc() - datetime.now(UTC)) < timedelta(minutes=1)
    assert CREATED.tzinfo is UTC
