"""A whole fleet on one screen: one cell per worker, grouped by slice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.look import Look, look_of

BETWEEN = 3
"""Cells between slices on one line."""


@dataclass(frozen=True, slots=True)
class HeatSlice:
    """One slice: a label and one token a worker."""

    label: str
    tokens: tuple[str, ...]
    """E.g. `node-ready`, `outcome-failed`: the cell's glyph and colour."""
    cursor: int | None = None
    """The worker to point out."""


FOLDED_ABREAST = 64
"""Slices on one line, when each is one cell."""
_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A run of one slice's cells on one line."""

    slice: int
    start: int
    stop: int
    x: int


def lay_out(slices: Sequence[HeatSlice], width: int) -> list[list[_Placed]]:
    """Lines of runs: small slices stand side by side in columns, a slice wider than the line is folded."""
    if not slices or width < 4:
        return []
    label = max(cell_len(item.label) for item in slices) + 1
    largest = max(len(item.tokens) for item in slices)
    room = max(1, width - label)
    if largest <= room:
        each = label + largest + BETWEEN
        abreast = max(1, (width + BETWEEN) // each)
        return [
            [
                _Placed(index, 0, len(slices[index].tokens), (index - first) * each)
                for index in range(first, min(first + abreast, len(slices)))
            ]
            for first in range(0, len(slices), abreast)
        ]
    lines: list[list[_Placed]] = []
    for index, item in enumerate(slices):
        for start in range(0, max(1, len(item.tokens)), room):
            lines.append([_Placed(index, start, min(start + room, len(item.tokens)), 0)])
    return lines


def by_slice(slices: Sequence[HeatSlice], width: int) -> list[HeatSlice]:
    """One cell a slice, for when one a worker has no room: the rarest of its states, so that what is odd is seen."""
    counts = Counter(token for item in slices for token in item.tokens)
    label = max((cell_len(item.label) for item in slices), default=0)
    # Of the last number and its hyphen, and the space behind.
    room = max(1, min(FOLDED_ABREAST, (width - label - 5) // 8 * 8))
    folded = []
    for prefix, of_one in groupby(slices, key=lambda item: _NUMBER.sub("", item.label)):
        members = list(of_one)
        for first in range(0, len(members), room):
            run = members[first : first + room]
            name = run[0].label
            if len(run) > 1:
                name += f"-{run[-1].label.removeprefix(prefix)}"
            tokens = tuple(min(item.tokens, key=lambda token: counts[token]) for item in run if item.tokens)
            cursor = next((place for place, item in enumerate(run) if item.cursor is not None), None)
            folded.append(HeatSlice(name, tokens, cursor))
    return folded


def heat_lines(slices: Sequence[HeatSlice], width: int, look: Look, base: Style | None = None) -> list[Strip]:
    """Draws the strip. Each kind of state has its own glyph: nothing rests on colour alone.

    Args:
        slices: In their order.
        width: Cells; more slices than fit abreast go on further lines.
        look: Colours and glyphs.
        base: The style beneath.
    """
    ground = base if base is not None else Style.null()
    muted = ground + look.style("muted")
    label_width = max((cell_len(item.label) for item in slices), default=0) + 1
    strips: list[Strip] = []
    for line in lay_out(slices, width):
        segments: list[Segment] = []
        position = 0
        for run in line:
            item = slices[run.slice]
            if run.x > position:
                segments.append(Segment(" " * (run.x - position), ground))
            name = item.label if run.start == 0 else ""
            segments.append(Segment(name + " " * (label_width - cell_len(name)), muted))
            at = run.start
            while at < run.stop:
                token = item.tokens[at]
                end = at + 1
                if at != item.cursor:
                    while end < run.stop and item.tokens[end] == token and end != item.cursor:
                        end += 1
                style = ground + look.style(token)
                if at == item.cursor:
                    style += Style(reverse=True)
                segments.append(Segment(look.glyph(token) * (end - at), style))
                at = end
            position = run.x + label_width + run.stop - run.start
        strips.append(Strip(segments).adjust_cell_length(width, ground))
    return strips


def heat_words(slices: Sequence[HeatSlice]) -> str:
    """The strip in words: `2 slices, 15 node-ready, 1 node-preempted`."""
    counts = Counter(token for item in slices for token in item.tokens)
    many = "slice" if len(slices) == 1 else "slices"
    parts = [f"{count:,} {token.partition('-')[2].replace('-', ' ')}" for token, count in counts.most_common()]
    return ", ".join([f"{len(slices):,} {many}", *parts])


class HeatStrip(Widget):
    """Slices side by side, wrapped to the width; as high as it must be. A click on a cell tells which worker it is."""

    DEFAULT_CSS = """
    HeatStrip {
        background: $background;
        color: $foreground;
        height: auto;
        max-height: 50%;
    }
    """

    class WorkerClicked(Message):
        """A cell was clicked."""

        def __init__(self, strip: HeatStrip, slice_position: int, worker_index: int) -> None:
            super().__init__()
            self.strip = strip
            self.slice_position = slice_position
            """In the sequence given to `set_slices`."""
            self.worker_index = worker_index

        @property
        def control(self) -> HeatStrip:
            return self.strip

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.slices: tuple[HeatSlice, ...] = ()
        self._drawn: tuple[object, ...] = ()
        self._strips: list[Strip] = []

    def set_slices(self, slices: Sequence[HeatSlice]) -> None:
        """Shows other states; repaints only if they differ, lays out only if the height does."""
        fresh = tuple(slices)
        if fresh == self.slices:
            return
        before = len(lay_out(self.slices, self.size.width))
        self.slices = fresh
        self.refresh(layout=len(lay_out(fresh, self.size.width)) != before)

    @property
    def summary(self) -> str:
        """What is drawn, in words."""
        return heat_words(self.slices)

    @property
    def is_folded(self) -> bool:
        """Whether there is no room for a cell a worker."""
        return 1 < self.size.height < len(lay_out(self.slices, self.size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        whole = len(lay_out(self.slices, width))
        limit = self.styles.max_height
        if limit is not None and whole > limit.resolve(container, viewport, Fraction(1)) > 1:
            return 1 + len(lay_out(by_slice(self.slices, width), width))
        return whole

    def render_line(self, y: int) -> Strip:
        look, base, width = look_of(self), self.rich_style, self.size.width
        height = self.size.height
        key = (self.slices, look, base, width, height)
        if key != self._drawn:
            self._drawn = key
            if self.is_folded:
                words = Strip([Segment(f"{self.summary}; a cell a slice", base + look.style("muted"))])
                rest = heat_lines(by_slice(self.slices, width), width, look, base)
                self._strips = [words.adjust_cell_length(width, base), *rest]
            else:
                self._strips = heat_lines(self.slices, width, look, base)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, base)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        lines = lay_out(self.slices, self.size.width)
        if offset is None or offset.y >= len(lines) or self.is_folded:
            return
        label = max(cell_len(item.label) for item in self.slices) + 1
        for run in lines[offset.y]:
            worker = offset.x - run.x - label + run.start
            if run.start <= worker < run.stop and offset.x >= run.x + label:
                self.post_message(self.WorkerClicked(self, run.slice, worker))
                return
