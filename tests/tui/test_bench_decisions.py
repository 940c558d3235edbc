"""From the plan to the decision, in the console: meshes, preflight, sweep, comparison, and the plot of any run. No jax."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.bench.model import BenchRecord, StepPoint
from backend.bench.sweep import PointState
from backend.context import Context
from backend.runs.model import RunState
from jobs.accelerators import parse
from tests.simulator import SimulatorFactory
from tests.tui.cli.test_bench import kept
from tests.tui.driving import MEDIUM, SMALL, WIDE, console
from tests.tui.test_bench_screens import form
from tui.screens.bench import BenchScreen
from tui.screens.bench_compare import CompareScreen
from tui.screens.bench_fields import request_of
from tui.screens.bench_figures import NO_UTILISATION, NO_UTILISATION_CELL, series
from tui.screens.bench_form import BenchFormScreen
from tui.screens.benches import BenchesScreen
from tui.screens.benches import row as bench_row
from tui.screens.confirm import Ask, Question
from tui.screens.logs import LogsScreen
from tui.screens.meshes import MeshesScreen, predictions
from tui.screens.preflight import PYTHON_VARIABLE, PreflightScreen
from tui.screens.readings import ReadingsScreen
from tui.screens.run import RunScreen
from tui.screens.run_plot import FilePlotScreen, RunPlotScreen
from tui.screens.sweep import SweepScreen
from tui.screens.sweep_form import SweepFormScreen, sweep_lines
from tui.widgets.rows import Cell

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
SIZES = pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["80x24", "120x40"])
PROGRAM = """#!{python}
import json, os, sys, time
if sys.argv[1] == "-":
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
flags = dict(zip(sys.argv[3::2], sys.argv[4::2]))
rows = int(flags["--batch_size"])
print(json.dumps({{"device": {{"platform": "cpu"}}}}), flush=True)
for step in range(3 if rows < 1000 else 10**9):
    print(json.dumps({{"step": step, "step_time_s": 1 / rows, "tflops_per_device": float(rows)}}), flush=True)
    time.sleep(0.01)
"""
"""Stands for python3 on the workers: as fast as its batch is large; from 1000 rows on it never ends."""


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def python(tmp_path: Path) -> str:
    return executable(tmp_path / "python-of-workers", PROGRAM.format(python=sys.executable))


def small(screen: BenchFormScreen, **other: str) -> None:
    """Sizes that any mesh divides."""
    fields = {"batch_size": "16", "embedding_dimension": "64", "num_layers": "1", "steps": "3", **other}
    for name, value in fields.items():
        screen.line(name).value = value


@SIZES
async def test_the_plan_shows_all_legal_meshes_and_enter_takes_one_into_the_form(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await form(driven)
        small(screen, batch_size="131072", embedding_dimension="2048", num_layers="4")
        await driven.press("f4")
        await driven.until(lambda: isinstance(driven.app.screen, MeshesScreen))
        shown = driven.app.screen
        assert isinstance(shown, MeshesScreen)
        await driven.shows("TFLOP/S/DEV", "BOUND", "GIB/DEV", "these workers are CPUs", "predicted", "binds no more")
        expected, _ = predictions(parse("v5litepod-16"), 2, request_of(screen.texts()).model)
        assert shown.table.row_count == 45 == len(expected)
        await driven.press("j", "enter")
        await driven.until(lambda: driven.app.screen is screen)
        assert request_of(screen.texts()).mesh == expected[1].mesh


@SIZES
async def test_a_sweep_fills_its_table_marks_the_best_and_is_there_after_a_restart(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], python: str
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await form(driven)
        small(screen, python=python)
        await driven.press("f4")
        await driven.until(lambda: isinstance(driven.app.screen, MeshesScreen))
        await driven.press("space", "j", "space", "f6")
        await driven.until(lambda: isinstance(driven.app.screen, SweepFormScreen))
        asked = driven.app.screen
        assert isinstance(asked, SweepFormScreen)
        asked.line("batches").value = "16,x"
        await driven.shows("batches per device: '16,x' is no list")
        asked.line("batches").value = "16,64"
        asked.line("dimensions").value = "64,63"
        await driven.until(lambda: asked.sweep is not None and len(asked.sweep.points) == 8)
        assert asked.sweep is not None
        assert len(asked.sweep.left) == 4
        lines = sweep_lines(asked.sweep)
        assert lines[0].startswith("4 benchmarks")
        table = lines[1 : lines.index("")]
        assert sorted(line.split()[2] for line in table[1:]) == ["16", "16", "64", "64"]
        assert {len(line) for line in table} == {len(table[0])}, "the columns stand below each other"
        reasons = [line for line in lines if line.startswith("left out: ")]
        assert sum(int(line.split()[2]) for line in reasons) == 4
        assert all("--embedding_dimension 63" in line for line in reasons)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, SweepScreen))
        shown = driven.app.screen
        assert isinstance(shown, SweepScreen)
        await driven.until(lambda: not shown.running, "the end of the sweep")
        assert [point.state for point in shown.sweep.points] == [PointState.DONE] * 4 + [PointState.SKIPPED] * 4
        await driven.shows("4 done", "4 skipped", "best", "64 TFLOP/s", "25%")
        best = shown.sweep.best
        assert best is not None
        assert best.request.batch_size == 64
        assert shown.table.visible_rows[best.position].cells[5] == Cell("best " + "█" * 16, "plot-median", sort=1.0)
        await driven.press("end")
        await driven.shows("skipped: --embedding_dimension 63")
        store, identity = driven.app.require_tower().sweeps.store, shown.sweep.id
        shown.sweep.points[3].state, shown.sweep.points[3].bench = PointState.RUNNING, ""
        store.save(shown.sweep)
    async with console(context, tmp_path, monkeypatch, size=size) as again:
        await again.shows("train-a", "8/8")
        await again.press("5")
        await again.until(lambda: isinstance(again.app.screen, BenchesScreen))
        await again.press("w")
        await again.shows("Which sweep?", "3 done", "1 waiting")
        await again.press("enter")
        await again.until(lambda: isinstance(again.app.screen, SweepScreen))
        taken_up = again.app.screen
        assert isinstance(taken_up, SweepScreen)
        assert taken_up.sweep.id == identity
        await again.shows("a goes on with it")
        await again.press("a")
        await again.until(lambda: taken_up.sweep.points[3].state is PointState.DONE, "the point that was left")


async def test_each_request_of_a_sweep_is_asked_what_its_own_workers_are(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await form(driven)
        (train,) = driven.app.fleet.find("train-a")
        await driven.app.push_screen(SweepFormScreen(train, request_of(screen.texts()), "tpu"))
        await driven.until(lambda: isinstance(driven.app.screen, SweepFormScreen))
        asked = driven.app.screen
        assert isinstance(asked, SweepFormScreen)
        fleet = driven.app.fleet
        twin = replace(train, name="train-z")
        monkeypatch.setattr(
            type(fleet),
            "find",
            lambda own, name: [twin] if name == "train-z" else [train] if name == "train-a" else [],
        )
        asked.line("batches").value = "131072"
        asked.line("dimensions").value = "2048"
        asked.line("targets").value = "train-a train-z"
        await driven.until(lambda: asked.sweep is not None and asked.sweep.targets == ("train-a", "train-z"))
        assert asked.sweep is not None
        bounds = {point.target: point.at_most_tflops for point in asked.sweep.points if not point.note}
        assert bounds["train-a"] > 0, "it was said to be a TPU"
        assert bounds["train-z"] == 0, "its own workers said that they are CPUs"


async def test_a_sweep_is_stopped_with_what_is_left_kept(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await form(driven)
        small(screen, python=python, batch_size="2048")
        await driven.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, SweepFormScreen))
        await driven.shows("benchmarks one after another")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, SweepScreen))
        shown = driven.app.screen
        assert isinstance(shown, SweepScreen)
        benches = driven.app.require_tower().benches
        await driven.until(lambda: any(bench.points for bench in benches.active.values()), "its first step")
        await driven.press("S")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.press("1")
        await driven.until(lambda: not shown.running, "its end")
        await driven.shows("ended early: the operator stopped it", "a goes on with it")
        (bench,) = benches.active.values()
        assert bench.state.value == "stopped"


def measured(identity: str, rate: float, slices: int, minutes: int) -> BenchRecord:
    """A benchmark of the past with ten steps around a rate."""
    record = kept(identity, rate)
    points = tuple(
        StepPoint(step, 8, 60 / at, 60 / at, 60 / at, at, at, at)
        for step in range(10)
        for at in [rate * (0.99 if step % 2 else 1.01)]
    )
    at = datetime(2026, 11, 30, 12, tzinfo=UTC) + timedelta(minutes=minutes)
    return replace(record, slices=slices, devices=16 * slices, points=points, started_at=at)


@SIZES
async def test_marked_benchmarks_are_compared_with_their_noise_and_scaling(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        store = driven.app.require_tower().benches.store
        for record in (measured("one", 120.0, 1, 0), measured("two", 108.0, 2, 1), measured("near", 119.5, 1, 2)):
            store.save(record)
        await driven.press("5")
        await driven.shows("108")
        await driven.press("equals_sign")
        await driven.until(lambda: "two benchmarks or more" in driven.toasts())
        await driven.press("asterisk", "equals_sign")
        await driven.until(lambda: isinstance(driven.app.screen, CompareScreen))
        text = await driven.shows("3 runs", "the first", "slower", "same", "0.900", "NOISE", "2.0%")
        assert "weak scaling against linear from 1 slice" in text
        assert "1 slice " + "█" * 24 + " 100.0%  1920 TFLOP/s of 1920" in text
        assert "2 slices " + "█" * 22 + "░" * 2 + "  90.0%  3456 TFLOP/s of 3840" in text
        curves = text.split("ICI/DCN")[0]
        assert {"A", "B", "C"} <= {letter for line in curves.splitlines() for letter in line[-8:]}, (
            "named at their ends"
        )
        shown = driven.app.screen
        assert isinstance(shown, CompareScreen)
        assert [row.cells[0] for row in shown.table.visible_rows] == [
            Cell(letter, token=f"worker-{place}") for place, letter in enumerate("ABC", 1)
        ], "named and coloured as their curves"
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, BenchScreen))
        await driven.shows("steps by their time")


@SIZES
async def test_a_benchmark_is_kept_as_a_baseline_and_later_ones_are_held_against_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        store = driven.app.require_tower().benches.store
        store.save(measured("good", 120.0, 1, 0))
        await driven.press("5")
        await driven.shows("120")
        await driven.press("B")
        await driven.until(lambda: isinstance(driven.app.screen, Ask))
        await driven.press("ctrl+u")
        await driven.write("release")
        await driven.press("enter")
        await driven.until(lambda: "Saved as baseline release" in driven.toasts())
        assert store.baseline("release").id == "good"
        for record in (measured("later", 100.0, 1, 9), measured("noisy", 119.0, 1, 8)):
            store.save(record)
        driven.app.pop_screen()
        await driven.press("5", "home")
        await driven.shows("119")
        await driven.press("equals_sign")
        await driven.shows("Compare with which baseline?", "release: train-a")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, CompareScreen))
        await driven.shows("baseline", "slower", "later is 16.7% slower than good; the noise is 2.0%")
        driven.app.pop_screen()
        await driven.press("j", "equals_sign", "enter")
        await driven.until(lambda: isinstance(driven.app.screen, CompareScreen))
        text = await driven.shows("baseline", "same")
        assert "slower" not in text, "within the noise"


def preflight_child(folder: Path, body: str) -> str:
    return executable(folder / "preflight-python", f"#!/bin/sh\necho $$ > {folder}/pid\n{body}\n")


VERSIONS = """echo '{"versions":{"jax":"1.2.3","libtpu":"4.5.6"}}'"""


def compiled(folder: Path) -> str:
    """A child that says of every batch that it takes 13.7 GB."""
    told: Mapping[str, object] = {
        "fits": True,
        "argument_bytes": 5_000_000_000,
        "output_bytes": 1_000_000_000,
        "temp_bytes": 7_700_000_000,
        "compiler_flops": 9e13,
        "bytes_accessed": 1e11,
        "sent": [{"network": "DCN", "kind": "all-reduce", "ways": 2, "count": 8, "bytes": 5e7}],
        "unread": [],
        "compile_s": 31.0,
    }
    rest = json.dumps(told)[1:]
    say = f"""echo '{{"progress":"compiling a batch"}}'; echo '{{"compiled":{{"batch_size":'$size', {rest}}}'"""
    return preflight_child(folder, f"{VERSIONS}\nwhile read size; do {say}; done")


@SIZES
async def test_a_preflight_shows_its_progress_and_the_numbers(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, compiled(tmp_path))
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await form(driven)
        small(screen, batch_size="131072", embedding_dimension="2048", num_layers="4")
        await driven.press("f5")
        await driven.until(lambda: isinstance(driven.app.screen, PreflightScreen))
        shown = driven.app.screen
        assert isinstance(shown, PreflightScreen)
        await driven.until(lambda: shown.report is not None, "the report")
        await driven.shows("compiling a batch")
        page = shown.page_text()
        for words in (
            "13.70 GB, 12.76 of 15.75 GiB",
            "v5e:4x4",
            "jax 1.2.3",
            "bound by",
            "all-reduce",
            "50.000",
            "largest batch",
        ):
            assert words in page
        await driven.press("escape")
        await driven.until(lambda: driven.app.screen is screen)
        assert "cancelled" not in driven.toasts()
        screen.line("ici_fsdp_parallelism").value = "8"
        await driven.press("f5")
        await driven.until(lambda: "multiply to 8" in driven.toasts())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_escape_cancels_a_preflight_and_its_process_is_gone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"""{VERSIONS}; echo '{{"progress":"lowering for a long time"}}'; exec cat > /dev/null"""
    monkeypatch.setenv(PYTHON_VARIABLE, preflight_child(tmp_path, body))
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await form(driven)
        await driven.press("f5")
        await driven.shows("lowering for a long time", "esc cancels it")
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        await driven.press("escape")
        await driven.until(lambda: driven.app.screen is screen and "cancelled" in driven.toasts())
        await driven.until(lambda: not alive(pid), "the end of the child")


async def test_without_the_extra_a_sentence_says_how_to_get_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = preflight_child(tmp_path, """echo '{"versions":{"jax":"1","libtpu":""}}'; cat""")
    monkeypatch.setenv(PYTHON_VARIABLE, lacking)
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await form(driven)
        await driven.press("f5")
        await driven.shows("The preflight needs libtpu", "slicetower[preflight]", PYTHON_VARIABLE)


@SIZES
async def test_any_run_is_plotted_from_what_it_printed_also_afterwards(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    log = LOGS / "maxtext_classic.log"
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command(f"run train-a/0 -- cat {log}")
        await driven.shows("ctrl+r")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, RunScreen), "the run")
        screen = driven.app.screen
        assert isinstance(screen, RunScreen)
        await driven.until(lambda: screen.run_.state is RunState.ENDED, "its end")
        await driven.press("P")
        await driven.until(lambda: isinstance(driven.app.screen, RunPlotScreen))
        await driven.shows("cat ", "median", "TFLOP/s a device")
        shown = driven.app.screen
        assert isinstance(shown, RunPlotScreen)
        record = shown.record()
        assert [point.step for point in record.points] == list(range(10))
        page = shown.page_text()
        assert NO_UTILISATION in page
        assert "slicetower bench" not in page, "a run that is no benchmark has no command of one"
        await driven.press("v")
        await driven.until(lambda: isinstance(driven.app.screen, ReadingsScreen))
        await driven.shows("the median of", "RATE/DEVICE", "first step", "completed step: 0")
        await driven.press("j", "j", "j", "j", "j", "j", "j", "j")
        text = await driven.shows("line ", "completed step: 2, seconds:")
        assert "5.658" in text.split("completed step")[0], "the table has the figure of the line"
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, LogsScreen))
        await driven.shows("completed step: 2, seconds:")
        await driven.press("escape", "escape")
        await driven.until(lambda: driven.app.screen is shown)
        await driven.command(r"plot -- seconds: (?P<seconds>[\d.]+)")
        await driven.until(lambda: "read by the pattern" in shown.page_text())
        assert len(shown.record().points) == 10, "lines without a step are counted"
        await driven.command("plot -- (")
        await driven.until(lambda: "pattern cannot be used" in driven.toasts())
    async with console(context, tmp_path, monkeypatch, size=size) as again:
        await again.press("4")
        await again.shows("4 ok", "cat ")
        await again.press("P")
        await again.until(lambda: isinstance(again.app.screen, RunPlotScreen))
        await again.shows("median", "TFLOP/s a device")
        await again.command(f"plot {LOGS / 'tqdm_carriage_return.log'}")
        await again.until(lambda: isinstance(again.app.screen, FilePlotScreen))
        await again.shows("tqdm_carriage_return", "steps a second")
        await again.command("plot /nowhere/at/all")
        await again.until(lambda: "can't be read" in again.toasts())


def test_no_utilisation_is_drawn_or_listed_for_a_cpu() -> None:
    record = replace(
        measured("a", 0.0005, 1, 0), platform="cpu", peak_tflops_per_device=197.0, predicted_tflops_per_device=150.0
    )
    record = replace(record, summary=replace(record.summary, mfu=0.0))
    drawn = series(record, record.points)
    assert (drawn.peak, drawn.prediction) == (None, None)
    texts = [cell.text if isinstance(cell, Cell) else cell for cell in bench_row(record).cells]
    assert NO_UTILISATION_CELL in texts
    assert not any("%" in text for text in texts)


async def test_a_cpus_benchmark_says_in_the_list_why_there_is_no_utilisation(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        record = replace(measured("a", 0.0005, 1, 0), platform="cpu", peak_tflops_per_device=197.0)
        driven.app.require_tower().benches.store.save(record)
        await driven.press("5")
        text = await driven.shows(NO_UTILISATION_CELL, "median")
        assert "% of the peak" not in text
