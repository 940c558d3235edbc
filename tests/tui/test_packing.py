"""A folder that is large or wrong is packed beside the form: told, broken off, and never sent half."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from backend.context import Context
from backend.runs import bundles
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, console
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.working import Working


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def test_a_run_form_packs_with_progress_and_what_is_unwanted_is_broken_off(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "hello.txt").write_text("hello\n")
    slow, pace, ended = threading.Event(), threading.Event(), threading.Event()
    whole, asked = bundles.from_directory, []

    def from_directory(folder: Path, **more: Any) -> bundles.Bundle:
        asked.append(folder.name)
        try:
            while slow.is_set():
                more["progress"](1 << 20, 5 << 20)
                pace.wait(0.01)
        finally:
            ended.set()
        return whole(folder, **more)

    monkeypatch.setattr("tui.screens.packing.from_directory", from_directory)
    slow.set()
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.command("run train-a/0/0 -- cat hello.txt")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen) and driven.app.screen.focused)
        form = driven.app.screen
        assert isinstance(form, RunFormScreen)
        for end in range(1, len(str(code)) + 1):
            form.line("sync").value = str(code)[:end]
        await driven.shows("1.0 MiB of 5.0 MiB packed")
        assert asked == ["code"], "not every folder on the way is packed"
        form.line("sync").value = ""
        await driven.until(ended.is_set, "the packing that nobody wants is over")
        await driven.shows("ctrl+r starts it")
        slow.clear()
        form.line("sync").value = str(code)
        await driven.shows("ships 1 file")
        slow.set()
        ended.clear()
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, Working), "its progress")
        await driven.press("escape")
        await driven.until(ended.is_set, "the packing is over")
        await driven.until(lambda: driven.app.screen is form)
        assert driven.app.require_tower().runs.history() == []
        slow.clear()
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen), "the run")
        await driven.shows("hello")
