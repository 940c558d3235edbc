"""A real OpenSSH sshd on a free port of this machine, answering on every address of 127.0.0.0/8, each as one worker."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.ssh.connections import ConnectionPool
from backend.targets import WorkerRef

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/bin") or ""
START_S = 60.0


@dataclass(slots=True)
class Sshd:
    """A running sshd."""

    directory: Path
    port: int
    home: Path
    key: Path
    host_key: str
    process: subprocess.Popen[bytes] = field(repr=False)

    def context(self, *, connect_limit: int = 256, route: str = "external", jump: str = "") -> Context:
        settings = SSHSettings(
            port=self.port,
            user=getpass.getuser(),
            key=self.key,
            connect_limit=connect_limit,
            route=route,
            jump=jump,
        )
        return Context(name="test", project="p", zones=("z",), ssh=settings)

    def pool(self, **options: object) -> ConnectionPool:
        """A pool that trusts this sshd's key as if the API served it."""
        journal = Journal.open(self.directory / "journal.db")
        return ConnectionPool(self.context(), FixedKeys([self.host_key]), journal, **options)  # type: ignore[arg-type]

    def close(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)


@dataclass(slots=True)
class FixedKeys:
    """A HostKeySource that serves what it is told, and counts how often it is asked."""

    keys: list[str]
    asked: int = 0
    asked_fresh: int = 0

    async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> list[str]:
        self.asked += 1
        self.asked_fresh += fresh
        return list(self.keys)


def worker(index: int, *, qr: str = "train-a", slice_index: int = 0, uid: str = "77") -> WorkerRef:
    """The worker at 127.0.(1+index/200).(1+index%200)."""
    address = f"127.0.{1 + index // 200}.{1 + index % 200}"
    return WorkerRef("p", "z", qr, slice_index, index, f"{qr}-{slice_index}", uid, address, address)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def make_key(path: Path) -> str:
    """Writes a new Ed25519 key pair; returns the public line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key("openssh"))
    path.chmod(0o600)
    return key.export_public_key("openssh").decode().strip()


@asynccontextmanager
async def sshd(directory: Path, *lines: str) -> AsyncIterator[Sshd]:
    """Starts one; `lines` are added to its configuration, the first mention of an option wins."""
    server = _launch(directory, lines)
    try:
        async with asyncio.timeout(START_S):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield server
    finally:
        server.close()


def _launch(directory: Path, lines: tuple[str, ...]) -> Sshd:
    home = directory / "home"
    home.mkdir(parents=True, exist_ok=True)
    host_public = make_key(directory / "host_key")
    operator = make_key(directory / "id_ed25519")
    (directory / "authorized_keys").write_text(operator + "\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    config = [
        *lines,
        f"Port {port}",
        "ListenAddress 0.0.0.0",
        f"AllowUsers {getpass.getuser()}@127.0.0.0/8",
        f"HostKey {directory / 'host_key'}",
        f"AuthorizedKeysFile {directory / 'authorized_keys'}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        "MaxStartups 5000",
        "MaxSessions 1000",
        f"SetEnv HOME={home}",
        "Subsystem sftp internal-sftp",
    ]
    (directory / "sshd_config").write_text("\n".join(config) + "\n")
    with (directory / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(directory / "sshd_config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    return Sshd(directory, port, home, directory / "id_ed25519", host_public, process)
