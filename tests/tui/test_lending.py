"""The terminal that is lent to a shell is taken again, whatever becomes of what asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.simulator import SimulatorFactory
from tests.tui.driving import Console, console
from tui.screens.fleet import FleetScreen
from tui.screens.workers import WorkersScreen


class Lent:
    """Stands for the terminal, which no test has: like Textual's own, it takes nothing back after an error."""

    def __init__(self, driven: Console, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
        self.given = self.taken = 0
        monkeypatch.setattr(driven.app, "_require_terminal", lambda: None)
        monkeypatch.setattr(driven.app, "own_command", lambda: command)
        monkeypatch.setattr(driven.app, "suspend", self._suspend)

    @contextmanager
    def _suspend(self) -> Iterator[None]:
        self.given += 1
        yield
        self.taken += 1


async def at_its_workers(driven: Console) -> None:
    await driven.shows("train-a")
    await driven.command("w train-a")
    await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
    await driven.shows("train-a/0/0")


async def test_the_terminal_comes_back_although_its_screen_was_left_by_a_key_that_was_typed_ahead(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = tmp_path / "ended"
    waiting = ["sh", "-c", f"while [ ! -e {ended} ]; do sleep 0.05; done"]
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        lent = Lent(driven, monkeypatch, waiting)
        await at_its_workers(driven)
        await driven.press("s")
        await driven.until(lambda: lent.given)
        await driven.press("1")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        await at_its_workers(driven)
        await driven.press("s")
        await driven.until(lambda: "lent already" in driven.toasts())
        assert (lent.given, lent.taken) == (1, 0)
        ended.touch()
        await driven.until(lambda: lent.taken == 1)


async def test_the_terminal_comes_back_from_a_shell_that_cannot_be_started(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF no program at all")
    broken.chmod(0o700)
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        lent = Lent(driven, monkeypatch, [str(broken)])
        await at_its_workers(driven)
        await driven.press("s")
        await driven.until(lambda: lent.given)
        await driven.until(lambda: lent.taken == 1)
