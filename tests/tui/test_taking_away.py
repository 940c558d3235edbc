"""What is taken out of the console: copies, plain pages, pictures; and the terminal, lent to a shell while the tails live."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tui.fixed import facts
from tests.tui.fixed.scenes import at_train, run_of
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.navigation import Navigation
from tui.screens.create import CreateScreen

SIZE = (120, 40)


@contextmanager
def _lent() -> Iterator[None]:
    yield


def lend(driven: FixedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can be lent, as in test_driver.py a real one is."""
    monkeypatch.setattr(Navigation, "_require_terminal", lambda _self: None)
    monkeypatch.setattr(driven.app, "suspend", _lent)


async def test_a_row_is_copied_to_the_clipboard_and_to_a_file_that_nobody_else_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        driven.listen(monkeypatch)
        await at_train(driven, "y")
        await driven.until(lambda: "Copied" in driven.toasts())
        kept = tmp_path / "copied.txt"
        assert driven.app.clipboard == kept.read_text("utf-8")
        assert "train-a" in driven.app.clipboard
        assert "ACTIVE" in driven.app.clipboard
        assert kept.stat().st_mode & 0o077 == 0
        assert str(kept) in driven.toasts()


async def test_a_screen_is_saved_as_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        driven.listen(monkeypatch)
        await at_train(driven)
        await driven.command("screenshot")
        await driven.until(lambda: "Saved" in driven.toasts())
        (picture,) = [tmp_path / name for name in os.listdir(tmp_path) if name.startswith("slicetower-")]
        assert str(picture) in driven.toasts()
        assert "sweep-b" in picture.read_text("utf-8")


async def test_a_page_is_printed_plainly_until_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        lend(driven, monkeypatch)
        printed = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
        monkeypatch.setattr("builtins.print", lambda text, **_more: printed.write(f"{text}\n"))
        await at_train(driven, "c")
        await driven.until(lambda: "enter comes back" in printed.getvalue())
        lines = printed.getvalue().splitlines()
        assert lines[0].split()[:2] == ["NAME", "STATE"]
        assert any(line.startswith("train-a") and "ACTIVE" in line for line in lines)
        assert "\x1b" not in printed.getvalue()


async def test_a_shell_takes_the_terminal_and_the_tails_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        driven.listen(monkeypatch)
        lend(driven, monkeypatch)
        monkeypatch.setattr(
            driven.app,
            "own_command",
            lambda: [sys.executable, "-c", "import pathlib, sys; sys.stdin.read(); raise SystemExit(3)"],
        )
        seen: list[tuple[object, ...]] = []
        exec_real = asyncio.create_subprocess_exec

        async def begin(*argv: str) -> asyncio.subprocess.Process:
            seen.append(argv[-2:])
            process = await exec_real(*argv, stdin=asyncio.subprocess.PIPE)
            run = driven.app.find_run(facts.LIVE_ID)
            run.log(0).append(b"told while the shell was open\n")
            assert process.stdin is not None
            process.stdin.close()
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
        await run_of(driven, facts.LIVE_ID, "V", "s")
        await driven.until(lambda: "ended with 3" in driven.toasts())
        assert seen == [("shell", "train-a/0/0")]
        await driven.press("l")
        await driven.shows("told while the shell was open")


async def test_a_request_is_asked_for_again_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        await at_train(driven)
        await driven.command("again")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused)
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        texts = form.texts()
        assert texts["name"] == ""
        assert (texts["accelerator_type"], texts["zone"], texts["node_count"]) == ("v5litepod-16", facts.WEST, "2")


async def test_the_palette_does_what_is_chosen_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SIZE) as driven:
        await at_train(driven, "ctrl+p")
        await driven.write("bench")
        await driven.shows("Measure a sharding")
        await driven.press("enter")
        await driven.shows("32 devices on 8 workers")
