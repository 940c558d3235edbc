"""How often, and how many at a time, workers are asked whether ssh answers, by route."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How a route is asked."""

    at_once: int
    fresh_per_s: float
    """Workers that nobody asked yet."""
    silent_per_s: float
    known_per_s: float
    """Workers that have answered: this goes on for ever."""
    most: int = 0
    """Workers of a request that are asked by themselves; 0: all."""


DIRECT = Pace(32, 100.0, 20.0, 4.0)
PACES = {
    "jump": Pace(16, 40.0, 10.0, 2.0),
    "config": Pace(4, 10.0, 2.0, 0.2, most=256),
    "iap": Pace(2, 0.5, 0.1, 1 / 120, most=16),
}
"""Where it is not `DIRECT`: channels of one connection; `ssh -G` and perhaps a program for each; a gcloud for each."""


class Rate:
    """So many a second; what is not used is not saved beyond a moment."""

    def __init__(self, per_s: float, gather_s: float) -> None:
        self._gap_s = 1.0 / per_s
        self.gather_s = gather_s
        """Nothing begins for one alone that came so little earlier than others: fewer turns of the loop."""
        self.free_at = float("-inf")

    def take(self, now: float) -> None:
        self.free_at = max(self.free_at, now - self.gather_s) + self._gap_s
