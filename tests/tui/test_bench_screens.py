"""The benchmark from the form to the plot, on real multi-process JAX; and what is refused before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from backend.bench.model import BenchRecord, BenchState, StepPoint
from backend.context import Context
from jobs.statistics import rate_words
from tests.simulator import SimulatorFactory
from tests.tui.cli.test_bench import kept
from tests.tui.driving import MEDIUM, SMALL, Console, console
from tui.screens.bench import BenchScreen
from tui.screens.bench_fields import AXES, mesh_texts, request_of
from tui.screens.bench_figures import NO_UTILISATION, beside, figures, series, series_of
from tui.screens.bench_form import BenchFormScreen
from tui.screens.benches import BenchesScreen

SIZES = {"batch_size": "16", "embedding_dimension": "64", "num_layers": "1", "steps": "4", "warmup": "1"}
LONG_S = 150.0


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def form(driven: Console) -> BenchFormScreen:
    """The form on train-a, when the workers have answered."""
    await driven.shows("train-a", "8/8")
    await driven.command("bench train-a")
    await driven.until(lambda: isinstance(driven.app.screen, BenchFormScreen))
    screen = driven.app.screen
    assert isinstance(screen, BenchFormScreen)
    await driven.until(lambda: screen.plan is not None and screen.plan.survey, "the workers' answers")
    return screen


@pytest.mark.parametrize("size", [SMALL, MEDIUM], ids=["80x24", "120x40"])
async def test_the_form_begins_legal_and_judges_axes_while_they_are_typed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        screen = await form(driven)
        assert screen.plan is not None
        assert screen.plan.refusals == ()
        await driven.shows("32 devices on 8 workers")
        screen.line("ici_fsdp_parallelism").value = "8"
        await driven.shows("refused:", "1x8x1", "multiply", "16 chips")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was sent" in driven.toasts())
        assert not driven.app.require_tower().benches.active
        await driven.press("f3")
        await driven.until(lambda: screen.plan is not None and not screen.plan.refusals)


async def test_nothing_is_launched_before_the_workers_have_answered(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("bench train-a")
        await driven.until(lambda: isinstance(driven.app.screen, BenchFormScreen))
        screen = driven.app.screen
        assert isinstance(screen, BenchFormScreen)
        screen._asking = True
        screen.check()
        assert "32 devices" not in driven.text
        await driven.press("ctrl+r")
        await driven.until(lambda: "have not answered yet" in driven.toasts())
        assert not driven.app.require_tower().benches.active


async def test_a_field_that_is_no_number_is_named(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await form(driven)
        screen.line("steps").value = "ten"
        await driven.shows("steps: 'ten' is no whole number")


async def test_throughput_is_drawn_while_it_runs_and_kept_in_the_list(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        screen = await form(driven)
        for name, value in SIZES.items():
            screen.line(name).value = value
        await driven.until(lambda: screen.plan is not None and not screen.plan.refusals)
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, BenchScreen), "the benchmark")
        shown = driven.app.screen
        assert isinstance(shown, BenchScreen)
        bench = shown.bench
        assert bench is not None
        await driven.until(lambda: bench.state.is_over, "its end", wait_s=LONG_S)
        assert bench.state is BenchState.DONE, bench.errors
        text = await driven.shows("step time", "FLOP/s a device", "--dcn_data_parallelism 2", "simulated")
        assert NO_UTILISATION in "\n".join(shown.lines_of(bench.record, 80))
        assert "% of" not in text
        await driven.press("5")
        await driven.until(lambda: isinstance(driven.app.screen, BenchesScreen))
        await driven.shows("done", "2 x v5litepod-16", "1x16x1/2x1x1", "ICI fsdp 16, DCN data 2")
        assert "%" not in driven.text, "no utilisation is told for a CPU"
        await driven.press("enter")
        await driven.shows("step time")
        drawn = series(bench.record, bench.points)
        assert len(drawn.median) == len(drawn.steps) >= 4
        assert any("step time" in line for line in figures(bench.record))


def test_the_axes_of_a_mesh_are_written_into_the_right_fields() -> None:
    from jobs.meshes import Axes, Mesh

    texts = mesh_texts(Mesh(Axes(data=2, fsdp=4, tensor=8), Axes(data=3)))
    assert texts["ici_tensor_parallelism"] == "8"
    assert texts["dcn_data_parallelism"] == "3"
    assert set(texts) == set(AXES)
    numbers = {**dict.fromkeys(SIZES, "1"), **texts, "port": "8476"}
    assert request_of(numbers).mesh == Mesh(Axes(2, 4, 8), Axes(3))


@pytest.mark.parametrize(
    ("tflops", "words"), [(151.23, "151.2 TFLOP/s"), (0.000332, "0.332 GFLOP/s"), (5e-6, "5 MFLOP/s")]
)
def test_rates_are_readable_numbers_in_a_unit_of_their_size(tflops: float, words: str) -> None:
    assert rate_words(tflops) == words


def test_texts_stand_beside_each_other_where_there_is_room() -> None:
    left, right = ["step time  1 s", "a device"], ["steps by their time", "  a", "  b"]
    assert beside(left, right, 80) == [
        "step time  1 s    steps by their time",
        "a device            a",
        "                    b",
    ]
    assert beside(left, right, 30) == [*left, "", *right]
    assert beside(left, [], 80) == left


def rated(identity: str, *rates: float | None) -> BenchRecord:
    points = tuple(StepPoint(step, 1, 0.5, 0.5, 0.5, rate, rate, rate) for step, rate in enumerate(rates))
    return replace(kept(identity, 1.0), points=points)


def test_curves_on_the_same_axes_are_in_the_same_unit() -> None:
    slow, fast = rated("slow", 0.00006, 0.00007), rated("fast", 0.0024, 0.0025)
    drawn = series_of([slow, fast], ["slow", "fast"])
    assert [each.unit for each in drawn] == ["GFLOP/s a device"] * 2
    assert list(drawn[0].median) == pytest.approx([0.06, 0.07])
    assert list(drawn[1].median) == pytest.approx([2.4, 2.5])
    unrated = series_of([fast, rated("untold", None, None)], ["fast", "untold"])
    assert [each.unit for each in unrated] == ["steps a second"] * 2
    assert list(unrated[0].median) == [2.0, 2.0]
    assert series_of([slow], ["slow"])[0].unit == "MFLOP/s a device"
    begun = series_of([fast, rated("begun")], ["fast", "begun"])
    assert begun[0].unit == "GFLOP/s a device", "one that has no step yet says nothing of what it will tell"


async def test_curves_have_the_letters_in_the_list_that_they_have_beside_each_other(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        store = driven.app.require_tower().benches.store
        old = rated("older", 1.0, 2.0)
        new = replace(rated("newer", 3.0, 4.0), target="train-n", started_at=old.started_at + timedelta(hours=1))
        for each in (new, old):
            store.save(each)
        await driven.press("5")
        await driven.shows("train-n")
        await driven.press("asterisk")
        await driven.shows(f"A {old.target}", "B train-n")
        await driven.press("equals_sign")
        await driven.shows("OF A", f"A {old.target}", "B train-n")
