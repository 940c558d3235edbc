"""From exec to the first painted screen: the console on a context file, against an empty Textual app on the same terminal.

Budget (design.md, section 7): at most 1.25 x. Both wall and CPU are told: on a machine that does other things only the CPU
ratio is steady.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.pty_console import PtyProcess, console_command
from tests.simulator import start_simulator

ROUNDS = 7
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("here I am")
Empty().run()
"""


def first_paint(command: list[str], home: Path, word: str) -> tuple[float, float]:
    """(wall, CPU) seconds until the word is on the screen."""
    import time

    with PtyProcess(command, home) as process:
        needle = word.encode()
        while needle not in process.output:
            process.read(1.0)
            if time.perf_counter() - process.started > 60:
                raise TimeoutError(bytes(process.output[-2000:]).decode("utf-8", "replace"))
        return time.perf_counter() - process.started, process.threads_cpu_s()


def paired(found: dict[str, list[tuple[float, float]]], figure: int) -> float:
    """The median of the rounds' ratios: the two of a round met the same load."""
    pairs = zip(found["console"], found["empty app"], strict=True)
    return statistics.median(console[figure] / empty[figure] for console, empty in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory() as name:
        folder = Path(name)
        simulator = start_simulator(folder / "sim", speed=1.0)
        os.environ["SSH_AUTH_SOCK"] = ""
        commands = {
            "console": (console_command(simulator.context_file), "IN STATE"),
            "empty app": ([sys.executable, "-c", EMPTY], "here I am"),
        }
        found: dict[str, list[tuple[float, float]]] = {each: [] for each in commands}
        try:
            # The first round fills the file caches.
            for number in range(rounds + 1):
                for each, (command, word) in commands.items():
                    result = first_paint(command, folder / "home", word)
                    if number:
                        found[each].append(result)
        finally:
            simulator.stop()
    wall = {each: statistics.median(values[0] for values in results) for each, results in found.items()}
    cpu = {each: statistics.median(values[1] for values in results) for each, results in found.items()}
    print(
        json.dumps(
            {
                "wall_s": {each: round(value, 3) for each, value in wall.items()},
                "cpu_s": {each: round(value, 3) for each, value in cpu.items()},
                "wall_ratio": round(paired(found, 0), 2),
                "cpu_ratio": round(paired(found, 1), 2),
                "budget_ratio": 1.25,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
