"""The terminal driver: draws on its own descriptor of the terminal, and keeps everybody else off the screen.

Textual's driver draws on the process's standard error, and gRPC's C core, Python's own warnings and every C library write
there too. So the screen gets a descriptor of its own, and while it is up, descriptors 1 and 2 lead to the console log.
They are given back when the application leaves the screen, also for the time of a shell (`App.suspend`).

A terminal that is gone ends the application in good order: Textual would read its end for ever, at the cost of a core.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App

STDIN, STDOUT, STDERR = 0, 1, 2

ENDS = (signal.SIGHUP, signal.SIGTERM)
LOOK_S = 2.0
"""How often the terminal is looked at, for those who have SIGHUP ignored."""


def terminal_descriptor() -> int:
    """A new descriptor of the terminal: of standard error or output when one is, else of the controlling terminal.

    Raises:
        OSError: There is no terminal.
    """
    for descriptor in (STDERR, STDOUT):
        if os.isatty(descriptor):
            return os.dup(descriptor)
    return os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)


def hung_up(descriptor: int) -> bool:
    """Whether the terminal of a descriptor is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLHUP | select.POLLNVAL) for _, events in poll.poll(0))


class StreamGuard:
    """Leads descriptors 1 and 2 to a file while the screen is up; those that are no terminal are left alone."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._kept: dict[int, int] = {}

    @property
    def active(self) -> bool:
        return bool(self._kept)

    def take(self) -> None:
        """Leads the descriptors away from the terminal. Without a log, or when it cannot be opened, to nowhere."""
        if self._kept:
            return
        target = self._open_log()
        try:
            for stream, descriptor in ((sys.__stdout__, STDOUT), (sys.__stderr__, STDERR)):
                if not os.isatty(descriptor):
                    continue
                if stream is not None:
                    stream.flush()
                self._kept[descriptor] = os.dup(descriptor)
                os.dup2(target, descriptor)
        finally:
            os.close(target)

    def give_back(self) -> None:
        """Restores the descriptors as they were."""
        for descriptor, kept in self._kept.items():
            os.dup2(kept, descriptor)
            os.close(kept)
        self._kept.clear()

    def _open_log(self) -> int:
        if self._log is not None:
            try:
                return os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                # The screen comes first: a log on a full or read-only disk must not keep the console from starting.
                pass
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class TerminalDriver(LinuxDriver):
    """Textual's Linux driver with the screen to itself. The application's `console_log` names the log (or None)."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._screen_file: IO[str] = os.fdopen(
            terminal_descriptor(), "w", encoding="utf-8", errors="replace", newline=""
        )
        self._file = self._screen_file
        self._guard = StreamGuard(getattr(app, "console_log", None))
        self._before: dict[int, Any] = {}
        """What the signals did before the screen was taken."""
        self._look: asyncio.TimerHandle | None = None

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._screen_file.fileno())
        except OSError:
            return super()._get_terminal_size()
        return (size.columns or 80, size.lines or 24)

    def start_application_mode(self) -> None:
        self._guard.take()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        loop = asyncio.get_running_loop()
        for number in ENDS:
            before = signal.getsignal(number)
            if number not in self._before and before is not signal.SIG_IGN:
                self._before[number] = before
                loop.add_signal_handler(number, self._leave, number)
        self._watch(loop)

    def stop_application_mode(self) -> None:
        if self._look is not None:
            self._look.cancel()
        for number, before in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, before)
        self._before.clear()
        super().stop_application_mode()
        self._guard.give_back()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if hung_up(STDIN):
            self._leave(signal.SIGHUP)
        else:
            self._look = loop.call_later(LOOK_S, self._watch, loop)

    def _leave(self, number: int) -> None:
        """Ends the application as if it had been left. What it still draws goes nowhere when the terminal is gone."""
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, self._screen_file.fileno())
            os.close(nowhere)
        self._app.exit(return_code=128 + number)

    def close(self) -> None:
        """Ends the writer, and with it the last frame."""
        super().close()
        self._guard.give_back()
