"""Whether the console grows: its memory while a fleet changes fifty times as fast as in life, sampled; recorded, not asserted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.pty_console import PtyProcess, console_command
from tests.simulator import start_simulator

SECONDS = 300.0
SAMPLES = 10
SPEED = 50.0


def measure(seconds: float) -> dict[str, object]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        simulator = start_simulator(folder / "sim", speed=SPEED)
        try:
            with PtyProcess(console_command(simulator.context_file), folder / "home") as console:
                console.wait_for("ACTIVE")
                console.read_for(20)
                samples = [console.rss_mb()]
                keys = "2", "1", "5", "1"
                for number in range(SAMPLES):
                    simulator.inject("repair", f"train-a/{number % 2}")
                    for key in keys:
                        console.press(key)
                        console.read_for(seconds / SAMPLES / len(keys))
                        console.output.clear()
                    samples.append(console.rss_mb())
                return {"rss_mb": [round(each, 1) for each in samples]}
        finally:
            simulator.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    print(json.dumps(measure(parser.parse_args().seconds)))


if __name__ == "__main__":
    main()
