"""Descriptor 2 belongs to the screen: what C libraries write there goes to the log, and comes back afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest

from tests.simulator import ROOT
from tui.driver import StreamGuard

COLUMNS, LINES = 60, 12
WAIT_S = 90.0
NOISE = "E0701 noise from a C library"

PROGRAM = """
import ctypes, sys
from pathlib import Path
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.widgets import Static
from tui.driver import TerminalDriver

libc = ctypes.CDLL(None)
guarded = sys.argv[1] == "guarded"

class Steady(App):
    console_log = Path(sys.argv[2])
    def compose(self):
        yield Static("steady screen", id="text")
    def on_ready(self):
        self.call_after_refresh(self.disturb)
    def disturb(self):
        for descriptor in (1, 2):
            noise = b"\\r\\n" + sys.argv[3].encode() + b"\\r\\n"
            libc.write(descriptor, noise, len(noise))
        self.query_one("#text").update("steady screen, disturbed")
    def key_q(self):
        self.exit()
    def key_s(self):
        with self.batch_update(), self.suspend():
            print("lent to a shell", flush=True)

app = Steady(driver_class=TerminalDriver if guarded else LinuxDriver)
app.run()
Path(sys.argv[2] + ".left").write_text(f"left with {app.return_code}")
libc.write(2, b"given back\\n", 11)
"""


class Screen:
    """A program in a pseudo-terminal, and what its terminal shows."""

    def __init__(self, *arguments: str, ignore_hang_up: bool = False) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            if ignore_hang_up:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir(ROOT)
            environment = {
                "PYTHONPATH": str(ROOT),
                "TERM": "xterm-256color",
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
            }
            os.execvpe(sys.executable, [sys.executable, "-c", PROGRAM, *arguments], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def until(self, words: str) -> str:
        """Reads until the screen shows the words; fails with what it shows instead."""
        end = time.monotonic() + WAIT_S
        while words not in self.text:
            if time.monotonic() > end or not self._read():
                pytest.fail(f"never showed {words!r}, but:\n{self.text}")
        return self.text

    def _read(self) -> bool:
        ready, _, _ = select.select([self.terminal], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.raw += data
        for unknown_to_pyte in (b"\x1b[>25u", b"\x1b[<u", b"\x1b[?2026$p", b"\x1b[?2048$p"):
            data = data.replace(unknown_to_pyte, b"")
        self._stream.feed(data)
        return True

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_what_a_c_library_writes_to_descriptor_2_never_reaches_the_screen(tmp_path: Path, guarded: bool) -> None:
    log = tmp_path / "console.log"
    screen = Screen("guarded" if guarded else "control", str(log), NOISE)
    try:
        shown = screen.until("steady screen, disturbed")
        # The control shows that the same noise does reach a screen that is not guarded.
        assert (NOISE.encode() in screen.raw) is not guarded
        if guarded:
            assert shown.strip() == "steady screen, disturbed"
            assert log.read_text().count(NOISE) == 2
            assert log.stat().st_mode & 0o777 == 0o600
    finally:
        screen.end()


def test_the_descriptors_are_given_back_for_a_shell_and_at_the_end(tmp_path: Path) -> None:
    screen = Screen("guarded", str(tmp_path / "console.log"), NOISE)
    try:
        screen.until("steady screen, disturbed")
        screen.press("s")
        end = time.monotonic() + WAIT_S
        while b"lent to a shell" not in screen.raw and time.monotonic() < end:
            screen._read()
        assert b"lent to a shell" in screen.raw
        screen.until("steady screen, disturbed")
        screen.press("q")
        screen.until("given back")
    finally:
        screen.end()


@pytest.mark.parametrize("how", ["closed", "ignored", "SIGTERM"])
def test_a_terminal_that_is_gone_ends_the_application(tmp_path: Path, how: str) -> None:
    screen = Screen("guarded", str(tmp_path / "console.log"), NOISE, ignore_hang_up=how == "ignored")
    screen.until("steady screen, disturbed")
    if how == "SIGTERM":
        os.kill(screen.pid, signal.SIGTERM)
        screen.until("given back")
        assert b"\x1b[?1049l" in screen.raw
    else:
        os.close(screen.terminal)
    end = time.monotonic() + WAIT_S
    while (ended := os.waitpid(screen.pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(screen.pid, signal.SIGKILL)
            os.waitpid(screen.pid, 0)
            pytest.fail("still there")
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert "left with" in (tmp_path / "console.log.left").read_text()


def test_a_log_that_cannot_be_opened_costs_the_log_alone(tmp_path: Path) -> None:
    guard = StreamGuard(tmp_path / "missing" / "console.log")
    guard.take()
    guard.give_back()
    assert not guard.active
