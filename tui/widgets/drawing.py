"""Small things that several widgets draw with."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip


def draw_selection(strip: Strip, selection: Selection, line: int, style: Style) -> Strip:
    """The part of a line that the mouse has selected, drawn in `style`."""
    span = selection.get_span(line)
    if span is None:
        return strip
    start, end = span
    if end == -1 or end > strip.cell_length:
        end = strip.cell_length
    if start >= end:
        return strip
    middle = Strip(Segment.apply_style(strip.crop(start, end), post_style=style), end - start)
    return Strip.join([strip.crop(0, start), middle, strip.crop(end, strip.cell_length)])
