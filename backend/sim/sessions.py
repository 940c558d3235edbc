"""One SSH session on a simulated worker: a shell, a command, SFTP or scp, with real processes behind it.

It behaves as OpenSSH's sshd does: a lost connection closes the pipes of a command (which may run on) and hangs up a
terminal; a signal request goes to the process group; the channel stays open until the last holder of the output has
closed it. Pumps are our own, with drain: a redirect of asyncssh 2.24 drops the whole connection when a client closes
a channel early (research: ssh, section 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Awaitable, Coroutine
from typing import cast

import asyncssh
from asyncssh.channel import SSHChannel

from backend.sim.machine import SHELL, Machine
from backend.sim.processes import Child, SpawnError, when_readable, when_writable

CHUNK = 64 * 1024
"""Bytes per read of a process's output."""
SESSIONS_PER_CONNECTION = 10
"""sshd's default MaxSessions."""
ACCEPTED_VARIABLES = ("LANG", "LC_")
"""sshd's AcceptEnv on the usual images."""
SIGNALS: dict[str, int] = {
    name: getattr(signal, f"SIG{name}")
    for name in ("ABRT", "ALRM", "FPE", "HUP", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2")
}
"""Signals that sshd delivers (RFC 4254, section 6.9)."""
NOT_STARTED = 126
SCP_PEER = re.compile(r"scp (-\S+ )*-[tf] ")
LOGIN_LIMIT_S = 120.0
"""sshd's LoginGraceTime."""
ALGORITHMS = {
    "kex_algs": ["curve25519-sha256", "ecdh-sha2-nistp256"],
    "encryption_algs": ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr"],
    "mac_algs": ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-256"],
    "compression_algs": ["none"],
}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


class Descriptor:
    """A non-blocking file descriptor of ours that is closed once."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        self._open = True

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self.number)

    async def read(self) -> bytes:
        """The next bytes; empty at the end (also when the last terminal user has gone)."""
        while True:
            try:
                return os.read(self.number, CHUNK)
            except BlockingIOError:
                await when_readable(self.number)
            except OSError:
                return b""

    def read_ready(self) -> bytes:
        """What can be read without waiting."""
        try:
            return os.read(self.number, CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: when the reader has gone.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.number, rest) :]
            except BlockingIOError:
                await when_writable(self.number)


class WorkerSession(asyncssh.SSHServerProcess[bytes]):
    """One session channel of a connection to a worker."""

    def __init__(self, machine: Machine, connection: WorkerConnection) -> None:
        super().__init__(self._serve, self._files, 3, True)
        self._machine = machine
        self._connection = connection
        self._child: Child | None = None
        self._early: list[int] = []
        """Signals that came before the program was started: sshd forks before it reads on, so none may be lost."""
        self._terminal: Descriptor | None = None
        self._lost = asyncio.Event()

    def _files(self, channel: SSHChannel[bytes]) -> asyncssh.SFTPServer:
        self._machine.prepare()
        return WorkerFiles(channel, str(self._machine.home))

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:
        return True

    def signal_received(self, signal: str) -> None:
        """Delivered at once, not in the order of stdin: a program that never reads must still be killable."""
        number = SIGNALS.get(signal)
        if number is None:
            return
        if self._child is None:
            self._early.append(number)
        elif not self._child.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def break_received(self, msec: int) -> bool:
        return False

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        if self._terminal is not None:
            set_size(self._terminal.number, (width, height, pixwidth, pixheight))

    def eof_received(self) -> bool:
        # sftp-server exits with 0 when its client is done; without a status OpenSSH's scp reports a failure.
        if self._chan is not None and not self._connection_lost and self.channel.get_subsystem() == "sftp":
            self.channel.exit(0)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connection.sessions -= 1
        self._lost.set()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        try:
            if process.subsystem is not None:
                self.stderr.write(b"subsystem request failed\n")
                self.exit(1)
            elif process.term_type is not None:
                await self._serve_terminal(process.term_type)
            else:
                await self._serve_pipes()
        except SpawnError as error:
            with contextlib.suppress(OSError):
                self.stderr.write(f"{error.what}\n".encode())
                self.exit(NOT_STARTED)
        except (OSError, asyncssh.Error):
            # An exception that left this coroutine would take the whole connection down.
            self.channel.abort()

    async def _spawn(self, extra: dict[str, str], descriptors: tuple[int, int, int], *, tty: bool) -> Child:
        environment = self._machine.environment(str(self.get_extra_info("username", "")))
        for name, value in self.env.items():
            if str(name).startswith(ACCEPTED_VARIABLES):
                environment[str(name)] = str(value)
        peer = self.get_extra_info("peername") or ("", 0)
        local = self.get_extra_info("sockname") or ("", 0)
        environment["SSH_CLIENT"] = f"{peer[0]} {peer[1]} {local[1]}"
        environment["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {local[0]} {local[1]}"
        environment.update(extra)
        argv = ["bash"] if self.command is None else ["bash", "-c", self.command]
        child = self._child = await self._machine.spawn(SHELL, argv, environment, descriptors, tty=tty)
        for number in self._early:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        return child

    def exec_requested(self, command: str) -> bool:
        # Only what scp's peer asks for; `scp a b` is a program of the worker.
        self._allow_scp = SCP_PEER.match(command) is not None
        return super().exec_requested(command)

    async def _serve_pipes(self) -> None:
        theirs_in, ours_in = os.pipe2(os.O_CLOEXEC)
        ours_out, theirs_out = os.pipe2(os.O_CLOEXEC)
        ours_error, theirs_error = os.pipe2(os.O_CLOEXEC)
        stdin, stdout, stderr = Descriptor(ours_in), Descriptor(ours_out), Descriptor(ours_error)
        try:
            child = await self._spawn({}, (theirs_in, theirs_out, theirs_error), tty=False)

            async def forward() -> None:
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._pump(stdout, self.stdout))
                    pumps.create_task(self._pump(stderr, self.stderr))
                await asyncio.shield(child.ended)

            if await self._fed(stdin, forward(), close_at_end=True):
                await self._finish(child)
        finally:
            for ours in (stdin, stdout, stderr):
                ours.close()

    async def _serve_terminal(self, term_type: str) -> None:
        ours, theirs = pty.openpty()
        terminal = self._terminal = Descriptor(ours)
        try:
            set_size(ours, self.term_size)
            extra = {"TERM": term_type, "SSH_TTY": os.ttyname(theirs)}
            child = await self._spawn(extra, (theirs, theirs, theirs), tty=True)

            async def forward() -> None:
                pump = asyncio.create_task(self._pump(terminal, self.stdout))
                try:
                    await asyncio.shield(child.ended)
                finally:
                    pump.cancel()
                    await asyncio.wait([pump])
                # A background job may keep the terminal open; it does not keep the session.
                while data := terminal.read_ready():
                    await self._send(self.stdout, data)

            if await self._fed(terminal, forward(), close_at_end=False):
                await self._finish(child)
        finally:
            self._terminal = None
            terminal.close()

    async def _fed(self, stdin: Descriptor, forward: Coroutine[None, None, None], *, close_at_end: bool) -> bool:
        """Run `forward` while stdin is fed. False when the channel was closed first."""
        feeding = asyncio.create_task(self._feed(stdin, close_at_end=close_at_end))
        forwarding = asyncio.create_task(forward)
        losing = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([forwarding, losing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (feeding, forwarding, losing):
                task.cancel()
            await asyncio.wait([feeding, forwarding, losing])
        whole = not forwarding.cancelled() and self._completed(forwarding)
        return whole and not self._lost.is_set()

    @staticmethod
    def _completed(forwarding: asyncio.Task[None]) -> bool:
        """False when it failed because the client has gone: a cut shows as that before the channel knows of it."""
        try:
            forwarding.result()
        except (OSError, asyncssh.Error):
            return False
        return True

    async def _pump(self, source: Descriptor, target: asyncssh.SSHWriter[bytes]) -> None:
        while data := await source.read():
            try:
                await self._send(target, data)
            except (OSError, asyncssh.Error):
                # Both are how a write to a connection that was cut ends, by the moment of the cut.
                return

    async def _send(self, target: asyncssh.SSHWriter[bytes], data: bytes) -> None:
        await self._machine.answering.wait()
        target.write(data)
        await target.drain()
        # drain does not yield while there is room, and a flood must not hold the loop.
        await asyncio.sleep(0)

    async def _feed(self, target: Descriptor, *, close_at_end: bool) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await self.stdin.read(CHUNK):
                await target.write(data)
        if close_at_end:
            target.close()

    async def _finish(self, child: Child) -> None:
        await self._machine.answering.wait()
        status = child.ended.result()
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name.removeprefix("SIG")
            self.exit_with_signal(name, os.WCOREDUMP(status))
        else:
            self.exit(os.waitstatus_to_exitcode(status))


class WorkerConnection(asyncssh.SSHServer):
    """One connection to a worker: who may log in, and what may be opened over it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.connection: asyncssh.SSHServerConnection | None = None
        self.sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.connection = conn

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._machine.allows(username, key)

    def session_requested(self) -> WorkerSession | bool:
        if self.sessions >= SESSIONS_PER_CONNECTION:
            return False
        self.sessions += 1
        return WorkerSession(self._machine, self)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        if dest_host in (*LOOPBACK_NAMES, self._machine.spec.hostname, self._machine.spec.address):
            assert self.connection is not None
            forwarder = self.connection.forward_connection(self._machine.spec.address, dest_port)
            return cast("Awaitable[asyncssh.SSHTCPSession[bytes]]", forwarder)
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
            f"a simulated worker forwards to itself only, not to {dest_host}",
        )


def serving(machine: Machine) -> asyncssh.SSHServerConnectionOptions:
    """How a machine serves connections. Making it costs more than a handshake: keep it until the host key changes."""
    return asyncssh.SSHServerConnectionOptions(
        server_factory=lambda: WorkerConnection(machine),
        server_host_keys=[machine.host_key()],
        encoding=None,
        gss_host=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_pty=True,
        rdns_lookup=False,
        login_timeout=LOGIN_LIMIT_S,
        server_version="OpenSSH_8.9p1",
        **ALGORITHMS,
    )


SHARED = b"/tmp"
"""Of this machine, for SFTP as for commands."""


class WorkerFiles(asyncssh.SFTPServer):
    """SFTP on a worker: `/` is its home. A path that lies in the home, as programs there print it, is kept, as is one in /tmp."""

    def __init__(self, channel: SSHChannel[bytes], home: str) -> None:
        super().__init__(cast("asyncssh.SSHServerChannel[bytes]", channel), chroot=os.fsencode(home))
        self._home = os.fsencode(os.path.realpath(home))

    def map_path(self, path: bytes) -> bytes:
        if os.path.normpath(path).startswith(SHARED + b"/"):
            return os.path.normpath(path)
        if path == self._home or path.startswith(self._home + b"/"):
            path = path[len(self._home) :] or b"/"
        return super().map_path(path)


def set_size(descriptor: int, size: tuple[int, int, int, int]) -> None:
    """Give a terminal its size: columns, rows, and both in pixels (the order of SSH)."""
    columns, rows, width, height = size
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
