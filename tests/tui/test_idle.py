"""A console on which nothing happens does nothing: counted, not timed."""

from __future__ import annotations

import gc
import inspect
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.timer import Timer
from textual.widget import Widget

import tui.screens.fleet as fleet_screen
from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, Console, console
from tui.screens.base import TICK_S, ConsoleScreen
from tui.screens.fleet import FleetScreen
from tui.screens.workers import WorkersScreen
from tui.widgets.rows import Row
from tui.wording import utc_now


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    """1,024 workers; nobody asks for ssh, whose answers would be news for some seconds."""
    context = simulators(scenario="large", speed=1.0).context
    return replace(context, ssh=replace(context.ssh, roll_call=False))


POLLS = 20
"""Of which one at least brings nothing new: the simulated fleet moves now and then."""


def count_repaints(driven: Console, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Repaints that widgets ask for from now on, by their kind."""
    asked: Counter[str] = Counter()
    refresh = Widget.refresh

    def counted(widget: Widget, *regions: object, **options: object) -> Widget:
        asked[type(widget).__name__] += 1
        return refresh(widget, *regions, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Widget, "refresh", counted)
    return asked


def stop_clocks(driven: Console) -> None:
    """No tick comes by itself any more."""
    for timer in list(driven.app.screen._timers):
        timer.stop()


def ticking(screen: ConsoleScreen) -> list[Timer]:
    return [timer for timer in screen._timers if timer._interval == TICK_S]


def every_screen() -> list[type[ConsoleScreen]]:
    import importlib
    import pkgutil

    import tui.screens

    for module in pkgutil.iter_modules(tui.screens.__path__):
        importlib.import_module(f"tui.screens.{module.name}")
    found: list[type[ConsoleScreen]] = []
    left = [ConsoleScreen]
    while left:
        one = left.pop()
        found.append(one)
        left += one.__subclasses__()
    return found


@pytest.mark.parametrize("screen", every_screen(), ids=lambda screen: screen.__name__)
def test_no_screen_calls_a_handler_that_textual_calls_by_itself(screen: type[ConsoleScreen]) -> None:
    """Textual calls `on_mount` of every class in the line of descent: calling it again doubles the clock."""
    for name, method in vars(screen).items():
        if name.startswith("on_") and inspect.isfunction(method):
            assert f"super().{name}" not in inspect.getsource(method)


async def test_a_screen_has_one_clock(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        assert len(ticking(driven.app.screen)) == 1  # type: ignore[arg-type]


async def test_a_fleet_that_stands_still_is_not_laid_out_or_painted_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)
        stop_clocks(driven)
        now = utc_now()
        monkeypatch.setattr(fleet_screen, "utc_now", lambda: now)
        facts = driven.app.header_facts()
        monkeypatch.setattr(driven.app, "header_facts", lambda: facts)
        fleet = driven.app.fleet
        monkeypatch.setattr(type(driven.app), "fleet", property(lambda _: fleet))
        for _ in range(3):
            screen._tick()
            await driven.pilot.pause()
        asked = count_repaints(driven, monkeypatch)
        for _ in range(20):
            screen._tick()
            await driven.pilot.pause()
        assert not asked


async def test_workers_are_not_looked_at_again_while_the_fleet_is_the_same(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        await driven.press("enter")
        await driven.shows("train-large/0/0")
        screen = driven.app.screen
        assert isinstance(screen, WorkersScreen)
        stop_clocks(driven)
        fleet = driven.app.fleet
        monkeypatch.setattr(type(driven.app), "fleet", property(lambda _: fleet))
        screen._tick()
        await driven.pilot.pause()
        made: list[object] = []
        rows = screen._rows.rows

        def counted(*given: Any) -> list[Row]:
            made.append(given)
            return rows(*given)

        monkeypatch.setattr(screen._rows, "rows", counted)
        for _ in range(10):
            screen._tick()
        assert not made


async def test_what_scrolls_out_of_sight_is_not_drawn(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        await driven.press("enter")
        await driven.shows("train-large/0/0")
        table = driven.app.screen.query_one("#table")
        drawn: list[int] = []
        render_line = type(table).render_line

        def counted(widget: Widget, y: int) -> object:
            drawn.append(y)
            return render_line(widget, y)

        monkeypatch.setattr(type(table), "render_line", counted)
        await driven.press("end")
        await driven.shows("train-large/63/15")
        assert 0 < len(drawn) <= 3 * table.size.height


async def test_collections_leave_modules_and_the_loaded_fleet_alone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.unfreeze()
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        await driven.until(gc.get_freeze_count, "what stays is frozen")
        assert gc.get_freeze_count() > 10_000
        assert driven.app.require_tower().interactive
    gc.unfreeze()


async def test_a_poll_that_brings_nothing_new_makes_no_frame_of_its_own(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)
        stop_clocks(driven)
        for _ in range(2):
            screen._tick()
            if screen.second:
                break
        await driven.pilot.pause()
        asked = count_repaints(driven, monkeypatch)
        for _ in range(POLLS):
            before = driven.app.fleet
            await driven.app.require_tower().watch.refresh()
            await driven.pilot.pause()
            asked.clear()
            screen._tick()
            if not screen.second and driven.app.fleet is not before and driven.app.fleet.tells_as(before):
                break
        else:
            pytest.fail(f"none of {POLLS} polls brought nothing new")
        assert not asked


async def test_an_age_that_reads_the_same_draws_no_line_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-large", "ACTIVE")
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)
        stop_clocks(driven)
        late = utc_now().replace(second=0, microsecond=0) + timedelta(hours=3)
        screen.draw(driven.app.fleet, late)
        await driven.pilot.pause()
        asked = count_repaints(driven, monkeypatch)
        screen.draw(driven.app.fleet, late + timedelta(milliseconds=1))
        assert not asked["LiveTable"]
