"""Who is asked whether ssh answers, when, how many at a time, and what is said of it: with servers that are told what to say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from backend.context import Context, SSHSettings
from backend.model import Fleet, QueuedResource, Slice, Standing, Worker
from backend.ssh import rollcall
from backend.ssh.greetings import Closed
from backend.ssh.paces import DIRECT, PACES, Pace, Rate
from backend.ssh.rollcall import RollCall
from backend.targets import WorkerRef, workers_of

WAIT_S = 20.0
QUICK = Pace(32, 1e6, 1e6, 1e6)


def piece(index: int, *, name: str = "train-a", workers: int = 4, state: str = "READY", uid: str = "") -> Slice:
    addresses = tuple(Worker(number, f"10.0.{index}.{number}", f"192.0.2.{number}") for number in range(workers))
    return Slice(
        "p",
        "z",
        f"{name}-{index}",
        index,
        state,
        uid=uid or f"{name}{index}",
        queued_resource=name,
        workers=addresses,
    )


def request(name: str = "train-a", *slices: Slice, state: str = "ACTIVE") -> QueuedResource:
    found = slices or (piece(0, name=name), piece(1, name=name))
    return QueuedResource("p", "z", name, state, slice_count=len(found), slices=found, workers_per_slice=4)


class World:
    """Servers and a fleet, as the roll call sees them."""

    def __init__(self, *items: QueuedResource, route: str = "external", on: bool = True) -> None:
        self.fleet = Fleet(queued_resources=items, loaded=True)
        self.says: dict[str, str] = {}
        """Why a worker lacks ssh, by address."""
        self.closed = ""
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []
        self.now = self.most = 0
        self.hold: asyncio.Event | None = None
        self.connected: set[str] = set()
        context = Context("t", "p", ("z",), ssh=SSHSettings(route=route, roll_call=on))
        self.roll = RollCall(context, self.listen, lambda worker: worker.address in self.connected)

    async def listen(self, worker: WorkerRef) -> str:
        self.asked[worker.address] += 1
        self.order.append(worker.address)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if self.hold is not None:
                await self.hold.wait()
            else:
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        if self.closed:
            raise Closed(self.closed)
        return self.says.get(worker.address, "")

    def word(self, name: str = "train-a") -> str:
        return self.roll.word(self.fleet.find(name)[0]).text

    def standing(self, name: str = "train-a") -> Standing:
        return self.roll.word(self.fleet.find(name)[0]).standing

    def change(self, *items: QueuedResource) -> None:
        self.fleet = Fleet(queued_resources=items, loaded=True)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - conditions of many kinds
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.roll.run(lambda: self.fleet))
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a clock but where a test says so."""
    monkeypatch.setattr(rollcall, "LOOK_S", 0.01)
    monkeypatch.setattr(rollcall, "GATHER_S", 0.001)
    monkeypatch.setattr(rollcall, "DIRECT", QUICK)


async def test_every_request_that_the_cloud_calls_ready_is_asked_and_said_to_answer() -> None:
    world = World(request("train-a"), request("train-b"), request("big-c", piece(0), state="SUSPENDING"))
    assert world.word() == "asking ssh 0/8"
    assert world.standing() is Standing.ASKING
    async with world.calling():
        await world.until(lambda: world.standing("train-a") is world.standing("train-b") is Standing.ANSWERS)
    assert world.word() == "ssh answers on 8 of 8 workers"
    assert world.roll.counts() == (16, 16)
    assert set(world.asked.values()) == {1}
    assert len(world.asked) == 16
    assert not world.roll.unanswered


async def test_who_is_silent_is_named_by_slice_with_why_and_asked_again_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollcall, "AGAIN_S", 0.01)
    world = World(request())
    world.says = {"train-a/1/2": "connection refused", "train-a/0/0": "no answer", "train-a/0/1": "no answer"}
    async with world.calling():
        await world.until(lambda: len(world.asked) == 8 and world.now == 0)
        assert world.word() == (
            "slice 0: no ssh on worker 0, 1 (no answer); slice 1: no ssh on worker 2 (connection refused)"
        )
        assert world.standing() is Standing.LACKS
        assert world.roll.unanswered["p", "z", "train-a-1", 2] == "no ssh (refused)"
        assert world.roll.counts() == (5, 8)
        await world.until(lambda: world.asked["train-a/1/2"] > 2)
        assert world.asked["train-a/1/3"] == 1, "who has answered is left alone"
        world.says = {}
        await world.until(lambda: world.standing() is Standing.ANSWERS)
    assert not world.roll.unanswered


async def test_a_whole_slice_and_many_slices_are_said_in_short() -> None:
    world = World(request("train-a", *(piece(index) for index in range(6))))
    world.says = {f"train-a/{index}/{number}": "no answer" for index in range(5) for number in range(4)}
    async with world.calling():
        await world.until(lambda: len(world.asked) == 24 and world.now == 0)
    assert world.word() == (
        "slice 0: no ssh on all 4 workers (no answer); slice 1: no ssh on all 4 workers (no answer); "
        "slice 2: no ssh on all 4 workers (no answer); and 2 slices more"
    )


async def test_the_silent_are_asked_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "JITTER", 0.0)
    world = World(request("train-a", piece(0, workers=1)))
    pauses: list[float] = []
    later = world.roll._later

    def noted(voice: object) -> None:
        later(voice)  # type: ignore[arg-type]
        pauses.append(voice.due - rollcall.monotonic())  # type: ignore[attr-defined]
        voice.due = float("inf")  # type: ignore[attr-defined]
        world.roll._queue(voice)  # type: ignore[arg-type]

    monkeypatch.setattr(world.roll, "_later", noted)
    world.says = {"train-a/0/0": "no answer"}
    async with world.calling():
        await world.until(lambda: len(pauses) >= 8)
    assert [round(pause) for pause in pauses[:8]] == [5, 10, 20, 40, 80, 120, 120, 120]


async def test_no_more_are_asked_at_once_than_the_pace_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "DIRECT", replace(QUICK, at_once=DIRECT.at_once))
    world = World(request("train-a", *(piece(index, workers=64) for index in range(8))))
    world.hold = asyncio.Event()
    async with world.calling():
        await world.until(lambda: world.now == DIRECT.at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        assert world.most == DIRECT.at_once
        world.hold.set()
        await world.until(lambda: world.standing() is Standing.ANSWERS)
    assert world.most == DIRECT.at_once
    assert sum(world.asked.values()) == 512


def test_no_more_are_asked_a_second_than_the_pace_allows() -> None:
    """By a clock of the test's own: 30 seconds of a fleet of thousands, all silent at first, then all there."""
    for pace in (DIRECT, *PACES.values()):
        for kind in ("fresh_per_s", "silent_per_s", "known_per_s"):
            per_s = getattr(pace, kind)
            rate, now, taken = Rate(per_s, rollcall.GATHER_S), 0.0, 0
            while now < 30.0:
                while now >= rate.free_at:
                    rate.take(now)
                    taken += 1
                now += rollcall.GATHER_S
            assert taken <= 30.0 * per_s + 2
            assert taken >= 30.0 * per_s * 0.9 - 1


async def test_each_kind_keeps_to_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have answered are not asked again at the rate of those whom nobody asked yet."""
    monkeypatch.setattr(rollcall, "DIRECT", replace(QUICK, known_per_s=0.0001))
    monkeypatch.setattr(rollcall, "KNOWN_AGAIN_S", 0.0)
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        for _ in range(50):
            await asyncio.sleep(0.001)
    assert sum(world.asked.values()) == 8 + 1


async def test_the_one_that_is_looked_at_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "DIRECT", replace(QUICK, at_once=1))
    world = World(*(request(f"train-{letter}") for letter in "abc"))
    world.roll.look_first(("p", "z", "train-c"))
    async with world.calling():
        await world.until(lambda: len(world.asked) == 24)
    assert {address.split("/")[0] for address in world.order[:8]} == {"train-c"}


async def test_a_server_that_dies_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "KNOWN_AGAIN_S", 0.02)
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.says = {"train-a/0/3": "connection refused"}
        await world.until(lambda: world.word() == "slice 0: no ssh on worker 3 (connection refused)")


async def test_refresh_asks_everybody_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.says = {"train-a/0/3": "connection refused"}
        world.roll.again()
        assert world.standing() is Standing.ANSWERS, "what is known is not forgotten meanwhile"
        await world.until(lambda: world.standing() is Standing.LACKS)
        await world.until(lambda: sum(world.asked.values()) == 16)


async def test_another_boot_or_another_node_is_asked_anew() -> None:
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.hold = asyncio.Event()
        world.change(request("train-a", piece(0), piece(1, state="RESTARTING")))
        await world.until(lambda: world.roll.counts() == (4, 4))
        world.change(request("train-a", piece(0), piece(1)))
        assert world.standing() is Standing.ASKING, "not a moment is it called ready by what an earlier boot said"
        await world.until(lambda: world.now == 4)
        assert world.word() == "asking ssh 4/8"
        world.hold.set()
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.change(request("train-a", piece(0), piece(1, uid="another")))
        assert world.standing() is Standing.ASKING
        await world.until(lambda: world.standing() is Standing.ANSWERS)
    assert world.asked["train-a/0/0"] == 1
    assert world.asked["train-a/1/0"] == 3


async def test_another_boot_is_seen_also_while_nobody_more_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "DIRECT", replace(QUICK, at_once=2))
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.hold = asyncio.Event()
        world.roll.again()
        await world.until(lambda: world.now == 2)
        world.change(request("train-a", piece(0), piece(1, state="RESTARTING")))
        await world.until(lambda: world.roll.counts() == (4, 4))
        world.change(request("train-a", piece(0), piece(1)))
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert world.word() == "asking ssh 4/8"
        world.hold.set()
        await world.until(lambda: world.standing() is Standing.ANSWERS)


async def test_an_answer_of_a_node_that_is_gone_is_not_taken_for_the_new_ones() -> None:
    world = World(request("train-a", piece(0)))
    world.hold = hold = asyncio.Event()
    async with world.calling():
        await world.until(lambda: world.now == 4)
        world.says = {f"train-a/0/{number}": "no answer" for number in range(4)}
        world.hold = None
        world.change(request("train-a", piece(0, uid="new")))
        await world.until(lambda: world.standing() is Standing.LACKS)
        world.says = {}
        hold.set()
        await world.until(lambda: world.now == 0)
        assert world.standing() is Standing.LACKS


async def test_a_request_that_is_gone_leaves_nothing_behind() -> None:
    world = World(request("train-a"), request("train-b"))
    world.says = {"train-a/0/0": "no answer"}
    async with world.calling():
        await world.until(lambda: len(world.asked) == 16 and world.now == 0)
        world.change(request("train-b"))
        await world.until(lambda: world.roll.counts()[1] == 8)
        assert not world.roll.unanswered


async def test_connections_are_news_and_a_refused_login_stays_until_somebody_gets_in() -> None:
    world = World(request("train-a", piece(0)))
    first, second, *_ = workers_of(world.fleet.queued_resources[0])
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.roll.hear(first, "no answer")
        assert world.word() == "slice 0: no ssh on worker 0 (no answer)"
        world.roll.hear(first, "")
        assert world.standing() is Standing.ANSWERS
        world.roll.hear(second, "key refused", login=True)
        assert world.word() == "slice 0: no ssh on worker 1 (key refused)"
        world.roll.again()
        await world.until(lambda: world.asked[second.address] == 2 and world.now == 0)
        assert world.word() == "slice 0: no ssh on worker 1 (key refused)", "a greeting is no login"
        world.roll.hear(second, "")
        assert world.standing() is Standing.ANSWERS


async def test_a_worker_whose_connection_broke_is_asked_at_once() -> None:
    world = World(request("train-a", piece(0)))
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        world.says = {"train-a/0/2": "connection refused"}
        world.roll.ask(workers_of(world.fleet.queued_resources[0])[2])
        await world.until(lambda: world.word() == "slice 0: no ssh on worker 2 (connection refused)")
    assert world.asked == Counter({f"train-a/0/{number}": 1 + (number == 2) for number in range(4)})


async def test_a_worker_with_an_open_connection_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "KNOWN_AGAIN_S", 0.01)
    world = World(request("train-a", piece(0, workers=2)))
    world.connected = {"train-a/0/0"}
    async with world.calling():
        await world.until(lambda: world.asked["train-a/0/1"] > 3)
    assert world.asked["train-a/0/0"] == 1


async def test_a_jump_host_that_is_down_is_said_once_and_not_hammered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "AGAIN_S", 1000.0)
    monkeypatch.setitem(PACES, "jump", replace(QUICK, at_once=2))
    world = World(request(), route="jump")
    world.closed = "the jump host jump:22: connection refused"
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.LACKS)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert world.word() == "no ssh: the jump host jump:22: connection refused"
        assert sum(world.asked.values()) <= 2
        world.closed = ""
        world.roll.again()
        await world.until(lambda: world.standing() is Standing.ANSWERS)


@pytest.mark.parametrize("route", ["iap", "config"])
async def test_a_large_request_over_a_route_of_programs_is_not_asked_by_itself(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = PACES[route].most
    monkeypatch.setitem(PACES, route, replace(QUICK, most=most))
    large = request("big-c", *(piece(index, name="big-c", workers=most) for index in range(2)))
    world = World(request(), large, route=route)
    assert world.word("big-c") == f"ssh not asked ({route}, {2 * most} workers)"
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        assert world.word("big-c") == f"ssh not asked ({route}, {2 * most} workers)"
        world.roll.again()
        await world.until(lambda: sum(world.asked.values()) == 16)
        assert not any(address.startswith("big-c") for address in world.asked)
        for each in workers_of(large)[:-1]:
            world.roll.hear(each, "")
        assert world.standing("big-c") is Standing.NOT_ASKED
        world.roll.hear(workers_of(large)[-1], "")
        assert world.standing("big-c") is Standing.ANSWERS, "somebody logged in to all of them"


async def test_what_was_heard_long_ago_of_one_that_is_not_asked_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "KNOWN_AGAIN_S", 0.02)
    world = World(request(), on=False)
    assert world.word() == "ssh not asked (off)"
    async with world.calling():
        await world.until(lambda: world.roll._called)
        for each in workers_of(world.fleet.queued_resources[0]):
            world.roll.hear(each, "")
        assert world.standing() is Standing.ANSWERS
        await world.until(lambda: world.word() == "ssh not asked (off)")
    assert not world.asked


async def test_machines_without_a_request_and_listed_ones_are_asked_too() -> None:
    alone = replace(piece(0, name="vm-a", workers=1), queued_resource="")
    listed = replace(piece(0, name="lab", workers=2), state="LISTED", zone="inventory", queued_resource="lab")
    broken = replace(piece(0, name="vm-b", workers=1), queued_resource="", state="STOPPED")
    world = World()
    world.fleet = Fleet(standalone=(alone, listed, broken), loaded=True)
    async with world.calling():
        await world.until(lambda: world.roll.counts() == (3, 3))
    assert world.roll.word(alone).standing is world.roll.word(listed).standing is Standing.ANSWERS
    assert not any(address.startswith("vm-b") for address in world.asked)


async def test_a_fleet_that_is_the_same_is_not_gone_through_again() -> None:
    world = World(request())
    async with world.calling():
        await world.until(lambda: world.standing() is Standing.ANSWERS)
        version, looked = world.roll.version, world.fleet
        world.fleet = replace(looked, version=looked.version + 1)
        for _ in range(30):
            await asyncio.sleep(0.005)
        assert world.roll.version == version
    assert sum(world.asked.values()) == 8


async def test_thousands_are_taken_up_a_slice_at_a_time_and_others_have_their_turn_between() -> None:
    world = World(request("big-c", *(piece(index, name="big-c", workers=64) for index in range(64))))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    await world.roll._look(world.fleet)
    beside.cancel()
    assert turns >= 60
    assert world.word("big-c") == "asking ssh 0/4096"
