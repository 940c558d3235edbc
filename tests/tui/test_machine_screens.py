"""`:doctor` and `:locate` in the console: every check as it comes, cancelled, repeated; files with what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import backend.doctor
from backend.context import Context
from backend.doctor import Finding
from backend.own_places import look_at
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, WIDE, Console, console
from tests.tui.fixed.world import fixed_console
from tui.screens.machine import DoctorScreen, PlacesScreen


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


def verdicts(screen: DoctorScreen) -> dict[str, str]:
    return {str(row.cells[1]): row.cells[0].text for row in screen.table.visible_rows}  # type: ignore[union-attr]


async def doctor(driven: Console) -> DoctorScreen:
    await driven.command("doctor")
    await driven.until(lambda: isinstance(driven.app.screen, DoctorScreen))
    screen = driven.app.screen
    assert isinstance(screen, DoctorScreen)
    await driven.until(lambda: not screen.is_working)
    return screen


async def test_the_machine_is_checked_as_by_the_verb(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        screen = await doctor(driven)
        found = verdicts(screen)
        assert found["configuration"] == found["journal"] == found["credentials"] == found["endpoint"] == "ok"
        assert {"ssh key", "ssh user", "open files", "own host name", "gcloud"} <= set(found)
        await driven.shows("answers:", " ok")


async def test_a_context_that_cannot_be_opened_is_what_the_doctor_is_for(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "none"
    broken = replace(context, endpoint="127.0.0.1:1", ssh=replace(context.ssh, key=key))
    async with console(broken, tmp_path, monkeypatch, size=WIDE, loaded=False) as driven:
        screen = await doctor(driven)
        found = verdicts(screen)
        assert found["endpoint"] == "fail"
        assert found["ssh key"] == "fail"
        await driven.shows("to mend")
        screen.table.move_to(next(row.key for row in screen.table.visible_rows if row.cells[1] == "ssh key"))
        await driven.shows(f"ssh key: {key} does not exist. Correct ssh.key in the context.")


async def test_checks_are_told_as_they_come_cancelled_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def slow(*_given: Any, **_more: Any) -> AsyncIterator[Finding]:
        nonlocal asked
        asked += 1
        yield Finding("configuration", "ok", "as it should be.")
        if asked == 1:
            await asyncio.Event().wait()
        yield Finding("gcloud", "warn", "gcloud is not installed.")

    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        monkeypatch.setattr(backend.doctor, "examine", slow)
        await driven.command("doctor")
        await driven.shows("checking … 1 ok", "as it should be")
        await driven.press("Z")
        await driven.shows("doctor: cancelled", "as it should be")
        await driven.press("r")
        await driven.shows("1 to look at · 1 ok")
        assert asked == 2


async def test_our_files_are_told_with_what_they_hold(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        folder = driven.app.require_tower().paths.runs_dir / "old"
        folder.mkdir(parents=True)
        (folder / "a.0.0.log").write_bytes(bytes(2_500_000))
        await driven.command("locate")
        await driven.until(lambda: isinstance(driven.app.screen, PlacesScreen))
        screen = driven.app.screen
        assert isinstance(screen, PlacesScreen)
        await driven.until(lambda: not screen.is_working)
        rows = {
            str(row.key): [cell if isinstance(cell, str) else cell.text for cell in row.cells]
            for row in screen.table.visible_rows
        }
        assert rows["runs"][1:4] == ["2.5 MB", "1", "there"]
        assert rows["journal"][4] == str(driven.app.require_tower().paths.journal)
        assert rows["config"][1:4] == ["-", "-", "not made yet"]
        await driven.shows("X on the runs cleans up")


def test_what_others_may_read_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    journal.write_bytes(bytes(10))
    (tmp_path / "journal.db-wal").write_bytes(bytes(5))
    journal.chmod(0o600)
    assert (look_at("journal", journal).bytes, look_at("journal", journal).problem) == (15, "")
    journal.chmod(0o644)
    assert "others may read it" in look_at("journal", journal).problem
    assert look_at("config", journal).problem == ""
    assert not look_at("runs", tmp_path / "runs").exists
