"""1,024 simulated workers driven from the console by keys: a command, its outcomes, its logs.

Not a stop: all workers share this machine's /proc here, which each of them would look through.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes import Outcome
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, console

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

WORKERS = 1024
LONG_S = 600.0
"""All workers are processes of this machine."""


async def test_a_command_runs_on_1024_workers_by_keys(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(scenario="large", fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.until(lambda: "train-large" in driven.text and len(driven.app.fleet.queued_resources) == 1)
        await driven.command("run train-large -- hostname")
        await driven.shows("1,024 workers, all at once")
        await driven.press("ctrl+r")
        runs = driven.app.require_tower().runs

        def newest(count: int) -> bool:
            return len(runs.active) == count

        await driven.until(lambda: newest(1), "the run")
        (first,) = runs.active.values()
        await driven.until(lambda: first.state == "ended", "its end", wait_s=LONG_S)
        assert first.summary == {Outcome.OK: WORKERS}
        await driven.until(lambda: "1,024 ok" in driven.text or "1024 ok" in driven.text, "1,024 outcomes")
        names = {first.log(index).line(0).text for index in range(WORKERS)}
        assert len(names) == WORKERS, "each worker has told its own name"
