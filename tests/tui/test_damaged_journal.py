"""A journal that is damaged while the console is open: it is told where it is read, and never locks the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator import SimulatorFactory
from tests.tui.driving import Console, console
from tui.screens.confirm import Question
from tui.screens.events import EventsScreen


def damage(driven: Console) -> None:
    """The file loses every table: each read fails as it does when the file is damaged."""
    connection = driven.app.require_tower().journal.connection
    connection.execute("PRAGMA foreign_keys = OFF")
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    ).fetchall():
        connection.execute(f'DROP TABLE "{name}"')


async def test_ctrl_q_leaves_a_console_whose_journal_is_damaged(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators().context, tmp_path, monkeypatch, size=(120, 40)) as driven:
        await driven.shows("train-a")
        damage(driven)
        await driven.press("ctrl+q")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("is not known", "damaged:", "ACTIVE and costing")
        left = []
        monkeypatch.setattr(driven.app, "exit", lambda *_args, **_more: left.append(True))
        await driven.press("enter")
        await driven.until(lambda: left)


async def test_events_of_a_damaged_journal_are_an_error_and_never_an_empty_list(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators().context, tmp_path, monkeypatch, size=(120, 40)) as driven:
        await driven.shows("train-a")
        damage(driven)
        await driven.press("6")
        await driven.until(lambda: isinstance(driven.app.screen, EventsScreen))
        await driven.shows("damaged:")
        assert "Nothing happened yet" not in driven.text
