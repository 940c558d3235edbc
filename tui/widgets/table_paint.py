"""Rows as strips: one painter per layout, look and width."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.look import Look
from tui.widgets.bars import bar_and_text
from tui.widgets.rows import Cell, Column, Row
from tui.widgets.table_layout import GAP, GUTTER, Placed, total_width

_GAP = " " * GAP


def fit(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Exactly `width` cells of a text, cut with an ellipsis or padded. Controls can't get through."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    length = len(text) if text.isascii() else cell_len(text)
    if length == width:
        return text
    if length < width:
        pad = " " * (width - length)
        return pad + text if right else text + pad
    if width <= 1:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + ellipsis


def width_of(cell: Cell | str) -> int:
    """Cells that a cell asks for."""
    if isinstance(cell, str):
        return len(cell) if cell.isascii() else cell_len(cell)
    length = len(cell.text) if cell.text.isascii() else cell_len(cell.text)
    return length + 2 if cell.glyph else length


class RowPainter:
    """Draws rows of one layout.

    Args:
        columns: All columns of the table.
        placed: Those that are shown.
        look: Colours and glyphs.
        base: The widget's own style: colour on background.
        width: Cells of the view.
    """

    def __init__(
        self, columns: Sequence[Column], placed: Sequence[Placed], look: Look, base: Style, width: int
    ) -> None:
        self.columns = columns
        self.placed = tuple(placed)
        self.look = look
        self.base = base
        self.width = width
        self.total = max(total_width(placed), width)
        self.frozen = GUTTER + placed[0].width + GAP if len(placed) > 1 else self.total
        self._cursor = base + look.style("cursor")
        self._blurred = base + look.style("cursor-blurred")
        self._styles: dict[str, Style] = {"": base}

    def header(self, *, sort_column: str, descending: bool, scroll_x: int) -> Strip:
        """The titles, the sorted one with its direction; arrows at the edges where more columns lie."""
        arrow = self.look.glyph("sort-down" if descending else "sort-up")
        style = self.base + self.look.style("title")
        ellipsis = self.look.glyph("ellipsis")
        texts = [" " * GUTTER]
        for item in self.placed:
            column = self.columns[item.index]
            right = column.align == "right"
            if column.id != sort_column:
                texts.append(fit(column.title, item.width, right=right, ellipsis=ellipsis) + _GAP)
            elif item is self.placed[-1]:
                texts.append(fit(column.title + arrow, item.width, right=right, ellipsis=ellipsis))
            elif right:
                texts.append(fit(column.title, item.width, right=True, ellipsis=ellipsis) + arrow + _GAP[1:])
            else:
                texts.append(fit(column.title + arrow, item.width + 1, ellipsis=ellipsis) + _GAP[1:])
        strip = self._window(Strip([Segment("".join(texts), style)]).adjust_cell_length(self.total, style), scroll_x)
        if scroll_x > 0:
            strip = _overlay(strip, self.frozen - 1, self.look.glyph("more-left"), style)
        if self.total - scroll_x > self.width:
            strip = _overlay(strip, self.width - 1, self.look.glyph("more-right"), style)
        return strip

    def row(self, row: Row, *, cursor: bool, focused: bool, marked: bool, scroll_x: int) -> Strip:
        """One row in the width of the view."""
        lit = cursor and focused
        ground = self._cursor if lit else (self._blurred if cursor else self.base)
        look = self.look
        segments: list[Segment] = []
        buffer = look.glyph("cursor") if cursor else " "
        if marked:
            segments.append(Segment(buffer, ground))
            segments.append(Segment(look.glyph("mark"), ground if lit else ground + look.style("mark")))
            buffer = ""
        else:
            buffer += " "
        ellipsis = look.glyph("ellipsis")
        cells = row.cells
        for item in self.placed:
            column = self.columns[item.index]
            cell = cells[item.index]
            right = column.align == "right"
            if isinstance(cell, str):
                buffer += fit(cell, item.width, right=right, ellipsis=ellipsis) + _GAP
                continue
            if cell.bar is not None:
                text = bar_and_text(cell.bar, cell.text, item.width, look.glyphs)
            else:
                text = f"{look.glyph(cell.glyph)} {cell.text}" if cell.glyph else cell.text
            text = fit(text, item.width, right=right, ellipsis=ellipsis)
            if lit or not cell.token:
                buffer += text + _GAP
                continue
            if buffer:
                segments.append(Segment(buffer, ground))
            segments.append(Segment(text, self._token(cell.token, ground)))
            buffer = _GAP
        segments.append(Segment(buffer, ground))
        return self._window(Strip(segments).adjust_cell_length(self.total, ground), scroll_x)

    def message(self, text: str, token: str) -> Strip:
        """A line of the message area."""
        style = self.base + self.look.style(token) if token else self.base
        ellipsis = self.look.glyph("ellipsis")
        return Strip([Segment(" " * GUTTER + fit(text, max(0, self.width - GUTTER), ellipsis=ellipsis), style)])

    def column_at(self, x: int) -> Column | None:
        """The column under a cell of the unscrolled line."""
        left = GUTTER
        for item in self.placed:
            if left <= x < left + item.width + GAP:
                return self.columns[item.index]
            left += item.width + GAP
        return None

    def _token(self, token: str, ground: Style) -> Style:
        if ground is self.base:
            style = self._styles.get(token)
            if style is None:
                style = self._styles[token] = ground + self.look.style(token)
            return style
        return ground + self.look.style(token)

    def _window(self, strip: Strip, scroll_x: int) -> Strip:
        if self.total <= self.width:
            return strip
        frozen = min(self.frozen, self.width)
        start = frozen + scroll_x
        return Strip.join([strip.crop(0, frozen), strip.crop(start, start + self.width - frozen)])


def _overlay(strip: Strip, x: int, glyph: str, style: Style) -> Strip:
    return Strip.join([strip.crop(0, x), Strip([Segment(glyph, style)], 1), strip.crop(x + 1, strip.cell_length)])
