"""Which batch size to compile next on the way to the largest that fits."""

from __future__ import annotations

SEARCH_COMPILES = 6
SEARCH_PRECISION = 0.02
"""The largest batch is known to this share of itself when the search ends."""
ROW_STEP = 256
"""Batches that the search tries are multiples of it, as far as they are larger."""


class BatchSearch:
    """Told what the compiler said of each size, it says which to ask for next."""

    def __init__(self, first: int, guess: int) -> None:
        self.fitting = 0
        self.failing: int | None = None
        self.compiles = 0
        self._pending = [size for size in (first, _rounded(guess)) if size > 0]
        self._told: dict[int, float] = {}
        self._capacity = 0.0

    def told(self, size: int, *, fits: bool, memory_bytes: float, capacity_bytes: float) -> None:
        """What the compiler said of `size`."""
        self.compiles += 1
        self._capacity = capacity_bytes or self._capacity
        if fits:
            self.fitting = max(self.fitting, size)
            self._told[size] = memory_bytes
        else:
            self.failing = size if self.failing is None else min(self.failing, size)

    def next(self) -> int | None:
        """The next size, or None when the largest is known well enough."""
        while self._pending:
            size = self._pending.pop(0)
            if size > self.fitting and (self.failing is None or size < self.failing):
                return size
        if self.compiles >= SEARCH_COMPILES:
            return None
        if self.failing is None:
            return self._upward() if self.fitting else None
        if self.failing - self.fitting <= max(1, int(self.fitting * SEARCH_PRECISION)):
            return None
        size = self._straight_line()
        inside = self.fitting < size < self.failing
        return size if inside else (self.fitting + self.failing + 1) // 2

    def _upward(self) -> int:
        """Towards where it ends, or a little further to know that it does; twice as much when nobody can tell."""
        edge = self._straight_line()
        if not edge:
            return _rounded(self.fitting * 2)
        further = int(self.fitting * (1 + SEARCH_PRECISION))
        return max(edge if edge > further else _rounded(further), self.fitting + 1)

    def _straight_line(self) -> int:
        """Memory grows by the row, so two sizes that fit tell where the capacity is reached."""
        if len(self._told) < 2 or not self._capacity:
            return 0
        (low, a), (high, b) = sorted(self._told.items())[-2:]
        slope = (b - a) / (high - low)
        return _rounded(high + int((self._capacity - b) / slope)) if slope > 0 else 0


def _rounded(size: int) -> int:
    return size // ROW_STEP * ROW_STEP if size > ROW_STEP else size
