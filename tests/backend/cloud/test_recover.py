"""A wished delete comes true whatever it meets, destroys only what was meant, and a create is made once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backend.cloud.client import CloudClient
from backend.cloud.encoding import to_json
from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError, explain
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.intents import CREATES_PER_MINUTE, IntentKind, IntentOutcome, IntentStore
from backend.cloud.recover import Pace, Recovery, plan_recreate
from backend.cloud.requests import CreateRequest
from backend.journal import Journal
from backend.model import Operation, QueuedResource, Tier
from backend.outcomes import ExitCode, OperatorError
from tests.simulator import Simulator, SimulatorFactory

PACE = Pace(first_s=0.05, most_s=0.2, refused_s=0.1)
LONG_S = 120.0
ZONE = "us-west4-a"


def wanted(name: str, **changes: Any) -> CreateRequest:
    request = CreateRequest(
        name=name,
        project="demo-project",
        zone=ZONE,
        accelerator_type="v5litepod-16",
        runtime_version="v2-alpha-tpuv5-lite",
        tier=Tier.SPOT,
        tags=("tag-1",),
        labels=(("team", "x"),),
        metadata=(("startup-script", "true\n"),),
    )
    return replace(request, **changes)


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    made = Journal.open(tmp_path / "journal.db")
    yield made
    made.close()


@pytest.fixture
def store(journal: Journal) -> IntentStore:
    return IntentStore(journal)


@pytest.fixture
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(scenario="empty")


@pytest.fixture
async def client(simulator: Simulator) -> AsyncIterator[CloudClient]:
    made = CloudClient(simulator.context)
    yield made
    await made.close()


@pytest.fixture
def recovery(client: CloudClient, store: IntentStore) -> Recovery:
    return Recovery(client, store, pace=PACE)


async def until(look: Callable[[], Any], timeout_s: float = LONG_S) -> Any:
    """The first true value of `look`, sync or not."""
    async with asyncio.timeout(timeout_s):
        while True:
            value = look()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.05)


async def make(recovery: Recovery, client: CloudClient, request: CreateRequest, state: str) -> QueuedResource:
    await client.wait_operation(await recovery.create(request), LONG_S)

    async def reached() -> QueuedResource | None:
        found = await client.get_queued_resource(*request.key)
        return found if found.state == state else None

    found: QueuedResource = await until(reached)
    return found


async def gone(client: CloudClient, key: tuple[str, str, str]) -> bool:
    try:
        await client.get_queued_resource(*key)
    except CloudError as error:
        if error.kind is not ErrorKind.NOT_FOUND:
            raise
        return True
    return False


async def test_an_active_request_is_deleted_with_force_and_kept_without(
    recovery: Recovery, client: CloudClient, store: IntentStore
) -> None:
    item = await make(recovery, client, wanted("active-a"), "ACTIVE")
    with pytest.raises(CloudError) as refused:
        await recovery.delete(item.key, force=False, timeout_s=LONG_S)
    assert refused.value.kind is ErrorKind.STATE_GATE
    assert "--force" in refused.value.cure
    assert (await client.get_queued_resource(*item.key)).state == "ACTIVE"
    assert store.open_intents() == []
    intent = await recovery.delete(item.key, force=True, timeout_s=LONG_S)
    assert intent.outcome == IntentOutcome.DONE
    assert await gone(client, item.key)


async def test_a_delete_refused_while_provisioning_is_retried_until_it_is_gone(
    recovery: Recovery, client: CloudClient, simulators: SimulatorFactory, store: IntentStore
) -> None:
    simulator = simulators(scenario="default", fresh=True)
    own = CloudClient(simulator.context)
    said: list[str] = []
    try:
        key = ("demo-project", ZONE, "sweep-b")
        assert (await own.get_queued_resource(*key)).state == "PROVISIONING"
        patient = Recovery(own, store, say=said.append, pace=PACE)
        intent = await patient.delete(key, force=True, timeout_s=LONG_S)
        assert intent.outcome == IntentOutcome.DONE
        assert intent.attempts >= 2
        assert any("sweep-b is PROVISIONING" in text for text in said)
        assert await gone(own, key)
    finally:
        await own.close()


async def test_a_wish_outlives_its_process_and_an_api_that_is_down(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    simulator = simulators(scenario="default", fresh=True)
    simulator.inject("error", "DeleteQueuedResource", "UNAVAILABLE", "try later")
    client = CloudClient(simulator.context)
    key = ("demo-project", ZONE, "old-d")
    try:
        first = Journal.open(tmp_path / "own.db")
        with pytest.raises(OperatorError) as late:
            await Recovery(client, IntentStore(first), pace=PACE).delete(key, force=False, timeout_s=1.0)
        first.close()
        assert late.value.exit_code == ExitCode.TIMED_OUT
        assert "The wish is kept" in late.value.cure
        assert not await gone(client, key)
        simulator.inject("clear")
        second = Journal.open(tmp_path / "own.db")
        store = IntentStore(second)
        assert [intent.name for intent in store.open_intents()] == ["old-d"]
        running = asyncio.create_task(Recovery(client, store, pace=PACE).run())
        await until(lambda: not store.open_intents())
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert await gone(client, key)
        second.close()
    finally:
        await client.close()


async def test_a_later_request_of_the_same_name_is_left_alone(
    recovery: Recovery, client: CloudClient, store: IntentStore
) -> None:
    item = await make(recovery, client, wanted("reborn"), "ACTIVE")
    assert item.created_at is not None
    earlier = item.created_at - timedelta(hours=1)
    intent = store.wish(IntentKind.DELETE, item.key, force=True, target_created_at=earlier.timestamp())
    ended = await recovery.pursue(intent)
    assert ended.outcome == IntentOutcome.REPLACED
    assert (await client.get_queued_resource(*item.key)).state == "ACTIVE"
    await recovery.delete(item.key, force=True, timeout_s=LONG_S)


async def test_recreate_asks_for_the_same_again(
    recovery: Recovery, client: CloudClient, simulator: Simulator
) -> None:
    request = wanted("again-a", node_count=2, node_prefix="pod")
    before = await make(recovery, client, request, "ACTIVE")
    simulator.inject("preempt", "again-a")
    intent, plan = await recovery.recreate(before.key, timeout_s=LONG_S)
    assert intent.outcome == IntentOutcome.DONE
    assert plan.request == request
    assert plan.notes == ()
    after = await client.get_queued_resource(*before.key)
    assert after.created_at is not None
    assert before.created_at is not None
    assert after.created_at > before.created_at
    assert plan_recreate(await client.describe(*before.key), datetime.now(UTC), key=before.key).request == request
    await recovery.delete(before.key, force=True, timeout_s=LONG_S)


async def test_two_that_pursue_one_wish_make_one_request_and_neither_takes_it_for_a_strangers(
    recovery: Recovery, client: CloudClient, store: IntentStore, simulator: Simulator
) -> None:
    """A keep and its console do: the second looked when the first had sent the create, and had not closed the wish."""
    before = await make(recovery, client, wanted("again-two"), "ACTIVE")
    _, intent = await recovery.wish_recreate(before.key)
    release = asyncio.Event()

    class Slow(CloudClient):
        async def wait_operation(self, operation: Operation, timeout_s: float) -> Operation:
            await release.wait()
            return await super().wait_operation(operation, timeout_s)

    slow = Slow(simulator.context)
    first = asyncio.create_task(Recovery(slow, store, pace=PACE).pursue(intent))
    try:

        async def made_again() -> bool:
            # One answer: between two questions the old one may go.
            try:
                return (await client.get_queued_resource(*before.key)).created_at != before.created_at
            except CloudError as error:
                if error.kind is not ErrorKind.NOT_FOUND:
                    raise
                return False

        await until(made_again)
        second = await recovery.pursue(intent)
        release.set()
        assert (second.outcome, (await first).outcome) == (IntentOutcome.DONE, IntentOutcome.DONE)
        assert (await client.get_queued_resource(*before.key)).created_at != before.created_at
    finally:
        release.set()
        first.cancel()
        await slow.close()
    await recovery.delete(before.key, force=True, timeout_s=LONG_S)


async def test_recreate_works_while_the_name_is_still_deleting(
    recovery: Recovery, client: CloudClient, simulators: SimulatorFactory, store: IntentStore
) -> None:
    simulator = simulators(scenario="default", speed=60.0, fresh=True)
    own = CloudClient(simulator.context)
    try:
        key = ("demo-project", ZONE, "train-a")
        before = await own.get_queued_resource(*key)
        await own.delete_queued_resource(*key, force=True)
        assert (await own.get_queued_resource(*key)).state == "DELETING"
        intent, _ = await Recovery(own, store, pace=PACE).recreate(key, timeout_s=LONG_S)
        assert intent.outcome == IntentOutcome.DONE
        after = await own.get_queued_resource(*key)
        assert after.created_at != before.created_at
        assert (after.slice_count, after.accelerator_type, after.tier) == (2, "v5litepod-16", Tier.SPOT)
    finally:
        await own.close()


async def test_a_recreate_whose_create_is_refused_says_that_the_old_one_is_gone(
    simulators: SimulatorFactory, store: IntentStore
) -> None:
    simulator = simulators(scenario="default", fresh=True)
    simulator.inject("error", "CreateQueuedResource", "PERMISSION_DENIED", "no")
    client = CloudClient(simulator.context)
    key = ("demo-project", ZONE, "old-d")
    try:
        with pytest.raises(CloudError) as refused:
            await Recovery(client, store, pace=PACE).recreate(key, timeout_s=LONG_S)
        assert refused.value.kind is ErrorKind.PERMISSION
        (kept,) = store.open_intents()
        assert kept.kind is IntentKind.RECREATE
        simulator.inject("clear")
        simulator.inject("error", "CreateQueuedResource", "INVALID_ARGUMENT", "bad")
        said: list[str] = []
        with pytest.raises(CloudError, match="old-d is deleted, but making it again was refused") as told:
            await Recovery(client, store, pace=PACE, say=said.append).pursue(kept)
        assert store.open_intents() == []
        # What was asked for is printed as a command, and stays in the journal.
        (line,) = [text for text in said if "queued-resources create" in text]
        again = from_gcloud(line.partition(": ")[2], project="demo-project", zone=ZONE)
        (refused_wish,) = store.not_made_again()
        assert kept.request is not None
        assert again.accelerator_type == kept.request.accelerator_type
        assert refused_wish.request == kept.request
        assert "--from-recreate old-d" in told.value.cure
    finally:
        await client.close()


class LosesAnswers:
    """The real client, whose first create answers are lost on the way back."""

    def __init__(self, client: CloudClient, lost: int) -> None:
        self._client = client
        self.lost = lost
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create_queued_resource(self, request: CreateRequest, *, request_id: str) -> Operation:
        self.sent.append(request_id)
        operation = await self._client.create_queued_resource(request, request_id=request_id)
        if len(self.sent) <= self.lost:
            raise explain(14, "connection reset", action="create", subject=request.name)
        return operation


async def test_a_create_whose_answer_was_lost_is_made_once(client: CloudClient, store: IntentStore) -> None:
    losing = LosesAnswers(client, lost=2)
    request = wanted("once-only")
    operation = await Recovery(losing, store, pace=PACE).create(request)
    assert len(losing.sent) == 3
    assert len(set(losing.sent)) == 1
    await client.wait_operation(operation, LONG_S)
    made = [item for item in await client.operations("demo-project", ZONE) if item.target.endswith("/once-only")]
    assert [item.verb for item in made] == ["create"]
    await Recovery(client, store, pace=PACE).delete(request.key, force=True, timeout_s=LONG_S)


async def test_a_delete_takes_back_the_wish_to_make_it_again(
    recovery: Recovery, client: CloudClient, store: IntentStore
) -> None:
    item = await make(recovery, client, wanted("no-more"), "ACTIVE")
    _, wish = await recovery.wish_recreate(item.key)
    await recovery.delete(item.key, force=True, timeout_s=LONG_S)
    assert store.open_intents() == []
    ended = await recovery.pursue(wish)
    assert ended.outcome == IntentOutcome.WITHDRAWN
    assert await gone(client, item.key)


async def test_a_refused_create_is_not_repeated(client: CloudClient, store: IntentStore) -> None:
    losing = LosesAnswers(client, lost=0)
    with pytest.raises(CloudError) as refused:
        await Recovery(losing, store, pace=PACE).create(wanted("x", zone="nowhere1-z"))
    assert refused.value.kind is ErrorKind.ZONE
    assert len(losing.sent) == 1


async def test_deleting_what_is_not_there_is_told_not_kept(recovery: Recovery, store: IntentStore) -> None:
    with pytest.raises(CloudError) as missing:
        await recovery.delete(("demo-project", ZONE, "nobody"), force=True, timeout_s=LONG_S)
    assert missing.value.kind is ErrorKind.NOT_FOUND
    assert store.open_intents() == []


def test_the_create_rate_is_shared_by_all_consoles_of_one_journal(tmp_path: Path) -> None:
    now = [1000.0]
    journals = [Journal.open(tmp_path / "j.db") for _ in range(2)]
    stores = [IntentStore(each, clock=lambda: now[0]) for each in journals]
    for index in range(CREATES_PER_MINUTE):
        assert stores[index % 2].reserve_create("p") == 0.0
        now[0] += 0.5
    wait_s = stores[0].reserve_create("p")
    assert wait_s == pytest.approx(60.0 - CREATES_PER_MINUTE * 0.5)
    assert stores[1].reserve_create("p") == pytest.approx(wait_s)
    assert stores[1].reserve_create("another") == 0.0
    now[0] += wait_s
    assert stores[1].reserve_create("p") == 0.0
    assert stores[0].reserve_create("p") > 0.0
    for each in journals:
        each.close()


def test_one_wish_about_one_request_is_kept_once_and_force_is_added(store: IntentStore) -> None:
    key = ("p", "z", "q")
    first = store.wish(IntentKind.DELETE, key, force=False, target_created_at=5.0)
    second = store.wish(IntentKind.DELETE, key, force=True, target_created_at=5.0)
    assert first.id == second.id
    assert second.force
    other = store.wish(IntentKind.DELETE, key, force=True, target_created_at=6.0)
    assert other.id != first.id
    assert store.end(first, IntentOutcome.DONE)
    assert not store.end(first, IntentOutcome.REFUSED)
    assert [intent.id for intent in store.open_intents()] == [other.id]


def test_the_wish_to_recreate_carries_the_whole_request(store: IntentStore) -> None:
    request = wanted("q", valid_until_time=datetime(2030, 1, 1, tzinfo=UTC))
    identity = str(uuid4())
    kept = store.wish(
        IntentKind.RECREATE, request.key, force=True, target_created_at=None, request=request, request_id=identity
    )
    again = store.get(kept.id)
    assert again is not None
    assert (again.request, again.request_id) == (request, identity)


def test_what_cannot_be_repeated_is_named_and_a_time_that_passed_is_left_out() -> None:
    body = to_json(wanted("q", valid_until_time=datetime(2026, 1, 1, tzinfo=UTC)))
    body["trafficConfig"] = {"x": 1}
    body["tpu"]["nodeSpec"][0]["node"]["networkConfig"]["queueCount"] = 8
    plan = plan_recreate(body, datetime(2026, 11, 30, tzinfo=UTC), key=("demo-project", ZONE, "q"))
    assert plan.request == wanted("q", node_id="q")
    assert plan.notes == (
        "Not repeated: trafficConfig.",
        "Not repeated: node.networkConfig.queueCount.",
        "Not repeated: valid until 2026-01-01 00:00Z, which has passed.",
    )
