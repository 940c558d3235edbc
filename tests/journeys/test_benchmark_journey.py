"""From the plan to the decision, by keyboard in a real terminal: plan, sweep, compare, scale, baseline, readings, any log.

Everything that is drawn was measured before in the same test, by real JAX on the simulator's workers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.journeys.console import Operator, slicetower
from tests.simulator import SimulatorFactory, own_environment

pytestmark = [pytest.mark.heavy, pytest.mark.journey, pytest.mark.xdist_group("jax"), pytest.mark.timeout(900)]

PAINT_S = 120.0
MEASURED_S = 300.0
SIZES = ("-d", "64", "-b", "16", "-n", "1", "--steps", "24")
MESHES = ("--mesh", "1x4x1", "--mesh", "1x4x1/2x1x1")
PREFLIGHT_PYTHON = "SLICETOWER_PREFLIGHT_PYTHON"
LOG = "tests/fixtures/logs/maxtext_classic.log"
"""Seen from where the console is started; a picture shows it."""


def test_from_the_plan_to_the_decision(tmp_path: Path, simulators: SimulatorFactory) -> None:
    simulator = simulators(fresh=True)
    kind = ("--accelerator-type", "v5litepod-4", "--runtime-version", "v2-alpha-tpuv5-lite", "--zone", "us-west4-a")
    for name, slices in (("one", ()), ("two", ("--node-count", "2"))):
        asked = simulator.cli("qr", "create", name, *kind, *slices, "--spot")
        assert asked.returncode == 0, asked.stderr
        assert simulator.cli("qr", "wait", name).returncode == 0
    scaled = simulator.cli("bench", "sweep", "one", "two", *SIZES, *MESHES, timeout_s=MEASURED_S)
    assert scaled.returncode == 0, scaled.stderr

    homes = own_environment(simulator.directory)
    kept = {name: homes[name] for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "PYTHONPATH")}
    kept["TEXTUAL_ANIMATIONS"] = "none"
    if PREFLIGHT_PYTHON in os.environ:
        kept[PREFLIGHT_PYTHON] = os.environ[PREFLIGHT_PYTHON]
    command = slicetower("--context-file", str(simulator.context_file))
    with Operator(tmp_path, command, size=(100, 30), environment=kept) as console:
        console.wait_for(r"two +● ACTIVE", PAINT_S)
        console.keys("5")
        console.wait_for(r"two +1x4x1/2x1x1")
        console.keys("*", "=")
        console.wait_for("weak scaling against linear from 1 slice")
        console.wait_for(r"2 slices █+░* +[\d.]+%")
        console.wait_until_gone("has waited for capacity")
        console.step("bench-4-weak-scaling")
        console.keys("B")
        console.wait_for("Save this benchmark as a baseline named")
        console.keys("Enter")
        console.wait_for("Saved as baseline one")

        console.keys("1")
        console.wait_for(r"two +● ACTIVE")
        console.keys("/")
        console.write("two")
        console.keys("Enter")
        console.wait_for("▌ two")
        console.keys("b")
        console.wait_for(r"8 devices on 2 workers")
        console.wait_for(r"ctrl\+r starts it")
        console.keys("f4")
        console.wait_for(r"▌ \S+x\S+x\S+/")
        console.step("bench-1-plan")
        if PREFLIGHT_PYTHON in os.environ:
            console.keys("Escape")
            console.wait_for(r"ctrl\+r starts it")
            console.keys("f5")
            console.wait_for("largest batch", MEASURED_S)
            console.wait_for(r"(DCN|ICI) +all-reduce")
            console.step("bench-2-preflight")
            console.keys("Escape")
            console.wait_for(r"ctrl\+r starts it")
            console.keys("f4")
            console.wait_for(r"▌ \S+x\S+x\S+/")
        console.keys("Space", "j", "Space", "j", "Space", "f6")
        console.wait_for("3 benchmarks one after another")
        console.keys("C-r")
        console.wait_for(r"1 done", MEASURED_S)
        console.wait_for(r"3 done", MEASURED_S)
        console.wait_for(r"best █+")
        console.step("bench-3-sweep")

        console.keys("Enter")
        console.wait_for("steps by their time")
        console.wait_for(r"to [\d.]+ s +█+ \d+")
        console.step("bench-5-histogram")
        console.keys("v")
        console.wait_for(r"two/0/0, line \d+:")
        console.step("bench-6-readings")
        console.keys("5")
        console.wait_for(r"two +\S+x\S+/2x1x1 .*\n")
        console.keys("Home", "=")
        console.wait_for("Compare with which baseline")
        console.keys("Enter")
        console.wait_for("(faster|slower|same)")
        console.step("bench-7-baseline")
        console.keys(":")
        console.write(f"plot {LOG}")
        console.keys("Enter")
        console.wait_for("TFLOP/s a device over 8 steps")
        console.step("bench-8-a-maxtext-log")

    config = Path(kept["XDG_CONFIG_HOME"]) / "slicetower" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[ui]\nascii = true\n")
    with Operator(tmp_path, command, size=(80, 24), environment=kept) as console:
        console.wait_for(r"two +\S+ ACTIVE", PAINT_S)
        console.keys("5")
        console.wait_for(r"two +\S+x\S+/2x1x1")
        console.keys("Enter")
        console.wait_for(r"median [\d.]+ [GM]FLOP/s a device over \d+ steps")
        assert re.search(r"\d [+|] .*\*\*", console.screen()), "drawn in ASCII"
        assert not re.search("[\u2800-\u28ff\u2588-\u2593\u00d7\u00b7]", console.screen())
        console.step("bench-9-80x24-ascii")
