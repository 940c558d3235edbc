"""One line of parts, the least important of which give way when it is narrow. Header and footer are such lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.look import Look
from tui.widgets.table_paint import fit


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a line that stands or goes as a whole, or shrinks to `short` first."""

    texts: tuple[tuple[str, str], ...]
    """(text, token), drawn one after the other."""
    priority: int
    """Lowest goes first."""
    short: tuple[tuple[str, str], ...] = ()
    """What it may shrink to."""
    shrinks_at: int = 0
    """The priority of shrinking, below `priority`."""
    right: bool = False
    """Stands at the right edge."""
    elastic: bool = False
    """Its last text is cut to the room that there is before anything of more weight than `shrinks_at` is lost; `short`
    is for a line that has no room for a word of it."""


EASY_WORDS, EASY_WEIGHT = 28, 25
"""An elastic part may be cut to so many cells before anything of more than this weight is lost."""
LEAST_WORDS = 12
"""Cells below which the cut text of an elastic part says nothing."""


def _cut(part: Part, room: int, ellipsis: str) -> tuple[tuple[str, str], ...]:
    """The part with its last text cut, so that it fills `room` cells."""
    *first, (text, token) = part.texts
    return (*first, (fit(text, max(room - _width(first), 1), ellipsis=ellipsis).rstrip(), token))


def _weight(part: Part, texts: tuple[tuple[str, str], ...]) -> int:
    """How much the next loss of a part would hurt."""
    return part.shrinks_at if part.short and texts is not part.short else part.priority


def _width(texts: Sequence[tuple[str, str]]) -> int:
    return sum(cell_len(text) for text, _ in texts)


def priority_line(parts: Sequence[Part], width: int, look: Look, base: Style, *, gap: int = 2) -> Strip:
    """Lays parts out in `width` cells: those on the left, then those at the right edge."""
    shown: list[tuple[Part, tuple[tuple[str, str], ...]]] = [(part, part.texts) for part in parts if part.texts]

    def needed() -> int:
        return sum(_width(texts) for _, texts in shown) + gap * max(0, len(shown) - 1)

    def cuts_easily(part: Part, texts: tuple[tuple[str, str], ...]) -> bool:
        return part.elastic and texts is part.texts and width - needed() + _width(texts[-1:]) >= EASY_WORDS

    while needed() > width and shown:
        index = min(range(len(shown)), key=lambda each: (_weight(*shown[each]), -each))
        if _weight(*shown[index]) > EASY_WEIGHT:
            index = next((each for each, (part, texts) in enumerate(shown) if cuts_easily(part, texts)), index)
        part, texts = shown[index]
        if part.short and texts is not part.short:
            room = width - needed() + _width(texts)
            words = room - _width(part.texts[:-1])
            shown[index] = (part, part.short)
            if part.elastic and words >= LEAST_WORDS:
                shown[index] = (part, _cut(part, room, look.glyph("ellipsis")))
        elif len(shown) > 1:
            del shown[index]
        else:
            break
    segments: list[Segment] = []
    spare = max(0, width - needed())
    turned = False
    for index, (part, texts) in enumerate(shown):
        if part.right and not turned:
            turned = True
            segments.append(Segment(" " * spare, base))
        if index:
            segments.append(Segment(" " * gap, base))
        segments.extend(Segment(text, base + look.style(token) if token else base) for text, token in texts)
    strip = Strip(segments)
    if strip.cell_length > width:
        text, token = shown[0][1][0]
        style = base + look.style(token) if token else base
        strip = Strip([Segment(fit(text, width, ellipsis=look.glyph("ellipsis")), style)])
    return strip.adjust_cell_length(width, base)
