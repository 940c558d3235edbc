"""What marks mean and how they end, and keys that mean nothing where they were pressed."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.context import Context
from backend.model import QueuedResource
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, console
from tui.keymap import Keymap
from tui.screens import deeds
from tui.screens.confirm import TypedConfirmation
from tui.screens.logs import LogsScreen
from tui.screens.run import RunScreen
from tui.widgets.log_view import LogView


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def test_marks_are_counted_where_a_filter_hides_them_too_and_esc_takes_them_away(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d", "notebook")
        assert "marked" not in driven.text
        await driven.press("asterisk")
        marked = len(driven.app.fleet.queued_resources) + len(driven.app.fleet.standalone)
        await driven.shows(f"queued resources · {marked} marked")
        await driven.press("slash")
        await driven.write("name=old-d")
        await driven.press("enter")
        await driven.shows(f"1 of {marked} match", f"{marked} marked, {marked - 1} of them hidden")
        await driven.press("escape")
        await driven.shows(f"queued resources · {marked} marked")
        await driven.press("escape")
        await driven.until(lambda: "marked" not in driven.text, "no mark left")


async def test_what_is_marked_and_cannot_be_deleted_is_named_and_never_swapped_for_the_cursors_request(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    async def send(_console: object, items: list[QueuedResource]) -> None:
        sent.extend(item.name for item in items)

    monkeypatch.setattr(deeds, "_send_deletes", send)
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d", "notebook")
        await driven.press("end", "space")
        driven.app.show_request("old-d")
        await driven.press("D")
        await driven.until(lambda: "Nothing that is marked is a queued resource" in driven.toasts())
        await driven.press("space", "D")
        await driven.shows("Delete old-d?", "Left as they are, without a queued resource: notebook")
        assert isinstance(driven.app.screen, TypedConfirmation)
        await driven.write("old-d")
        await driven.press("enter")
        await driven.until(lambda: sent == ["old-d"], "the delete")
        await driven.until(lambda: "marked" not in driven.text, "no mark left for another deed")


async def test_a_key_that_means_nothing_here_says_so_and_what_it_means_elsewhere(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        await driven.press("6")
        await driven.shows("events")
        await driven.press("D")
        await driven.until(lambda: "D (delete) does nothing here. ? lists what does." in driven.toasts())
        await driven.press("Q")
        await driven.until(lambda: "Q does nothing here." in driven.toasts())
        told = len(driven.told)
        await driven.press("j", "k", "tab", "escape")
        await driven.press("slash")
        await driven.write("DQ")
        await driven.press("escape")
        assert len(driven.told) == told, "bound keys and typed letters are no mistakes"
    assert Keymap({"help": "f2"}).nothing_here("Q") == "Q does nothing here. f2 lists what does."


async def test_logs_of_nothing_marked_are_those_of_all_and_lines_are_copied_from_the_tile_with_the_mark(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("run train-a/0 -- sh -c 'echo first; hostname; echo last'")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows("4 ok")
        await driven.press("L")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows("merged", "train-a/0/3")
        await driven.press("V", "plus", "plus")
        await driven.until(lambda: len(driven.app.screen.query(LogView)) == 4, "four tiles")
        await driven.shows("▌train-a/0/0")
        await driven.press("tab", "tab")
        text = await driven.shows("▌train-a/0/2")
        assert "▌train-a/0/0" not in text
        await driven.press("shift+tab")
        await driven.shows("▌train-a/0/1")
        copied: list[str] = []
        monkeypatch.setattr(driven.app, "copy", copied.append)
        await driven.press("g", "m", "G", "m", "y")
        assert copied == ["first\nlast"]
