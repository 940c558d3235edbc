"""Rules of the cloud as they meet whoever presses keys: maintenance, advice before a create, its rate, the early alarm."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.cloud.intents import CREATES_PER_MINUTE, IntentStore
from backend.model import EventKind
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, console
from tests.tui.test_create_screen import fill
from tui.screens.confirm import Question, TypedConfirmation
from tui.screens.create import CreateScreen


async def test_announced_maintenance_is_started_by_key_for_its_slices_alone(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "maintenance", "train-a/1")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("sweep-b")
        driven.app.show_request("sweep-b")
        await driven.press("M")
        await driven.until(lambda: "No maintenance of sweep-b is announced" in driven.toasts(), "the refusal")
        driven.app.show_request("train-a")
        await driven.shows("maintenance of slice 1")
        await driven.press("M")
        await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
        text = await driven.shows("train-a-1", "starts now", "4 workers will be gone")
        assert "train-a-0" not in text.split("Start the maintenance")[1]
        await driven.write("train-a")
        await driven.press("enter")
        tower = driven.app.require_tower()
        await driven.until(
            lambda: any("started the maintenance of 1 slice" in event.text for event in tower.journal.events()),
            "it is started",
        )
        await driven.until(
            lambda: all(item.maintenance is None for item in driven.app.fleet.find("train-a")[0].slices),
            "it has passed",
        )


async def test_a_second_request_of_one_kind_is_advised_against_and_a_create_keeps_to_the_projects_rate(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(scenario="empty", fresh=True)
    await asyncio.to_thread(simulator.inject, "capacity", "us-west4-a", "v5litepod", "0")
    made = await asyncio.to_thread(
        simulator.cli, "qr", "create", "first", "--accelerator-type=v5litepod-16",
        "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a", "--spot",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.until(
            lambda: [item.state for item in driven.app.fleet.queued_resources] == ["WAITING_FOR_RESOURCES"],
            "it waits",
        )
        await driven.press("C")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        await driven.until(lambda: driven.app.screen.focused is not None)
        await fill(driven, "second", "v5litepod-16", "1")
        await driven.until(lambda: "first waits already" in driven.text, "the advice, while it is typed")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("first waits already for", "comes no sooner")
        store = IntentStore(driven.app.require_tower().journal)
        for _ in range(CREATES_PER_MINUTE):
            assert store.reserve_create("demo-project") == 0.0, "another console of this journal sends"
        await driven.press("enter")
        await driven.until(lambda: "for the project's create rate" in driven.toasts(), "it waits its turn")
        assert not driven.app.fleet.find("second")


async def test_the_early_alarm_of_a_preemption_is_loud(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a")
        rung: list[None] = []
        monkeypatch.setattr(driven.app, "bell", lambda: rung.append(None))
        await asyncio.to_thread(simulator.inject, "unhealthy", "train-a/1")
        await driven.shows("slice 1 in maintenance")
        await driven.until(lambda: rung, "the bell")
        await driven.until(lambda: "preemption" in driven.toasts(), "the toast")
        events = driven.app.require_tower().journal.events()
        assert [event.subject for event in events if event.kind is EventKind.ALARM] == ["train-a/1"]
