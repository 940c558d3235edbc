"""Runs of many workers by key: a deadlock's cure, marks as targets, one search over all logs, a shell beside it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from backend.context import Context
from backend.outcomes import Outcome
from backend.runs.fanout import Fanout
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, WIDE, console
from tests.tui.test_run_screens import ended, started
from tui.screens.logs import LogsScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.workers import WorkersScreen


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def test_a_gang_in_batches_is_called_a_probable_deadlock_and_one_key_starts_the_rest(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker waits in silence for all four; two are started."""
    defaults = Fanout.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "quiet_s", 0.5)
    here = tmp_path / "here"
    here.mkdir()
    command = f": > {here}/$(hostname); while [ $(ls {here} | wc -l) -lt 4 ]; do sleep 0.1; done"
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        screen = await started(driven, "run train-a/0", command=command, shell="yes", batch="2")
        await driven.shows("Probable deadlock: 2 of 4 started", "a starts the rest")
        assert len(list(here.iterdir())) == 2
        await driven.press("a")
        await ended(driven, screen)
        assert screen.run_.summary == {Outcome.OK: 4}


async def test_marked_workers_are_the_targets_of_a_run(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("workers train-a")
        await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
        await driven.shows("train-a/0/0", "train-a/1/3")
        await driven.press("space", "j", "space", "x")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen) and driven.app.screen.focused)
        form = driven.app.screen
        assert isinstance(form, RunFormScreen)
        assert form.texts()["targets"] == "train-a/0/0,2"


async def test_one_search_goes_over_the_logs_of_all_workers(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        command = "seq 1 200; case $(hostname) in *w-[13]) echo needle 4711;; *) echo needle none;; esac; seq 1 200"
        screen = await started(driven, "run train-a/0", command=command, shell="yes")
        await ended(driven, screen)
        await driven.press("V", "l")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.press("V")
        await driven.shows("all 4 workers")
        await driven.press("slash")
        await driven.write("needle [0-9]+$")
        await driven.press("enter")
        await driven.shows("'needle [0-9]+$' 2")
        await driven.press("N")
        await driven.shows("'needle [0-9]+$' 2/2", "needle 4711")
        await driven.press("N")
        await driven.shows("'needle [0-9]+$' 1/2", "needle 4711")


async def test_logs_grow_while_a_shell_has_the_terminal(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program stands for the shell: it ends when it is told to."""
    leave = tmp_path / "leave"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(leave)!r}).exists(): time.sleep(0.05)"
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        app = driven.app
        monkeypatch.setattr(app, "_require_terminal", lambda: None)
        monkeypatch.setattr(app, "suspend", contextlib.nullcontext)
        monkeypatch.setattr(app, "own_command", lambda: [sys.executable, "-c", waits])
        screen = await started(driven, "run train-a/0 -- sh -c 'while :; do echo more; sleep 0.05; done'")
        run = screen.run_
        await driven.until(lambda: all(result.output_bytes for result in run.results), "output")
        shell = asyncio.create_task(app.open_shell(run.workers[0]))
        before = [result.output_bytes for result in run.results]

        def grown() -> bool:
            return all(now.output_bytes > then for now, then in zip(run.results, before, strict=True))

        await driven.until(grown, "more output")
        assert not shell.done()
        leave.touch()
        await asyncio.wait_for(shell, 60)
        assert (await run.stop(grace_s=0.3)).clean
