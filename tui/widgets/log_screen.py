"""What of a log is on the screen: the page as strips, the scrollbar, the mouse and selected text."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.scrollbar import ScrollDown, ScrollTo, ScrollUp
from textual.selection import Selection
from textual.strip import Strip

from tui.look import Look, look_of
from tui.widgets.drawing import draw_span
from tui.widgets.log_keys import LogKeys
from tui.widgets.log_paint import LinePainter, status_line, window, with_offsets
from tui.widgets.log_reader import LogReader, Place
from tui.widgets.log_source import LineSource, LogLineLike
from tui.widgets.log_status import LogFacts, log_status
from tui.widgets.sgr import strip_sgr

WHEEL_ROWS = 3
"""Rows that one notch of the wheel scrolls."""
CACHED_ROWS = 512
"""Drawn rows that are kept: a few pages."""
SELECTED_LINES_MOST = 10_000
"""Lines that "select all" copies, from the end."""


class LogScreen(LogKeys):
    """Draws a reader's page; `LogView` is what screens use."""

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    LogScreen {
        background: $background;
        color: $foreground;
        height: 1fr;
        scrollbar-size-horizontal: 0;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(
        self,
        *,
        title: str,
        empty: str,
        timezone: tzinfo = UTC,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.log_title = title
        self.empty = empty
        self.timezone = timezone
        self.source: LineSource | None = None
        self._painter: LinePainter | None = None
        self._rows: LRUCache[tuple[int, int, bool, bool, int], Strip] = LRUCache(CACHED_ROWS)
        self._lines: dict[int, LogLineLike] = {}
        self._page: list[Place] = []
        self._pattern: re.Pattern[str] | None = None
        self._status_text = ""
        self._widest = 0
        self._source_width = 0
        self._selected: Selection | None = None

    @property
    def following(self) -> bool:
        """Whether the view stays at the end as lines come."""
        return self.reader.following if self.reader is not None else True

    def _rows_of(self, line: LogLineLike) -> int:
        painter = self._painter or (self._ensure_painter() if self.is_attached else None)
        return painter.rows_of(line) if painter is not None else 1

    def moved(self) -> None:
        """The page may be another one: draws it, and tells whether the view follows."""
        self._place_scrollbar()
        self.refresh()
        self.tell_follow()

    def tell_follow(self) -> None:
        """Tells whether the view follows, when that changed."""
        raise NotImplementedError

    def _place_scrollbar(self) -> None:
        """The scroll position follows the reader: it is what the scrollbar shows, nothing more.

        The virtual height grows in coarse steps: each change of it is a layout.
        """
        reader = self.reader
        if not self.is_attached or reader is None:
            return
        count = max(0, reader.source.total - reader.start)
        step = max(1, 10 ** (len(str(count)) - 2))
        height = -(-count // step) * step + (self.page_height if self.wrapping else 1)
        painter = self._painter
        prefix = painter.prefix_width if painter is not None else 0
        width = self.size.width if self.wrapping else max(self.size.width, prefix + -(-self._widest // 64) * 64)
        size = Size(width, height)
        if size.width != self.virtual_size.width or (height > self.size.height) != self.show_vertical_scrollbar:
            self.virtual_size = size
        elif size != self.virtual_size:
            # Only the scrollbar's grip changes: a layout for that would cost more than the whole flush.
            self.set_reactive(LogScreen.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = height
        place = self.max_scroll_y if self.following else reader.top[0] - reader.start
        if place != self.scroll_offset.y:
            self.scroll_to(y=place, animate=False, force=True)

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """A scrollbar that appears after its log was placed stands where the reader is: Textual tells it only later moves."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_offset.y

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        if self.reader is None or event.shift or event.ctrl:
            return
        event.prevent_default()
        event.stop()
        self.reader.scroll(direction * WHEEL_ROWS)
        self.moved()

    def on_scroll_to(self, message: ScrollTo) -> None:
        """The scrollbar was dragged."""
        if self.reader is not None and message.y is not None:
            message.prevent_default()
            message.stop()
            self.reader.set_top(self.reader.start + round(message.y))
            self.moved()

    def on_scroll_up(self, message: ScrollUp) -> None:
        """The scrollbar was clicked above its grip."""
        message.prevent_default()
        message.stop()
        self.action_page(-1)

    def on_scroll_down(self, message: ScrollDown) -> None:
        """The scrollbar was clicked below its grip."""
        message.prevent_default()
        message.stop()
        self.action_page(1)

    def forget(self) -> None:
        self._painter = None
        self._rows.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.forget()

    def on_resize(self) -> None:
        self.forget()
        self._ensure_painter()
        if self.reader is not None:
            self.reader.resize(self.page_height)
        self.moved()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # -- painting ----------------------------------------------------------------------------------------------------

    def _ensure_painter(self) -> LinePainter:
        look, base, width = look_of(self), self.rich_style, self.size.width
        painter = self._painter
        if painter is None or painter.look is not look or painter.base != base or painter.width != width:
            self._rows.clear()
            fresh = LinePainter(
                look,
                base,
                width,
                wrap=self.wrapping,
                show_time=self.show_time,
                timezone=self.timezone,
                pattern=self._pattern,
            )
            fresh.source_width = self._source_width
            painter = self._painter = fresh
        return painter

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lays the page out and reads its lines, then paints it."""
        painter = self._ensure_painter()
        self._selected = self.text_selection
        reader = self.reader
        if reader is not None:
            self._read_page(reader)
            if painter.see_sources(line.source for line in self._lines.values()):
                self._source_width = painter.source_width
                self._rows.clear()
                reader.resize(self.page_height)
                self._read_page(reader)
        return super().render_lines(crop)

    def _read_page(self, reader: LogReader) -> None:
        self._page = reader.page()
        numbers = dict.fromkeys(number for number, _ in self._page)
        self._lines = {number: line for number in numbers if (line := reader.line(number)) is not None}

    def empty_words(self) -> str:
        """What stands where there is no line."""
        return self.empty

    def render_line(self, y: int) -> Strip:
        painter = self._painter or self._ensure_painter()
        if y == self.page_height and self.size.height > 1:
            strip = self._status(painter.look, painter.base)
            self._status_text = strip.text
            return strip
        reader = self.reader
        number, row = self._page[y] if y < len(self._page) else (-1, 0)
        line = self._lines.get(number)
        if line is None or reader is None:
            if y == 1 and not self._page:
                return status_line(
                    [(f"  {self.empty_words()}", "muted", 0)], painter.look, painter.base, self.size.width
                )
            return Strip.blank(self.size.width, painter.base)
        cursor = not reader.following and number == reader.cursor
        marked = number in self.marks
        key = (number, row, cursor, marked, self.scroll_offset.x)
        finished = self.source is not None and number < self.source.total - 1
        strip_ = self._rows.get(key) if finished and self._selected is None else None
        if strip_ is None:
            strip_ = self._draw(painter, line, row, cursor=cursor, marked=marked)
            if finished and self._selected is None:
                self._rows[key] = strip_
        return strip_

    def _draw(self, painter: LinePainter, line: LogLineLike, row: int, *, cursor: bool, marked: bool) -> Strip:
        prefix = painter.prefix(line, row, cursor=cursor, marked=marked)
        width = painter.text_width
        segments = painter.text(line)
        if not self.wrapping:
            self._note_width(sum(segment.cell_length for segment in segments))
        x = row * width if self.wrapping else self.scroll_offset.x
        body = window(segments, x, width, painter.base)
        span = self._selected.get_span(line.number) if self._selected is not None else None
        if span is not None and (span[1] == -1 or span[1] > x):
            end = -1 if span[1] == -1 else span[1] - x
            body = list(draw_span(Strip(body), span[0] - x, end, painter.look.style("selection")))
        return with_offsets(prefix, body, x, line.number)

    def _note_width(self, width: int) -> None:
        if width > self._widest:
            before = -(-self._widest // 64)
            self._widest = width
            if -(-width // 64) != before and width > (self._painter.text_width if self._painter else 0):
                self.call_after_refresh(self._place_scrollbar)

    def status_facts(self) -> LogFacts:
        """What the status line says."""
        raise NotImplementedError

    def _status(self, look: Look, base: Style) -> Strip:
        return status_line(log_status(self.status_facts()), look, base, self.size.width)

    def refresh_status(self) -> bool:
        """Repaints the status line if it says something else."""
        if not self.is_attached or self.size.height < 2:
            return False
        painter = self._ensure_painter()
        if self._status(painter.look, painter.base).text == self._status_text:
            return False
        self.refresh(Region(0, self.page_height, self.size.width, 1))
        return True

    # -- selecting text, mouse ---------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without colours, from whole lines however they are wrapped or scrolled."""
        source, reader = self.source, self.reader
        if source is None or reader is None or source.total == 0:
            return None
        last = selection.end.y if selection.end is not None else source.total - 1
        first = (
            selection.start.y if selection.start is not None else max(reader.start, last - SELECTED_LINES_MOST + 1)
        )
        texts: list[str] = []
        for number in range(max(first, reader.start), min(last, source.total - 1) + 1):
            line = reader.line(number)
            span = selection.get_span(number)
            if line is not None and span is not None:
                text = strip_sgr(line.text)
                texts.append(text[span[0] : None if span[1] == -1 else span[1]])
        return "\n".join(texts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """While paused, a click puts the cursor on a line; a follower stays a follower."""
        event.prevent_default()
        offset = event.get_content_offset(self)
        reader = self.reader
        if offset is not None and reader is not None and not reader.following and offset.y < len(self._page):
            reader.cursor = self._page[offset.y][0]
            self.moved()
