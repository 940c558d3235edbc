"""The parent of everything that runs on simulated workers: a small process beside the simulator.

It is started by path, with the standard library alone, so that it stays small: a fork costs what its memory costs,
and no thread of gRPC or asyncio is ever copied. It is a subreaper: a program that daemonises on a worker becomes its
child, so every process of every worker is one of its descendants, whatever it does with sessions and environments.

Protocol: SOCK_SEQPACKET on the descriptor named by its only argument, one JSON object a packet. In: `{"id",
"executable", "argv", "environment", "cwd", "tty"}` with three descriptors (stdin, stdout, stderr). Out: `{"id",
"pid"}` or `{"id", "error"}`, later `{"pid", "status"}` (a wait status). When the socket closes, however the simulator
ended, every descendant is killed and then it exits itself. Direct children also ask the kernel to be killed with it
(PDEATHSIG): after a kill -9 of both the simulator and this process, only daemons would survive.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

PACKET_LIMIT = 1 << 20
"""Bytes of one request; the kernel refuses larger ones long before, and no exec could take it."""
KILL_LIMIT_S = 20.0
"""How long the last sweep may take; SIGKILL needs milliseconds unless the disk hangs."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
HIGHEST_DESCRIPTOR = 4096
EXEC_ATTEMPTS = 100
CANNOT_EXECUTE = 126
NOT_FOUND = 127


class Process(NamedTuple):
    """What /proc/PID/stat says."""

    pid: int
    state: str
    parent: int
    group: int
    session: int


def process_table() -> dict[int, Process]:
    """All processes of the machine that are not dead, by pid."""
    table: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                text = file.read(1024)
        except OSError:
            continue
        fields = text[text.rindex(b")") + 2 :].split(None, 5)
        if fields[0] in (b"Z", b"X"):
            continue
        pid = int(name)
        table[pid] = Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]))
    return table


def descendants(root: int, table: dict[int, Process]) -> list[Process]:
    """Everything below `root`, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(process.pid for process in below)
    return found


def send_signal(pids: Iterable[int], number: int) -> None:
    """Signal each pid that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _start(libc: ctypes.CDLL, request: dict[str, Any], descriptors: list[int]) -> int:
    parent = os.getpid()
    # Whoever hears of the pid may signal its group at once: the group exists by then, and what is sent waits until the
    # child has its own handling of signals instead of ours.
    grouped, group_made = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_SETMASK, range(1, signal.NSIG))
    try:
        pid = os.fork()
    except OSError:
        os.close(group_made)
        os.close(grouped)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if pid:
        os.close(group_made)
        os.read(grouped, 1)
        os.close(grouped)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    status = CANNOT_EXECUTE
    try:
        os.setsid()
        os.write(group_made, b"\0")
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_EXECUTE)
        # Above all of the three targets first, so that none is overwritten before it is copied.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64) for descriptor in descriptors]
        for target, descriptor in enumerate(high):
            os.dup2(descriptor, target)
        os.closerange(3, HIGHEST_DESCRIPTOR)
        if request["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.umask(0o022)
        os.chdir(request["cwd"])
        for attempt in range(EXEC_ATTEMPTS):
            try:
                os.execve(request["executable"], request["argv"], request["environment"])
            except OSError as error:
                # A script just written may still be open for writing in a fork that has not yet become its program.
                if error.errno != errno.ETXTBSY or attempt == EXEC_ATTEMPTS - 1:
                    raise
                time.sleep(0.01)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            status = NOT_FOUND
        os.write(2, f"{request['executable']}: {error.strerror}\n".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    size = array.array("i", [0] * 3)
    data, ancillary, _, _ = control.recvmsg(PACKET_LIMIT, socket.CMSG_SPACE(len(size) * size.itemsize))
    if not data:
        return None
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return json.loads(data.decode("utf-8", "surrogateescape")), list(descriptors)


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode())


def _reap(control: socket.socket | None) -> bool:
    """Take every exit that is due. False when no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if control is not None:
            _send(control, {"pid": pid, "status": status})


def kill_everything() -> list[int]:
    """Kill all descendants of this process, and return those that would not go."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while _reap(None) and time.monotonic() < deadline:
        below = [process.pid for process in descendants(os.getpid(), process_table())]
        send_signal(below, signal.SIGSTOP)
        send_signal(below, signal.SIGKILL)
        time.sleep(0.005)
    return [process.pid for process in descendants(os.getpid(), process_table())]


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.stderr.write("hypervisor: this kernel has no subreapers; it needs Linux 3.4\n")
        return 1
    stopping, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    ended: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.disable()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(stopping, select.POLLIN)
    while not ended:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if stopping in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(stopping, 4096)
            _reap(control)
        if control.fileno() in ready:
            try:
                received = _receive(control)
            except OSError:
                break
            if received is None:
                break
            request, descriptors = received
            try:
                _send(control, {"id": request["id"], "pid": _start(libc, request, descriptors)})
            except OSError as error:
                _send(control, {"id": request["id"], "error": error.strerror or str(error)})
            for descriptor in descriptors:
                os.close(descriptor)
    left = kill_everything()
    if left:
        sys.stderr.write(f"hypervisor: could not kill {left}\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
