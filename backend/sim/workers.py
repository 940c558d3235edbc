"""The simulated workers: SSH endpoints on 127.0.0.0/8, one listening socket for all, real processes behind them.

The local address of an accepted connection selects the worker and its own host key. Nothing is made for a worker
until somebody connects to it or boots it with a startup script, so a world of 16,384 costs a few megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import ipaddress
import os
import resource
import secrets
import shutil
import socket
import struct
import sys
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
from asyncssh.channel import SSHChannel
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.outcomes import OperatorError
from backend.sim.processes import MARKER, START_LIMIT_S, Child, Hypervisor, SpawnError, kill_owned, owned
from backend.sim.sessions import SHELL, WorkerConnection, WorkerFiles

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
BACKLOG = 4096
"""Connections waiting to be accepted: a fan-out opens 256 at once, several consoles more."""
ACCEPTS_PER_WAKE = 64
ACCEPT_PAUSE_S = 0.1
LOGIN_LIMIT_S = 120.0
"""sshd's LoginGraceTime."""
WANTED_FILES = 65536
"""Open files: a connection takes one, a session three or more."""
BOOT_ID_VARIABLE = "SLICETOWER_BOOT_ID_FILE"
"""Names the file that holds the worker's own boot id; /proc holds the machine's."""
ALGORITHMS = {
    "kex_algs": ["curve25519-sha256", "ecdh-sha2-nistp256"],
    "encryption_algs": ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr"],
    "mac_algs": ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-256"],
    "compression_algs": ["none"],
}
CLOSE_LIMIT_S = 5.0

HOSTNAME_PROGRAM = """#!/bin/sh
# The worker's own name; arguments are those of the machine's program.
[ "$#" -eq 0 ] && [ -n "$HOSTNAME" ] && { printf '%s\\n' "$HOSTNAME"; exit 0; }
for place in /bin/hostname /usr/bin/hostname; do [ -x "$place" ] && exec "$place" "$@"; done
echo "hostname: not found" >&2
exit 127
"""
BASHRC = """case $- in *i*) ;; *) return ;; esac
PS1='\\u@'"$HOSTNAME"':\\w\\$ '
"""


@dataclass(frozen=True, slots=True)
class SimWorker:
    """One worker of the simulated world."""

    address: str
    """In 127.0.0.0/8, unique among the workers that exist at a time."""
    node_uid: str
    node_id: str
    slice_index: int
    worker_index: int
    hostname: str
    chips: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every session and startup script."""
    authorized_keys: tuple[str, ...] = ()
    """Beside the operator's: "ssh-ed25519 AAAA... comment", or "user:ssh-ed25519 AAAA..." as in a node's metadata."""

    @property
    def marker(self) -> str:
        """Identity: node uid and worker index, never the address."""
        return f"{self.node_uid}/{self.worker_index}"


class Machine:
    """The state of one worker's VM. Made and driven by WorkerHost."""

    __slots__ = (
        "_boot_id",
        "_host",
        "_key",
        "_options",
        "answering",
        "connections",
        "folder",
        "held",
        "on",
        "refusing",
        "sessions",
        "spec",
        "starting",
        "startup",
    )

    def __init__(self, host: WorkerHost, spec: SimWorker) -> None:
        self._host = host
        self._boot_id = ""
        self._key: asyncssh.SSHKey | None = None
        self._options: asyncssh.SSHServerConnectionOptions | None = None
        self.spec = spec
        self.folder = host.folder / spec.node_uid / str(spec.worker_index)
        self.on = False
        self.refusing = False
        self.answering = host.always
        """Not set while the worker is frozen."""
        self.connections: dict[asyncssh.SSHServerConnection, asyncio.Transport] = {}
        self.held: list[socket.socket] = []
        """Accepted while frozen."""
        self.sessions: set[int] = set()
        """Session ids of everything that was started for it since it booted."""
        self.starting: set[asyncio.Task[Child]] = set()
        self.startup: Child | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def boot_id_file(self) -> Path:
        return self.folder / "boot_id"

    @property
    def serial_log(self) -> Path:
        return self.folder / "serial.log"

    def prepare(self) -> None:
        """Make the home and the boot id that programs see, if this boot has none yet."""
        if self._boot_id:
            return
        temporary = self.folder / "tmp"
        for path in (self.home, temporary):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        bashrc = self.home / ".bashrc"
        if not bashrc.exists():
            bashrc.write_text(BASHRC)
        boot_id = str(uuid.uuid4())
        replacement = self.boot_id_file.with_suffix(".new")
        replacement.write_text(f"{boot_id}\n")
        replacement.replace(self.boot_id_file)
        self._boot_id = boot_id

    def forget_boot(self) -> None:
        """The next process sees a new boot id."""
        self._boot_id = ""

    def environment(self, user: str) -> dict[str, str]:
        """What a login of `user` gets, as from a real image's /etc/environment and sshd."""
        user = user or "root"
        return {
            "LANG": "C.UTF-8",
            **self._host.environment,
            "HOME": str(self.home),
            "USER": user,
            "LOGNAME": user,
            "SHELL": SHELL,
            "HOSTNAME": self.spec.hostname,
            "PATH": self._host.search_path,
            "TMPDIR": str(self.folder / "tmp"),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(self.spec.chips),
            **self.spec.environment,
            BOOT_ID_VARIABLE: str(self.boot_id_file),
            MARKER: self.spec.marker,
        }

    async def spawn(
        self,
        executable: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
        *,
        tty: bool = False,
    ) -> Child:
        """Start a process on this worker. The descriptors are closed here, also when it fails.

        Raises:
            SpawnError: when the worker is off, or the process cannot be started.
        """
        # A task of its own: a session that is cut while it starts a process must not hide it from power_off.
        work = asyncio.create_task(self._spawn(executable, argv, environment, descriptors, tty))
        self.starting.add(work)
        work.add_done_callback(self._started)
        return await asyncio.shield(work)

    def _started(self, work: asyncio.Task[Child]) -> None:
        self.starting.discard(work)
        if not work.cancelled():
            work.exception()

    async def _spawn(
        self,
        executable: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, int, int],
        tty: bool,
    ) -> Child:
        try:
            if not self.on:
                raise SpawnError(f"Worker {self.spec.hostname} is powered off.")
            self.prepare()
            child = await self._host.hypervisor.spawn(
                executable, argv, environment=environment, cwd=self.home, descriptors=descriptors, tty=tty
            )
            self.sessions.add(child.pid)
            return child
        finally:
            for descriptor in set(descriptors):
                os.close(descriptor)

    def sftp(self, channel: SSHChannel[bytes]) -> asyncssh.SFTPServer:
        self.prepare()
        return WorkerFiles(channel, str(self.home))

    def allows(self, user: str, key: asyncssh.SSHKey) -> bool:
        """Whether `key` may log in as `user`."""
        if key.public_data == self._host.operator_key.public_data:
            return True
        for text in self.spec.authorized_keys:
            named, separator, rest = text.partition(":")
            line = rest if separator and " " not in named else text
            if separator and " " not in named and named != user:
                continue
            with contextlib.suppress(asyncssh.KeyImportError):
                if asyncssh.import_public_key(line).public_data == key.public_data:
                    return True
        return False

    def options(self) -> asyncssh.SSHServerConnectionOptions:
        """How it serves connections: made at the first, for they cost more than a handshake."""
        if self._options is None:
            self._options = asyncssh.SSHServerConnectionOptions(
                server_factory=lambda: WorkerConnection(self),
                server_host_keys=[self.host_key()],
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
        return self._options

    def _private_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(
            hmac.digest(self._host.secret, f"host key {self.spec.marker}".encode(), "sha256")
        )

    def public_host_key(self) -> str:
        """In the form of a known_hosts line, without a comment."""
        form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return self._private_key().public_key().public_bytes(*form).decode()

    def host_key(self) -> asyncssh.SSHKey:
        """Its private host key: derived from the host's secret and the worker's identity, so nothing is stored."""
        if self._key is None:
            pem = self._private_key().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            self._key = asyncssh.import_private_key(pem)
        return self._key


class WorkerHost:
    """All workers of a simulated world behind one listening socket.

    Args:
        directory: Where homes, serial logs and the host's secret live; made if missing.
        operator_public_key: OpenSSH public key that may log in everywhere.
        environment: Added to the environment of every session, below what a worker sets itself.
    """

    def __init__(
        self, directory: Path, *, operator_public_key: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory.resolve()
        self.folder = self.directory / "workers"
        self.operator_key = asyncssh.import_public_key(operator_public_key)
        self.environment = dict(environment or {})
        self.hypervisor = Hypervisor()
        self.always = asyncio.Event()
        self.always.set()
        self.port = 0
        self.search_path = ""
        self.secret = b""
        self._machines: dict[str, Machine] = {}
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listen on `port` (0: a free one) of every loopback address, and return it.

        Raises:
            OperatorError: when the port is taken.
        """
        self._make_directory()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("0.0.0.0", port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise OperatorError(
                f"The simulated workers cannot listen on port {port}: {error.strerror}.", "Choose another port."
            ) from error
        listener.setblocking(False)
        self._listener = listener
        self.port = int(listener.getsockname()[1])
        await self.hypervisor.start()
        asyncio.get_running_loop().add_reader(listener, self._accept)
        return self.port

    def _make_directory(self) -> None:
        programs = self.directory / "bin"
        for path in (self.directory, self.folder, programs):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        hostname = programs / "hostname"
        hostname.write_text(HOSTNAME_PROGRAM)
        hostname.chmod(0o755)
        secret = self.directory / "host_secret"
        if not secret.exists():
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
        self.secret = secret.read_bytes()
        interpreter = Path(sys.executable).parent
        self.search_path = f"{interpreter}:{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    async def close(self) -> None:
        """Stop listening, drop every connection and kill every process.

        Raises:
            OperatorError: when a process would not die.
        """
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for machine in self._machines.values():
            machine.on = False
            self._thaw(machine)
            self._drop(machine)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_LIMIT_S)
        await self.hypervisor.close()

    def add(self, spec: SimWorker) -> None:
        """Register a worker, powered off until `boot`. The same worker again replaces its facts (keys, hostname).

        Raises:
            ValueError: when the address is no loopback address, or another worker has it.
        """
        if ipaddress.ip_address(spec.address) not in LOOPBACK:
            raise ValueError(f"{spec.address} is not in {LOOPBACK}")
        known = self._machines.get(spec.address)
        if known is not None and known.spec.marker != spec.marker:
            raise ValueError(f"{spec.address} belongs to worker {known.spec.marker}, not to {spec.marker}")
        if known is None:
            self._machines[spec.address] = Machine(self, spec)
        else:
            known.spec = spec

    async def remove(self, address: str) -> None:
        """Power the worker off, wipe its disk and forget it: its address is free."""
        if address in self._machines:
            await self.power_off(address, wipe=True)
            del self._machines[address]

    def _machine(self, address: str) -> Machine:
        machine = self._machines.get(address)
        if machine is None:
            raise KeyError(f"no simulated worker has the address {address}")
        return machine

    def host_key(self, address: str) -> str:
        """The worker's public host key, "ssh-ed25519 AAAA..."; KeyError for an unknown address."""
        return self._machine(address).public_host_key()

    def home(self, address: str) -> Path:
        """The home of whoever logs in to the worker."""
        return self._machine(address).home

    def serial_log(self, address: str) -> Path:
        """The output of its startup scripts, boot after boot; may not exist."""
        return self._machine(address).serial_log

    def is_on(self, address: str) -> bool:
        return self._machine(address).on

    def startup_status(self, address: str) -> int | None:
        """Exit code of this boot's startup script (negative: the signal); None while it runs or without one."""
        startup = self._machine(address).startup
        return os.waitstatus_to_exitcode(startup.ended.result()) if startup and startup.ended.done() else None

    async def boot(self, address: str, startup_script: str | None = None) -> None:
        """Power the worker on, with a new boot id; what still ran is killed first.

        Args:
            startup_script: Text that is run as a real process on this boot; its output goes to `serial_log`. It is
                not waited for. Without a `#!` line it is given to bash.

        Raises:
            OperatorError: when the script cannot be started.
        """
        machine = self._machine(address)
        if machine.on or machine.sessions:
            await self.power_off(address, wipe=False)
        machine.forget_boot()
        machine.startup = None
        machine.on = True
        if not startup_script:
            return
        machine.prepare()
        script = machine.folder / "startup-script"
        script.write_text(startup_script)
        script.chmod(0o700)
        command = [str(script)] if startup_script.startswith("#!") else [SHELL, str(script)]
        output = os.open(machine.serial_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        machine.startup = await machine.spawn(
            command[0], command, machine.environment("root"), (nothing, output, output)
        )

    async def power_off(self, address: str, *, wipe: bool) -> None:
        """Kill every process of the worker, drop its connections, answer no more.

        Args:
            wipe: Remove its disk (the node is deleted); else the home is there again after `boot`.

        Raises:
            OperatorError: when a process would not die.
        """
        machine = self._machine(address)
        machine.on = False
        self._thaw(machine)
        self._drop(machine)
        if machine.starting:
            await asyncio.wait(machine.starting, timeout=START_LIMIT_S)
        if machine.sessions:
            left = await asyncio.to_thread(
                kill_owned, self.hypervisor.pid, machine.spec.marker, frozenset(machine.sessions), machine.folder
            )
            if left:
                raise OperatorError(f"Processes of worker {machine.spec.hostname} would not die: {left}.")
            machine.sessions.clear()
        if wipe:
            await asyncio.to_thread(shutil.rmtree, machine.folder, True)
            machine.forget_boot()

    async def cut(self, address: str) -> None:
        """Drop the worker's connections; its processes live on."""
        self._drop(self._machine(address))

    def _drop(self, machine: Machine) -> None:
        for connection in list(machine.connections):
            connection.abort()
        machine.connections.clear()

    def freeze(self, address: str, seconds: float) -> None:
        """Answer nothing for so long: connections stay open and are accepted, but no byte comes back."""
        machine = self._machine(address)
        if machine.answering is not self.always:
            return
        machine.answering = asyncio.Event()
        for transport in machine.connections.values():
            transport.pause_reading()
        self._keep(self._thaw_later(machine, machine.answering, seconds))

    def thaw(self, address: str) -> None:
        """End a freeze early."""
        self._thaw(self._machine(address))

    async def _thaw_later(self, machine: Machine, frozen: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await frozen.wait()
        if machine.answering is frozen:
            self._thaw(machine)

    def _thaw(self, machine: Machine) -> None:
        machine.answering.set()
        machine.answering = self.always
        for transport in machine.connections.values():
            if not transport.is_closing():
                transport.resume_reading()
        held, machine.held = machine.held, []
        for connection in held:
            self._open(machine, connection)

    def refuse(self, address: str, on: bool) -> None:
        """Refuse new connections (as while sshd is down), or stop refusing them."""
        self._machine(address).refusing = on

    def processes(self, address: str) -> list[int]:
        """Pids of everything that runs on the worker."""
        machine = self._machine(address)
        if not machine.sessions:
            return []
        return owned(self.hypervisor.pid, machine.spec.marker, machine.sessions, machine.folder)

    def _accept(self) -> None:
        if self._listener is None:
            return
        for _ in range(ACCEPTS_PER_WAKE):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._keep(self._accept_later())
                    return
                continue
            connection.setblocking(False)
            machine = self._machines.get(connection.getsockname()[0])
            if machine is None:
                reset(connection)
            elif machine.answering is not self.always:
                machine.held.append(connection)
            else:
                self._open(machine, connection)

    async def _accept_later(self) -> None:
        """Out of descriptors: leave the next connections waiting for a while, and do not spin."""
        if self._listener is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            await asyncio.sleep(ACCEPT_PAUSE_S)
            if self._listener is not None:
                loop.add_reader(self._listener, self._accept)

    def _open(self, machine: Machine, connection: socket.socket) -> None:
        if machine.on and not machine.refusing:
            self._keep(self._serve(machine, connection))
        else:
            reset(connection)

    async def _serve(self, machine: Machine, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection = asyncssh.SSHServerConnection(loop, machine.options())
            transport, _ = await loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:
            accepted.close()
            return
        machine.connections[connection] = transport
        try:
            await connection.wait_closed()
        finally:
            machine.connections.pop(connection, None)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def reset(connection: socket.socket) -> None:
    """Close with a TCP reset, as a machine without sshd answers."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
