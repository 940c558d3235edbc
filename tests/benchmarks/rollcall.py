"""What it costs to ask 1,024 simulated workers whether ssh answers, and to go on asking: CPU of this process.

The greeting of each is held against a login to each, and the call that goes on against a console that doesn't call.
Budget (design.md, section 7): an idle console at most 1 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.context import Context
from backend.model import Fleet, Standing
from backend.paths import Paths
from backend.ssh import rollcall
from backend.ssh.answers import Answers
from backend.targets import workers_of
from backend.tower import Tower
from tests.benchmarks.pty_console import PtyProcess, console_command
from tests.simulator import start_simulator

LOGIN_S = 600.0
SETTLE_S = 30.0
"""For the first poll and imports in the background."""
AGAIN_S = rollcall.KNOWN_AGAIN_S * 0.95
"""From about then on, and for some minutes, those who have answered are asked again at their full rate."""


async def _called(tower: Tower, fleet: Fleet, seconds: float) -> tuple[float, float, int]:
    """CPU seconds of the first call, and a second of the call that goes on, with the number of workers.

    All that have answered are due again at once here: their rate is what is measured.
    """
    (item,) = fleet.queued_resources
    began, wall = time.process_time(), time.monotonic()
    calling = asyncio.create_task(tower.roll_call.run(lambda: fleet))
    while tower.roll_call.word(item).standing is not Standing.ANSWERS:
        await asyncio.sleep(0.05)
        assert time.monotonic() - wall < LOGIN_S, tower.roll_call.word(item).text
    first = time.process_time() - began
    began = time.process_time()
    await asyncio.sleep(seconds)
    later = (time.process_time() - began) / seconds
    calling.cancel()
    with suppress(asyncio.CancelledError):
        await calling
    return first, later, tower.roll_call.word(item).of


async def _measure(context: Context, folder: Path, seconds: float) -> dict[str, float]:
    rollcall.KNOWN_AGAIN_S = 1.0
    tower = Tower(context, Paths(folder / "config", folder / "state"))
    (folder / "state").mkdir()
    try:
        fleet = await tower.refresh()
        await tower._pool_made()
        first, later, number = await _called(tower, fleet, seconds)
        workers = workers_of(fleet.queued_resources[0])
        began = time.process_time()
        silent = await Answers(tower.pool).ask(workers, LOGIN_S)
        login = time.process_time() - began
        assert not silent
    finally:
        await tower.close()
    return {
        "greeting_ms_a_worker": round(1000 * first / number, 3),
        "login_ms_a_worker": round(1000 * login / number, 3),
        "greeting_over_login": round(first / login, 3),
        "at_the_full_rate_of_known_percent": round(100 * later, 2),
    }


def idle(context_file: Path, folder: Path, seconds: float, settle_s: float) -> float:
    """Percent of a core of a console that was left alone for a while."""
    with PtyProcess(console_command(context_file), folder) as console:
        console.wait_for("ACTIVE")
        console.read_for(settle_s)
        cpu, wall = console.cpu_s(), time.monotonic()
        console.read_for(seconds)
        return round(100 * (console.cpu_s() - cpu) / (time.monotonic() - wall), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        simulator = start_simulator(folder / "sim", scenario="large", speed=1.0)
        try:
            file = simulator.context_file
            silent = file.with_name("silent.toml")
            silent.write_text(file.read_text("utf-8").replace("[ssh]", "[ssh]\nroll_call = false"), "utf-8")
            context = replace(simulator.context, name="bench")
            found = asyncio.run(_measure(context, folder, arguments.seconds / 2))
            on = idle(file, folder / "on", arguments.seconds, AGAIN_S)
            off = idle(silent, folder / "off", arguments.seconds, SETTLE_S)
            more = {"idle_percent": on, "idle_percent_without": off, "idle_ratio": round(on / off, 2)}
            print(json.dumps({**found, **more, "budget": {"idle_percent": 1.0}}, indent=2))
        finally:
            simulator.stop()


if __name__ == "__main__":
    main()
