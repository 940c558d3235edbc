"""A kept request comes back within its budgets; a race has one winner and leaves nothing else behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backend.cloud.client import CloudClient
from backend.cloud.intents import IntentStore
from backend.cloud.keep import Keeper, Step, decide, pause_s
from backend.cloud.kept_races import LEASE_S, EntryState
from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.race import Race
from backend.cloud.recover import Recovery
from backend.cloud.requests import CreateRequest
from backend.cloud.watch import FleetWatch
from backend.journal import Journal
from backend.model import QueuedResource, Slice, SshWord, Standing, Status, Tier, Worker
from backend.outcomes import ExitCode, OperatorError
from tests.backend.cloud.test_recover import PACE, until, wanted
from tests.simulator import Simulator, SimulatorFactory

MADE = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEEP = Keep("demo-project", "us-west4-a", "pod", preemption_budget=2, failure_budget=1)
LONG_S = 120.0


def seen(state: str, node_state: str = "READY", tier: Tier = Tier.SPOT) -> QueuedResource:
    node = Slice(
        "demo-project", "us-west4-a", "pod", 0, node_state, health="HEALTHY", workers=(Worker(0, "127.0.0.9"),)
    )
    return QueuedResource(
        "demo-project", "us-west4-a", "pod", state, created_at=MADE, slices=(node,), tier=tier,
        error=Status(13, "an internal error has occurred") if state == "FAILED" else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("item", "keep", "step"),
    [
        (seen("ACTIVE"), KEEP, Step.READY),
        (seen("ACTIVE"), replace(KEEP, ready_for=MADE.timestamp()), Step.WAIT),
        (seen("SUSPENDED"), KEEP, Step.PREEMPTED),
        (seen("SUSPENDED"), replace(KEEP, preemptions=2), Step.STOP),
        (seen("SUSPENDING"), KEEP, Step.WAIT),
        (seen("ACTIVE", "PREEMPTED"), KEEP, Step.PREEMPTED),
        (seen("ACTIVE", "PREEMPTED", Tier.RESERVED), KEEP, Step.WAIT),
        (seen("ACTIVE", "REPAIRING"), KEEP, Step.WAIT),
        (seen("FAILED"), KEEP, Step.FAILED),
        (seen("FAILED"), replace(KEEP, failures=1), Step.STOP),
        (seen("FAILED"), replace(KEEP, preemptions=9), Step.FAILED),
        (seen("PROVISIONING"), KEEP, Step.WAIT),
        (seen("A_NEW_STATE"), KEEP, Step.WAIT),
        (None, KEEP, Step.STOP),
    ],
)  # fmt: skip
def test_only_what_was_seen_counts_and_each_cause_has_its_own_budget(
    item: QueuedResource | None, keep: Keep, step: Step
) -> None:
    decision = decide(keep, item)
    assert decision.step is step
    assert bool(decision.text) == (step is not Step.WAIT)


def test_pauses_double_up_to_their_bound() -> None:
    assert [pause_s((5.0, 60.0), spent) for spent in (0, 1, 2, 3, 4, 1000)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_one_process_holds_the_lease_until_it_is_silent(tmp_path: Path) -> None:
    now = [1000.0]
    journal = Journal.open(tmp_path / "j.db")
    first, second = (PolicyStore(journal, clock=lambda: now[0]) for _ in range(2))
    assert first.start_keep(KEEP) is not None
    assert second.start_keep(KEEP) is None
    assert first.update_keep(KEEP.key, preempted=True, text="one")
    now[0] += LEASE_S + 1
    (left,) = second.keeps()
    assert (left.running, left.preemptions, left.last_text) == (False, 1, "one")
    taken = second.start_keep(KEEP)
    assert taken is not None
    assert (taken.preemptions, taken.last_text) == (1, ""), "what the last process said is not said of this one"
    assert not first.update_keep(KEEP.key)
    second.release_keep(KEEP.key, end=True)
    assert second.keeps() == []
    fresh = first.start_keep(KEEP)
    assert fresh is not None
    assert fresh.preemptions == 0
    journal.close()


class World:
    """A simulator with a client, a watch that runs, and a journal."""

    def __init__(self, simulator: Simulator, client: CloudClient, watch: FleetWatch, journal: Journal) -> None:
        self.simulator = simulator
        self.client = client
        self.watch = watch
        self.said: list[str] = []
        self.policies = PolicyStore(journal)
        self.recovery = Recovery(client, IntentStore(journal), say=self.said.append, pace=PACE)

    async def names(self) -> set[tuple[str, str]]:
        found = set()
        for project, zone in self.simulator.context.places:
            found |= {(zone, item.name) for item in await self.client.list_queued_resources(project, zone)}
        return found

    async def state(self, request: CreateRequest) -> str:
        return (await self.client.get_queued_resource(*request.key)).state

    def keeper(self) -> Keeper:
        return Keeper(
            self.recovery,
            self.policies,
            self.watch,
            say=self.said.append,
            preemption_pause_s=(0.1, 0.2),
            failure_pause_s=(0.1, 0.2),
        )

    def race(self) -> Race:
        return Race(self.recovery, self.policies, self.watch, say=self.said.append)


@asynccontextmanager
async def world(simulators: SimulatorFactory, tmp_path: Path, scenario: str = "empty") -> AsyncIterator[World]:
    simulator = simulators(scenario=scenario, fresh=True)
    journal = Journal.open(tmp_path / "journal.db")
    client = CloudClient(simulator.context)
    watch = FleetWatch(client, simulator.context, None)
    running = asyncio.create_task(watch.run())
    try:
        yield World(simulator, client, watch, journal)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.close()
        journal.close()
        simulator.stop()


async def test_a_request_on_which_ssh_does_not_answer_yet_is_not_ready_and_its_job_waits(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    lacks = SshWord(Standing.LACKS, "slice 0: no ssh on worker 1 (connection refused)", 3, 4)
    word = [SshWord(Standing.ASKING, "asking ssh 0/4", 0, 4)]
    async with world(simulators, tmp_path) as own:
        request = wanted("pod", node_count=1)
        await own.client.wait_operation(await own.recovery.create(request), LONG_S)
        on_ready = (sys.executable, "-c", f"open({str(marks)!r}, 'a').write('x')")
        keeper = Keeper(own.recovery, own.policies, own.watch, say=own.said.append, ssh=lambda _item: word[0])
        keeping = asyncio.create_task(keeper.run(Keep(*request.key, 0, 0, on_ready=on_ready)))
        await until(lambda: any(item.ready for item in own.watch.fleet.queued_resources), LONG_S)
        word[0] = lacks
        await until(lambda: f"pod is ACTIVE, not ready: {lacks.text}" in own.said, LONG_S)
        assert "pod is ready." not in own.said
        assert not marks.exists()
        word[0] = SshWord(Standing.ANSWERS, "ssh answers on 4 of 4 workers", 4, 4)
        await until(marks.exists, LONG_S)
        assert own.said.index("pod is ready.") > own.said.index(f"pod is ACTIVE, not ready: {lacks.text}")
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def test_a_preempted_request_comes_back_and_its_job_is_started_again(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    program = f"import os; open({str(marks)!r}, 'a').write(os.environ['SLICETOWER_QUEUED_RESOURCE'] + chr(10))"
    async with world(simulators, tmp_path) as own:
        request = wanted("pod", node_count=2)
        await own.client.wait_operation(await own.recovery.create(request), LONG_S)

        def started() -> int:
            return len(marks.read_text().splitlines()) if marks.exists() else 0

        keep = Keep(*request.key, preemption_budget=1, failure_budget=0, on_ready=(sys.executable, "-c", program))
        keeping = asyncio.create_task(own.keeper().run(keep))
        await until(lambda: started() == 1, LONG_S)
        first = await own.client.get_queued_resource(*request.key)
        own.simulator.inject("preempt", "pod")
        await until(lambda: started() == 2, LONG_S)
        second = await own.client.get_queued_resource(*request.key)
        assert second.created_at != first.created_at
        with pytest.raises(OperatorError, match="kept already"):
            await Keeper(own.recovery, PolicyStore(own.recovery.store._journal), own.watch).run(keep)
        own.simulator.inject("preempt", "pod")
        text = await asyncio.wait_for(keeping, LONG_S)
        assert "budget of 1" in text
        assert await own.state(request) == "SUSPENDED"
        assert own.policies.keeps() == []
        assert marks.read_text() == "pod\npod\n"


async def test_keeping_ends_when_somebody_deletes_it_and_makes_nothing(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    async with world(simulators, tmp_path) as own:
        request = wanted("pod")
        await own.client.wait_operation(await own.recovery.create(request), LONG_S)
        keeping = asyncio.create_task(own.keeper().run(Keep(*request.key, 5, 5)))
        await until(lambda: any("is ready" in text for text in own.said), LONG_S)
        own.simulator.inject("error", "List*", "UNAVAILABLE", "down")
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(keeping), 2.0)
        assert not keeping.done(), "an API that is down was taken for a request that is gone"
        own.simulator.inject("clear")
        await own.client.delete_queued_resource(*request.key, force=True)
        text = await asyncio.wait_for(keeping, LONG_S)
        assert "somebody deleted it" in text
        assert await own.names() == set()


def entries(*zones: str, **changes: Any) -> list[CreateRequest]:
    return [wanted("run-x", zone=zone, **changes) for zone in zones]


async def test_the_first_active_wins_and_the_others_are_gone(simulators: SimulatorFactory, tmp_path: Path) -> None:
    async with world(simulators, tmp_path) as own:
        own.simulator.inject("capacity", "us-west4-a", "v5litepod", "0")
        winner = await own.race().run(entries("us-west4-a", "us-east5-a", "us-central2-b"), LONG_S)
        assert (winner.zone, winner.state) == ("us-east5-a", "ACTIVE")
        assert await own.names() == {("us-east5-a", "run-x")}
        assert any("us-central2-b: refused" in text for text in own.said)
        assert own.recovery.store.open_intents() == []
        assert own.policies.lost_races() == []


async def test_a_race_that_is_given_up_leaves_no_zombie(simulators: SimulatorFactory, tmp_path: Path) -> None:
    async with world(simulators, tmp_path) as own:
        for zone in ("us-west4-a", "us-east5-a"):
            own.simulator.inject("capacity", zone, "v5litepod", "0")
        with pytest.raises(OperatorError) as late:
            await own.race().run(entries("us-west4-a", "us-east5-a"), 2.0)
        assert late.value.exit_code == ExitCode.TIMED_OUT
        assert await own.names() == set()
        running = asyncio.create_task(own.race().run(entries("us-west4-a", "us-east5-a"), LONG_S))
        await until(own.names, LONG_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await own.names() == set()
        assert own.recovery.store.open_intents() == []


async def test_a_race_that_nobody_can_win_says_why_for_each(simulators: SimulatorFactory, tmp_path: Path) -> None:
    async with world(simulators, tmp_path) as own:
        with pytest.raises(OperatorError) as refused:
            await own.race().run(entries("us-central2-b", "nowhere1-z"), LONG_S)
        assert refused.value.exit_code == ExitCode.CLOUD
        assert "us-central2-b" in refused.value.what
        assert "nowhere1-z" in refused.value.what
        assert await own.names() == set()


def test_a_race_whose_process_was_killed_is_found_again(tmp_path: Path) -> None:
    now = [1000.0]
    journal = Journal.open(tmp_path / "j.db")
    store = PolicyStore(journal, clock=lambda: now[0])
    race = store.start_race(entries("us-west4-a", "us-east5-a", "us-central2-b"))
    first, second, _ = store.races()[0].parts
    assert store.ask_entry(race, first)
    store.note_entry(second, EntryState.MADE)
    assert store.lost_races() == []
    now[0] += LEASE_S + 1
    (lost,) = store.lost_races()
    assert [entry.zone for entry in lost.entries] == ["us-west4-a", "us-east5-a"], (
        "what was never asked for is nobody's"
    )
    assert not lost.waits, "its process was killed: nobody let it wait"
    assert store.drop_race(race)
    assert store.lost_races() == []
    again = store.start_race(entries("us-west4-a"))
    store.release_race(again)
    assert [each.waits for each in store.lost_races()] == [True]
    assert store.take_race(again)
    store.settle_race(again, "")
    store.release_race(again)
    assert [each.waits for each in store.lost_races()] == [False], "it is decided: what lost is to go"
    journal.close()
