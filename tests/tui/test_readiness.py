"""A request is called ready only where ssh answers on all its workers; what is missing is said, for which slice and worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from backend.targets import WorkerRef, workers_of
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, Console, console
from tui.screens.fleet import FleetScreen


async def test_a_request_that_the_cloud_calls_ready_says_which_slice_lacks_ssh(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row, wherever the cursor is; and `ready` only when all its workers answer, without anybody having logged in."""
    monkeypatch.setattr("backend.ssh.rollcall.AGAIN_S", 0.2)
    monkeypatch.setattr("backend.ssh.rollcall.AGAIN_MOST_S", 0.4)
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a")
        driven.app.show_request("old-d")
        await driven.until(lambda: "slice 1: no ssh on worker 2 (" in row_of(driven, "train-a"))
        assert "7/8" in row_of(driven, "train-a")
        assert "ready" not in row_of(driven, "train-a")
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)
        assert screen.current_request().name == "old-d"
        await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2", "--off")
        await driven.until(
            lambda: row_of(driven, "train-a").rstrip("│ ").split()[-1] == "ready", "its row says ready"
        )
        assert "8/8" in row_of(driven, "train-a")
        driven.app.show_request("train-a")
        await driven.shows("ssh answers on 8 of 8 workers")
        assert driven.app.require_tower().pool.connected == 0, "nobody logged in to see that"


def row_of(driven: Console, name: str) -> str:
    """The row of a request in the table, without the pane beside it."""
    for line in driven.text.splitlines():
        if line.lstrip(" ▌").startswith(f"{name} "):
            return line.partition("│")[0].rstrip()
    return ""


async def test_a_narrow_row_counts_only_workers_that_answer(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2")
    async with console(simulator.context, tmp_path, monkeypatch) as driven:
        await driven.until(lambda: "7/8" in row_of(driven, "train-a"), "7 of 8 in the row")
        driven.app.show_request("train-a")
        await driven.shows("slice 1: no ssh on worker 2")
        await driven.press("enter")
        await driven.shows("train-a/1/2", "no ssh (")
        await driven.press("slash")
        await driven.write("no ssh")
        await driven.press("enter")
        await driven.shows("1 of 8 match")


async def test_a_server_that_stops_is_noticed_at_once_on_refresh(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.until(lambda: row_of(driven, "train-a").endswith("ready"), "its row says ready")
        await asyncio.to_thread(simulator.inject, "refuse", "train-a/0/1")
        await driven.press("r")
        await driven.until(lambda: "slice 0: no ssh on worker 1" in row_of(driven, "train-a"), "who is missing")


async def test_switched_off_nobody_is_asked_and_the_key_asks_by_logging_in(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2")
    monkeypatch.setattr("tui.screens.answers.ASK_S", 3.0)
    context = replace(simulator.context, read_only=True, ssh=replace(simulator.context.ssh, roll_call=False))
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.until(lambda: row_of(driven, "train-a").endswith("ssh not asked (off): W asks"))
        assert "8/8?" in row_of(driven, "train-a")
        driven.app.show_request("train-a")
        await driven.press("W")
        await driven.shows("ssh answers on 7 of 8 workers", "no ssh on worker 2")
        first = driven.text.splitlines()[4]
        assert first.startswith("▌ train-a/1 "), "what lacks something stands first, under the cursor"
        await driven.until(lambda: "train-a/1/2" in "".join(driven.text.splitlines()[-5:]), "why, below the table")
        await driven.press("escape")
        await driven.until(lambda: "slice 1: no ssh on worker 2" in row_of(driven, "train-a"), "its row says so too")
        await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2", "--off")
        await driven.command("ask-ssh train-a")
        await driven.shows("ssh answers on 8 of 8 workers")
        assert driven.app.require_tower().pool.connected == 0, "what was not connected before is let go"
        await driven.press("escape")
        await driven.until(lambda: row_of(driven, "train-a").endswith("ready"), "its row says ready")


async def test_asking_can_be_cancelled(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "freeze", "train-a/1/2")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a")
        driven.app.show_request("train-a")
        await driven.press("W")
        await driven.shows("Logging in", "7 of 8")
        await driven.press("Z")
        await driven.shows("ask ssh: cancelled")


async def test_a_connection_that_breaks_has_its_worker_asked_at_once(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not five minutes later; and one that was closed here is no news."""
    simulator = simulators(fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.until(lambda: row_of(driven, "train-a").endswith("ready"), "its row says ready")
        tower = driven.app.require_tower()
        asked: list[str] = []
        ask = tower.roll_call.ask

        def noted(worker: WorkerRef) -> None:
            asked.append(worker.address)
            ask(worker)

        monkeypatch.setattr(tower.roll_call, "ask", noted)
        workers = workers_of(driven.app.fleet.find("train-a")[0])
        await asyncio.gather(*(tower.pool.connection(each) for each in workers))
        await driven.shows("8 open")
        await tower.pool.disconnect(workers[0])
        await asyncio.to_thread(simulator.inject, "refuse", "train-a/1/2")
        await asyncio.to_thread(simulator.inject, "cut", "train-a/1/2")
        await driven.until(lambda: "slice 1: no ssh on worker 2" in row_of(driven, "train-a"), "who is missing")
        assert asked == ["train-a/1/2"]
