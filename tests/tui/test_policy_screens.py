"""Keep, race and wishes from the console: begun, told, taken up and given up by keys, with what reached the cloud."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.cloud.client import CloudClient
from backend.cloud.intents import IntentKind, IntentStore
from backend.cloud.kept_races import EntryState
from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.requests import CreateRequest
from backend.journal import Journal
from backend.model import QueuedResourceState, Tier
from backend.outcomes import OperatorError
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.screens.confirm import Question
from tui.screens.create import CreateScreen
from tui.screens.fleet import FleetScreen
from tui.screens.policies import PoliciesScreen
from tui.screens.policy_forms import KeepFormScreen, RaceFormScreen

ZONE = "us-west4-a"
ZONES = (ZONE, "us-east5-a")
KEY = ("demo-project", ZONE, "train-a")


@pytest.fixture
def own(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


async def policies(driven: Console) -> PoliciesScreen:
    await driven.press("9")
    await driven.until(lambda: isinstance(driven.app.screen, PoliciesScreen))
    screen = driven.app.screen
    assert isinstance(screen, PoliciesScreen)
    return screen


async def answer(driven: Console, key: str) -> None:
    await driven.until(lambda: isinstance(driven.app.screen, Question), "a question")
    await driven.press(key)


async def test_a_request_is_kept_by_key_made_again_after_a_preemption_and_let_go(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.cloud.keep.pause_s", lambda bounds, spent: 0.1)
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a", "8/8")
        driven.app.show_request("train-a")
        await driven.press("K")
        await driven.until(lambda: isinstance(driven.app.screen, KeepFormScreen))
        form = driven.app.screen
        assert isinstance(form, KeepFormScreen)
        await driven.shows("Made again it would be: 2 × v5litepod-16, spot")
        form.line("preemptions").value = "many"
        await driven.shows("'many' is no number of times")
        form.line("preemptions").value = "2"
        await driven.shows("after up to 2 preemptions and 3 failures")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, PoliciesScreen), "the policies, unasked")
        await driven.shows("keep", "train-a", "this console", "2 preemptions, 3 failures")
        before = driven.app.fleet.find("train-a")[0].created_at
        own.inject("preempt", "train-a")
        await driven.shows("1 preemption, 3 failures")

        def made_again() -> bool:
            found = driven.app.fleet.find("train-a")
            return bool(found) and found[0].created_at != before

        await driven.until(made_again, "the request made again")
        driven.app.go()
        await driven.press("q")
        await driven.shows("Kept by this console alone: train-a", "slicetower qr keep train-a", "3 Stay")
        await driven.press("escape")
        await policies(driven)
        await driven.press("home", "X")
        await answer(driven, "1")
        await driven.shows("Nothing is kept")
        assert PolicyStore(driven.app.require_tower().journal).keeps() == []


async def test_a_keep_whose_console_is_gone_is_taken_up_and_let_go_of_at_the_end(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.shows("train-a", "8/8")
        store = PolicyStore(driven.app.require_tower().journal)
        assert store.start_keep(Keep(*KEY, preemption_budget=5, failure_budget=1))
        await policies(driven)
        await driven.shows("train-a", "another process")
        await driven.press("X")
        await driven.until(lambda: "Another process keeps train-a" in driven.toasts())
        store.release_keep(KEY, end=False, text="its process ended")
        await driven.shows("NO PROCESS", "a takes it up here")
        await driven.press("a")
        await answer(driven, "1")
        await driven.shows("this console")
        assert store.keeps()[0].running
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        (left,) = PolicyStore(driven.app.require_tower().journal).keeps()
        assert not left.running
        await policies(driven)
        await driven.shows("NO PROCESS")


async def test_a_race_is_begun_from_the_create_form_and_the_first_wins(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        texts = {"name": "racer", "zone": ZONE, "accelerator_type": "v5litepod-16", "tier": "spot", "node_count": "1"}
        driven.app.push_screen(CreateScreen(texts))
        await driven.shows("ctrl+r sends it")
        await driven.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, RaceFormScreen))
        form = driven.app.screen
        assert isinstance(form, RaceFormScreen)
        form.line("zones").value = ZONE
        await driven.shows("One request is no race")
        form.line("zones").value = f"{ZONE} mars"
        await driven.shows("not mars")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was sent" in driven.toasts())
        form.line("zones").value = f"{ZONE} us-east5-a"
        await driven.shows("2 are asked for at once", "racer in us-east5-a", "ctrl+r begins it")
        await driven.press("ctrl+r")
        await answer(driven, "1")
        await driven.until(lambda: isinstance(driven.app.screen, PoliciesScreen))
        await driven.shows("race 1", "racer", "us-east5-a")
        await driven.shows("won by racer in")
        winners = [item for item in driven.app.fleet.find("racer") if item.state == QueuedResourceState.ACTIVE]
        assert len(winners) == 1
        await driven.until(lambda: len(driven.app.fleet.find("racer")) == 1, "the other deleted")


async def test_a_race_that_nobody_runs_is_given_up_and_its_zombies_go(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("big-c", "WAITING")
        store = PolicyStore(driven.app.require_tower().journal)
        big = driven.app.fleet.find("big-c")[0]
        race = store.start_race([CreateRequest("big-c", big.project, big.zone, "v5p-128")])
        assert store.ask_entry(race, store.races()[0].parts[0])
        screen = await policies(driven)
        await driven.shows("race 1", "another process", "big-c", "WAITING")
        await driven.press("X")
        await driven.until(lambda: "Another process runs race 1" in driven.toasts())
        store.release_race(race)
        await driven.shows("NO PROCESS", "Nobody runs race 1 now", "1 race without a process")
        await driven.press("X")
        await answer(driven, "1")
        await driven.until(lambda: not driven.app.fleet.find("big-c"), "big-c deleted")
        await driven.until(lambda: screen.race_here() is None or screen.race_here().ended)  # type: ignore[union-attr]


async def test_cleaning_up_spares_what_a_race_has_that_waits_for_a_process(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("big-c", "WAITING", "old-d")
        store = PolicyStore(driven.app.require_tower().journal)
        big = driven.app.fleet.find("big-c")[0]
        race = store.start_race([CreateRequest("big-c", big.project, big.zone, "v5p-128")])
        assert store.ask_entry(race, store.races()[0].parts[0])
        store.release_race(race)
        told = f"entry of race {race}, which waits: a in policies takes it up"
        await driven.press("X")
        await driven.shows("Delete 2 dead requests?", "big-c  WAITING", told, "1 Delete 2", "3 Delete all 3")
        await answer(driven, "1")
        await driven.until(lambda: not driven.app.fleet.find("old-d"), "old-d deleted")
        assert driven.app.fleet.find("big-c")
        assert [each.id for each in store.races(ended=0)] == [race]
        await driven.until(lambda: not driven.app.fleet.find("taken-e"), "taken-e deleted")
        await driven.press("X")
        await driven.shows("Nothing is dead. Delete what waits for a race?", told, "1 Keep them")
        await answer(driven, "2")
        await driven.until(lambda: not driven.app.fleet.find("big-c"), "big-c deleted")
        assert store.races(ended=0) == []


async def asked_in_both_zones(driven: Console, own: Simulator) -> PolicyStore:
    """A race of another process that waits in both zones, and is let go of."""
    for zone in ZONES:
        own.inject("capacity", zone, "v5litepod", "0")
    recovery = driven.app.require_recovery()
    store = PolicyStore(driven.app.require_tower().journal)
    shape = {"accelerator_type": "v5litepod-16", "runtime_version": "v2-alpha-tpuv5-lite", "tier": Tier.SPOT}
    race = store.start_race([CreateRequest("racer", "demo-project", zone, **shape) for zone in ZONES])  # type: ignore[arg-type]
    first, second = store.races()[0].parts
    assert store.ask_entry(race, first)
    await recovery.create(first.request, request_id=first.request_id)
    assert store.ask_entry(race, second)
    await driven.until(lambda: len(driven.app.fleet.find("racer")) == 1)
    store.release_race(race)
    return store


async def test_a_race_whose_process_is_gone_is_taken_up_by_its_key_and_nothing_is_made_twice(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        store = await asked_in_both_zones(driven, own)
        made = driven.app.fleet.find("racer")[0].created_at
        await policies(driven)
        await driven.shows("race 1", "NO PROCESS", "a takes it up here", "qr race --resume 1")
        await driven.press("home", "a")
        await driven.shows("Run race 1 here?", "asked for, and no answer was heard", "not asked for twice")
        await answer(driven, "1")
        await driven.shows("this console", "This console runs it while it is open")
        await driven.until(lambda: len(driven.app.fleet.find("racer")) == 2, "the other is asked for")
        assert made in {item.created_at for item in driven.app.fleet.find("racer")}
        with pytest.raises(OperatorError, match="run by another process"):
            PolicyStore(driven.app.require_tower().journal).take_race(1)
        own.inject("capacity", ZONE, "v5litepod", "1000")
        await driven.shows(f"won by racer in {ZONE}")
        await driven.until(lambda: len(driven.app.fleet.find("racer")) == 1, "the other deleted")
        await driven.until(lambda: driven.app.fleet.find("racer")[0].created_at == made)
        await driven.until(lambda: store.lost_races() == [])


async def test_race_is_a_command_that_opens_the_form_with_what_a_request_asked_for(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("race")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        await driven.until(lambda: "f6 asks for it in several zones or types" in driven.toasts())
        await driven.press("escape")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        await driven.command("race train-a")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        await driven.until(lambda: form.focused is not None)
        assert form.line("accelerator_type").value == "v5litepod-16"
        await driven.write("next-a")
        await driven.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, RaceFormScreen))
        await driven.shows("next-a in us-west4-a: 2 × v5litepod-16", "next-a in us-east5-a")


async def test_a_race_of_zones_that_are_not_watched_here_is_not_taken_up(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        store = PolicyStore(driven.app.require_tower().journal)
        race = store.start_race([CreateRequest("far", "demo-project", zone, "v6e-8") for zone in (ZONE, "mars1-a")])
        store.release_race(race)
        await policies(driven)
        await driven.shows("NO PROCESS")
        await driven.press("home", "a")
        await driven.until(lambda: "asks in mars1-a too, which this console does not watch" in driven.toasts())
        assert not store.races()[0].running


@pytest.mark.parametrize("given_up", [False, True], ids=["waits", "given-up"])
async def test_the_console_is_left_with_its_race_waiting_or_given_up(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    left: list[str | None] = []
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        store = await asked_in_both_zones(driven, own)
        await driven.app.policies.take_up(store.races()[0])
        await driven.until(lambda: len(driven.app.fleet.find("racer")) == 2, "both are asked for")
        await driven.until(lambda: all(each.state is EntryState.MADE for each in store.races()[0].parts))
        monkeypatch.setattr(driven.app, "exit", lambda result=0, *, message=None: left.append(message))
        await driven.press("q")
        await driven.shows("Race 1 is run by this console alone", "`slicetower qr race --resume 1`")
        await answer(driven, "2" if given_up else "1")
        await driven.until(lambda: left, "the console to leave")
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    (race,) = PolicyStore(journal).races()
    client = CloudClient(own.context)
    names = [item.name for zone in ZONES for item in await client.list_queued_resources("demo-project", zone)]
    await client.close()
    assert IntentStore(journal).open_intents() == []
    journal.close()
    assert race.lost is not given_up
    assert names.count("racer") == (0 if given_up else 2)
    assert left == [None if given_up else "Race 1 waits: slicetower qr race --resume 1"]


async def test_another_context_lets_the_race_of_this_one_wait_and_says_so(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(own.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        store = await asked_in_both_zones(driven, own)
        await driven.app.policies.take_up(store.races()[0])
        await driven.until(lambda: len(driven.app.fleet.find("racer")) == 2, "both are asked for")
        await driven.app.change_context(own.context, driven.app.context_arguments)
        assert "Race 1 waits: slicetower qr race --resume 1" in driven.toasts()
        await driven.until(lambda: driven.app.fleet.loaded and len(driven.app.fleet.find("racer")) == 2)
        assert PolicyStore(driven.app.require_tower().journal).races()[0].lost


async def test_wishes_are_listed_with_what_they_met_and_taken_back(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = own.context
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        # Nobody carries wishes out here, so that it stays to be looked at.
        driven.app.workers.cancel_group(driven.app, "recovery")
        wishes = IntentStore(driven.app.require_tower().journal)
        wish = wishes.wish(IntentKind.DELETE, ("demo-project", ZONE, "sweep-b"), force=True, target_created_at=None)
        wishes.attempt(wish, "sweep-b is PROVISIONING: the API does not delete it yet")
        await policies(driven)
        await driven.shows("delete", "sweep-b", "pending", "1 attempt", "does not delete it yet")
        await driven.press("X")
        await answer(driven, "1")
        await driven.shows("Nothing is kept")
        assert wishes.open_intents() == []
        assert driven.app.fleet.find("sweep-b")


async def test_the_keep_form_says_what_it_comes_to_before_the_cloud_has_answered(
    own: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(key: tuple[str, str, str]) -> object:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with console(own.context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.shows("train-a", "8/8")
        monkeypatch.setattr(driven.app.require_recovery(), "plan", never)
        await driven.command("keep train-a")
        await driven.shows("after up to 20 preemptions and 3 failures", "Asking what train-a was asked for with")
        await driven.press("up")
        form = driven.app.screen
        assert isinstance(form, KeepFormScreen)
        assert form.focused is form.line("preemptions").control
