"""What a key asks beyond its usual way: more grace, unknown outcomes, some slices, another peak; an operation in full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.outcomes import OperatorError, Outcome
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, console
from tests.tui.fixed import facts
from tests.tui.fixed.scenes import keys, run_of
from tests.tui.fixed.world import fixed_console
from tui.command_line import parse
from tui.lines import _peak
from tui.screens.bench import BenchScreen
from tui.screens.confirm import Ask, Question, TypedConfirmation
from tui.screens.describe import DescribeScreen
from tui.screens.logs import LogsScreen
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.run_plot import FilePlotScreen
from tui.screens.run_questions import read_grace
from tui.version import version

LOG = "tests/fixtures/logs/maxtext_classic.log"


async def test_a_run_is_stopped_with_the_grace_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        asked: list[float] = []
        await run_of(driven, facts.LIVE_ID)
        run = driven.app.live_runs()[0]

        async def stop(grace_s: float = 0.0) -> object:
            asked.append(grace_s)
            raise OperatorError("Nobody is reached from here.")

        monkeypatch.setattr(run, "stop", stop)
        await driven.press("S")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("KILL 3 s later", "With more grace")
        await driven.press("2")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("ctrl+u")
        await driven.write("soon")
        await driven.press("enter")
        await driven.shows("'soon'")
        await driven.press("ctrl+u")
        await driven.write("2m")
        await driven.press("enter")
        await driven.until(lambda: asked == [120.0])
        await driven.press("S")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.press("1")
        await driven.until(lambda: asked == [120.0, 3.0])


def test_a_grace_longer_than_an_hour_is_refused() -> None:
    assert read_grace("45") == 45.0
    with pytest.raises(OperatorError, match="hour"):
        read_grace("2h")


@pytest.mark.parametrize("takes_unknown", [False, True])
async def test_a_retry_takes_what_was_not_started_and_asks_about_unknown_outcomes(
    takes_unknown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        await run_of(driven, facts.RUN_ID)
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        run = screen.run_
        for result in run.results:
            result.outcome = Outcome.OK
        run.results[1].outcome = Outcome.FAILED
        run.results[2].outcome = Outcome.UNKNOWN
        run.results[3].outcome = Outcome.NOT_STARTED
        await driven.press("R")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("unknown on 1 worker: train-a/0/2", "may have run there")
        await driven.press("2" if takes_unknown else "1")
        await driven.until(lambda: isinstance(driven.app.screen, RunFormScreen))
        form = driven.app.screen
        assert isinstance(form, RunFormScreen)
        wanted = "train-a/0/1-3" if takes_unknown else "train-a/0/1,3"
        assert form.texts()["targets"] == wanted


async def test_the_maintenance_of_some_slices_is_started(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "maintenance", "train-a")
    async with console(simulator.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a", "maintenance of")
        driven.app.show_request("train-a")
        await driven.press("M")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("ctrl+u")
        await driven.write("0,7")
        await driven.press("enter")
        await driven.shows("Slice 7 cannot be started")
        await driven.press("ctrl+u")
        await driven.write("1")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
        await driven.shows("left alone", "starts now", "4 workers will be gone")
        await driven.write("train-a")
        await driven.press("enter")
        tower = driven.app.require_tower()
        await driven.until(
            lambda: any("started the maintenance of 1 slice" in event.text for event in tower.journal.events())
        )


async def test_an_operation_is_shown_in_full_with_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        await keys("8")(driven)
        await driven.shows("create")
        await driven.press("home", "enter")
        await driven.until(lambda: isinstance(driven.app.screen, DescribeScreen))
        await driven.shows("cancel_requested", facts.OPERATIONS[0].name)
        await driven.press("g")
        await driven.shows("curl", "/operations/")


async def test_a_plotted_log_takes_a_peak_or_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        await driven.shows("train-a")
        await driven.command(f"plot {LOG} type=v9")
        await driven.until(lambda: "v9" in driven.toasts())
        await driven.command(f"plot {LOG} peak=459")
        await driven.until(lambda: isinstance(driven.app.screen, FilePlotScreen))
        await driven.shows("over 8 steps", "MFU")


def test_a_peak_is_a_rate_or_of_a_type() -> None:
    assert _peak([]) is None
    assert _peak(["peak=197.5"]) == 197.5
    assert _peak(["type=v5litepod-16"]) == 197.0
    for word in ("peak=0", "peak=fast", "type=v9-8"):
        with pytest.raises(OperatorError):
            _peak([word])
    line = parse("plot a.log peak=3 -- step (?P<step>.*)")
    assert line is not None
    assert (line.targets, line.rest) == (("a.log", "peak=3"), "step (?P<step>.*)")


async def test_the_help_says_which_release_this_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        await driven.shows("train-a")
        await driven.press("question_mark")
        await driven.settle()
        assert driven.app.screen.page_text().rstrip().endswith(version())  # type: ignore[attr-defined]


async def test_any_run_is_shown_and_its_logs_opened_by_a_part_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        await driven.shows("train-a")
        await driven.command(f"show {facts.RUN_ID[-4:]}")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows(facts.RUN_ID, "first failure")
        await driven.command(f"show {facts.BENCH_ID}")
        await driven.until(lambda: isinstance(driven.app.screen, BenchScreen))
        await driven.command(f"logs {facts.RUN_ID}")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows(facts.RUN_ID, "devices: looking")
        await driven.command("show")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen))
        await driven.shows(facts.LIVE_ID)
        for line in ("show nothing", "logs nothing"):
            driven.told.clear()
            await driven.command(line)
            await driven.until(lambda: "'nothing'" in driven.toasts())
