"""Jobs that the console did not begin: of another process of this operator, and of another operator."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from backend.cloud.requests import CreateRequest
from tests.simulator import Simulator, SimulatorFactory, run_cli
from tests.tui.driving import WIDE, console
from tui.screens.run import RunScreen

SHAPE = ("--accelerator-type=v5litepod-8", "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a")


def create(simulator: Simulator, home: Path, name: str) -> str:
    """Asks for a slice with a job from the command line of whoever lives in `home`; the run's id."""
    home.mkdir(exist_ok=True)
    done = run_cli(
        "--context-file", str(simulator.context_file), "qr", "create", name, *SHAPE, "--wait", "--no-ssh",
        "--job", "--", "sh", "-c", f"echo from {name}; sleep 600", home=home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.search(r"run (\S+) starts at every boot", done.stderr)
    assert found is not None, done.stderr
    return found[1]


async def test_an_open_console_follows_what_the_command_line_begins_without_being_told(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(scenario="empty", fresh=True)
    (tmp_path / "state").mkdir()
    (tmp_path / ".state").symlink_to("state")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        tower = driven.app.require_tower()
        await driven.until(lambda: "runs" in vars(tower), "what was open before is taken up")
        run_id = await asyncio.to_thread(create, simulator, tmp_path, "mine")
        runs = tower.runs
        await driven.until(lambda: run_id in runs.active, "the run is followed")
        run = runs.active[run_id]
        await driven.until(
            lambda: run.log_path(0).exists() and b"from mine" in run.log_path(0).read_bytes(), "its log"
        )
        assert runs.active[run_id] is run, "it is taken up once"


async def test_another_operators_job_is_adopted_by_its_key_and_a_request_without_one_is_refused(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(scenario="empty", fresh=True)
    run_id = await asyncio.to_thread(create, simulator, tmp_path / "colleague", "theirs")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        recovery = driven.app.require_recovery()
        bare = CreateRequest(
            "bare", "demo-project", "us-west4-a", "v5litepod-8", runtime_version="v2-alpha-tpuv5-lite"
        )
        await recovery.create(bare)
        await driven.shows("theirs", "bare")
        assert run_id not in driven.app.require_tower().runs.active
        driven.app.show_request("bare")
        await driven.press("J")
        await driven.until(lambda: "carries no job" in driven.toasts(), "the refusal")
        driven.app.show_request("theirs")
        await driven.press("J")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen), "the run's screen")
        run = driven.app.require_tower().runs.active[run_id]
        await driven.until(
            lambda: run.log_path(0).exists() and b"from theirs" in run.log_path(0).read_bytes(), "its log"
        )
