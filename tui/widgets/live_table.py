"""A table of any number of rows on the line API: it draws what is seen, and keeps the cursor on its row by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.message import Message
from textual.scroll_view import ScrollView

from tui.widgets.rows import Column, Key, Row


class LiveTable(ScrollView, can_focus=True):
    """Rows that are replaced as a whole by `set_rows`, as often as they change.

    Args:
        columns: What is shown; the first column and the header stay in place when scrolling.
        empty: The sentence shown while there are no rows.
    """

    ALLOW_SELECT: ClassVar[bool] = True

    class RowHighlighted(Message):
        """The cursor is on another row, or the row under it changed its key."""

        def __init__(self, table: LiveTable, row: Row | None) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> LiveTable:
            return self.table

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LiveTable.RowHighlighted)

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
            return isinstance(message, LiveTable.MarksChanged)

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "nothing here",
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.columns = tuple(columns)
        self.empty = empty

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replaces all rows. Cursor, marks, sort and filter stay; only lines that changed are drawn again."""
        raise NotImplementedError

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replaces the columns (rows must follow with as many cells)."""
        raise NotImplementedError

    def set_message(self, text: str, *, kind: str = "empty") -> None:
        """What the body says while there are no rows; kind: empty, loading or error. No text: `empty`."""
        raise NotImplementedError

    @property
    def visible_rows(self) -> Sequence[Row]:
        """The rows that pass the filter, in the order of the screen."""
        raise NotImplementedError

    @property
    def cursor_row(self) -> Row | None:
        raise NotImplementedError

    @property
    def marks(self) -> frozenset[Key]:
        raise NotImplementedError

    def selected_rows(self) -> list[Row]:
        """The marked rows in the order of the screen, or the one under the cursor when none is marked."""
        raise NotImplementedError

    def move_to(self, key: Key) -> bool:
        """Puts the cursor on the row of that key; False when no visible row has it."""
        raise NotImplementedError

    def clear_marks(self) -> None:
        raise NotImplementedError

    def set_filter(self, text: str) -> str:
        """Shows only rows that match: a regex, `!` inverts, `column=value`. Returns why it is refused, or empty."""
        raise NotImplementedError

    @property
    def filter_text(self) -> str:
        raise NotImplementedError

    def sort_by(self, column_id: str, *, reverse: bool = False) -> None:
        """Sorts by a column; an empty id gives back the order in which rows came."""
        raise NotImplementedError

    def reverse(self) -> None:
        """Turns the order round."""
        raise NotImplementedError

    def copy_text(self, *, header: bool = False) -> str:
        """The selected rows as text, cells separated by tabs."""
        raise NotImplementedError
