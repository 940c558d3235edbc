"""Throughput over steps: the median of the workers, their band, the peak and the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """One benchmark's figures, a value per step."""

    title: str
    unit: str
    """E.g. `TFLOP/s per device`."""
    steps: Sequence[int]
    median: Sequence[float]
    low: Sequence[float] = ()
    """The slowest worker at each step; empty where there is no band."""
    high: Sequence[float] = ()
    warmup: int = 0
    """How many of the first points don't count."""
    peak: float | None = None
    """The hardware's peak in the same unit."""
    prediction: float | None = None
    label: str = ""
    """E.g. `simulated`: stands beside the title."""


class ThroughputPlot(Widget):
    """The plot and its words. Marker: `braille`, `block` or `ascii`; None follows the glyph set."""

    def __init__(self, *, marker: str | None = None, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.marker = marker

    def set_series(self, series: Sequence[PlotSeries]) -> None:
        """One series, or several to compare (medians alone)."""
        raise NotImplementedError
