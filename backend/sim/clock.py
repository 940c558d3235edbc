"""Time of the simulated world: what it reads, and what is due when.

The world never sleeps. It notes callbacks on an agenda; whoever owns the world (a served simulator, a unit test)
calls `run_due` at the right moments. Speed shortens delays; time stamps are always those of the clock.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

DEFAULT_SPEED = 20.0
"""A request that takes the real service four and a half minutes takes about thirteen seconds."""


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class WallClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()


class ManualClock:
    """A clock that a test turns."""

    def __init__(self, start: float = 1_790_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def set(self, now: float) -> None:
        self._now = max(self._now, now)


class Appointment:
    """A callback that is due at `at` (seconds since the epoch) unless it is cancelled."""

    __slots__ = ("action", "at", "cancelled")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Agenda:
    """What happens later. `speed` divides every delay given in the service's own seconds."""

    def __init__(self, clock: Clock, speed: float = DEFAULT_SPEED) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self.clock = clock
        self.speed = speed
        self.changed: Callable[[], None] = lambda: None
        """Called when something was added: a sleeping owner has to look at `next_due` again."""
        self._heap: list[tuple[float, int, Appointment]] = []
        self._sequence = itertools.count()

    def after(self, delay_s: float, action: Callable[[], None]) -> Appointment:
        """Due after `delay_s` of the service's seconds, i.e. `delay_s / speed` of the clock's."""
        return self.at(self.clock.now() + delay_s / self.speed, action)

    def at(self, moment: float, action: Callable[[], None]) -> Appointment:
        """Due at a moment of the clock, whatever the speed."""
        appointment = Appointment(moment, action)
        heapq.heappush(self._heap, (moment, next(self._sequence), appointment))
        self.changed()
        return appointment

    def next_due(self) -> float | None:
        """The moment of the next appointment, or None when nothing is to come."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> int:
        """Runs everything that is due, in order of time, and returns how much that was."""
        count = 0
        while (due := self.next_due()) is not None and due <= self.clock.now():
            appointment = heapq.heappop(self._heap)[2]
            appointment.action()
            count += 1
        return count

    def advance(self, seconds: float) -> None:
        """Turns a manual clock `seconds` further, stopping at each appointment on the way.

        Raises:
            TypeError: The clock is not a manual one.
        """
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise TypeError("only a manual clock can be turned")
        end = clock.now() + seconds
        while (due := self.next_due()) is not None and due <= end:
            clock.set(due)
            self.run_due()
        clock.set(end)
