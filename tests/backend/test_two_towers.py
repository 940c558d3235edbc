"""Two consoles on one fleet, whose journals know nothing of each other, agree on what is and carry one wish out once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from backend.cloud.intents import IntentStore
from backend.cloud.recover import Pace, Recovery
from backend.cloud.requests import CreateRequest
from backend.model import Fleet, Tier
from backend.tower import Tower
from tests.simulator import Simulator, SimulatorFactory

BOUND_S = 60.0
PACE = Pace(first_s=0.05, most_s=0.2, refused_s=0.1)


@pytest.fixture
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators(fresh=True)


@pytest.fixture
async def towers(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Tower, Tower]]:
    async with AsyncExitStack() as stack:
        made = []
        for name in ("one", "two"):
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name / "state"))
            monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name / "config"))
            made.append(await stack.enter_async_context(Tower.open(simulator.context)))
        yield made[0], made[1]


def states(fleet: Fleet) -> dict[str, str]:
    return {item.name: item.state for item in fleet.queued_resources}


async def test_both_see_what_either_does_and_one_wish_of_both_is_done_once(towers: tuple[Tower, Tower]) -> None:
    one, two = towers
    assert one.paths.journal != two.paths.journal
    for tower in towers:
        await tower.watch.wait_for(lambda fleet: fleet.loaded, BOUND_S)
    request = CreateRequest(
        "both", "demo-project", "us-west4-a", "v5litepod-16", runtime_version="v2-alpha-tpuv5-lite", tier=Tier.SPOT
    )
    recoveries = [Recovery(tower.client, IntentStore(tower.journal), pace=PACE) for tower in towers]
    await recoveries[0].create(request)
    for tower in towers:
        await tower.watch.wait_for(lambda fleet: states(fleet).get("both") == "ACTIVE", BOUND_S)
    # Both operators delete it at once: each is told that it is gone, neither that something failed.
    ended = await asyncio.gather(*(each.delete(request.key, force=True, timeout_s=BOUND_S) for each in recoveries))
    assert [intent.outcome for intent in ended] == ["done", "done"]
    for tower in towers:
        await tower.watch.wait_for(lambda fleet: "both" not in states(fleet), BOUND_S)
        assert IntentStore(tower.journal).open_intents() == []
        seen = [span.state for span in tower.journal.timeline(request.key)]
        assert "ACTIVE" in seen
    fleets = [await tower.refresh() for tower in towers]
    assert states(fleets[0]) == states(fleets[1])
