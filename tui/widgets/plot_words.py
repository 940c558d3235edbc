"""The plot's figures in words: whoever can't see the dots reads the same."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Protocol

from tui.widgets.plot_canvas import finite_points, number_text


class SeriesLike(Protocol):
    """What the words are made of (`throughput_plot.PlotSeries`)."""

    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def steps(self) -> Sequence[int]: ...
    @property
    def median(self) -> Sequence[float]: ...
    @property
    def low(self) -> Sequence[float]: ...
    @property
    def high(self) -> Sequence[float]: ...
    @property
    def warmup(self) -> int: ...
    @property
    def peak(self) -> float | None: ...
    @property
    def prediction(self) -> float | None: ...
    @property
    def label(self) -> str: ...


def counted(series: SeriesLike) -> list[float]:
    """The medians that count: after the warm-up, and numbers."""
    return finite_points(series.steps[series.warmup :], series.median[series.warmup :])[1]


def plot_words(series: SeriesLike) -> list[tuple[str, str]]:
    """Phrases (text, token) in the order of their weight."""
    values = counted(series)
    unit = f" {series.unit}" if series.unit else ""
    if not values:
        warming = f" ({len(series.steps)} of warm-up)" if series.steps else ""
        return [(f"no step that counts yet{warming}", "muted")]
    middle = statistics.median(values)
    s = "" if len(values) == 1 else "s"
    warm = f" after {series.warmup} of warm-up" if series.warmup else ""
    phrases = [(f"median {number_text(middle)}{unit} over {len(values):,} step{s}{warm}", "plot-median")]
    if len(values) > 1:
        phrases.append((f"steps between {number_text(min(values))} and {number_text(max(values))}", ""))
    lows = finite_points(series.steps[series.warmup :], series.low[series.warmup :])[1]
    highs = finite_points(series.steps[series.warmup :], series.high[series.warmup :])[1]
    if lows and highs and (lows != values or highs != values):
        phrases.append((f"workers between {number_text(min(lows))} and {number_text(max(highs))}", ""))
    if series.peak:
        share = middle / series.peak * 100
        if share > 100:
            phrases.append(
                (
                    f"{share:.1f} % of the peak {number_text(series.peak)}: impossible, check peak and FLOPs",
                    "log-error",
                )
            )
        else:
            phrases.append((f"{share:.1f} % of the peak {number_text(series.peak)}", ""))
    if series.prediction:
        off = (middle / series.prediction - 1) * 100
        where = "on" if abs(off) < 0.05 else f"{abs(off):.1f} % {'above' if off > 0 else 'below'}"
        phrases.append((f"{where} the prediction {number_text(series.prediction)}", "plot-prediction"))
    return phrases
