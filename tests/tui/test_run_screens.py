"""From targets to outcomes on real workers: the run form, the run, its logs, the workers, the list of runs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from textual.widgets import Input

from backend.context import Context
from backend.logs.worker_log import WorkerLog
from backend.outcomes import Outcome
from backend.runs.model import RunState
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.screens.confirm import Question
from tui.screens.logs import LogsScreen
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.runs import RunsScreen
from tui.screens.workers import WorkersScreen
from tui.widgets.log_view import LogView


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def form(driven: Console, line: str) -> RunFormScreen:
    """The run form, opened by a command line."""
    await driven.shows("train-a", "8/8")
    await driven.command(line)
    await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
    screen = driven.app.screen
    assert isinstance(screen, RunFormScreen)
    await driven.until(lambda: screen.focused is not None)
    return screen


async def started(driven: Console, line: str, **fields: str) -> RunScreen:
    """A run, begun from the form."""
    screen = await form(driven, line)
    for name, value in fields.items():
        screen.line(name).value = value
    await driven.until(lambda: screen.plan is not None and not screen.plan.refusals)
    await driven.press("ctrl+r")
    await driven.until(lambda: isinstance(driven.app.screen, RunScreen), "the run")
    run = driven.app.screen
    assert isinstance(run, RunScreen)
    return run


async def ended(driven: Console, screen: RunScreen) -> None:
    await driven.until(lambda: screen.run_.state is RunState.ENDED, "the end of the run")


@pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["80x24", "120x40"])
async def test_the_form_counts_targets_and_batches_and_shows_the_exact_remote_text(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await form(driven, "run train-a -- echo $HOME a;b")
        await driven.shows("8 workers, all at once", "exec echo '$HOME' 'a;b'")
        screen.line("batch").value = "3"
        await driven.shows("8 workers in 3 batches: 3, 3, 2", "would hang")
        screen.line("gang").value = "yes"
        await driven.shows("refused:")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was sent" in driven.toasts())
        assert isinstance(driven.app.screen, RunFormScreen)


async def test_options_behind_the_word_fill_the_form_and_an_unknown_one_loses_nothing(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        line = "run train-a --detatch --batch-size 3 -- sleep 1"
        before = driven.app.screen
        await driven.command(line)
        await driven.until(lambda: "no option '--detatch'. --detach is near." in driven.toasts())
        assert driven.app.screen is before
        await driven.press("colon", "up")
        assert before.query_one("#prompt-input", Input).value == line
        await driven.press("escape")
        screen = await form(driven, "run train-a --detach --batch-size 3 --timeout 5m -- sleep 1")
        await driven.shows("8 workers in 3 batches: 3, 3, 2")
        filled = {name: text for name, text in screen.texts().items() if text not in ("", "no")}
        assert filled == {
            "targets": "train-a",
            "command": "sleep 1",
            "batch": "3",
            "on_failure": "stop",
            "timeout": "5m",
            "detach": "yes",
        }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run nobody -- hostname", "No queued resource is called 'nobody'"),
        ("run train-a/9 -- hostname", "train-a"),
        ("run train-a", "The command is empty"),
        ("run train-a -- echo 'x", "Close the quotes"),
    ],
)
async def test_a_form_that_cannot_be_sent_says_why(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await form(driven, line)
        await driven.shows(words)


async def test_a_command_runs_in_batches_and_equal_output_is_said_once(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await started(driven, "run train-a -- echo same everywhere", batch="4")
        await ended(driven, screen)
        await driven.shows("8 ok", "same everywhere", "train-a/0-1/0-3")
        assert driven.text.count("same everywhere") <= 2  # the title and one group
        await driven.press("V")
        await driven.shows("train-a/1/3")


async def test_the_first_failure_is_named_and_retry_asks_for_the_failed_alone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        command = "case $(hostname) in *w-2) echo broken; exit 7;; esac; echo fine"
        screen = await started(driven, "run train-a/0", command=command, shell="yes")
        await ended(driven, screen)
        await driven.shows("first failure: train-a/0/2", "exit 7", "3 ok")
        await driven.press("R")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
        again = driven.app.screen
        assert isinstance(again, RunFormScreen)
        assert again.texts()["targets"] == "train-a/0/2"


async def test_a_run_is_stopped_after_asking_and_nothing_is_left(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await started(driven, "run train-a/0 -- sleep 600")
        await driven.until(lambda: all(result.started_at for result in screen.run_.results))
        await driven.press("ctrl+c")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.press("1")
        await ended(driven, screen)
        await driven.until(lambda: "nothing of it is left there" in driven.toasts())
        assert all(result.outcome is Outcome.SIGNALLED for result in screen.run_.results)


async def test_logs_show_one_worker_tiles_and_all_merged(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        screen = await started(driven, "run train-a -- sh -c 'echo first; echo second from $(hostname)'")
        await ended(driven, screen)
        await driven.press("V", "l")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows("train-a/0/0 · ended", "first", "second from")
        await driven.press("plus")
        await driven.until(lambda: len(driven.app.screen.query(LogView)) == 2)
        await driven.press("plus")
        await driven.until(lambda: len(driven.app.screen.query(LogView)) == 4)
        await driven.shows("train-a/0/0", "train-a/0/3")
        await driven.press("right_square_bracket")
        await driven.shows("train-a/1/0")
        await driven.press("V")
        await driven.shows("all 8 workers", "train-a/1/3")


async def test_a_full_disk_here_is_told_of_a_run_that_ended_well_and_of_its_logs(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = WorkerLog._write

    def full(self: WorkerLog, data: bytes) -> None:
        if self.path.name.endswith("train-a.0.1.log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, data)

    monkeypatch.setattr(WorkerLog, "_write", full)
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        screen = await started(driven, "run train-a/0 -- echo said")
        await ended(driven, screen)
        await driven.shows("4 ok", "train-a/0/1: Output is not kept: No space left on device.")
        await driven.press("l")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows("! there are gaps · train-a/0/1: Output is not kept")


async def test_logs_of_a_request_are_those_of_its_newest_run_though_another_console_ran_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as before:
        screen = await started(before, "run train-a/0/0 -- echo said by the first")
        await ended(before, screen)
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "8/8", "old-d")
        driven.app.show_request("train-a")
        await driven.press("l")
        await driven.shows("said by the first", screen.run_.id)
        await driven.press("3")
        await driven.shows("said by the first", "queued resources › logs")
        driven.app.go()
        driven.app.show_request("old-d")
        await driven.press("l")
        await driven.until(lambda: "Nothing was run on old-d yet" in driven.toasts())


async def test_enter_on_a_run_of_which_nothing_has_ended_opens_its_logs(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await started(driven, "run train-a/0 -- sh -c 'echo begun; sleep 60'")
        await driven.shows("nothing has ended yet: 4 running")
        await driven.press("enter")
        await driven.shows("merged", "begun")
        await screen.run_.stop()
        await ended(driven, screen)


async def test_x_in_a_run_means_all_its_workers_until_one_of_them_is_pointed_at(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        screen = await started(driven, "run train-a/0 -- true")
        await ended(driven, screen)
        for keys, targets in ((("x",), "train-a/0/0-3"), (("V", "x"), "train-a/0/0")):
            await driven.press(*keys)
            await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen) and driven.app.screen.focused)
            form = driven.app.screen
            assert isinstance(form, RunFormScreen)
            assert form.texts()["targets"] == targets
            await driven.press("escape")
            await driven.until(lambda: isinstance(driven.app.screen, RunScreen))


async def test_hostile_output_never_reaches_the_screen_raw(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        command = r"printf '\033]52;c;aGk=\007[bold]x[/bold]\033[2J\302\233 end\n'"
        screen = await started(driven, "run train-a/0/0", command=command, shell="yes")
        await ended(driven, screen)
        await driven.shows("end", "[bold]x[/bold]")
        assert "\x1b" not in driven.text
        assert "\x9b" not in driven.text
        await driven.press("V", "l")
        await driven.shows("end", "[bold]x[/bold]")
        assert "\x1b" not in driven.text


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "200x60"])
async def test_workers_show_the_newest_run_and_tail_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await started(driven, "run train-a -- echo hello there")
        await ended(driven, screen)
        await driven.command("w train-a/1")
        await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
        await driven.shows("train-a/1/0", "READY", "ok", "hello there")
        assert "train-a/0/0" not in driven.text


async def test_the_list_of_runs_holds_ended_runs_of_another_session(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await ended(driven, await started(driven, "run train-a/0 -- echo kept for later"))
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.press("4")
        await driven.until(lambda: isinstance(driven.app.screen, RunsScreen))
        await driven.shows("4 ok", "echo kept for later")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows("kept for later", "train-a/0/0-3")


async def test_the_list_of_runs_shows_the_one_under_the_cursor_and_how_its_first_failure_ended(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await ended(driven, await started(driven, "run train-a/0 -- echo all is well"))
        await driven.press("1")
        command = "case $(hostname) in *w-2) echo it is broken; exit 7;; esac"
        await ended(driven, await started(driven, "run train-a", command=command, shell="yes"))
        await driven.press("4")
        await driven.shows("8 workers: train-a/0-1/0-3", "first failure: train-a/", "exit 7", "it is broken")
        await driven.press("j")
        await driven.shows("4 workers: train-a/0/0-3", "the last lines of train-a/0/0", "all is well")
        assert "it is broken" not in driven.text
        await driven.press("slash")
        await driven.write("no such run")
        await driven.press("enter")
        await driven.until(lambda: "the last lines" not in driven.text, "the detail to go with the last row")


async def test_a_read_only_console_runs_nothing(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    async with console(replace(context, read_only=True), tmp_path, monkeypatch) as driven:
        await driven.command("run train-a -- hostname")
        await driven.until(lambda: "read-only" in driven.toasts())
        assert not isinstance(driven.app.screen, RunFormScreen)
