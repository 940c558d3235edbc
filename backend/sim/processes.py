"""Real processes for simulated workers: started, found and killed through one hypervisor process."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.outcomes import OperatorError
from backend.sim import hypervisor
from backend.sim.hypervisor import Process, descendants, process_table, send_signal

MARKER = "SLICETOWER_SIM_WORKER"
"""Environment variable that every process of a worker inherits: `<node uid>/<worker index>`."""
STOP_LIMIT_S = 30.0
"""How long the hypervisor may take to kill everything at the end."""
KILL_LIMIT_S = 10.0
"""How long killing one worker's processes may take."""
KILL_PAUSE_S = 0.003
SOCKET_BUFFER = 1 << 20
START_LIMIT_S = 30.0
"""How long the hypervisor may take to start a process: a fork, but on a machine that may be busy."""


class SpawnError(OperatorError):
    """A process of a simulated worker could not be started."""


@dataclass(slots=True)
class Child:
    """A process that a session or a boot started; leader of its own session and group."""

    pid: int
    ended: asyncio.Future[int]
    """Wait status (os.waitstatus_to_exitcode understands it)."""


@dataclass(slots=True)
class Hypervisor:
    """The simulator's end of the hypervisor (see `hypervisor.py` for the protocol)."""

    process: subprocess.Popen[bytes] | None = None
    control: socket.socket | None = None
    _next: int = 0
    _starting: dict[int, asyncio.Future[Child]] = field(default_factory=dict)
    _children: dict[int, Child] = field(default_factory=dict)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self.process.pid if self.process is not None else 0

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: when it cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        with theirs:
            command = [sys.executable, "-I", "-S", str(Path(hypervisor.__file__)), str(theirs.fileno())]
            self.process = await asyncio.to_thread(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
            )
        self.control = ours
        asyncio.get_running_loop().add_reader(ours, self._receive)

    async def spawn(
        self,
        executable: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        descriptors: tuple[int, int, int],
        tty: bool = False,
    ) -> Child:
        """Start a process as leader of a new session, with all signals at their defaults.

        Args:
            descriptors: its stdin, stdout and stderr; they stay open here.
            tty: make descriptor 0 its controlling terminal.

        Raises:
            SpawnError: when it could not be started, with the kernel's reason.
        """
        self._next += 1
        identity = self._next
        request = {
            "id": identity,
            "executable": executable,
            "argv": list(argv),
            "environment": dict(environment),
            "cwd": str(cwd),
            "tty": tty,
        }
        data = json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogateescape")
        started: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._starting[identity] = started
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._send(data, descriptors)
                return await started
        except (OSError, TimeoutError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer in time"
            raise SpawnError(f"{executable}: {reason}", raw=str(error)) from error
        finally:
            self._starting.pop(identity, None)

    async def _send(self, data: bytes, descriptors: tuple[int, int, int]) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        async with self._sending:
            while True:
                if self.control is None:
                    raise ConnectionError("the simulator is closed")
                try:
                    self.control.sendmsg([data], ancillary)
                    return
                except BlockingIOError:
                    await when_writable(self.control.fileno())

    def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while self.control is not None:
            try:
                data = self.control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._disconnect("the hypervisor ended")
                return
            message = json.loads(data)
            if "id" not in message:
                child = self._children.pop(message["pid"], None)
                if child is not None and not child.ended.done():
                    child.ended.set_result(message["status"])
                continue
            started = self._starting.get(message["id"])
            if "error" in message:
                if started is not None and not started.done():
                    started.set_exception(SpawnError(f"The worker could not start a process: {message['error']}."))
                continue
            child = self._children[message["pid"]] = Child(message["pid"], loop.create_future())
            if started is not None and not started.done():
                started.set_result(child)

    def _disconnect(self, why: str) -> None:
        if self.control is not None:
            asyncio.get_running_loop().remove_reader(self.control)
            self.control.close()
            self.control = None
        for started in self._starting.values():
            if not started.done():
                started.set_exception(ConnectionError(0, why))
        for child in self._children.values():
            if not child.ended.done():
                child.ended.set_result(signal.SIGKILL)
        self._children.clear()

    async def close(self) -> None:
        """Kill every process of every worker, and wait until they are gone.

        Raises:
            OperatorError: when a process would not die.
        """
        if self.process is None:
            return
        self._disconnect("the simulator is closed")
        process = self.process
        try:
            code = await asyncio.to_thread(process.wait, STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = await asyncio.to_thread(process.wait)
        self.process = None
        if code != 0:
            raise OperatorError(f"The simulated workers' processes did not all end (hypervisor: {code}).")


def owned(root: int, marker: str, sessions: Collection[int], folder: Path) -> list[int]:
    """Pids below the hypervisor `root` that belong to one worker.

    A process belongs to the worker that its environment names; one that has cleared its environment to that of its
    parent or of its session; an orphan without any of these to the worker in whose `folder` it works.
    """
    wanted = f"{MARKER}={marker}".encode()
    prefix = f"{MARKER}=".encode()
    table = process_table()
    mine: dict[int, bool] = {}
    leftover: list[Process] = []
    for process in descendants(root, table):
        named = _variable(process.pid, prefix)
        if named is not None:
            mine[process.pid] = named == wanted
        elif process.parent in mine:
            mine[process.pid] = mine[process.parent]
        else:
            leftover.append(process)
    for process in leftover:
        mine[process.pid] = (
            process.session in sessions or mine.get(process.session, False) or works_in(process, folder)
        )
    return [pid for pid, belongs in mine.items() if belongs]


def _variable(pid: int, prefix: bytes) -> bytes | None:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in content.split(b"\0"):
        if entry.startswith(prefix):
            return entry
    return None


def works_in(process: Process, folder: Path) -> bool:
    """Whether a process has its working directory or an open file below `folder`."""
    inside = f"{folder}/"
    links = [f"/proc/{process.pid}/cwd"]
    with contextlib.suppress(OSError):
        links += [f"/proc/{process.pid}/fd/{name}" for name in os.listdir(f"/proc/{process.pid}/fd")]
    for link in links:
        with contextlib.suppress(OSError):
            if f"{os.readlink(link)}/".startswith(inside):
                return True
    return False


def kill_owned(root: int, marker: str, sessions: Collection[int], folder: Path) -> list[int]:
    """Kill all processes of one worker until none is found. Blocks; run it in a thread.

    Returns:
        The pids that would not go within KILL_LIMIT_S; empty when all are gone.
    """
    deadline = time.monotonic() + KILL_LIMIT_S
    while True:
        found = owned(root, marker, sessions, folder)
        if not found or time.monotonic() > deadline:
            return found
        # Stopped first, so that none can fork while the others are killed.
        send_signal(found, signal.SIGSTOP)
        send_signal(found, signal.SIGKILL)
        time.sleep(KILL_PAUSE_S)


async def when_readable(descriptor: int) -> None:
    """Wait until a non-blocking descriptor can be read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def when_writable(descriptor: int) -> None:
    """Wait until a non-blocking descriptor can be written."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
