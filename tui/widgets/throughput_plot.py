"""Throughput over steps: the median of the workers, their band, the peak and the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.strip import Strip
from textual.widget import Widget

from tui.look import Look, look_of
from tui.widgets.plot_canvas import marker_of
from tui.widgets.plot_draw import plain_summary, plot_lines


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """One benchmark's figures, a value per step."""

    title: str
    unit: str
    """E.g. `TFLOP/s per device`."""
    steps: Sequence[int]
    median: Sequence[float]
    """Of the workers, at each step. What is not a number is a gap."""
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
    """The plot and its words. The app's clock calls `set_series`; it redraws only when the figures differ.

    Args:
        marker: `braille`, `block` or `ascii`; None follows the glyph set.
        told: A table beside it tells of each of several series by its letter.
    """

    DEFAULT_CSS = """
    ThroughputPlot {
        background: $background;
        color: $foreground;
        height: 1fr;
        min-height: 3;
    }
    """

    def __init__(
        self,
        *,
        marker: str | None = None,
        told: bool = False,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.marker = marker_of(marker)
        self.told = told
        self.series: tuple[PlotSeries, ...] = ()
        self._drawn: tuple[object, ...] = ()
        self._lines: list[Strip] = []

    def set_series(self, series: Sequence[PlotSeries]) -> None:
        """One series, or several to compare (their medians alone)."""
        fresh = tuple(series)
        if fresh != self.series:
            self.series = fresh
            self.refresh()

    @property
    def summary(self) -> str:
        """All figures in words."""
        return "\n".join(plain_summary(item) for item in self.series)

    def render_line(self, y: int) -> Strip:
        look: Look = look_of(self)
        width, height = self.size
        key = (self.series, look, self.rich_style, width, height, self.marker)
        if key != self._drawn:
            self._drawn = key
            self._lines = plot_lines(
                self.series, width, height, look, marker=self.marker, base=self.rich_style, told=self.told
            )
        return self._lines[y] if y < len(self._lines) else Strip.blank(width, self.rich_style)
