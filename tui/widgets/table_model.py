"""The state of a table without its screen: rows, order, filter, cursor by key, marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tui.widgets.rows import Cell, Column, Key, Row
from tui.widgets.table_filter import FilterError, Predicate, cell_text, parse_filter

_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=65536)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `worker-2` before `worker-10`, and without regard to case."""
    return tuple(
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part)
        for part in _DIGITS.split(text.casefold())
        if part
    )


class TableModel:
    """Rows as they came, and the view of them that passes the filter in the order of the sort."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self.rows: Sequence[Row] = ()
        self.view: Sequence[Row] = ()
        self.cursor = 0
        """Index in the view; 0 while the view is empty."""
        self.cursor_key: Key | None = None
        self.marks: set[Key] = set()
        self.sort_column = ""
        self.descending = False
        self.filter_text = ""
        self._predicate: Predicate | None = None
        self._order: list[int] = []
        self._values: list[Any] = []
        self._order_descends = False
        self._anchor: Key | None = None
        self._marks_before_range: frozenset[Key] = frozenset()

    # -- rows --------------------------------------------------------------------------------------------------------

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replaces the rows; the cursor stays on its key, or at its place when that is gone."""
        self.rows = rows
        if self.marks:
            alive = {row.key for row in rows}
            self.marks &= alive
            if self._anchor is not None and self._anchor not in alive:
                self._anchor = None
        self._rebuild()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replaces the columns and forgets rows; sort and filter stay if their columns do."""
        self.columns = tuple(columns)
        if self.sort_column and self.column_index(self.sort_column) is None:
            self.sort_column, self.descending = "", False
        self.rows = ()
        try:
            self._predicate = parse_filter(self.filter_text, self.columns)
        except FilterError:
            self._predicate, self.filter_text = None, ""
        self._rebuild()

    def column_index(self, column_id: str) -> int | None:
        return next((index for index, column in enumerate(self.columns) if column.id == column_id), None)

    def _rebuild(self) -> None:
        view: Sequence[Row] = self.rows
        if self._predicate is not None:
            view = list(filter(self._predicate, view))
        index = self.column_index(self.sort_column) if self.sort_column else None
        if index is not None:
            view = self._sorted(view, index)
        elif self.descending:
            view = view[::-1]
        self.view = view
        self._keep_cursor()

    def _keep_cursor(self) -> None:
        view = self.view
        if not view:
            self.cursor, self.cursor_key = 0, None
            return
        if self.cursor < len(view) and view[self.cursor].key == self.cursor_key:
            return
        found = self.find(self.cursor_key) if self.cursor_key is not None else None
        self.cursor = found if found is not None else min(self.cursor, len(view) - 1)
        self.cursor_key = view[self.cursor].key

    def find(self, key: Key) -> int | None:
        """Where the row of that key stands in the view."""
        return next((index for index, row in enumerate(self.view) if row.key == key), None)

    def _sorted(self, rows: Sequence[Row], index: int) -> list[Row]:
        """Rows with a value first, by it; those without (unknown, `-`) last, in either direction."""
        column = self.columns[index]
        cells = [row.cells[index] for row in rows]
        values: list[Any]
        if column.sort_key is not None:
            values = [column.sort_key(row) for row in rows]
        else:
            values = [cell.sort if type(cell) is Cell else None for cell in cells]
        if all(value is None for value in values) and column.sort_key is None:
            values = [natural_key(cell if isinstance(cell, str) else cell.text) for cell in cells]
        if values != self._values or self.descending != self._order_descends or len(self._order) != len(rows):
            try:
                self._order = self._ordered(values)
            except TypeError:
                self._order = self._ordered([natural_key(cell_text(cell)) for cell in cells])
            self._values, self._order_descends = values, self.descending
        return [rows[position] for position in self._order]

    def _ordered(self, values: list[Any]) -> list[int]:
        """Positions by value, equal ones as they came, None last in either direction."""
        if None in values:
            order = [position for position, value in enumerate(values) if value is not None]
            rest = [position for position, value in enumerate(values) if value is None]
        else:
            order, rest = list(range(len(values))), []
        order.sort(key=values.__getitem__, reverse=self.descending)
        return order + rest if rest else order

    # -- order and filter --------------------------------------------------------------------------------------------

    def sort_by(self, column_id: str, *, descending: bool = False) -> None:
        """Raises KeyError for a column that is not there; an empty id is the order in which rows came."""
        if column_id and self.column_index(column_id) is None:
            raise KeyError(column_id)
        self.sort_column, self.descending = column_id, descending
        self._rebuild()

    def set_filter(self, text: str) -> None:
        """Raises FilterError and keeps the present filter when the text can't be used."""
        predicate = parse_filter(text, self.columns)
        self._predicate = predicate
        self.filter_text = text.strip() if predicate is not None else ""
        self._rebuild()

    # -- cursor and marks --------------------------------------------------------------------------------------------

    def move(self, index: int) -> None:
        """Puts the cursor on a row of the view, clamped to its ends; a range grows or shrinks with it."""
        if not self.view:
            return
        self.cursor = max(0, min(index, len(self.view) - 1))
        self.cursor_key = self.view[self.cursor].key
        if self._anchor is not None:
            self._mark_range()

    def toggle_mark(self) -> None:
        """Marks or unmarks the row under the cursor."""
        if self.cursor_key is not None:
            self.marks ^= {self.cursor_key}

    def toggle_all(self) -> None:
        """Marks every row of the view; if all are marked already, unmarks them."""
        keys = {row.key for row in self.view}
        if keys <= self.marks:
            self.marks -= keys
        else:
            self.marks |= keys

    @property
    def in_range(self) -> bool:
        """Whether moving the cursor marks."""
        return self._anchor is not None

    def start_range(self) -> None:
        self._anchor = self.cursor_key
        self._marks_before_range = frozenset(self.marks)
        if self._anchor is not None:
            self._mark_range()

    def end_range(self, *, keep: bool = True) -> None:
        """Ends the range; its marks stay, or go back to what they were."""
        if self._anchor is not None and not keep:
            self.marks = set(self._marks_before_range)
        self._anchor = None

    def _mark_range(self) -> None:
        start = self.find(self._anchor) if self._anchor is not None else None
        if start is None:
            self._anchor = None
            return
        low, high = sorted((start, self.cursor))
        self.marks = set(self._marks_before_range) | {row.key for row in self.view[low : high + 1]}

    def selected(self) -> list[Row]:
        """The marked rows (those of the view first, then those that the filter hides), else the one at the cursor."""
        if not self.marks:
            return [self.view[self.cursor]] if self.view else []
        shown = [row for row in self.view if row.key in self.marks]
        if len(shown) == len(self.marks):
            return shown
        seen = {row.key for row in shown}
        return shown + [row for row in self.rows if row.key in self.marks and row.key not in seen]
