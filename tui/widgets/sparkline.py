"""A row of bars in a cell: `▁▂▅█`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tui.glyphs import UNICODE, GlyphSet


def sparkline(values: Sequence[float], width: int, glyphs: GlyphSet = UNICODE) -> str:
    """The last values as bars between their least and greatest, never more than `width` cells.

    More values than cells are gathered: each cell shows the greatest of its share, so that a peak is never lost.
    Values that are not finite are blanks.
    """
    count = len(values)
    if not count or width <= 0:
        return ""
    cells: list[float] = []
    for column in range(min(width, count)):
        share = values[column * count // min(width, count) : (column + 1) * count // min(width, count)]
        # Halved, so that even the span of the largest floats is one.
        cells.append(max((value / 2 for value in share if math.isfinite(value)), default=math.nan))
    finite = [value for value in cells if math.isfinite(value)]
    if not finite:
        return " " * len(cells)
    low, high = min(finite), max(finite)
    spread = high - low
    top = len(glyphs.ramp) - 1
    return "".join(
        " "
        if not math.isfinite(value)
        else glyphs.ramp[1 + round((value - low) / spread * (top - 1)) if spread else (top + 1) // 2]
        for value in cells
    )
