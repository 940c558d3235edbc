"""What a table shows, as facts: columns, cells and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

from tui.look import outcome_token, state_token

Key = Hashable
"""What identifies a row across refreshes, e.g. `QueuedResource.key`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a meaning. Remote text is shown as it is, never as markup."""

    text: str
    token: str = ""
    """What styles it: `state-active`, `muted`; empty for ordinary text."""
    glyph: str = ""
    """A glyph token drawn before the text, e.g. `state-active`."""
    sort: Any = None
    """What it sorts and compares by (a number, a time); None sorts by the text, numbers in it by value."""
    bar: float | None = None
    """A share from 0 to 1, drawn as a bar before the text in what the column has of room."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: cells in the order of the table's columns."""

    key: Key
    cells: tuple[Cell | str, ...]
    version: int = 0
    """When not 0, an equal version of the same key promises equal cells, and spares the comparison."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is drawn and sorted.

    A column is as wide as `width`, or as its title and the cells seen so far between `min_width` and `max_width`;
    what is left over goes to the columns with `flex`. Where space is short, columns with a `priority` are dropped,
    lowest first; those without are never dropped: then the table scrolls sideways.
    """

    id: str
    title: str
    width: int | None = None
    min_width: int = 3
    max_width: int = 60
    flex: int = 0
    align: Literal["left", "right"] = "left"
    sort_key: Callable[[Row], Any] | None = None
    """Overrides `Cell.sort`; must return mutually comparable values, or None (sorts last)."""
    priority: int | None = None
    hint: str = ""
    """One sentence for the help of the column."""


def state_cell(state: str, *, note: str = "") -> Cell:
    """A state as glyph and word, in its colour: never colour alone."""
    token = state_token(state)
    return Cell(f"{state} {note}".rstrip(), token=token, glyph=token)


def outcome_cell(outcome: str, *, detail: str = "") -> Cell:
    """An outcome as glyph and word, e.g. `✗ failed (1)`."""
    token = outcome_token(outcome)
    word = outcome.replace("_", " ")
    return Cell(f"{word} ({detail})" if detail else word, token=token, glyph=token)


def share_cell(share: float | None, *, token: str = "") -> Cell:
    """A share from 0 to 1 as a bar and per cent; None shows nothing."""
    if share is None or math.isnan(share):
        return Cell("")
    return Cell("<1%" if 0 < share < 0.005 else f"{share:.0%}", token=token, sort=share, bar=share)


def number_cell(value: float | None, text: str | None = None, *, token: str = "") -> Cell:
    """A number that sorts as one; None and nan are shown as `-` and sort last."""
    if value is None or math.isnan(value):
        return Cell(text if text is not None else "-", token=token or "muted")
    return Cell(text if text is not None else f"{value:g}", token=token, sort=value)
