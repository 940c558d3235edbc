"""A whole fleet on one screen: one cell per worker, grouped by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class HeatSlice:
    """One slice: a label and one token a worker."""

    label: str
    tokens: tuple[str, ...]
    """E.g. `node-ready`, `outcome-failed`: the cell's glyph and colour."""
    cursor: int | None = None
    """The worker to point out."""


class HeatStrip(Widget):
    """Slices side by side, wrapped to the width."""

    def set_slices(self, slices: Sequence[HeatSlice]) -> None:
        raise NotImplementedError
