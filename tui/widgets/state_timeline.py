"""`CREATING 1s > ACCEPTED 4s > WAITING 7m > PROVISIONING 92s > ACTIVE >= 31m`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """One state and how long it lasted, as far as it was seen."""

    state: str
    duration_s: float | None
    """None when nothing is known of it."""
    is_lower_bound: bool = False


class StateTimeline(Widget):
    """The states a queued resource went through, on one line; the earliest are cut when it is too narrow."""

    def set_spans(self, spans: Sequence[TimelineSpan]) -> None:
        raise NotImplementedError
