"""64 workers that print as fast as they can, with the console looking on: bytes kept, what they cost, how long a key waits.

Budget (design.md, section 7): at least 50 MB for each CPU second of the console, a key painted within 50 ms at the 99th
percentile, memory at most 150 MB over idle, no byte lost. The simulator shares this machine: CPU is told, and beside the
wall time of a key the CPU time of the console's main thread in it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.pty_console import PtyProcess, console_command
from tests.simulator import start_simulator

WORKERS = 64
SLICES = "train-large/0 train-large/1 train-large/2 train-large/3"
BYTES = 8_000_000
LINES = {
    "lines of 100 bytes": "x" * 99,
    "lines of 2 bytes": "y",
}
VIEWS = {"merged": "", "single": "V"}
"""What is looked at, and the key that leads there from the merged log."""
ALPHABETS = (
    range(0x410, 0x450),
    range(0x3B1, 0x3C2),
    range(0x531, 0x557),
    range(0x561, 0x587),
    range(0x10D0, 0x10F1),
)
"""Cyrillic, Greek, Armenian capitals and small letters, Georgian."""
LETTERS = "".join(chr(code) for alphabet in ALPHABETS for code in alphabet)
"""Typed one by one into the command line: none stands in a log, so that it is on the screen says that the key was painted."""
END_S = 240.0


def sizes(home: Path) -> list[int]:
    return [path.stat().st_size for path in (home / ".state").rglob("runs/*/*.log")]


def key(console: PtyProcess, letter: str) -> tuple[float, float]:
    """(wall, main-thread CPU) milliseconds from a key press until it stands on the screen."""
    wanted = letter.encode()
    while console.read(0.0):
        pass
    console.output.clear()
    cpu, wall = console.main_thread_cpu_s(), time.perf_counter()
    console.press(letter)
    while wanted not in console.output:
        console.read(1.0)
        if time.perf_counter() - wall > 30:
            raise TimeoutError(f"the key {letter} was never painted")
    return (time.perf_counter() - wall) * 1e3, (console.main_thread_cpu_s() - cpu) * 1e3


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
    }


def type_keys(console: PtyProcess, letters: str, gap_s: float) -> list[tuple[float, float]]:
    found = []
    for letter in letters:
        found.append(key(console, letter))
        console.read_for(gap_s)
    return found


def measure(line: str, view_key: str, size: int) -> dict[str, object]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        simulator = start_simulator(folder / "sim", scenario="large", speed=1.0)
        try:
            with PtyProcess(console_command(simulator.context_file), home) as console:
                console.wait_for("active 4,096")
                console.read_for(5)
                idle_mb = console.rss_mb()
                console.press(":")
                console.read_for(0.5)
                quiet = type_keys(console, LETTERS[:16], 0.05)
                console.press("\x1b")
                console.read_for(1)
                command = f"sh -c 'sleep 20; yes {line} | head -c {size}'"
                console.output.clear()
                console.press(f":run {SLICES} -- {command}\r")
                console.wait_for("ctrl+r starts it")
                console.press("\x12")
                console.wait_for("nothing has ended yet")
                console.press("l")
                console.wait_for("no output yet")
                if view_key:
                    console.press(view_key)
                console.read_for(0.5)
                console.press(":")
                while sum(sizes(home)) < size:
                    console.read_for(0.2)
                before, cpu, wall = sum(sizes(home)), console.cpu_s(), time.monotonic()
                keys, most = [], 0.0
                for letter in LETTERS:
                    if sum(sizes(home)) >= WORKERS * size:
                        break
                    keys.append(key(console, letter))
                    most = max(most, console.rss_mb())
                    console.read_for(0.02)
                while sum(sizes(home)) < WORKERS * size and time.monotonic() - wall < END_S:
                    console.read_for(0.2)
                    most = max(most, console.rss_mb())
                taken, spent = sum(sizes(home)) - before, console.cpu_s() - cpu
                took = time.monotonic() - wall
                console.read_for(2)
                return {
                    "mb": round(taken / 1e6),
                    "mb_per_cpu_s": round(taken / 1e6 / spent, 1),
                    "mb_per_s_here": round(taken / 1e6 / took, 1),
                    "lost_bytes": WORKERS * size - sum(sizes(home)),
                    "keys": len(keys),
                    "key_wall_ms": percentiles([each[0] for each in keys]),
                    "key_cpu_ms": percentiles([each[1] for each in keys]),
                    "key_wall_ms_quiet": percentiles([each[0] for each in quiet]),
                    "key_cpu_ms_quiet": percentiles([each[1] for each in quiet]),
                    "rss_over_idle_mb": round(most - idle_mb, 1),
                }
        finally:
            simulator.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=BYTES, help="of each worker")
    arguments = parser.parse_args()
    found = {
        f"{lines}, {view}": measure(line, key_, arguments.bytes)
        for lines, line in LINES.items()
        for view, key_ in VIEWS.items()
    }
    budget = {"mb_per_cpu_s": 50, "key_ms_p99": 50, "rss_over_idle_mb": 150, "lost_bytes": 0}
    print(json.dumps({**found, "budget": budget}, indent=2))


if __name__ == "__main__":
    main()
