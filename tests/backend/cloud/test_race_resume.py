"""A race whose process was killed in any state goes on in another: nothing is made twice, nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cloud.intents import IntentKind
from backend.cloud.kept_races import LEASE_S, EntryState, KeptRace
from backend.cloud.policies import PolicyStore
from backend.cloud.race import Race
from backend.cloud.requests import CreateRequest
from backend.journal import Journal
from backend.model import QueuedResource
from backend.outcomes import OperatorError
from tests.backend.cloud.test_policies import LONG_S, World, entries, world
from tests.backend.cloud.test_recover import until
from tests.simulator import SimulatorFactory

OPEN, FULL = "us-west4-a", "us-east5-a"
"""Zones: one has capacity, the other never."""


async def begun(own: World) -> KeptRace:
    """A race as its journal is before anything was sent."""
    own.simulator.inject("capacity", FULL, "v5litepod", "0")
    found = own.policies.race(own.policies.start_race(entries(FULL, OPEN), LONG_S))
    assert found is not None
    return found


async def seen(own: World, request: CreateRequest, state: str) -> QueuedResource:
    async def there() -> QueuedResource | None:
        found = await own.client.get_queued_resource(*request.key)
        return found if found.state == state else None

    found: QueuedResource = await until(there, LONG_S)
    return found


async def sent(own: World, race: KeptRace, place: int) -> None:
    """The create was sent, and the process died before it heard the answer."""
    part = race.parts[place]
    assert own.policies.ask_entry(race.id, part)
    await own.client.wait_operation(await own.recovery.create(part.request, request_id=part.request_id), LONG_S)


async def made(own: World, race: KeptRace, place: int) -> None:
    await sent(own, race, place)
    own.policies.note_entry(race.parts[place], EntryState.MADE)


async def nothing(own: World, race: KeptRace) -> None:
    pass


async def about_to_ask(own: World, race: KeptRace) -> None:
    assert own.policies.ask_entry(race.id, race.parts[1])


async def unheard(own: World, race: KeptRace) -> None:
    await sent(own, race, 1)


async def one_made(own: World, race: KeptRace) -> None:
    await made(own, race, 0)


async def one_active(own: World, race: KeptRace) -> None:
    await made(own, race, 0)
    await made(own, race, 1)
    await seen(own, race.parts[1].request, "ACTIVE")


async def decided(own: World, race: KeptRace) -> None:
    await one_active(own, race)
    assert own.policies.settle_race(race.id, "/".join(race.parts[1].request.key))


async def being_cancelled(own: World, race: KeptRace) -> None:
    await decided(own, race)
    own.recovery.store.wish(IntentKind.DELETE, race.parts[0].request.key, force=True, target_created_at=None)
    await own.client.delete_queued_resource(*race.parts[0].request.key, force=True)


Death = Callable[[World, KeptRace], Awaitable[None]]


async def taken_up(own: World, race: int) -> QueuedResource | None:
    """By another process, to which the first is gone."""
    store = PolicyStore(own.recovery.store._journal)
    own.policies.release_race(race)
    return await asyncio.wait_for(Race(own.recovery, store, own.watch, say=own.said.append).resume(race), LONG_S)


@pytest.mark.parametrize(
    "death",
    [nothing, about_to_ask, unheard, one_made, one_active, decided, being_cancelled],
    ids=lambda each: each.__name__,
)
async def test_a_race_that_was_killed_anywhere_has_one_winner_and_leaves_nothing(
    simulators: SimulatorFactory, tmp_path: Path, death: Death
) -> None:
    async with world(simulators, tmp_path) as own:
        race = await begun(own)
        await death(own, race)
        before = {(zone, name) for zone, name in await own.names()}
        old = await own.client.get_queued_resource(*race.parts[1].request.key) if (OPEN, "run-x") in before else None
        winner = await taken_up(own, race.id)
        assert winner is not None
        assert (winner.zone, winner.state) == (OPEN, "ACTIVE")
        assert old is None or old.created_at == winner.created_at, "it was made a second time"
        assert await own.names() == {(OPEN, "run-x")}
        assert own.recovery.store.open_intents() == []
        assert own.policies.lost_races() == []
        with pytest.raises(OperatorError, match="is over"):
            await taken_up(own, race.id)


async def test_a_race_that_was_being_given_up_makes_nothing_any_more(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    async with world(simulators, tmp_path) as own:
        race = await begun(own)
        await made(own, race, 0)
        await sent(own, race, 1)
        assert own.policies.settle_race(race.id, "")
        assert await taken_up(own, race.id) is None
        assert await own.names() == set()
        assert own.recovery.store.open_intents() == []


async def test_what_bears_the_name_and_is_not_of_the_race_is_left_alone(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    """Somebody took the name before the race could ask: it neither wins nor is it deleted."""
    async with world(simulators, tmp_path) as own:
        race = await begun(own)
        strange = race.parts[1].request
        await own.client.wait_operation(await own.recovery.create(strange), LONG_S)
        await seen(own, strange, "ACTIVE")
        own.simulator.inject("capacity", FULL, "v5litepod", "1000")
        winner = await taken_up(own, race.id)
        assert winner is not None
        assert winner.zone == FULL
        assert await own.names() == {(OPEN, "run-x"), (FULL, "run-x")}


async def test_what_somebody_deleted_is_not_made_again(simulators: SimulatorFactory, tmp_path: Path) -> None:
    async with world(simulators, tmp_path) as own:
        own.simulator.inject("capacity", OPEN, "v5litepod", "0")
        race = await begun(own)
        await made(own, race, 0)
        await made(own, race, 1)
        going = asyncio.create_task(taken_up(own, race.id))
        await until(lambda: all(each.made_at for each in own.policies.races()[0].parts), LONG_S)
        for part in race.parts:
            await own.client.delete_queued_resource(*part.request.key, force=True)
        with pytest.raises(OperatorError, match="can become ACTIVE"):
            await going
        assert await own.names() == set()
        assert {each.state for each in own.policies.races()[0].parts} == {EntryState.GONE}


async def test_a_race_that_is_left_waits_and_its_clock_stands_still(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    async with world(simulators, tmp_path) as own:
        for zone in (OPEN, FULL):
            own.simulator.inject("capacity", zone, "v5litepod", "0")
        runner = own.race()
        running = asyncio.create_task(runner.run(entries(OPEN, FULL), LONG_S))

        async def both() -> bool:
            return len(await own.names()) == 2 and all(
                each.state is EntryState.MADE for each in own.policies.races()[0].parts
            )

        await until(both, LONG_S)
        runner.leave = True
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(await own.names()) == 2
        assert own.recovery.store.open_intents() == []
        (race,) = own.policies.races()
        assert race.lost
        later = PolicyStore(own.recovery.store._journal, clock=lambda: own.policies._clock() + 9999.0)
        assert later.races()[0].left_s == race.left_s
        own.simulator.inject("capacity", OPEN, "v5litepod", "1000")
        winner = await taken_up(own, race.id)
        assert winner is not None
        assert await own.names() == {(OPEN, "run-x")}


async def test_who_lost_the_lease_neither_asks_nor_cancels(simulators: SimulatorFactory, tmp_path: Path) -> None:
    """A process that slept while another took its race up: what the other waits for must not be cancelled under it."""
    async with world(simulators, tmp_path) as own:
        for zone in (OPEN, FULL):
            own.simulator.inject("capacity", zone, "v5litepod", "0")
        running = asyncio.create_task(own.race().run(entries(OPEN, FULL), LONG_S))

        async def both() -> bool:
            return len(await own.names()) == 2

        await until(both, LONG_S)
        race = own.policies.races()[0].id
        awake = PolicyStore(own.recovery.store._journal, clock=lambda: own.policies._clock() + LEASE_S + 1)
        awake.take_race(race)
        with pytest.raises(OperatorError, match="run by another process now"):
            await asyncio.wait_for(running, LONG_S)
        assert len(await own.names()) == 2
        assert own.recovery.store.open_intents() == []
        assert awake.races()[0].running


def test_one_process_runs_a_race_until_it_is_silent(tmp_path: Path) -> None:
    now = [1000.0]
    journal = Journal.open(tmp_path / "j.db")
    first, second = (PolicyStore(journal, clock=lambda: now[0]) for _ in range(2))
    race = first.start_race(entries(OPEN, FULL), 600.0)
    now[0] += 10
    with pytest.raises(OperatorError, match=r"10 s ago.*try again in 35 s"):
        second.take_race(race)
    now[0] += LEASE_S
    taken = second.take_race(race)
    assert taken.left_s == 600.0, "the time in which nobody ran it does not count"
    part = taken.parts[0]
    assert not first.beat_race(race)
    assert not first.ask_entry(race, part)
    assert not first.settle_race(race, "")
    assert not first.drop_race(race)
    first.end_race(race)
    first.release_race(race)
    assert second.races()[0].running
    with pytest.raises(OperatorError, match="no race 99"):
        second.take_race(99)
    journal.close()


def test_races_of_an_older_journal_are_taken_up_too(tmp_path: Path) -> None:
    """Before, nothing was kept of how far an entry came: it may have been made."""
    journal = Journal.open(tmp_path / "j.db")
    from backend.cloud import policies

    old = tuple(each for each in policies._STEPS if "ALTER" not in each)
    journal.migrate("policies", old)
    with journal.transaction() as connection:
        import msgspec

        connection.execute("INSERT INTO races (owner, alive_at) VALUES ('gone', 5.0)")
        text = msgspec.json.encode(replace(entries(OPEN)[0])).decode()
        connection.execute("INSERT INTO race_entries (race, request) VALUES (1, ?)", (text,))
    store = PolicyStore(journal)
    (lost,) = store.lost_races()
    assert [each.name for each in lost.entries] == ["run-x"]
    taken = store.take_race(1)
    assert taken.parts[0].request_id
    journal.close()
