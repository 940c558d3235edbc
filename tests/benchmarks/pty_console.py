"""The console (or any program) on a pseudo-terminal of its own: bytes out, keys in, and what its process costs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.simulator import ROOT, own_environment

COLUMNS, LINES = 160, 50
WAIT_S = 120.0
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
_CLOCK = os.sysconf("SC_CLK_TCK")


class PtyProcess:
    """A program on a terminal of 160 x 50 cells.

    Args:
        command: What is executed.
        home: Its home, configuration and state: nothing of the operator's is read.
    """

    def __init__(self, command: Sequence[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            **own_environment(home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TEXTUAL_ANIMATIONS": "none",
            # As installed: modules are compiled once, and not at every start; the files stay out of the source tree.
            "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.started = time.perf_counter()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], list(command), environment)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.output = bytearray()
        """What it wrote since `wait_for` found its words, or since it was cleared."""

    def read(self, timeout_s: float = 0.05) -> bytes:
        """What it wrote within that time; empty when nothing came or it ended."""
        ready, _, _ = select.select([self._terminal], [], [], timeout_s)
        if not ready:
            return b""
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:
            return b""
        self.output += data
        return data

    def read_for(self, seconds: float) -> int:
        """Takes its output for a while; how many bytes came."""
        end, before = time.monotonic() + seconds, len(self.output)
        while (left := end - time.monotonic()) > 0:
            self.read(min(left, 0.5))
        return len(self.output) - before

    def wait_for(self, *words: str, timeout_s: float = WAIT_S) -> None:
        """Reads until one of the words was drawn since the last call.

        Raises:
            TimeoutError: None came.
        """
        end = time.monotonic() + timeout_s
        while True:
            text = _ESCAPE.sub(b"", bytes(self.output)).decode("utf-8", "replace")
            if any(word in text for word in words):
                self.output.clear()
                return
            if time.monotonic() > end:
                raise TimeoutError(f"never drew {words}; it drew:\n{text[-3000:]}")
            self.read(0.2)

    def press(self, text: str) -> None:
        """Sends keys as a terminal does."""
        os.write(self._terminal, text.encode())

    def cpu_s(self) -> float:
        """Processor seconds of the process so far, all its threads, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK

    def main_thread_cpu_s(self) -> float:
        """Processor seconds of its main thread so far, in the kernel's nanoseconds."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def threads_cpu_s(self) -> float:
        """Processor seconds of the threads that live now, in the kernel's nanoseconds: for the short while of a start."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found.group(1)) / 1024 if found else 0.0

    def close(self) -> None:
        """Ends it, whatever it does."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def console_command(context_file: Path) -> list[str]:
    """The console on a context."""
    return [sys.executable, "-m", "tui.cli.main", "--context-file", str(context_file)]
