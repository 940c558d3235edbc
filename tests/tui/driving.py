"""Driving the console in tests: on the real simulator, by keys, waiting for what the screen says."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from backend.context import Context
from tui.app import SliceTower
from tui.settings import Settings

WAIT_S = 90.0
SMALL, MEDIUM, WIDE = (80, 24), (120, 40), (200, 60)


class Console:
    """A console under test."""

    def __init__(self, app: SliceTower, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot
        self.told: list[str] = []

    @property
    def text(self) -> str:
        """What the screen shows, modal screens over what lies below."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    async def until(self, condition: Callable[[], object], what: str = "", *, wait_s: float = WAIT_S) -> None:
        """Waits for a condition, with a bound; fails with what the screen shows."""
        end = time.monotonic() + wait_s
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"never came: {what or condition}\n{self.text}")
            await self.pilot.pause(0.05)

    async def shows(self, *words: str) -> str:
        """Waits until the screen shows all the words."""
        await self.until(lambda: all(word in self.text for word in words), " and ".join(words))
        return self.text

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        """Types a text."""
        for letter in text:
            await self.pilot.press({" ": "space"}.get(letter, letter))
        await self.pilot.pause()

    async def command(self, line: str) -> None:
        """Enters a line of the prompt."""
        await self.press("colon")
        await self.write(line)
        await self.press("enter")

    def toasts(self) -> str:
        """What toasts have said so far; the screen shows only the newest."""
        return "\n".join(self.told)

    def listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Writes down what toasts say."""
        notify = self.app.notify

        def heard(message: str, *, title: str = "", **more: Any) -> None:
            self.told.append(f"{title} {message}")
            notify(message, title=title, **more)

        monkeypatch.setattr(self.app, "notify", heard)


@asynccontextmanager
async def console(
    context: Context,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    size: tuple[int, int] = SMALL,
    settings: Settings | None = None,
    loaded: bool = True,
) -> AsyncIterator[Console]:
    """A console with state of its own; the tower is closed at the end.

    Args:
        loaded: Waits for the fleet first.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    app = SliceTower(context, settings, console_log=home / "console.log")
    async with app.run_test(size=size) as pilot:
        driven = Console(app, pilot)
        driven.listen(monkeypatch)
        try:
            if loaded:
                await driven.until(lambda: app.fleet.loaded, "the fleet")
            yield driven
        finally:
            await app.close_tower()
