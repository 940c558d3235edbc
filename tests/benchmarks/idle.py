"""What the console costs while nothing moves: CPU of its process and bytes to the terminal, on a fleet that stands still.

Budget (design.md, section 7): at most 1 % of a core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.pty_console import PtyProcess, console_command
from tests.simulator import start_simulator

SECONDS = 60.0
SETTLE_S = 20.0
"""For the first poll, imports in the background, and toasts to pass."""


def measure(scenario: str, seconds: float) -> dict[str, float]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        simulator = start_simulator(folder / "sim", scenario=scenario, speed=1.0)
        try:
            with PtyProcess(console_command(simulator.context_file), folder / "home") as console:
                console.wait_for("ACTIVE")
                console.read_for(SETTLE_S)
                cpu, wall = console.cpu_s(), time.monotonic()
                written = console.read_for(seconds)
                spent = (console.cpu_s() - cpu) / (time.monotonic() - wall)
                return {
                    "cpu_percent": round(spent * 100, 2),
                    "bytes_to_the_terminal_per_s": round(written / seconds),
                    "rss_mb": round(console.rss_mb(), 1),
                }
        finally:
            simulator.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--scenarios", default="default,large")
    arguments = parser.parse_args()
    found = {name: measure(name, arguments.seconds) for name in arguments.scenarios.split(",")}
    print(json.dumps({**found, "budget": {"cpu_percent": 1.0}}, indent=2))


if __name__ == "__main__":
    main()
