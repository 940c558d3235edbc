"""A benchmark's figures as lines, words and a series to draw. Pure: the same record, the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len

from jobs.statistics import histogram, rate_unit, rate_words
from tui.widgets.rows import Column
from tui.widgets.throughput_plot import PlotSeries

if TYPE_CHECKING:
    from backend.bench.model import BenchRecord, StepPoint

LABEL_WIDTH = 17
BETWEEN = 4
"""Cells between two texts beside each other."""
HISTOGRAM_WIDTH = 16
"""Cells of the longest bar."""
MESH = Column("mesh", "ICI/DCN DxFxT", min_width=13, max_width=20, hint="Ways of data, fsdp and tensor, never cut.")
AXES = Column("axes", "AXES", min_width=26, max_width=48, flex=1, priority=0)
"""The same in words: where there is room, at the right."""
CPU = "cpu"
NO_UTILISATION = "no MFU for a CPU"
NO_UTILISATION_CELL = "- (CPU)"
"""The same in a table, where the mesh needs the width."""


def series_of(records: Sequence[BenchRecord], titles: Sequence[str], label: str = "") -> list[PlotSeries]:
    """Several on the same axes, so all in one unit: steps a second when one of them has steps but tells no rate."""
    highest = [
        max((point.tflops_per_device for point in each.points if point.tflops_per_device is not None), default=None)
        for each in records
    ]
    rates = [each for each in highest if each is not None]
    stepped = sum(bool(each.points) for each in records)
    common = max(rates) if rates and len(rates) == stepped else 0.0
    return [
        series(each, each.points, title=title, label=label, greatest=common)
        for each, title in zip(records, titles, strict=True)
    ]


def series(
    record: BenchRecord,
    points: Sequence[StepPoint],
    *,
    title: str = "",
    label: str = "",
    greatest: float | None = None,
) -> PlotSeries:
    """What the plot draws: TFLOP/s where the program tells it, else steps a second.

    Args:
        greatest: The highest rate on the same axes, which gives the unit; 0: steps a second. Its own when left out.
    """
    rated = [point for point in points if point.tflops_per_device is not None] if greatest != 0.0 else []
    warmup = 0
    for point in points:
        if not point.set_aside:
            break
        warmup += 1
    if rated:
        cpu = record.platform == CPU
        peak = None if cpu else record.peak_tflops_per_device
        prediction = None if cpu else record.predicted_tflops_per_device
        unit, scale = rate_unit(greatest or max(point.tflops_per_device or 0.0 for point in rated))
        return PlotSeries(
            title=title or record.request.mesh.words(),
            unit=f"{unit} a device",
            steps=[point.step for point in rated],
            median=[(point.tflops_per_device or 0.0) * scale for point in rated],
            low=[(point.tflops_low or 0.0) * scale for point in rated],
            high=[(point.tflops_high or 0.0) * scale for point in rated],
            warmup=warmup,
            peak=peak * scale if peak is not None else None,
            prediction=prediction * scale if prediction is not None else None,
            label=label,
        )
    timed = [point for point in points if point.step_time_s > 0]
    return PlotSeries(
        title=title or record.request.title or record.target,
        unit="steps a second",
        steps=[point.step for point in timed],
        median=[1 / point.step_time_s for point in timed],
        low=[1 / point.step_time_high_s for point in timed],
        high=[1 / point.step_time_low_s for point in timed],
        warmup=warmup,
        label=label,
    )


def utilisation_words(record: BenchRecord) -> str:
    """`61.2%`, or why there is none; empty before anything was measured."""
    summary = record.summary
    if summary.tflops_per_device is None:
        return ""
    if record.platform == CPU:
        return NO_UTILISATION
    return f"{summary.mfu:.1%}" if summary.mfu is not None else ""


def histogram_lines(points: Sequence[StepPoint], bar: str) -> list[str]:
    """How often steps took how long, those that were set aside left out: bars with their counts beside them.

    Args:
        bar: One cell of a bar.
    """
    bins = histogram(point.step_time_s for point in points if not point.set_aside and point.step_time_s > 0)
    if len(bins) < 2:
        return []
    highest = max(each.count for each in bins)
    lines = ["steps by their time"]
    for each in bins:
        length = max(round(each.count / highest * HISTOGRAM_WIDTH), 1 if each.count else 0)
        lines.append(f"  {each.low:.4g} to {each.high:.4g} s".ljust(25) + f" {bar * length} {each.count}")
    return lines


def beside(left: Sequence[str], right: Sequence[str], width: int) -> list[str]:
    """Two texts beside each other, where `width` cells have room for both; else one below the other."""
    if not right:
        return list(left)
    edge = max(map(cell_len, left), default=0) + BETWEEN
    if edge + max(map(cell_len, right)) > width:
        return [*left, "", *right]
    pairs = zip_longest(left, right, fillvalue="")
    return [f"{one}{' ' * (edge - cell_len(one))}{other}".rstrip() for one, other in pairs]


def last_words(points: Sequence[StepPoint]) -> str:
    """The newest step in words; empty before there is one."""
    if not points:
        return ""
    last = points[-1]
    text = f"step {last.step}: {last.step_time_s:.4g} s"
    if last.tflops_per_device is not None:
        text += f", {rate_words(last.tflops_per_device)} a device"
    return f"{text}, set aside: {last.set_aside}" if last.set_aside else text


def figures(record: BenchRecord) -> list[str]:
    """Every figure of a benchmark's summary on its own line; what was not measured is left out."""
    summary = record.summary
    lines: list[str] = []

    def tell(label: str, text: str | None) -> None:
        if text is not None:
            lines.append(f"{label:<{LABEL_WIDTH}} {text}")

    def between(low: float | None, high: float | None, unit: str, scale: float = 1.0) -> str | None:
        return f"{low * scale:.4g} to {high * scale:.4g} {unit}" if low is not None and high is not None else None

    def seconds(value: float) -> str:
        return f"{value:.4g} s"

    def told(value: float | None, word: Callable[[float], str]) -> str | None:
        return word(value) if value is not None else None

    tell("step time", told(summary.step_time_s, seconds))
    tell("  p10 to p90", between(summary.step_time_p10_s, summary.step_time_p90_s, "s"))
    tell("a device", told(summary.tflops_per_device, rate_words))
    tell("  p10 to p90", between(summary.tflops_p10, summary.tflops_p90, *rate_unit(summary.tflops_p90 or 0.0)))
    tell("  upstream counts", told(summary.claimed_tflops_per_device, rate_words))
    tell("all devices", told(summary.tflops_total, rate_words))
    tell("of peak (MFU)", utilisation_words(record) or None)
    tell("exposed comms", told(summary.exposed_communication, lambda value: f"{value:.0%}"))
    tell("compile", told(summary.compile_s, seconds))
    if summary.slowest_worker and summary.slowest_ratio is not None:
        tell("slowest worker", f"{summary.slowest_worker}, {summary.slowest_ratio:.3g} x median")
    if summary.hbm_peak_bytes:
        limit = f" of {summary.hbm_limit_bytes / 2**30:.1f}" if summary.hbm_limit_bytes else ""
        tell("HBM in use", f"{summary.hbm_peak_bytes / 2**30:.1f}{limit} GiB")
    if summary.set_aside:
        aside = ", ".join(f"{number} {why}" for why, number in summary.set_aside.items())
        tell("set aside", aside)
    if summary.error:
        lines.append(summary.error)
    return lines
