"""Series to lines of text: axes, band, median, peak and prediction. Pure: the same figures, the same lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.look import Look
from tui.widgets.plot_canvas import SMALLEST_STEP, Bucket, Canvas, Marker, decimate, finite_points, number_text, ticks
from tui.widgets.plot_words import SeriesLike, counted, plot_words
from tui.widgets.table_paint import fit

LEAST_WIDTH = 20
LEAST_HEIGHT = 6
"""Below these only words are shown."""
PEAK_IN_SIGHT = 1.5
"""A peak further off than this many times the highest value would flatten the curve; it is told in words alone."""
CROWDED = 5
"""Words of several series that take more than one line in so many are left out where a table tells the same."""
MARGIN_FROM = 60
"""Width from which peak and prediction are named beside their lines; the words below name them always."""
_ASCII_MARKS = "*+ox#@%&"


def plot_lines(
    series: Sequence[SeriesLike],
    width: int,
    height: int,
    look: Look,
    *,
    marker: Marker | None = None,
    base: Style | None = None,
    told: bool = False,
) -> list[Strip]:
    """Draws one series with its band and lines, or several as medians to compare.

    Args:
        series: What to draw; all in one unit.
        width: Cells.
        height: Lines, words included.
        look: Colours and glyphs.
        marker: How dots are drawn; None: braille, or ASCII with the ASCII glyphs.
        base: The style beneath.
        told: A table beside it says what the words of several would: they are left out where they would crowd it.

    Returns:
        Exactly `height` strips of `width` cells.
    """
    ground = base if base is not None else Style.null()
    kind: Marker = marker or ("braille" if look.glyphs.braille else "ascii")
    words = _word_lines(series, width, look, ground)
    if told and len(series) > 1 and len(words) * CROWDED > height:
        words = []
    room = height - len(words) - 1
    lines: list[Strip] = []
    if series and room >= LEAST_HEIGHT - 1 and width >= LEAST_WIDTH and _bounds(series) is not None:
        lines.append(_title(series, width, look, ground))
        lines.extend(_Plot(series, width, room, look, kind, ground).lines())
    lines.extend(words)
    blank = Strip.blank(width, ground)
    return [line.adjust_cell_length(width, ground) for line in (lines + [blank] * height)[:height]]


def _title(series: Sequence[SeriesLike], width: int, look: Look, base: Style) -> Strip:
    unit = series[0].unit
    left = series[0].title if len(series) == 1 else f"{len(series)} runs"
    left = f"{left}: {unit}" if unit else left
    right = next((item.label for item in series if item.label), "")
    room = width - (cell_len(right) + 2 if right else 0)
    text = fit(left, room, ellipsis=look.glyph("ellipsis"))
    segments = [Segment(text, base + look.style("title"))]
    if right:
        segments.append(Segment(f"  {right}", base + look.style("simulated")))
    return Strip(segments)


def _word_lines(series: Sequence[SeriesLike], width: int, look: Look, base: Style) -> list[Strip]:
    """The phrases, as many on a line as fit; of several series one line each, with its letter."""
    if not series:
        return [Strip([Segment("no figures yet", base + look.style("muted"))])]
    if len(series) > 1:
        lines = []
        for index, item in enumerate(series):
            text = f"{_letter(index)} {item.title}: {plot_words(item)[0][0]}"
            style = base + look.style(f"worker-{index % 8 + 1}")
            lines.append(Strip([Segment(fit(text, width, ellipsis=look.glyph("ellipsis")), style)]))
        return lines
    rows: list[list[tuple[str, str]]] = [[]]
    used = 0
    phrases = [(part, token) for text, token in plot_words(series[0]) for part in textwrap.wrap(text, max(10, width))]
    for text, token in phrases:
        length = cell_len(text)
        if rows[-1] and used + 2 + length > width:
            rows.append([])
            used = 0
        rows[-1].append((text, token))
        used += length + (2 if used else 0)
    strips = []
    for row in rows:
        segments: list[Segment] = []
        for text, token in row:
            if segments:
                segments.append(Segment(", ", base))
            segments.append(Segment(text, base + look.style(token) if token else base))
        strips.append(Strip(segments))
    return strips


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else "+"


def _bounds(series: Sequence[SeriesLike]) -> tuple[int, int, float, float] | None:
    """First and last step, least and greatest value; None when there is nothing to draw.

    Warm-up steps have their place, but no say in the scale unless there are no others.
    """
    steps: list[int] = []
    counting: list[float] = []
    warming: list[float] = []
    for item in series:
        for values in (item.median, *((item.low, item.high) if len(series) == 1 else ())):
            xs, _ = finite_points(item.steps, values)
            if xs:
                steps += (xs[0], xs[-1])
            for start, stop, found in ((0, item.warmup, warming), (item.warmup, None, counting)):
                _, ys = finite_points(item.steps[start:stop], values[start:stop])
                if ys:
                    found += (min(ys), max(ys))
    extremes = counting or warming
    return (min(steps), max(steps), min(extremes), max(extremes)) if extremes else None


class _Plot:
    """One drawing: the scale, then the layers from back to front."""

    def __init__(
        self, series: Sequence[SeriesLike], width: int, height: int, look: Look, marker: Marker, base: Style
    ) -> None:
        self.series = series
        self.look = look
        self.base = base
        bounds = _bounds(series)
        assert bounds is not None
        self.first, self.last, low, high = bounds
        references = [value for value in (series[0].peak, series[0].prediction) if value and len(series) == 1]
        high = max([high, *(value for value in references if value <= high * PEAK_IN_SIGHT)])
        low = min([low, *(value for value in references if value <= high)])
        if 0 < low < high / 2:
            low = 0.0
        margin = (high - low or abs(high) or 1.0) * 0.05
        self.low, self.high = (low if low == 0 else low - margin), high + margin
        if self.high - self.low < SMALLEST_STEP:
            self.high = self.low + 1
        rows = max(2, height - 2)
        self.ticks = ticks(self.low, self.high, max(2, rows // 4 + 1))
        self.label_width = max(len(number_text(tick)) for tick in self.ticks)
        self.width = width
        self.margins = self.reference_labels(rows, marker) if len(series) == 1 and width >= MARGIN_FROM else {}
        right = max((len(text) + 1 for text, _ in self.margins.values()), default=0)
        self.canvas = Canvas(max(4, width - self.label_width - 2 - right), rows, marker)

    def reference_labels(self, rows: int, marker: Marker) -> dict[int, tuple[str, str]]:
        """What stands right of the canvas: row -> (text, token)."""
        self.canvas = Canvas(4, rows, marker)
        item = self.series[0]
        labels: dict[int, tuple[str, str]] = {}
        for value, name in ((item.prediction, "prediction"), (item.peak, "peak")):
            if value and self.low <= value <= self.high:
                row = self.canvas.row_of(self.height_of(value))
                labels[row] = (f"{name} {number_text(value)}", f"plot-{name}")
        return labels

    def height_of(self, value: float) -> int:
        share = (value - self.low) / (self.high - self.low)
        return round(max(0.0, min(1.0, share)) * (self.canvas.height - 1))

    def buckets(self, item: SeriesLike, values: Sequence[float], columns: int) -> list[Bucket]:
        return decimate(*finite_points(item.steps, values), self.first, self.last, columns)

    def lines(self) -> list[Strip]:
        if len(self.series) == 1:
            self.references(self.series[0])
            self.band(self.series[0])
        for index, item in enumerate(self.series):
            token = "plot-median" if len(self.series) == 1 else f"worker-{index % 8 + 1}"
            self.median(item, token, _ASCII_MARKS[index % len(_ASCII_MARKS)])
        if len(self.series) > 1:
            self.letters()
        rows = [self.row(number) for number in range(self.canvas.rows)]
        return [*rows, *self.axis()]

    def references(self, item: SeriesLike) -> None:
        for value, name, glyph in ((item.peak, "peak", "dashed"), (item.prediction, "prediction", "dotted")):
            if not value or not self.low <= value <= self.high:
                continue
            row = self.canvas.row_of(self.height_of(value))
            for column in range(self.canvas.columns):
                self.canvas.put(column, row, self.look.glyph(glyph), f"plot-{name}")

    def band(self, item: SeriesLike) -> None:
        lows = {each.column: each.low for each in self.buckets(item, item.low, self.canvas.columns)}
        for each in self.buckets(item, item.high, self.canvas.columns):
            if each.column not in lows:
                continue
            top = self.canvas.row_of(self.height_of(each.high))
            bottom = self.canvas.row_of(self.height_of(lows[each.column]))
            for row in range(top, bottom + 1):
                self.canvas.put(each.column, row, self.look.glyph("bar-empty"), "plot-band")

    def median(self, item: SeriesLike, token: str, glyph: str) -> None:
        border = item.steps[item.warmup] if item.warmup < len(item.steps) else self.last + 1
        warm_columns = (border - self.first) * self.canvas.width // (max(1, self.last - self.first) + 1)
        before: Bucket | None = None
        for each in self.buckets(item, item.median, self.canvas.width):
            own = "plot-warmup" if item.warmup and each.column < warm_columns else token
            if before is not None:
                x, y = before.column, self.height_of(before.last)
                self.canvas.line(x, y, each.column, self.height_of(each.first), own, glyph)
            self.canvas.vertical(each.column, self.height_of(each.low), self.height_of(each.high), own, glyph)
            before = each

    def letters(self) -> None:
        """Each curve's letter at its end, so that colour is not all that tells them apart."""
        taken: set[tuple[int, int]] = set()
        for index, item in enumerate(self.series):
            ends = self.buckets(item, item.median, self.canvas.columns)
            if not ends:
                continue
            row, column = self.canvas.row_of(self.height_of(ends[-1].last)), ends[-1].column
            while (row, column) in taken and column > 0:
                column -= 1
            taken.add((row, column))
            self.canvas.put(column, row, _letter(index), f"worker-{index % 8 + 1}", over=True)

    def row(self, number: int) -> Strip:
        labels = {self.canvas.row_of(self.height_of(tick)): number_text(tick) for tick in reversed(self.ticks)}
        label = labels.get(number, "")
        bar = self.look.glyph("tick" if label else "bar")
        segments = [Segment(f"{label:>{self.label_width}} {bar}", self.base + self.look.style("muted"))]
        run, token = "", ""
        for column in range(self.canvas.columns):
            glyph, own = self.canvas.cell(column, number)
            if own != token and run:
                segments.append(Segment(run, self.styled(token)))
                run = ""
            run, token = run + glyph, own
        segments.append(Segment(run, self.styled(token)))
        if number in self.margins:
            text, token = self.margins[number]
            segments.append(Segment(f" {text}", self.styled(token)))
        return Strip(segments)

    def styled(self, token: str) -> Style:
        return self.base + self.look.style(token) if token else self.base

    def axis(self) -> list[Strip]:
        muted = self.base + self.look.style("muted")
        rule = (
            " " * self.label_width + " " + self.look.glyph("corner") + self.look.glyph("rule") * self.canvas.columns
        )
        left = " " * (self.label_width + 2) + f"step {self.first:,}"
        right = f"{self.last:,}"
        if self.last == self.first:
            right = ""
        room = self.label_width + 2 + self.canvas.columns - len(left) - len(right)
        below = left + " " * room + right if room >= 1 else left[: self.width]
        return [Strip([Segment(rule, muted)]), Strip([Segment(below, muted)])]


def plain_summary(series: SeriesLike) -> str:
    """All the words of one series in a sentence, for a table or the clipboard."""
    return "; ".join(text for text, _ in plot_words(series))


__all__ = ["counted", "plain_summary", "plot_lines", "plot_words"]
