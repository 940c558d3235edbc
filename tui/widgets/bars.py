"""A share as a bar in a cell: `██████▍     34%`."""

from __future__ import annotations

import math

from tui.glyphs import UNICODE, GlyphSet

LEAST = 4
"""Cells below which a bar tells nothing: then the text stands alone."""


def bar(share: float, width: int, glyphs: GlyphSet = UNICODE) -> str:
    """A share of `width` cells, to an eighth of one; more than nothing is never drawn as nothing."""
    if width <= 0 or not math.isfinite(share):
        return " " * max(width, 0)
    share = min(max(share, 0.0), 1.0)
    whole, rest = divmod(max(round(share * width * 8), 1 if share > 0 else 0), 8)
    return (glyphs.eighths[8] * whole + (glyphs.eighths[rest] if rest else "")).ljust(width)


def bar_and_text(share: float, text: str, width: int, glyphs: GlyphSet = UNICODE) -> str:
    """The bar, and its text at the right end of the width; the text alone where there is no room for both."""
    room = width - max(len(text), LEAST) - 1
    if room < LEAST:
        return text.rjust(width)
    return f"{bar(share, room, glyphs)} {text.rjust(width - room - 1)}"
