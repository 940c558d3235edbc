"""`slicetower` as processes of its own, without paying for its imports each time.

One process (the template) imports what the verbs import and then forks a child for every command: a real process with its
own environment, folder, descriptors, signals and exit, at a tenth of the CPU time of a new interpreter. What a start from
nothing does is for `test_imports.py`, the journeys and every test that calls `python -m tui.cli.main` itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
START_S = 120.0
"""For the template to have imported everything, on a machine that is busy."""
END_S = 60.0
LONGEST_REQUEST = 1 << 20
DESCRIPTORS = 4
"""stdin, stdout, stderr and where the wait status goes."""
PRELOADED = (
    "backend.tower",
    "backend.cloud.client",
    "backend.runs.manager",
    "backend.bench.manager",
    "backend.sim.served",
)
PACKAGES = ("tui.cli",)


class Forked:
    """A command that runs, as far as tests need it like subprocess.Popen."""

    def __init__(self, pid: int, status: int, stdout: IO[bytes] | None, stderr: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout_s: float = END_S) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._look(timeout_s)
        if code is None:
            raise subprocess.TimeoutExpired("slicetower", timeout_s)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout_s: float) -> tuple[bytes, bytes]:
        """What it wrote until it closed both; kills it and raises subprocess.TimeoutExpired."""
        pieces: dict[IO[bytes], list[bytes]] = {each: [] for each in (self.stdout, self.stderr) if each is not None}
        ends_at = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for stream in pieces:
                selector.register(stream, selectors.EVENT_READ, stream)
            while selector.get_map():
                ready = selector.select(max(ends_at - time.monotonic(), 0.0))
                for key, _ in ready:
                    piece = os.read(key.fd, 65536)
                    if piece:
                        pieces[key.data].append(piece)
                    else:
                        selector.unregister(key.fileobj)
                if not ready and time.monotonic() >= ends_at:
                    self.kill()
                    break
        texts = [b"".join(each) for each in pieces.values()]
        for stream in pieces:
            stream.close()
        if time.monotonic() >= ends_at and self.poll() is None:
            self.kill()
            raise subprocess.TimeoutExpired("slicetower", timeout_s, texts[0], texts[-1])
        self.wait(END_S)
        return texts[0], texts[-1]

    def _look(self, timeout_s: float) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if selector.select(timeout_s):
                    told = os.read(self._status, 64)
                    os.close(self._status)
                    self.returncode = os.waitstatus_to_exitcode(int(told)) if told else -signal.SIGKILL
        return self.returncode


@dataclass(frozen=True, slots=True)
class _Request:
    arguments: list[str]
    environment: dict[str, str]
    folder: str


class Template:
    """The process that forks, as its owner sees it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._socket.settimeout(START_S)

    def start(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        stderr: IO[bytes] | None = None,
    ) -> Forked:
        """Starts `slicetower ARGUMENTS`; its stdout is a pipe, its stderr too unless it is given."""
        request = json.dumps([list(arguments), dict(environment), str(folder)]).encode()
        out, out_writer = os.pipe()
        errors, errors_writer = (-1, stderr.fileno()) if stderr is not None else os.pipe()
        status, status_writer = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        with self._lock:
            descriptors = [nothing, out_writer, errors_writer, status_writer]
            socket.send_fds(self._socket, [len(request).to_bytes(4, "big")], descriptors)
            self._socket.sendall(request)
            pid = int.from_bytes(_exactly(self._socket, 4), "big")
        for descriptor in (nothing, out_writer, status_writer, *([errors_writer] if stderr is None else [])):
            os.close(descriptor)
        err = os.fdopen(errors, "rb", 0) if stderr is None else None
        return Forked(pid, status, os.fdopen(out, "rb", 0), err)

    def close(self) -> None:
        """Ends it; what it forked and still runs is on its own."""
        self._socket.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S)


_template: Template | None = None


def template() -> Template:
    """The one of this process, started at its first use."""
    global _template
    if _template is None or _template.process.poll() is not None:
        _template = Template()
    return _template


@atexit.register
def close_template() -> None:
    global _template
    if _template is not None:
        _template.close()
        _template = None


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise RuntimeError("the process with the imports ended")
        data += piece
    return data


def _serve(channel: socket.socket) -> _Request:
    """Forks a child for each request; returns in the child alone. Ends with the owner."""
    statuses: dict[int, int] = {}
    wake_reader, wake_writer = socket.socketpair()
    wake_reader.setblocking(False)
    wake_writer.setblocking(False)
    signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake_reader in ready:
                wake_reader.recv(4096)
                _reap(statuses)
            if channel not in ready:
                continue
            header, descriptors, _, _ = socket.recv_fds(channel, 4, DESCRIPTORS)
            if not header:
                os._exit(0)
            arguments, environment, folder = json.loads(_exactly(channel, int.from_bytes(header, "big")))
            pid = os.fork()
            if pid:
                statuses[pid] = descriptors[3]
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
                channel.sendall(pid.to_bytes(4, "big"))
                continue
            break
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in range(3):
        os.dup2(descriptors[number], number)
    for descriptor in (*descriptors, *statuses.values()):
        os.close(descriptor)
    for each in (channel, wake_reader, wake_writer):
        each.close()
    return _Request(arguments, environment, folder)


def _reap(statuses: dict[int, int]) -> None:
    while statuses:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        descriptor = statuses.pop(pid)
        with os.fdopen(descriptor, "wb", 0) as told:
            try:
                told.write(str(status).encode())
            except BrokenPipeError:  # nobody waits for it any more
                continue


def _main() -> None:
    for package in PACKAGES:
        for each in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(each.name)
    for name in PRELOADED:
        importlib.import_module(name)
    if threading.active_count() != 1:
        raise RuntimeError(f"an import started a thread, so nothing can be forked: {threading.enumerate()}")
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.folder)
    sys.argv = ["slicetower", *request.arguments]
    from tui.cli.main import run

    run()


if __name__ == "__main__":
    _main()
