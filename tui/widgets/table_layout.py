"""Where the columns of a table stand: natural widths, dropping by priority, and what is left over to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tui.widgets.rows import Column

GUTTER = 2
"""Cells before the first column: cursor and mark."""
GAP = 2
"""Cells between columns."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One column that is shown."""

    index: int
    """In the table's columns."""
    width: int


def natural_width(column: Column, seen: int) -> int:
    """The width a column asks for.

    Args:
        column: The column.
        seen: The widest cell seen so far, in cells.
    """
    if column.width is not None:
        return column.width
    return max(column.min_width, min(max(seen, len(column.title)), column.max_width))


def total_width(placed: Sequence[Placed]) -> int:
    """Cells that the columns take with gutter and gaps."""
    return GUTTER + sum(item.width for item in placed) + GAP * max(0, len(placed) - 1)


def place(columns: Sequence[Column], seen: Sequence[int], available: int) -> tuple[Placed, ...]:
    """Lays the columns out. The first is never dropped; the result may be wider than `available`: then it scrolls.

    Args:
        columns: In their order on screen.
        seen: The widest cell of each, so far.
        available: Cells of the view.
    """
    natural = [natural_width(column, width) for column, width in zip(columns, seen, strict=True)]
    least = [
        min(column.min_width, width) if column.flex else width for column, width in zip(columns, natural, strict=True)
    ]
    kept = list(range(len(columns)))

    def needed() -> int:
        return GUTTER + sum(least[index] for index in kept) + GAP * (len(kept) - 1)

    droppable = sorted(
        (index for index in kept[1:] if columns[index].priority is not None),
        key=lambda index: (columns[index].priority, -index),
    )
    for index in droppable:
        if needed() <= available:
            break
        kept.remove(index)
    widths = {index: least[index] for index in kept}
    spare = available - needed()
    flexible = [index for index in kept if columns[index].flex]
    # First what their content asks for, then all that is left.
    for goal in (
        {index: natural[index] for index in flexible},
        {index: columns[index].max_width for index in flexible},
    ):
        growing = [index for index in flexible if widths[index] < goal[index]]
        while spare > 0 and growing:
            weight = sum(columns[index].flex for index in growing)
            share = {index: max(1, spare * columns[index].flex // weight) for index in growing}
            for index in growing:
                extra = min(share[index], goal[index] - widths[index], spare)
                widths[index] += extra
                spare -= extra
            growing = [index for index in growing if widths[index] < goal[index]]
    return tuple(Placed(index, widths[index]) for index in kept)
