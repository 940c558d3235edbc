"""Ctrl-C while a run is followed: on a terminal a question, elsewhere the order to stop and confirm."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from backend.outcomes import Outcome
from backend.runs.fanout import Phase
from backend.runs.live import Run
from tui.cli.run_report import counts, print_stop
from tui.cli.session import say


class Interrupts:
    """What the operator wants done with a run that is being followed.

    Without a terminal the first Ctrl-C stops the run and waits until that is confirmed. On one it asks; a second one while
    it asks stops. One more while it is being stopped leaves without the confirmation.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.stopping: asyncio.Task[None] | None = None
        self.given_up = asyncio.Event()
        self.detached = False
        """The operator left the run to its supervisors."""
        self.cut_short = False
        """The operator stopped the launching while workers were left."""
        self._terminal: _Keys | None = None

    @property
    def asking(self) -> bool:
        """A question stands on the terminal: nothing else may write over it."""
        return self._terminal is not None

    def interrupt(self) -> None:
        """Ctrl-C."""
        if self.stopping is not None:
            self.given_up.set()
        elif self.asking or not _has_terminal():
            self.stop()
        else:
            self._ask()

    def stop(self) -> None:
        """Ends the run on its workers; also what a polite kill of this process does."""
        self._answered()
        if self.stopping is None:
            say("interrupted: starts nothing more, stops what runs, and confirms it (again: leave without)")
            self.stopping = asyncio.ensure_future(self._stop())

    def hang_up(self) -> None:
        """The terminal was closed: what a supervisor keeps goes on without us, all else would be left to nobody and is ended."""
        self._answered()
        if self._run.request.supervised:
            self.detached = True
            self._run.detach()
        else:
            self.stop()

    async def _stop(self) -> None:
        print_stop(await self._run.stop())

    def _ask(self) -> None:
        choices = ["k (or Ctrl-C) end what runs, and confirm"]
        if _unreached(self._run):
            choices.insert(0, "s stop launching")
        if self._run.request.supervised:
            choices.append("d detach")
        else:
            choices.append("(not started with --detach: it ends with this console)")
        print(f"\r\x1b[K{status(self._run)}", file=sys.stderr)
        print(f"  {'   '.join(choices)}   any other key: go on ", end="", file=sys.stderr, flush=True)
        self._terminal = _Keys(sys.stdin.fileno(), self._take)

    def _take(self, key: str) -> None:
        self._answered()
        if key == "s" and _unreached(self._run):
            self.cut_short = True
            self._run.stop_launching()
            say("starts nothing more; what runs goes on")
        elif key == "k":
            self.stop()
        elif key == "d" and self._run.request.supervised:
            self.detached = True
            self._run.detach()
        else:
            say("goes on")

    def _answered(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None
            print(file=sys.stderr, flush=True)

    async def close(self) -> None:
        """Gives the terminal back, and gives up a stop that nobody waits for any more."""
        self._answered()
        if self.stopping is not None:
            self.stopping.cancel()
            with suppress(asyncio.CancelledError):
                await self.stopping


class _Keys:
    """Hands single keys on, without Enter, until it is closed; Ctrl-C stays a signal."""

    def __init__(self, descriptor: int, take: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._before: list[Any] = termios.tcgetattr(descriptor)
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            typed = os.read(self._descriptor, 64)
        except OSError:
            typed = b""  # The terminal is gone: as any other key.
        self._take(typed[:1].decode("ascii", "replace").lower())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        with suppress(termios.error):  # The terminal is gone.
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)


def _has_terminal() -> bool:
    """Whether a question would be seen and an answer could come: in the background it would stop this process."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def _unreached(run: Run) -> int:
    return sum(not result.ended and result.phase is Phase.WAITING for result in run.results)


def status(run: Run) -> str:
    """`interrupted: 4 running, 3 done (2 ok, 1 failed), 9 not reached`."""
    ended = run.summary
    ended.pop(Outcome.PENDING, None)
    done = sum(ended.values())
    waiting = _unreached(run)
    how = f" ({counts(ended)})" if done else ""
    return f"interrupted: {len(run.results) - done - waiting} running, {done} done{how}, {waiting} not reached"
