"""Drives the supervisor as a worker's shell would: a home, a file, processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

PROGRAM = Path(__file__).parents[2] / "jobs" / "programs" / "supervisor.py"
BOUND_S = 90.0
INTERPRETER = os.environ.get("WORKER_PYTHON", sys.executable)
"""Whose python3 the worker has: WORKER_PYTHON runs all tests of the supervisor with an older one."""
T = TypeVar("T")


def until(probe: Callable[[], T], what: str = "the state") -> T:
    deadline = time.monotonic() + BOUND_S
    while not (value := probe()):
        assert time.monotonic() < deadline, f"waited {BOUND_S} s for {what}"
        time.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


@dataclass
class Worker:
    """A home with a boot id of its own."""

    home: Path
    interpreter: str = INTERPRETER

    @property
    def boot_file(self) -> Path:
        return self.home.parent / f"{self.home.name}.boot"

    def reboot(self, boot: str) -> None:
        self.boot_file.write_text(f"{boot}\n")

    @property
    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "SLICETOWER_BOOT_ID_FILE": str(self.boot_file)}
        return {"PATH": os.environ["PATH"], **own}

    def command(self, *arguments: str) -> list[str]:
        return [self.interpreter, "-S", str(PROGRAM), *arguments]

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments), env=self.environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, **options
        )

    def say(self, *arguments: str, stdin: bytes = b"", code: int | None = 0) -> dict[str, Any]:
        done = subprocess.run(
            self.command(*arguments), env=self.environment, input=stdin, capture_output=True, timeout=BOUND_S
        )
        assert not done.stderr, done.stderr.decode()
        assert code is None or done.returncode == code, done.stdout
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def start(self, run: str, shell: str = "", *, code: int | None = 0, **request: Any) -> dict[str, Any]:
        body = {"run": run, **({"shell": shell} if shell else {}), **request}
        return self.say("start", stdin=json.dumps(body).encode(), code=code)

    def status(self, run: str) -> dict[str, Any]:
        return self.say("status", run)

    def ended(self, run: str) -> dict[str, Any]:
        """The status once the run has ended."""

        def probe() -> dict[str, Any]:
            status = self.status(run)
            return status if status["state"] not in ("starting", "running") else {}

        return until(probe, f"the end of {run}")

    def output(self, run: str) -> bytes:
        return (self.folder(run) / "output").read_bytes()

    def folder(self, run: str) -> Path:
        return self.home / ".slicetower" / "runs" / run

    def follow(self, run: str, *arguments: str) -> tuple[dict[str, Any], bytes]:
        """All of it, to the end."""
        done = subprocess.run(
            self.command("follow", run, *arguments), env=self.environment, capture_output=True, timeout=BOUND_S
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        header, _, data = done.stdout.partition(b"\n")
        return json.loads(header), data

    def pids(self) -> list[int]:
        """Every process that has this home in its environment."""
        found = []
        mark = f"HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and alive(int(entry.name)):
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found


@contextlib.contextmanager
def worker(directory: Path, name: str = "home", *, interpreter: str = INTERPRETER) -> Iterator[Worker]:
    """A worker whose processes are gone at the end."""
    made = Worker(directory / name, interpreter)
    made.home.mkdir()
    made.reboot("boot-1")
    try:
        yield made
    finally:
        while pids := made.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
