"""From an empty console to a plotted benchmark, by keyboard alone, in a real terminal on the simulated Cloud TPU."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.journeys.console import Operator, environment, slicetower
from tests.simulator import SimulatorFactory

pytestmark = [pytest.mark.journey, pytest.mark.xdist_group("jax"), pytest.mark.timeout(600)]

FIRST_PAINT_S = 120.0
ACTIVE_S = 120.0
BENCHMARK_S = 240.0
"""Bounds that only a broken console exceeds, on a machine that does other things too."""


def test_from_an_empty_console_to_a_plotted_benchmark(tmp_path: Path) -> None:
    with Operator(tmp_path, slicetower("demo"), size=(100, 30), environment=environment(tmp_path)) as console:
        console.wait_for("queued resources", FIRST_PAINT_S)
        console.wait_for(r"train-a +● ACTIVE", FIRST_PAINT_S)
        console.step("1-fleet")

        console.keys("C")
        console.wait_for("further options")
        console.write("mine-1")
        console.keys("Tab", "Tab")
        console.write("v5litepod-16")
        console.wait_for("16 chips on 4 workers")
        console.keys("Tab", "BSpace")
        console.wait_for("slices +1 to 256")
        console.write("2")
        console.wait_for(r"2 slices × 16 chips = 32 chips on 8 workers")
        console.step("2-create")
        console.keys("C-r")
        console.wait_for("Ask for this capacity")
        console.keys("1")
        console.wait_for(r"mine-1 +\S+ (CREATING|ACCEPTED|WAITING|PROVISIONING|ACTIVE)")
        console.wait_for(r"mine-1 +● ACTIVE .* 8/8", ACTIVE_S)
        console.wait_for(r"WAITING \d+s > PROVISIONING \d+s > ● ACTIVE")
        console.step("3-active")

        console.keys("x")
        console.wait_for("targets +mine-1")
        console.write("hostname")
        console.keys("Tab", "BSpace", "BSpace", "BSpace")
        console.write("4")
        console.wait_for("8 workers in 2 batches of 4")
        console.wait_for(r"ctrl\+r starts it")
        console.step("4-run-dialog")
        console.keys("C-r")
        console.wait_for(r"8/8 ended .* 8 ok")
        console.step("5-run")

        console.keys("1")
        console.wait_for("▌ mine-1")
        console.keys("b")
        console.wait_for("32 devices on 8 workers: ICI fsdp 16, DCN data 2")
        console.wait_for(r"ctrl\+r starts it")
        console.step("6-bench-form")
        console.keys("C-r")
        console.wait_for(r"stepping: \d+ of 20 steps", BENCHMARK_S)
        console.wait_for("FLOP/s a device over [3-9] steps", BENCHMARK_S)
        console.step("7-bench-running")
        console.wait_for("FLOP/s a device over 20 steps", BENCHMARK_S)
        console.step("8-bench-done")

        console.keys("1")
        console.wait_for("▌ mine-1")
        console.keys("Enter")
        console.wait_for(r"mine-1/1/3 +● READY")
        console.keys("l")
        console.wait_for(r'"step":20')
        console.step("9-log")

        console.keys("1")
        console.wait_for("▌ mine-1")
        console.keys("D")
        console.wait_for("Type mine-1 to delete")
        console.step("10-delete")
        console.write("mine-1")
        console.keys("Enter")
        console.wait_until_gone(r"mine-1 +\S+ \w", ACTIVE_S)
        console.wait_for(r"train-a +● ACTIVE")
        children = psutil.Process(console.process_id()).children(recursive=True)
        console.keys("q")
        console.wait_for("(?i)leave|quit")
        console.step("11-quit")
        console.keys("1")
        assert console.wait_for_exit() == 0
        psutil.wait_procs(children, timeout=90)
        assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_a_killed_console_comes_back_to_the_same_benchmark(tmp_path: Path, simulators: SimulatorFactory) -> None:
    simulator = simulators(fresh=True)
    command = slicetower("--context-file", str(simulator.context_file))
    homes = environment(tmp_path)
    with Operator(tmp_path, command, size=(100, 30), environment=homes) as console:
        console.wait_for(r"train-a +● ACTIVE", FIRST_PAINT_S)
        console.keys("G", "k")
        console.wait_for("▌ train-a")
        console.keys("b")
        console.wait_for("32 devices on 8 workers")
        console.wait_for(r"ctrl\+r starts it")
        console.keys("C-r")
        console.wait_for(r"stepping: \d+ of 20 steps", BENCHMARK_S)
        run_id = console.wait_for(r"bench (\d{8}-\d{6}-\w+)").group(1)
        kill_the_console(console)
    with Operator(tmp_path, command, size=(100, 30), environment=homes) as console:
        console.wait_for(r"train-a +● ACTIVE", FIRST_PAINT_S)
        console.keys("5")
        console.wait_for(r"train-a +1x16x1/2x1x1")
        console.keys("Enter")
        console.wait_for(f"bench {run_id}")
        console.wait_for("FLOP/s a device over 20 steps", BENCHMARK_S)
        console.step("12-after-kill-9")


def kill_the_console(console: Operator) -> None:
    """kill -9 of the Python process in the terminal, and of nothing else."""
    deadline = time.monotonic() + 10
    killed = [child.pid for child in psutil.Process(console.process_id()).children() if "python" in child.name()]
    assert len(killed) == 1
    os.kill(killed[0], signal.SIGKILL)
    while psutil.pid_exists(killed[0]) and time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(killed[0]).status() == psutil.STATUS_ZOMBIE:
                return
        time.sleep(0.05)
