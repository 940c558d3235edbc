"""How much workers may send at a time: the window of each session, and what all of them may deliver to the loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncssh

WINDOW_BYTES = 256 * 1024
WINDOW_LEAST_BYTES = 32 * 1024
WINDOWS_TOTAL_BYTES = 4 * 1024 * 1024
"""What all workers of a run may send before they are heard: more would be one long turn of the loop when they flood."""

TICK_S = 0.02
HELD_WORK_S, HELD_MOST = 0.02, 5
"""A key is painted with some 5 ms of work."""


def window_for(workers: int) -> int:
    """The receive window in bytes of one session among so many."""
    return max(WINDOW_LEAST_BYTES, min(WINDOW_BYTES, WINDOWS_TOTAL_BYTES // max(1, workers)))


class ReadBudget:
    """How many bytes all sessions together may deliver per tick, so that a flood leaves the loop time for the screen.

    Channels over the budget are paused, which stops their senders within one window, and get their turn in order.
    """

    def __init__(self, bytes_per_tick: int | None = None, tick_s: float = TICK_S) -> None:
        self.bytes_per_tick = bytes_per_tick
        """None: no limit, as in the headless verbs."""
        self.tick_s = tick_s
        self._spent = 0
        self._held_from = self._held_s = self._held_work_s = self._free_until = 0.0
        self._paused: deque[asyncssh.SSHClientChannel[bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, seconds: float) -> None:
        """Lets nothing more be delivered for so long: the operator pressed a key, and the screen comes first.

        On a busy machine that time may pass before this thread got its turn: then it lasts until the thread has worked for
        HELD_WORK_S, at most HELD_MOST times as long. A key that is kept down takes at most half of the time. Without a
        limit there is no screen, and nothing is held.
        """
        now = asyncio.get_running_loop().time()
        if self.bytes_per_tick is not None and not self._held and now >= self._free_until:
            self._held_from, self._held_s, self._held_work_s = now, seconds, time.thread_time()

    @property
    def _held(self) -> bool:
        if not self._held_s:
            return False
        now = asyncio.get_running_loop().time()
        held_s = now - self._held_from
        if held_s < self._held_s:
            return True
        if held_s < self._held_s * HELD_MOST and time.thread_time() - self._held_work_s < HELD_WORK_S:
            return True
        self._free_until = now + held_s
        self._held_s = 0.0
        return False

    def spend(self, channel: asyncssh.SSHClientChannel[bytes], count: int) -> None:
        if self.bytes_per_tick is None:
            return
        self._spent += count
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.tick_s, self._refill)
        if self._spent >= self.bytes_per_tick or self._held:
            channel.pause_reading()
            self._paused.append(channel)

    def _refill(self) -> None:
        self._timer = None
        self._spent = 0
        turns = 0 if self._held else len(self._paused)
        while turns and (self.bytes_per_tick is None or self._spent < self.bytes_per_tick):
            turns -= 1
            self._paused.popleft().resume_reading()
        if self._paused and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.tick_s, self._refill)
