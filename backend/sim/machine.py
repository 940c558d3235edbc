"""One simulated worker's VM: who it is, its disk, its environment, its host key, and starting programs on it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backend.sim.processes import MARKER, Child, Hypervisor, SpawnError

SHELL = "/bin/bash"
BOOT_ID_VARIABLE = "SLICETOWER_BOOT_ID_FILE"
"""Names the file that holds the worker's own boot id; /proc holds the machine's."""
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


@dataclass(slots=True)
class Premises:
    """What all machines of one simulated world share."""

    folder: Path
    """A folder for each node's uid, and in it one for each worker."""
    operator_key: asyncssh.SSHKey
    """May log in everywhere."""
    hypervisor: Hypervisor
    environment: Mapping[str, str]
    """Added to the environment of every session, below what a worker sets itself."""
    answering: asyncio.Event
    """Always set: what every machine that is not frozen waits for."""
    search_path: str = ""
    secret: bytes = b""


class Machine:
    """The state of one worker's VM. Made and driven by WorkerHost."""

    __slots__ = (
        "_boot_id",
        "_images",
        "_key",
        "_premises",
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

    def __init__(self, premises: Premises, spec: SimWorker) -> None:
        self._premises = premises
        self._boot_id = ""
        self._key: asyncssh.SSHKey | None = None
        self._images = 0
        self.spec = spec
        self.folder = premises.folder / spec.node_uid / str(spec.worker_index)
        self.on = False
        self.refusing = False
        self.answering = premises.answering
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
            **self._premises.environment,
            "HOME": str(self.home),
            "USER": user,
            "LOGNAME": user,
            "SHELL": SHELL,
            "HOSTNAME": self.spec.hostname,
            "PATH": self._premises.search_path,
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
            child = await self._premises.hypervisor.spawn(
                executable, argv, environment=environment, cwd=self.home, descriptors=descriptors, tty=tty
            )
            self.sessions.add(child.pid)
            return child
        finally:
            for descriptor in set(descriptors):
                os.close(descriptor)

    def allows(self, user: str, key: asyncssh.SSHKey) -> bool:
        """Whether `key` may log in as `user`."""
        if key.public_data == self._premises.operator_key.public_data:
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

    def _private_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(
            hmac.digest(self._premises.secret, f"host key {self.spec.marker}{self._images or ''}".encode(), "sha256")
        )

    def reimage(self) -> None:
        """From now on another host key: as a worker whose boot disk was made anew."""
        self._images += 1
        self._key = None

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
