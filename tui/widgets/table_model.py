"""The state of a table without its screen: rows, order, filter, cursor by key, marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, count
from operator import is_not
from typing import Any, overload

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


class View(Sequence[Row]):
    """Rows in another order, without a list of them: at 16,384 rows touching each costs more than painting."""

    def __init__(self, rows: Sequence[Row], order: Sequence[int]) -> None:
        self._rows = rows
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        rows = self._rows
        if isinstance(index, slice):
            return [rows[position] for position in self.order[index]]
        return rows[self.order[index]]

    def __iter__(self) -> Iterator[Row]:
        return map(self._rows.__getitem__, self.order)


class TableModel:
    """Rows as they came, and the view of them that passes the filter in the order of the sort.

    What was derived from a row (its sort value, whether it passes) is kept for as long as the same object stands at the
    same place, so a refresh costs what changed.
    """

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
        self._anchor: Key | None = None
        self._marks_before_range: frozenset[Key] = frozenset()
        self._values: list[Any] | None = None
        """Sort value of each row; None: to be read from all rows."""
        self._values_are_text = False
        self._passes: list[bool] | None = None
        """Whether each row passes the filter; None: to be asked for all rows."""
        self._order: list[int] | None = None
        """Places of the view's rows; None: to be sorted anew."""
        self._key_before: Key | None = None
        """The cursor's row before the view became empty."""
        self._cursor_place = 0
        """Where the cursor's row stood among `rows`."""

    # -- rows --------------------------------------------------------------------------------------------------------

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Replaces the rows; the cursor stays on its key, or at its place when that is gone.

        Args:
            rows: Must not be changed afterwards. Rows that did not change are best the same objects.
        """
        old = self.rows
        self.rows = rows
        length = len(rows)
        changed = list(compress(range(length), map(is_not, rows, old))) if length == len(old) else None
        if changed is None or len(changed) > length // 2:
            self._values = self._passes = self._order = None
        else:
            self._patch(changed)
        if self.marks and (changed is None or any(rows[place].key != old[place].key for place in changed)):
            alive = {row.key for row in rows}
            self.marks &= alive
            if self._anchor is not None and self._anchor not in alive:
                self._anchor = None
        self._rebuild()

    def _patch(self, changed: list[int]) -> None:
        """Reads again what is derived from the rows that changed."""
        rows = self.rows
        if self._passes is not None and self._predicate is not None:
            known, meets = self._passes, self._predicate
            for place in changed:
                passes = meets(rows[place])
                if passes != known[place]:
                    known[place] = passes
                    self._order = None
        if self._values is not None:
            values, read = self._values, self._reader()
            read_text = self._text_reader() if self._values_are_text else None
            for place in changed:
                value = read(rows[place])
                if read_text is not None:
                    if value is not None:
                        self._values = self._order = None
                        return
                    value = read_text(rows[place])
                if value != values[place]:
                    values[place] = value
                    self._order = None

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
        self._values = self._passes = self._order = None
        self._rebuild()

    def column_index(self, column_id: str) -> int | None:
        """Where a column stands; None when there is no such column."""
        return next((index for index, column in enumerate(self.columns) if column.id == column_id), None)

    def _rebuild(self) -> None:
        if self._predicate is not None and self._passes is None:
            self._passes = list(map(self._predicate, self.rows))
            self._order = None
        if self._predicate is None and not self.sort_column:
            self._order = list(range(len(self.rows) - 1, -1, -1)) if self.descending else None
        elif self._order is None:
            self._order = self._sorted()
        self.view = self.rows if self._order is None else View(self.rows, self._order)
        self._keep_cursor()

    def _keep_cursor(self) -> None:
        view = self.view
        if not view:
            # Rows that come back, under other columns or another filter, find the cursor where it was.
            self._key_before = self.cursor_key if self.cursor_key is not None else self._key_before
            self.cursor, self.cursor_key = 0, None
            return
        if self.cursor_key is None:
            self.cursor_key, self._key_before = self._key_before, None
        if not (self.cursor < len(view) and view[self.cursor].key == self.cursor_key):
            found = self._find_cursor() if self.cursor_key is not None else None
            self.cursor = found if found is not None else min(self.cursor, len(view) - 1)
            self.cursor_key = view[self.cursor].key
        self._cursor_place = self.cursor if self._order is None else self._order[self.cursor]

    def _find_cursor(self) -> int | None:
        """The cursor's row in the view: at its old place among the rows, or wherever it went."""
        place = self._cursor_place
        if place < len(self.rows) and self.rows[place].key == self.cursor_key:
            if self._order is None:
                return place
            try:
                return self._order.index(place)
            except ValueError:
                return None
        return self.find(self.cursor_key)

    def find(self, key: Key) -> int | None:
        """Where the row of that key stands in the view."""
        return next((index for index, row in enumerate(self.view) if row.key == key), None)

    # -- sorting -----------------------------------------------------------------------------------------------------

    def _reader(self) -> Callable[[Row], Any]:
        """What tells a row's sort value; None for a row that has none. Looked up once for all rows."""
        index = self.column_index(self.sort_column)
        if index is None:
            return lambda row: None
        column = self.columns[index]
        if column.sort_key is not None:
            return column.sort_key

        def read(row: Row) -> Any:
            cell = row.cells[index]
            return cell.sort if isinstance(cell, Cell) else None

        return read

    def _text_reader(self) -> Callable[[Row], Any]:
        """What tells the words of a row's cell, so that they sort as people count."""
        index = self.column_index(self.sort_column)
        return lambda row: natural_key(cell_text(row.cells[index])) if index is not None else None

    def _sorted(self) -> list[int]:
        """Places by value, equal ones as they came, those without a value last in either direction."""
        places = list(range(len(self.rows))) if self._passes is None else list(compress(count(), self._passes))
        if not self.sort_column:
            return places[::-1] if self.descending else places
        if self._values is None:
            self._values = list(map(self._reader(), self.rows))
            self._values_are_text = False
        missing = self._values.count(None)
        if missing == len(self._values) and not self._has_sort_key():
            self._use_text()
            missing = 0
        try:
            return self._by_value(places, missing)
        except TypeError:
            self._use_text()
            return self._by_value(places, 0)

    def _has_sort_key(self) -> bool:
        index = self.column_index(self.sort_column)
        return index is not None and self.columns[index].sort_key is not None

    def _use_text(self) -> None:
        self._values = list(map(self._text_reader(), self.rows))
        self._values_are_text = True

    def _by_value(self, places: list[int], missing: int) -> list[int]:
        values = self._values
        assert values is not None
        rest: list[int] = []
        if missing:
            rest = [place for place in places if values[place] is None]
            places = [place for place in places if values[place] is not None]
        places.sort(key=values.__getitem__, reverse=self.descending)
        return places + rest

    # -- order and filter --------------------------------------------------------------------------------------------

    def sort_by(self, column_id: str, *, descending: bool = False) -> None:
        """Raises KeyError for a column that is not there; an empty id is the order in which rows came."""
        if column_id and self.column_index(column_id) is None:
            raise KeyError(column_id)
        if column_id != self.sort_column:
            self._values = None
        self.sort_column, self.descending = column_id, descending
        self._order = None
        self._rebuild()

    def set_filter(self, text: str) -> None:
        """Raises FilterError and keeps the present filter when the text can't be used."""
        predicate = parse_filter(text, self.columns)
        self._predicate = predicate
        self._passes = self._order = None
        self.filter_text = text.strip() if predicate is not None else ""
        self._rebuild()

    # -- cursor and marks --------------------------------------------------------------------------------------------

    def move(self, index: int) -> None:
        """Puts the cursor on a row of the view, clamped to its ends; a range grows or shrinks with it."""
        if not self.view:
            return
        self.cursor = max(0, min(index, len(self.view) - 1))
        self.cursor_key = self.view[self.cursor].key
        self._cursor_place = self.cursor if self._order is None else self._order[self.cursor]
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
