"""Small things that several widgets draw with."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip


def draw_span(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """Cells from start to end (-1: the line's end) drawn in `style`."""
    if end == -1 or end > strip.cell_length:
        end = strip.cell_length
    start = max(0, start)
    if start >= end:
        return strip
    middle = Strip(Segment.apply_style(strip.crop(start, end), post_style=style), end - start)
    return Strip.join([strip.crop(0, start), middle, strip.crop(end, strip.cell_length)])


def draw_selection(strip: Strip, selection: Selection, line: int, style: Style) -> Strip:
    """The part of a line that the mouse has selected, drawn in `style`."""
    span = selection.get_span(line)
    return strip if span is None else draw_span(strip, *span, style)
