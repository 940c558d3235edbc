"""What a test session leaves running. Orphans count too: they are known by the session's mark or by its folders."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "SLICETOWER_TEST_SESSION"
"""In the environment of everything that a session starts."""
GONE_S = 60.0
"""For what was told to end to be gone, on a machine that is busy."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Leftover:
    pid: int
    command: str


def leftovers(mark: str, folder: Path) -> list[Leftover]:
    """Processes of the session `mark`, or whose words or environment name something in `folder`; never this one."""
    found = []
    told = (f"{MARK}={mark}\0".encode(), f"{folder}/".encode())
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if any(each in environment + b"\0" + words for each in told):
            found.append(Leftover(process.pid, words.replace(b"\0", b" ").decode("utf-8", "replace").strip()))
    return found


def end_leftovers(mark: str, folder: Path, *, timeout_s: float = GONE_S) -> list[Leftover]:
    """Those that are still there after `timeout_s`; they have been killed."""
    ends_at = time.monotonic() + timeout_s
    while (found := leftovers(mark, folder)) and time.monotonic() < ends_at:
        time.sleep(POLL_S)
    for each in found:
        try:
            os.kill(each.pid, 9)
        except ProcessLookupError:
            continue
    return found
