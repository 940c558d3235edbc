"""The plot: lines that were found good, decimation that loses no peak, and the same figures in words."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.widgets.golden import assert_golden
from tests.tui.widgets.harness import WidgetApp, seen
from tui.glyphs import ASCII
from tui.look import PLAIN, Look
from tui.widgets.plot_canvas import Canvas, Marker, decimate, finite_points, number_text, ticks
from tui.widgets.plot_draw import plot_lines
from tui.widgets.plot_words import plot_words
from tui.widgets.throughput_plot import PlotSeries, ThroughputPlot


def bench(steps: int = 120, *, peak: float | None = 197, prediction: float | None = 150) -> PlotSeries:
    """A run with ten steps of warm-up, a slow wave and one dip at step 70."""
    median = [
        40.0 + step * 8 if step < 10 else 143 + 2 * math.sin(step / 5) - (25 if step == 70 else 0)
        for step in range(steps)
    ]
    return PlotSeries(
        "fsdp=16 x data=2",
        "TFLOP/s per device",
        list(range(steps)),
        median,
        [value - 6 - step % 3 for step, value in enumerate(median)],
        [value + 4 for value in median],
        warmup=10,
        peak=peak,
        prediction=prediction,
        label="simulated",
    )


@pytest.mark.parametrize("marker", ["braille", "block", "ascii"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_golden(width: int, height: int, marker: Marker) -> None:
    look = Look(glyphs=ASCII) if marker == "ascii" else PLAIN
    strips = plot_lines([bench()], width, height, look, marker=marker)
    assert [strip.cell_length for strip in strips] == [width] * height
    assert_golden(f"plot-{marker}-{width}x{height}", strips)
    if marker == "ascii":
        assert "".join(strip.text for strip in strips).isascii()


def test_golden_comparison() -> None:
    other = PlotSeries("fsdp=32", "TFLOP/s per device", list(range(60)), [120 + step / 10 for step in range(60)])
    assert_golden("plot-compare-80x24", plot_lines([bench(), other], 80, 24, PLAIN))


def test_words_that_a_table_tells_leave_their_lines_to_the_curves() -> None:
    several = [bench() for _ in range(4)]
    crowded = "\n".join(strip.text for strip in plot_lines(several, 80, 12, PLAIN, told=True))
    assert "median" not in crowded
    assert all(letter in crowded for letter in "ABCD")
    assert "median" in "\n".join(strip.text for strip in plot_lines(several, 80, 40, PLAIN, told=True))
    assert "median" in "\n".join(strip.text for strip in plot_lines(several, 80, 12, PLAIN))
    assert "median" in "\n".join(strip.text for strip in plot_lines(several[:1], 80, 8, PLAIN, told=True))


def test_a_plot_of_nothing_and_of_one_point() -> None:
    empty = PlotSeries("x", "u", [], [])
    assert plot_lines([], 40, 8, PLAIN)[0].text.rstrip() == "no figures yet"
    assert "no step that counts yet" in plot_lines([empty], 40, 8, PLAIN)[0].text
    lines = [strip.text.rstrip() for strip in plot_lines([PlotSeries("x", "u", [7], [3.5])], 40, 10, PLAIN)]
    assert any("step 7" in line for line in lines)
    assert "median 3.5 u over 1 step" in lines


def test_too_small_for_dots_still_has_the_words() -> None:
    text = "\n".join(strip.text for strip in plot_lines([bench()], 30, 5, PLAIN))
    assert "median" in text
    assert "┤" not in text


def test_warm_up_has_no_say_in_the_scale_and_is_greyed() -> None:
    look = Look({"plot-warmup": "#111111", "plot-median": "#222222"})
    strips = plot_lines([bench(peak=None, prediction=None)], 80, 24, look)
    labels = [line[:4].strip() for line in (strip.text for strip in strips) if "┤" in line]
    assert all(float(label) > 100 for label in labels)
    colors = {
        segment.style.color.name: segment.text
        for strip in strips
        for segment in strip
        if segment.style and segment.style.color
    }
    assert {"#111111", "#222222"} <= set(colors)


def test_a_peak_far_away_is_told_in_words_and_does_not_flatten_the_curve() -> None:
    text = "\n".join(strip.text for strip in plot_lines([bench(peak=2000)], 80, 24, PLAIN))
    assert "╌" not in text
    assert "7.1 % of the peak 2,000" in text


def test_more_than_the_peak_is_called_impossible() -> None:
    words = dict(plot_words(bench(peak=100)))
    assert any("impossible" in text and token == "log-error" for text, token in words.items())


def test_nothing_is_said_of_workers_where_one_told_it_all() -> None:
    values = [1.0, 2.0, 3.0]
    alone = PlotSeries("x", "u", [1, 2, 3], values, values, values)
    assert not any("workers" in text for text, _ in plot_words(alone))
    several = PlotSeries("x", "u", [1, 2, 3], values, [0.5, 2.0, 3.0], values)
    assert any("workers between 0.5 and 3" in text for text, _ in plot_words(several))


def test_words_leave_out_what_is_not_known() -> None:
    series = PlotSeries("x", "u", [1, 2, 3], [1.0, math.nan, 3.0])
    assert [text for text, _ in plot_words(series)] == ["median 2 u over 2 steps", "steps between 1 and 3"]


floats = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300)


@given(floats, st.integers(1, 60), st.integers(1, 5))
def test_decimation_keeps_every_least_and_greatest(values: list[float], columns: int, stride: int) -> None:
    steps = [stride * index for index in range(len(values))]
    buckets = decimate(steps, values, steps[0], steps[-1], columns)
    assert len(buckets) <= columns
    assert min(bucket.low for bucket in buckets) == min(values)
    assert max(bucket.high for bucket in buckets) == max(values)
    assert buckets[0].first == values[0]
    assert buckets[-1].last == values[-1]
    assert all(before.column < after.column for before, after in pairwise(buckets))
    assert all(0 <= bucket.column < columns for bucket in buckets)
    assert all(bucket.low <= min(bucket.first, bucket.last) for bucket in buckets)


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(allow_nan=True)), max_size=60), st.sampled_from([30, 80]))
def test_whatever_comes_there_are_lines_of_that_size(points: list[tuple[int, float]], width: int) -> None:
    series = PlotSeries("x", "u", [step for step, _ in points], [value for _, value in points], warmup=2)
    strips = plot_lines([series], width, 16, PLAIN)
    assert [strip.cell_length for strip in strips] == [width] * 16


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_are_few_and_within(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert 1 <= len(found) <= most
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (143.21, "143.2"), (0.5, "0.5"), (1234.5, "1,234"), (12.3456, "12.35"), (2e7, "2e+07"), (-3.0, "-3")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text


def test_points_out_of_order_are_put_in_order() -> None:
    assert finite_points([3, 1, 2], [30.0, 10.0, math.inf]) == ([1, 3], [10.0, 30.0])


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-310, -1e-310, 1e299, -7.0])
def test_a_flat_curve_at_the_edge_of_floats_is_drawn(value: float) -> None:
    strips = plot_lines([PlotSeries("x", "u", [1, 2, 3], [value] * 3)], 60, 16, PLAIN)
    assert any(set(strip.text) & set("⠤⣀⠒⠉⠁⢀⡀⠂⠄⠐⠠⠈") for strip in strips)


def test_a_line_has_no_holes() -> None:
    canvas = Canvas(10, 5, "ascii")
    canvas.line(0, 0, 9, 4, "x")
    assert all(any(canvas.cell(column, row)[0] == "*" for row in range(5)) for column in range(1, 10))


async def test_the_widget_redraws_when_figures_come_and_says_them_in_words() -> None:
    plot = ThroughputPlot()
    async with WidgetApp(plot).run_test(size=(80, 24)) as pilot:
        assert "no figures yet" in seen(plot)[0]
        plot.set_series([bench()])
        await pilot.pause()
        first = seen(plot)
        assert "simulated" in first[0]
        assert "median 142.9" in plot.summary
    with pytest.raises(ValueError, match="use braille, block, ascii"):
        ThroughputPlot(marker="dots")
    block = ThroughputPlot(marker="block")
    async with WidgetApp(block).run_test(size=(80, 24)) as pilot:
        block.set_series([bench()])
        await pilot.pause()
        assert seen(block) != first
