"""A few simulated workers and a client for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import asyncssh

from backend.sim.workers import SimWorker, WorkerHost

BOUND_S = 90.0
A_SCRIPT = """
setsid sh -c 'echo $$ >> ~/pids; exec sleep 600' &
sh -c 'echo $$ >> ~/pids; trap "" TERM; sleep 600; :' &
"""
"""A startup script that leaves a daemon and a background job, their pids in ~/pids."""
T = TypeVar("T")


async def until(probe: Callable[[], T], what: str = "the state") -> T:
    """Wait until `probe` gives something true, and return it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BOUND_S
    while True:
        value = probe()
        if value:
            return value
        assert loop.time() < deadline, f"waited {BOUND_S} s for {what}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


@dataclass
class World:
    host: WorkerHost
    port: int
    key: asyncssh.SSHKey
    key_file: Path
    directory: Path

    @property
    def known_hosts(self) -> asyncssh.SSHKnownHosts:
        return asyncssh.import_known_hosts(self.known_hosts_text)

    @property
    def known_hosts_text(self) -> str:
        return "".join(f"[{name}]:{self.port} {self.host.host_key(name)}\n" for name in self.addresses)

    @property
    def addresses(self) -> list[str]:
        return [f"127.77.0.{number}" for number in range(4)]

    @asynccontextmanager
    async def connect(self, address: str = "127.77.0.0") -> AsyncIterator[asyncssh.SSHClientConnection]:
        async with asyncssh.connect(
            address,
            self.port,
            username="operator",
            client_keys=[self.key],
            known_hosts=self.known_hosts,
            config=None,
            agent_path=None,
            encoding=None,
            connect_timeout=BOUND_S,
        ) as connection:
            yield connection

    async def run(self, command: str, address: str = "127.77.0.0") -> asyncssh.SSHCompletedProcess:
        async with self.connect(address) as connection:
            return await connection.run(command, timeout=BOUND_S)

    def ssh_command(self, *command: str, address: str = "127.77.0.0", program: str = "ssh") -> list[str]:
        """OpenSSH's own client on this world."""
        known = self.directory / "known_hosts"
        known.write_text(self.known_hosts_text)
        options = ["-F", "/dev/null", "-i", str(self.key_file), "-o", f"UserKnownHostsFile={known}"]
        options += ["-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        port = "-p" if program == "ssh" else "-P"
        options += [port, str(self.port)]
        return [program, *options, *((f"operator@{address}",) if program == "ssh" else ()), *command]


def spec(number: int) -> SimWorker:
    return SimWorker(
        address=f"127.77.0.{number}",
        node_uid="7001",
        node_id="train-a-0",
        slice_index=0,
        worker_index=number,
        hostname=f"t1v-n-7001-w-{number}",
        chips=4,
    )


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """Four workers, booted; everything is gone at the end."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key_file = directory / "id_ed25519"
    key.write_private_key(key_file)
    os.chmod(key_file, 0o600)
    host = WorkerHost(directory / "sim", operator_public_key=key.export_public_key().decode())
    port = await host.start()
    try:
        for number in range(4):
            host.add(spec(number))
            await host.boot(f"127.77.0.{number}")
        yield World(host, port, key, key_file, directory)
    finally:
        await host.close()
