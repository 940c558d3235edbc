"""Log lines as strips: gutter, source, time, then the text in its own colours, wrapped or whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.look import Look, log_token
from tui.widgets.log_source import LogLineLike
from tui.widgets.sgr import pieces
from tui.widgets.table_paint import fit

GUTTER = 2
"""Cells before a line: cursor or mark, level."""
SOURCE_WIDTH_MOST = 24
"""A longer worker address is cut in the prefix of a merged log."""
MATCHES_DRAWN = 200
"""Matches of one line that are highlighted: a line of 8 Ki characters may hold thousands."""


def worker_ordinal(address: str) -> int:
    """A number that differs between neighbours: `train-a/0/3` and `train-a/0/4`, `train-a/1/3`."""
    *_, slice_text, worker_text = ("", "", *address.split("/"))
    slice_index = int(slice_text) if slice_text.isdecimal() else 0
    return slice_index * 3 + (int(worker_text) if worker_text.isdecimal() else 0)


class LinePainter:
    """Draws the lines of one view.

    Args:
        look: Colours and glyphs.
        base: The widget's own style.
        width: Cells of the view.
        wrap: Whether long lines are wrapped.
        show_time: Whether each line bears its arrival.
        timezone: In which times are shown.
        pattern: What is highlighted.
    """

    def __init__(
        self,
        look: Look,
        base: Style,
        width: int,
        *,
        wrap: bool = False,
        show_time: bool = False,
        timezone: tzinfo = UTC,
        pattern: re.Pattern[str] | None = None,
    ) -> None:
        self.look = look
        self.base = base
        self.width = width
        self.wrap = wrap
        self.show_time = show_time
        self.timezone = timezone
        self.pattern = pattern
        self.source_width = 0
        self._workers: dict[str, Style] = {}
        self._remote: dict[tuple[Style, Style], Style] = {}
        self._muted = base + look.style("muted")
        self._match = look.style("match")
        self._levels = {
            level: base + Style(color=look.style(log_token(level)).color) for level in ("error", "warning")
        }

    # -- the prefix --------------------------------------------------------------------------------------------------

    @property
    def prefix_width(self) -> int:
        """Cells before the text."""
        time = 9 if self.show_time else 0
        source = self.source_width + 3 if self.source_width else 0
        return min(GUTTER + time + source, max(GUTTER, self.width - 8))

    @property
    def text_width(self) -> int:
        """Cells left for the text."""
        return max(1, self.width - self.prefix_width)

    def see_sources(self, sources: Iterable[str]) -> bool:
        """Widens the prefix for workers' addresses; True when it grew."""
        width = min(max(map(len, sources), default=0), SOURCE_WIDTH_MOST)
        if width <= self.source_width:
            return False
        self.source_width = width
        return True

    def worker_style(self, source: str) -> Style:
        """A worker has one colour in every view and session; its neighbours have others."""
        style = self._workers.get(source)
        if style is None:
            style = self._workers[source] = self.base + self.look.worker(worker_ordinal(source))
        return style

    def prefix(self, line: LogLineLike, row: int, *, cursor: bool, marked: bool) -> list[Segment]:
        """What stands before one row of a line; rows after the first repeat the source's bar alone."""
        look, base = self.look, self.base
        first = " "
        style = base
        if cursor:
            first, style = look.glyph("cursor"), base + look.style("key")
        elif marked and row == 0:
            first, style = look.glyph("mark"), base + look.style("mark")
        segments = [Segment(first, style)]
        level = log_token(line.level) if row == 0 else ""
        segments.append(Segment(look.glyph(level), base + look.style(level)) if level else Segment(" ", base))
        if self.show_time:
            text = " " * 9
            if row == 0:
                text = datetime.fromtimestamp(line.at, self.timezone).strftime("%H:%M:%S ")
            segments.append(Segment(text, self._muted))
        if self.source_width:
            name = fit(line.source if row == 0 else "", self.source_width, ellipsis=look.glyph("ellipsis"))
            segments.append(Segment(name + " ", self.worker_style(line.source)))
            segments.append(Segment(look.glyph("bar") + " ", self._muted))
        length = sum(len(segment.text) for segment in segments)
        if length != self.prefix_width or (self.source_width and not line.source.isascii()):
            return list(Strip(segments).adjust_cell_length(self.prefix_width, base))
        return segments

    # -- the text ----------------------------------------------------------------------------------------------------

    def rows_of(self, line: LogLineLike) -> int:
        """How many rows a line takes, without drawing it where its length tells."""
        if not self.wrap:
            return 1
        text = line.text
        simple = "\x1b" not in text and text.isascii()
        length = len(text) if simple else sum(cell_len(piece) for piece, _ in pieces(text))
        return max(1, -(-length // self.text_width))

    def text(self, line: LogLineLike) -> list[Segment]:
        """The whole text in its colours, with what is searched for highlighted."""
        base = self._levels.get(line.level, self.base)
        segments = [Segment(text, self._styled(base, style)) for text, style in pieces(line.text)]
        return segments if self.pattern is None else self._highlight(segments)

    def _styled(self, base: Style, style: Style) -> Style:
        if not style:
            return base
        known = self._remote.get((base, style))
        if known is None:
            known = self._remote[base, style] = base + self.look.legible(style, self.base)
        return known

    def body(self, line: LogLineLike) -> list[Strip]:
        """The text: one strip of its full length, or rows of the text's width."""
        whole = Strip(self.text(line))
        length = whole.cell_length
        width = self.text_width
        if not self.wrap:
            return [whole]
        if length <= width:
            return [whole.adjust_cell_length(width, self.base)]
        cuts = [*range(width, length, width), length]
        return [part.adjust_cell_length(width, self.base) for part in whole.divide(cuts)]

    def _highlight(self, segments: list[Segment]) -> list[Segment]:
        """Draws the matches over whatever colours they cross."""
        assert self.pattern is not None
        text = "".join(segment.text for segment in segments)
        spans: list[tuple[int, int]] = []
        for match in self.pattern.finditer(text):
            if match.end() > match.start():
                spans.append(match.span())
                if len(spans) >= MATCHES_DRAWN:
                    break
        if not spans:
            return segments
        drawn: list[Segment] = []
        position = 0
        for content, style, _ in segments:
            assert style is not None
            at, end = position, position + len(content)
            for low, high in spans:
                if high <= at or low >= end:
                    continue
                if low > at:
                    drawn.append(Segment(content[at - position : low - position], style))
                    at = low
                stop = min(high, end)
                drawn.append(Segment(content[at - position : stop - position], style + self._match))
                at = stop
            if at < end:
                drawn.append(Segment(content[at - position :], style))
            position = end
        return drawn


def window(segments: list[Segment], start: int, width: int, base: Style) -> list[Segment]:
    """The cells from `start` on, exactly `width` of them."""
    if not all(segment.text.isascii() for segment in segments):
        return list(Strip(segments).crop_extend(start, start + width, base))
    found: list[Segment] = []
    position = 0
    end = start + width
    for text, style, _ in segments:
        stop = position + len(text)
        if stop > start and position < end:
            found.append(Segment(text[max(0, start - position) : end - position], style))
        position = stop
    shown = max(0, min(position, end) - start)
    if shown < width:
        found.append(Segment(" " * (width - shown), base))
    return found


def with_offsets(prefix: list[Segment], body: list[Segment], x: int, y: int) -> Strip:
    """One line for the screen whose text the mouse can select: the prefix counts as the line's beginning.

    Args:
        prefix: What stands before the text.
        body: The text.
        x: The column of the body's first cell in the whole line.
        y: The line's number.
    """
    begin = Style.from_meta({"offset": (0, y)})
    done = [Segment(text, style + begin if style else begin) for text, style, _ in prefix]
    length = sum(len(text) for text, _, _ in prefix)
    for text, style, _ in body:
        offset = Style.from_meta({"offset": (x, y)})
        done.append(Segment(text, style + offset if style else offset))
        x += len(text)
        length += len(text)
    return Strip(done, length if all(text.isascii() for text, _, _ in body) else None)


def status_line(parts: list[tuple[str, str, int]], look: Look, base: Style, width: int) -> Strip:
    """One line of parts (text, token, priority), the least important dropped until it fits.

    Args:
        parts: In their order on screen; the lowest priority goes first.
        look: Colours and glyphs.
        base: The style beneath.
        width: Cells.
    """
    kept = [part for part in parts if part[0]]
    between = f" {look.glyph('separator')} "

    def needed() -> int:
        return sum(cell_len(text) for text, _, _ in kept) + len(between) * max(0, len(kept) - 1)

    while len(kept) > 1 and needed() > width:
        least = min(range(len(kept)), key=lambda index: (kept[index][2], -index))
        del kept[least]
    segments: list[Segment] = []
    for index, (text, token, _) in enumerate(kept):
        if index:
            segments.append(Segment(between, base + look.style("muted")))
        segments.append(Segment(text, base + look.style(token) if token else base))
    strip = Strip(segments)
    if strip.cell_length > width:
        text = fit(kept[0][0], width, ellipsis=look.glyph("ellipsis"))
        strip = Strip([Segment(text, base + look.style(kept[0][1]) if kept[0][1] else base)], width)
    return strip.adjust_cell_length(width, base)
