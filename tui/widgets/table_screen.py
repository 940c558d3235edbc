"""What of a table is on the screen: visible rows as strips, text selected by the mouse, clicks."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip

from tui.look import Look, look_of
from tui.widgets.drawing import draw_selection
from tui.widgets.rows import Column, Key, Row
from tui.widgets.table_keys import HEADER, TableKeys
from tui.widgets.table_layout import place
from tui.widgets.table_model import TableModel
from tui.widgets.table_paint import RowPainter, width_of

CACHED_ROWS = 512
"""Strips that are kept: a few screens, so that paging back costs nothing."""
_MESSAGE_TOKENS = {"error": "log-error", "loading": "muted", "empty": "muted"}


class TableScreen(TableKeys):
    """Draws the rows of a model; `LiveTable` is what screens use."""

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    TableScreen {
        background: $background;
        color: $foreground;
        height: 1fr;
        scrollbar-size-horizontal: 0;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(
        self,
        model: TableModel,
        *,
        empty: str,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(model, id=id, classes=classes)
        self.empty = empty
        self._message = ("", "empty")
        self._seen = [0] * len(model.columns)
        self._painter: RowPainter | None = None
        self._strips: LRUCache[tuple[Key, bool, bool], tuple[Row, Strip]] = LRUCache(CACHED_ROWS)
        self._painted: dict[int, tuple[Row | None, bool]] = {}

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.model.columns

    def _resize_virtual(self) -> None:
        width = self._painter.total if self._painter is not None else self.size.width
        size = Size(width, len(self.model.view) + HEADER)
        if size != self.virtual_size:
            self.virtual_size = size

    def _refresh_changed(self) -> None:
        """Asks for a repaint of those lines whose row is not the one that was painted."""
        top, view = self.scroll_offset.y, self.model.view
        if not view or not self._painted:
            self.refresh()
            return
        width, cursor = self.size.width, self.model.cursor - top
        changed: list[Region] = []
        for y in range(self.size.height - HEADER):
            row = view[top + y] if top + y < len(view) else None
            painted, with_cursor = self._painted.get(y, (None, False))
            if with_cursor == (y == cursor) and (row is painted or (row and painted and _same(row, painted))):
                continue
            changed.append(Region(0, y + HEADER, width, 1))
        if changed:
            self.refresh(*changed)

    def _refresh_row(self, index: int) -> None:
        y = index - self.scroll_offset.y
        if 0 <= y < self.page_height:
            self.refresh(Region(0, y + HEADER, self.size.width, 1))

    def _forget(self) -> None:
        self._painter = None
        self._strips.clear()
        self._painted.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget()

    def on_resize(self) -> None:
        self._forget()
        self._ensure_painter(look_of(self), self.rich_style)
        self._resize_virtual()

    def on_focus(self) -> None:
        self._refresh_row(self.model.cursor)

    def on_blur(self) -> None:
        self._refresh_row(self.model.cursor)

    @property
    def _room(self) -> int:
        """Cells for columns: what the scrollbar takes would cut the last figure of each row, and make it another."""
        return self.scrollable_content_region.width

    def _ensure_painter(self, look: Look, base: Style) -> RowPainter:
        painter = self._painter
        if painter is None or painter.look is not look or painter.base != base or painter.width != self._room:
            self._strips.clear()
            placed = place(self.columns, self._seen, self._room)
            painter = self._painter = RowPainter(self.columns, placed, look, base, self._room)
        return painter

    def render_lines(self, crop: Region) -> list[Strip]:
        """Measures the rows that are about to be seen, then paints them."""
        painter = self._ensure_painter(look_of(self), self.rich_style)
        top = self.scroll_offset.y
        grown = False
        seen = self._seen
        for row in self.model.view[top : top + self.page_height]:
            for index, cell in enumerate(row.cells):
                width = width_of(cell)
                if width > seen[index]:
                    seen[index] = width
                    grown = True
        if grown:
            placed = place(self.columns, seen, self._room)
            if placed != painter.placed:
                self._painter = RowPainter(self.columns, placed, painter.look, painter.base, self._room)
                self._strips.clear()
                self.call_after_refresh(self._after_widening)
        return super().render_lines(crop)

    def _after_widening(self) -> None:
        self._resize_virtual()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        painter = self._painter or self._ensure_painter(look_of(self), self.rich_style)
        scroll_x, scroll_y = self.scroll_offset
        if y < HEADER:
            model = self.model
            strip = painter.header(sort_column=model.sort_column, descending=model.descending, scroll_x=scroll_x)
            return self._with_selection(strip, y)
        place_ = y - HEADER
        index = scroll_y + place_
        view = self.model.view
        if index >= len(view):
            self._painted[place_] = (None, False)
            return self._message_line(painter, place_) if not view else Strip.blank(self.size.width, painter.base)
        row = view[index]
        self._painted[place_] = (row, index == self.model.cursor)
        return self._with_selection(
            self._row_strip(painter, row, index == self.model.cursor, scroll_x), index + HEADER
        )

    def _row_strip(self, painter: RowPainter, row: Row, cursor: bool, scroll_x: int) -> Strip:
        marked = row.key in self.model.marks
        if cursor or painter.total > painter.width:
            return painter.row(row, cursor=cursor, focused=self.has_focus, marked=marked, scroll_x=scroll_x)
        key = (row.key, marked, False)
        cached = self._strips.get(key)
        if cached is not None and (cached[0] is row or _same(cached[0], row)):
            return cached[1]
        strip = painter.row(row, cursor=False, focused=False, marked=marked, scroll_x=0)
        self._strips[key] = (row, strip)
        return strip

    def _message_line(self, painter: RowPainter, y: int) -> Strip:
        text, kind = self._message
        if self.model.rows:
            text = f"no row of {len(self.model.rows):,} matches '{self.model.filter_text}'"
            kind = "empty"
        width = max(10, self.size.width - 4)
        lines = [line for part in (text or self.empty).split("\n") for line in textwrap.wrap(part, width) or [""]]
        if 1 <= y <= len(lines):
            return painter.message(lines[y - 1], _MESSAGE_TOKENS.get(kind, ""))
        return Strip.blank(self.size.width, painter.base)

    # -- selecting text ----------------------------------------------------------------------------------------------

    def _with_selection(self, strip: Strip, line: int) -> Strip:
        """Lets the mouse select text: offsets for the screen, and the selection drawn over the line."""
        selection = self.text_selection if self.is_attached else None
        if selection is not None:
            strip = draw_selection(strip, selection, line, look_of(self).style("selection"))
        return strip.apply_offsets(0, line)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it stands on the screen."""
        painter = self._ensure_painter(look_of(self), self.rich_style)
        model, scroll_x = self.model, self.scroll_offset.x
        header = painter.header(sort_column=model.sort_column, descending=model.descending, scroll_x=scroll_x)
        first = selection.start.y if selection.start is not None else 0
        last = selection.end.y if selection.end is not None else len(model.view) + HEADER - 1
        lines = [""] * first
        for line in range(first, min(last, len(model.view) + HEADER - 1) + 1):
            if line < HEADER:
                lines.append(header.text.rstrip())
            else:
                lines.append(self._row_strip(painter, model.view[line - HEADER], False, scroll_x).text.rstrip())
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # -- mouse ----------------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens; on a title it sorts."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y < HEADER:
            if (column := self._column_at(offset.x)) is not None:
                self.sort_by(column.id, reverse=column.id == self.model.sort_column and not self.model.descending)
            return
        index = self.scroll_offset.y + offset.y - HEADER
        if index >= len(self.model.view):
            return
        self.move(index)
        if event.chain == 2:
            self.activate()

    def _column_at(self, x: int) -> Column | None:
        painter = self._painter
        if painter is None:
            return None
        if x >= painter.frozen:
            x += self.scroll_offset.x
        return painter.column_at(x)


def _same(one: Row, other: Row) -> bool:
    """Whether two rows look alike: by their version if they have one, else by what is drawn of their cells.

    What a cell sorts by is not drawn: an age sorts by its seconds, and reads the same for a minute.
    """
    if one.key != other.key:
        return False
    if one.version and one.version == other.version:
        return True
    if one.version or other.version or len(one.cells) != len(other.cells):
        return False
    for cell, before in zip(one.cells, other.cells, strict=True):
        if cell is before:
            continue
        if isinstance(cell, str) or isinstance(before, str):
            if cell != before:
                return False
        elif cell.text != before.text or cell.token != before.token or cell.glyph != before.glyph:
            return False
    return True
