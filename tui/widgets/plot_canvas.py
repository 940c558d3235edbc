"""A canvas of dots in text cells (braille, half blocks or plain ASCII), decimation and round axis numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Literal

Marker = Literal["braille", "block", "ascii"]
_DOTS: dict[Marker, tuple[int, int]] = {"braille": (2, 4), "block": (1, 2), "ascii": (1, 1)}
"""Dots of a cell: across and down."""
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLOCKS = " ▀▄█"


GREATEST = 1e300
"""A figure beyond this is no measurement; nan and infinity are none either."""
SMALLEST_STEP = 1e-300
"""Below this, floats no longer divide."""


def marker_of(name: str | None) -> Marker | None:
    """The marker of that name, as a configuration has it.

    Raises:
        ValueError: There is no such marker; the message names them.
    """
    if name is None:
        return None
    for marker in _DOTS:
        if marker == name:
            return marker
    raise ValueError(f"there is no plot marker '{name}': use {', '.join(_DOTS)}")


@dataclass(frozen=True, slots=True)
class Bucket:
    """All points that share one column of dots."""

    column: int
    first: float
    low: float
    high: float
    last: float


def finite_points(steps: Sequence[int], values: Sequence[float]) -> tuple[list[int], list[float]]:
    """The points whose value is a number, in the order of their steps."""
    count = min(len(steps), len(values))
    keep = [abs(value) < GREATEST for value in values[:count]]
    xs, ys = list(compress(steps, keep)), list(compress(values, keep))
    if any(after < before for before, after in pairwise(xs)):
        pairs = sorted(zip(xs, ys, strict=True), key=lambda pair: pair[0])
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return xs, ys


def decimate(steps: Sequence[int], values: Sequence[float], low: int, high: int, columns: int) -> list[Bucket]:
    """Gathers points by column: each keeps its least and greatest value, so no peak and no dip is ever lost.

    Args:
        steps: Ascending.
        values: Finite, one a step.
        low: The step at the left edge.
        high: The step at the right edge.
        columns: How many columns of dots there are.

    Returns:
        At most `columns` buckets, in order; columns without points have none.
    """
    span = max(1, high - low)
    buckets: list[Bucket] = []
    start = bisect_left(steps, low)
    end = len(steps)
    while start < end and steps[start] <= high:
        column = min(columns - 1, (steps[start] - low) * columns // (span + 1))
        # The first step of the next column.
        border = low + -(-(column + 1) * (span + 1) // columns)
        stop = max(start + 1, bisect_left(steps, border, start)) if column < columns - 1 else end
        share = values[start:stop]
        buckets.append(Bucket(column, share[0], min(share), max(share), share[-1]))
        start = stop
    return buckets


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) between two values, at most `most` of them."""
    if most < 1 or (high - low) / most < SMALLEST_STEP:
        return [low]
    exponent = math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20, 50):
        step = factor * 10.0**exponent
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)] or [low]
    return [low]


def number_text(value: float) -> str:
    """Four significant digits at most, without an exponent where people read it."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    digits = max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Canvas:
    """Dots in cells; each cell has the token of what was drawn in it last."""

    def __init__(self, columns: int, rows: int, marker: Marker) -> None:
        self.columns = columns
        self.rows = rows
        self.marker = marker
        self.across, self.down = _DOTS[marker]
        self.width = columns * self.across
        self.height = rows * self.down
        self._bits = [[0] * columns for _ in range(rows)]
        self._glyphs: list[list[str]] = [[""] * columns for _ in range(rows)]
        self._tokens = [[""] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, token: str, glyph: str = "*") -> None:
        """Sets one dot; (0, 0) is the bottom left. Outside is ignored."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            return
        top = self.height - 1 - y
        column, row = x // self.across, top // self.down
        if self.marker == "braille":
            self._bits[row][column] |= _BRAILLE[x % 2][top % 4]
        elif self.marker == "block":
            self._bits[row][column] |= 1 << (top % 2)
        else:
            self._bits[row][column] = 1
            self._glyphs[row][column] = glyph
        self._tokens[row][column] = token

    def vertical(self, x: int, y0: int, y1: int, token: str, glyph: str = "*") -> None:
        """All dots of a column between two heights."""
        for y in range(max(0, min(y0, y1)), min(self.height - 1, max(y0, y1)) + 1):
            self.dot(x, y, token, glyph)

    def line(self, x0: int, y0: int, x1: int, y1: int, token: str, glyph: str = "*") -> None:
        """A straight line to the right, its columns joined."""
        before = y0
        for x in range(x0 + 1, x1 + 1):
            y = y0 + round((y1 - y0) * (x - x0) / (x1 - x0))
            reach = y if abs(y - before) <= 1 else before + (1 if y > before else -1)
            self.vertical(x, reach, y, token, glyph)
            before = y

    def put(self, column: int, row: int, glyph: str, token: str, *, over: bool = False) -> None:
        """A glyph in a whole cell (row 0 on top), beneath any dots unless `over`."""
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            return
        if over or not self._bits[row][column]:
            if over:
                self._bits[row][column] = 0
            self._glyphs[row][column] = glyph
            self._tokens[row][column] = token

    def cell(self, column: int, row: int) -> tuple[str, str]:
        """What a cell shows, and its token."""
        bits = self._bits[row][column]
        glyph = self._glyphs[row][column]
        token = self._tokens[row][column]
        if not bits:
            return (glyph or " ", token if glyph else "")
        if self.marker == "braille":
            return (chr(0x2800 + bits), token)
        if self.marker == "block":
            return (_BLOCKS[bits], token)
        return (glyph or "*", token)

    def row_of(self, y: int) -> int:
        """The row of cells that a height of dots falls into."""
        return (self.height - 1 - y) // self.down
