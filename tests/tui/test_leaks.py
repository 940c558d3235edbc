"""A console that is open all day holds no more than one that was just opened: objects are counted, never megabytes."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest
from textual._styles_cache import StylesCache
from textual.screen import Screen

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, Console, console
from tui.screens.base import ConsoleScreen

WAYS = ("2", "1", "5", "1", "6", "1", "7", "1", "question_mark", "escape", "g", "escape", "colon", "escape")
"""Keys that open every kind of screen that needs no run, and leave it."""
WARM, ROUNDS = 2, 4
TICKS = 100


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators(scenario="large", speed=1.0).context


def held(*kinds: type) -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))


async def walk(driven: Console, opened: list[weakref.ref[Screen[object]]]) -> None:
    fleet = driven.app.screen
    for key in WAYS:
        await driven.press(key)
        if driven.app.screen is not fleet:
            opened.append(weakref.ref(driven.app.screen))
    await driven.until(lambda: driven.app.screen is fleet, "the fleet again")


async def test_closed_screens_are_let_go_with_all_that_they_drew(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        opened: list[weakref.ref[Screen[object]]] = []
        for _ in range(WARM):
            await walk(driven, opened)
        before = held(StylesCache)
        for _ in range(ROUNDS):
            await walk(driven, opened)
        assert len(opened) >= (WARM + ROUNDS) * 6

        def left() -> Counter[str]:
            gc.collect()
            return Counter(type(screen).__name__ for each in opened if (screen := each()) is not None)

        # The last one goes when its last message is done with; one that is held stays for good.
        await driven.until(lambda: not left(), "the end of every closed screen")
        assert held(StylesCache) == before


async def test_ticks_leave_nothing(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        screen = driven.app.screen
        assert isinstance(screen, ConsoleScreen)

        async def tick(times: int) -> int:
            for _ in range(times):
                screen._tick()
                await driven.pilot.pause()
            return sum(held(object).values())

        await tick(TICKS)
        before = await tick(TICKS)
        after = await tick(TICKS)
        assert after - before < TICKS, "every tick leaves an object"
