"""Keep, race and wishes from the console: begun, told, taken up and given up by keys, with what reached the cloud."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.cloud.intents import IntentKind, IntentStore
from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.requests import CreateRequest
from backend.model import QueuedResourceState
from tests.simulator import Simulator, SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.screens.confirm import Question
from tui.screens.create import CreateScreen
from tui.screens.fleet import FleetScreen
from tui.screens.policies import PoliciesScreen
from tui.screens.policy_forms import KeepFormScreen, RaceFormScreen

ZONE = "us-west4-a"
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
        await answer(driven, "1")
        await driven.until(lambda: isinstance(driven.app.screen, PoliciesScreen))
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
        await driven.shows("Carried out by this console alone", "train-a")
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
        store.start_race([CreateRequest("big-c", big.project, big.zone, "v5p-128")])
        screen = await policies(driven)
        await driven.shows("race 1", "another process", "big-c", "WAITING")
        store._clock = lambda: 0.0
        store.beat_race(1)
        await driven.shows("NO PROCESS", "Its process is gone")
        await driven.press("X")
        await answer(driven, "1")
        await driven.until(lambda: not driven.app.fleet.find("big-c"), "big-c deleted")
        await driven.until(lambda: screen.race_here() is None or screen.race_here().ended)  # type: ignore[union-attr]


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
