"""The footer: which keys do what, here and now, on one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class Hint:
    """One key and its word."""

    key: str
    label: str
    priority: int = 0
    """Lowest is dropped first when the line is narrow."""
    action: str = ""
    """A Textual action that a click on the hint runs; empty: none."""


class HintsFooter(Widget):
    """Hints in their order; a message may stand in their place."""

    def set_hints(self, hints: Sequence[Hint]) -> None:
        raise NotImplementedError
