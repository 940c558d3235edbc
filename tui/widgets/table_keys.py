"""The keys of a table: what each does to the model and the scroll position."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.scroll_view import ScrollView

from tui.widgets.table_model import TableModel

HEADER = 1
"""Lines above the rows."""
SIDEWAYS = 8
"""Cells that one press of left or right scrolls."""


class TableKeys(ScrollView):
    """Bindings and their actions; `LiveTable` does the work."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="table.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="table.up"),
        Binding("ctrl+d", "half_page(1)", "half a page down", show=False, id="table.half-page-down"),
        Binding("ctrl+u", "half_page(-1)", "half a page up", show=False, id="table.half-page-up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="table.page-down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="table.page-up"),
        Binding("g,home", "top", "first row", show=False, id="table.top"),
        Binding("G,end", "bottom", "last row", show=False, id="table.bottom"),
        Binding("left", "sideways(-1)", "columns to the left", show=False, id="table.left"),
        Binding("right", "sideways(1)", "columns to the right", show=False, id="table.right"),
        Binding("enter", "activate", "open", show=False, id="table.activate"),
        Binding("space", "mark", "mark", show=False, id="table.mark"),
        Binding("v", "range", "mark a range", show=False, id="table.range"),
        Binding("asterisk", "mark_all", "mark all shown", show=False, id="table.mark-all"),
        Binding("O", "reverse_order", "reverse the order", show=False, id="table.reverse"),
    ]

    def __init__(self, model: TableModel, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.model = model

    @property
    def page_height(self) -> int:
        """Rows that fit."""
        return max(1, self.size.height - HEADER)

    def move(self, index: int) -> None:
        """Puts the cursor on a row of the view and brings it into sight."""
        raise NotImplementedError

    def activate(self) -> None:
        """Opens the row under the cursor."""
        raise NotImplementedError

    def sort_by(self, column_id: str, *, reverse: bool = False) -> None:
        """Sorts by a column."""
        raise NotImplementedError

    def reverse(self) -> None:
        """Turns the order round."""
        raise NotImplementedError

    def marks_changed(self) -> None:
        """Tells of new marks and draws them."""
        raise NotImplementedError

    def action_move(self, rows: int) -> None:
        self.move(self.model.cursor + rows)

    def action_page(self, direction: int) -> None:
        self.move(self.model.cursor + direction * max(1, self.page_height - 1))

    def action_half_page(self, direction: int) -> None:
        self.move(self.model.cursor + direction * max(1, self.page_height // 2))

    def action_top(self) -> None:
        self.move(0)

    def action_bottom(self) -> None:
        self.move(len(self.model.view) - 1)

    def action_sideways(self, direction: int) -> None:
        self.scroll_to(x=self.scroll_offset.x + direction * SIDEWAYS, animate=False)

    def action_activate(self) -> None:
        self.activate()

    def action_mark(self) -> None:
        self.model.end_range()
        self.model.toggle_mark()
        self.move(self.model.cursor + 1)

    def action_range(self) -> None:
        if self.model.in_range:
            self.model.end_range()
        else:
            self.model.start_range()
        self.marks_changed()

    def action_mark_all(self) -> None:
        self.model.end_range()
        self.model.toggle_all()
        self.marks_changed()

    def action_reverse_order(self) -> None:
        self.reverse()
