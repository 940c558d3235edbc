"""Into a worker's shell and back in a real terminal, while a log that is followed goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.journeys.console import Operator, environment, slicetower
from tests.simulator import SimulatorFactory

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

PAINT_S = 120.0
TICKS = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo tick $i.; sleep 0.1; done"


def test_a_shell_has_the_terminal_and_the_log_behind_it_goes_on(tmp_path: Path, simulators: SimulatorFactory) -> None:
    simulator = simulators(fresh=True)
    homes = environment(tmp_path)
    command = slicetower("--context-file", str(simulator.context_file))
    with Operator(tmp_path, command, size=(100, 30), environment=homes) as console:
        console.wait_for(r"train-a +● ACTIVE", PAINT_S)
        console.keys("G", "k")
        console.wait_for("▌ train-a")
        console.keys("Enter")
        console.wait_for("▌ train-a/0/0")
        console.keys("x")
        console.wait_for("targets +train-a")
        console.write(f"sh -c '{TICKS}'")
        console.wait_for("8 workers")
        console.wait_for(r"ctrl\+r starts it")
        console.keys("C-r")
        console.wait_for(r"nothing has ended yet: 8 running")
        console.keys("l")
        seen = int(console.wait_for(r"tick (\d+)\.").group(1))

        console.keys("s")
        console.wait_for("shell on train-a/0/0; exit comes back")
        console.wait_for(r":~[$#]")
        console.write('echo "told $((20 + 22)) by $USER"')
        console.keys("Enter")
        console.wait_for("told 42 by ")
        assert "tick" not in console.screen()
        console.write("exit")
        console.keys("Enter")

        console.wait_until_gone("told 42 by ")
        back = _ticks(console)
        for worker, ticks in back.items():
            assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), f"{worker}: a line was lost or said twice"
        newest = max(ticks[-1] for ticks in back.values())
        assert newest > seen, "nothing came while the shell had the terminal"
        console.wait_for(rf"tick {newest + 5}\.")


def _ticks(console: Operator) -> dict[str, list[int]]:
    """What is on the screen, by worker."""
    console.wait_for(r"tick \d+\.")
    found: dict[str, list[int]] = {}
    for worker, number in re.findall(r"(\d/\d)\b.*?tick (\d+)\.", console.screen()):
        found.setdefault(worker, []).append(int(number))
    assert found, console.screen()
    return found
