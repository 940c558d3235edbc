"""The simulated workers: SSH endpoints on 127.0.0.0/8, one listening socket for all, real processes behind them.

The local address of an accepted connection selects the worker and its own host key. Nothing is made for a worker
until somebody connects to it or boots it with a startup script, so a world of 16,384 costs a few megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import resource
import secrets
import shutil
import socket
import struct
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path

import asyncssh

from backend.outcomes import OperatorError
from backend.sim.machine import SHELL, Machine, Premises, SimWorker
from backend.sim.processes import START_LIMIT_S, Hypervisor, kill_owned, owned
from backend.sim.sessions import serving

__all__ = ["SimWorker", "WorkerHost"]

LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
BACKLOG = 4096
"""Connections waiting to be accepted: a fan-out opens 256 at once, several consoles more."""
ACCEPTS_PER_WAKE = 64
ACCEPT_PAUSE_S = 0.1
WANTED_FILES = 65536
"""Open files: a connection takes one, a session three or more."""
CLOSE_LIMIT_S = 5.0

HOSTNAME_PROGRAM = """#!/bin/sh
# The worker's own name; arguments are those of the machine's program.
[ "$#" -eq 0 ] && [ -n "$HOSTNAME" ] && { printf '%s\\n' "$HOSTNAME"; exit 0; }
for place in /bin/hostname /usr/bin/hostname; do [ -x "$place" ] && exec "$place" "$@"; done
echo "hostname: not found" >&2
exit 127
"""


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
        self.hypervisor = Hypervisor()
        self.premises = Premises(
            self.folder,
            asyncssh.import_public_key(operator_public_key),
            self.hypervisor,
            dict(environment or {}),
            asyncio.Event(),
        )
        self.premises.answering.set()
        self.port = 0
        self._serving: dict[Machine, asyncssh.SSHServerConnectionOptions] = {}
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
        self.premises.secret = secret.read_bytes()
        # Ours before the interpreter: that may lie beside the machine's own `hostname`.
        interpreter = Path(sys.executable).parent
        self.premises.search_path = (
            f"{programs}:{interpreter}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )
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
            self._machines[spec.address] = Machine(self.premises, spec)
        else:
            known.spec = spec

    async def remove(self, address: str) -> None:
        """Power the worker off, wipe its disk and forget it: its address is free."""
        if address in self._machines:
            await self.power_off(address, wipe=True)
            self._serving.pop(self._machines.pop(address), None)

    def _machine(self, address: str) -> Machine:
        machine = self._machines.get(address)
        if machine is None:
            raise KeyError(f"no simulated worker has the address {address}")
        return machine

    def host_key(self, address: str) -> str:
        """The worker's public host key, "ssh-ed25519 AAAA..."; KeyError for an unknown address."""
        return self._machine(address).public_host_key()

    async def reimage(self, address: str) -> None:
        """Give the worker another host key, and drop its connections."""
        machine = self._machine(address)
        machine.reimage()
        self._serving.pop(machine, None)
        self._drop(machine)

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
        if machine.answering is not self.premises.answering:
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
        machine.answering = self.premises.answering
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
            elif machine.answering is not self.premises.answering:
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
        if (options := self._serving.get(machine)) is None:
            options = self._serving[machine] = serving(machine)
        try:
            connection = asyncssh.SSHServerConnection(loop, options)
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
