"""A table of any number of rows on the line API: it draws what is seen, and keeps the cursor on its row by key."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from tui.widgets.rows import Column, Key, Row
from tui.widgets.table_filter import FilterError, cell_text
from tui.widgets.table_model import TableModel
from tui.widgets.table_screen import TableScreen


class LiveTable(TableScreen, can_focus=True):
    """Rows that are replaced as a whole by `set_rows`, as often as they change.

    Args:
        columns: What is shown; the first column and the header stay in place when scrolling.
        empty: The sentence shown while there are no rows.
    """

    class RowHighlighted(Message):
        """The cursor is on another row; None when there is no row left."""

        def __init__(self, table: LiveTable, row: Row | None) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> LiveTable:
            return self.table

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LiveTable.RowHighlighted) and message.table is self.table

    class RowActivated(Message):
        """Enter, or a double click, on a row."""

        def __init__(self, table: LiveTable, row: Row) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> LiveTable:
            return self.table

    class MarksChanged(Message):
        """Rows were marked or unmarked."""

        def __init__(self, table: LiveTable, marks: frozenset[Key]) -> None:
            super().__init__()
            self.table = table
            self.marks = marks

        @property
        def control(self) -> LiveTable:
            return self.table

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LiveTable.MarksChanged) and message.table is self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "nothing here",
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(TableModel(columns), empty=empty, id=id, classes=classes)
        self._told: tuple[Key | None, frozenset[Key]] = (None, frozenset())

    # -- what screens call ---------------------------------------------------------------------------------------------

    @property
    def visible_rows(self) -> Sequence[Row]:
        """The rows that pass the filter, in the order of the screen."""
        return self.model.view

    def shown_keys(self) -> list[Key]:
        """The keys of the rows that stand on the screen now."""
        top = self.scroll_offset.y
        return [row.key for row in self.model.view[top : top + self.page_height]]

    @property
    def row_count(self) -> int:
        """All rows, shown or filtered out."""
        return len(self.model.rows)

    @property
    def cursor_row(self) -> Row | None:
        """The row under the cursor; None while no row is shown."""
        return self.model.view[self.model.cursor] if self.model.view else None

    @property
    def marks(self) -> frozenset[Key]:
        """The keys of the marked rows, those that the filter hides too."""
        return frozenset(self.model.marks)

    @property
    def filter_text(self) -> str:
        return self.model.filter_text

    @property
    def sort_column(self) -> str:
        """The id of the column that orders the rows; empty for the order in which they came."""
        return self.model.sort_column

    @property
    def descending(self) -> bool:
        return self.model.descending

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replaces all rows. Cursor, marks, sort and filter stay; only lines that changed are drawn again."""
        with_cursor = self._cursor_place()
        self.model.set_rows(rows)
        self._after_change(with_cursor)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replaces the columns; rows must follow, with as many cells."""
        self.model.set_columns(columns)
        self._seen = [0] * len(self.columns)
        self._forget()
        self._after_change(None)

    def set_message(self, text: str, *, kind: str = "empty") -> None:
        """What the body says while there are no rows; kind: empty, loading or error. No text: `empty`."""
        if self._message != (text, kind):
            self._message = (text, kind)
            if not self.model.view:
                self.refresh()

    def selected_rows(self) -> list[Row]:
        """The marked rows (shown ones first, in the order of the screen), or the one under the cursor."""
        return self.model.selected()

    def move_to(self, key: Key) -> bool:
        """Puts the cursor on the row of that key; False when no visible row has it."""
        index = self.model.find(key)
        if index is None:
            return False
        self.move(index)
        return True

    def clear_marks(self) -> None:
        """Unmarks everything and ends a range."""
        self.model.end_range()
        self.model.marks.clear()
        self.marks_changed()

    def cancel_range(self) -> bool:
        """Ends a range and takes back its marks; False when there was none. What `esc` does first."""
        if not self.model.in_range:
            return False
        self.model.end_range(keep=False)
        self.marks_changed()
        return True

    def set_filter(self, text: str) -> str:
        """Shows only rows that match: see `table_filter`. Returns why it is refused, or empty."""
        place_ = self._cursor_place()
        try:
            self.model.set_filter(text)
        except FilterError as error:
            return str(error)
        self._after_change(place_)
        return ""

    def sort_by(self, column_id: str, *, reverse: bool = False) -> None:
        """Sorts by a column; an empty id gives back the order in which rows came.

        Raises:
            KeyError: There is no such column.
        """
        place_ = self._cursor_place()
        self.model.sort_by(column_id, descending=reverse)
        self._painted.clear()
        self._after_change(place_)

    def reverse(self) -> None:
        """Turns the order round."""
        self.sort_by(self.sort_column, reverse=not self.descending)

    def copy_text(self, *, header: bool = False) -> str:
        """The selected rows as text, cells separated by tabs."""
        lines = ["\t".join(cell_text(cell) for cell in row.cells) for row in self.selected_rows()]
        if header:
            lines.insert(0, "\t".join(column.title for column in self.columns))
        return "\n".join(lines)

    # -- keeping screen and model together ---------------------------------------------------------------------------

    def _cursor_place(self) -> int | None:
        """On which line of the view the cursor is seen; None when it is not."""
        offset = self.model.cursor - self.scroll_offset.y
        return offset if self.model.view and 0 <= offset < self.page_height else None

    def _after_change(self, cursor_place: int | None) -> None:
        """Follows a change of rows or order: the scroll range, the reader's place, and the lines that differ."""
        self._resize_virtual()
        scroll_y = self.scroll_offset.y
        if cursor_place is not None and self.model.view and not 0 <= self.model.cursor - scroll_y < self.page_height:
            self.scroll_to(y=self.model.cursor - cursor_place, animate=False, force=True)
        self._tell()
        self._refresh_changed()

    def _tell(self) -> None:
        told_key, told_marks = self._told
        key = self.model.cursor_key
        if key != told_key:
            self.post_message(self.RowHighlighted(self, self.cursor_row))
        if self.model.marks != told_marks:
            self.post_message(self.MarksChanged(self, self.marks))
            self.refresh()
        self._told = (key, self.marks if self.model.marks != told_marks else told_marks)

    def marks_changed(self) -> None:
        """Tells of new marks and draws them."""
        self._tell()
        self.refresh()

    def move(self, index: int) -> None:
        before = self.model.cursor
        self.model.move(index)
        cursor, top = self.model.cursor, self.scroll_offset.y
        if cursor < top:
            self.scroll_to(y=cursor, animate=False, force=True)
        elif cursor >= top + self.page_height:
            self.scroll_to(y=cursor - self.page_height + 1, animate=False, force=True)
        for line in (
            {before, cursor} if not self.model.in_range else range(min(before, cursor), max(before, cursor) + 1)
        ):
            self._refresh_row(line)
        self._tell()

    def activate(self) -> None:
        if (row := self.cursor_row) is not None:
            self.post_message(self.RowActivated(self, row))
