"""A real OpenSSH sshd on a free port of 127.0.0.1, for tests marked `sshd`. Where there is none, they fail.

Use the fixture `sshd` for one with OpenSSH's defaults, `start_sshd` for others: `start_sshd(MaxStartups="10:30:100")`.
Works as root and as an ordinary user: the login is the user who runs the tests, the home is a folder of the test.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest

START_LIMIT_S = 60.0
END_LIMIT_S = 60.0
PORT_ATTEMPTS = 5
"""A free port may be taken by somebody else before sshd has it."""
PRIVILEGE_FOLDER = Path("/run/sshd")
"""sshd wants it when it runs as root; the package's service makes it."""
MARK = "SLICETOWER_TEST_SSHD"


@dataclass
class Sshd:
    """A running sshd."""

    address: str
    port: int
    user: str
    key: Path
    """Private key that may log in."""
    host_key: str
    """Public host key, "ssh-ed25519 AAAA..."."""
    home: Path
    """HOME of every session."""
    directory: Path
    process: subprocess.Popen[bytes]
    mark: str
    _stopped: list[int] = field(default_factory=list)

    @property
    def log(self) -> str:
        return (self.directory / "sshd.log").read_text(errors="replace")

    @property
    def known_hosts(self) -> str:
        """A line for a known_hosts file."""
        return f"[{self.address}]:{self.port} {self.host_key}\n"

    def connections(self) -> list[int]:
        """Pids of sshd's processes for its connections."""
        return [pid for pid in below(self.process.pid) if command(pid).startswith("sshd")]

    def kill_connections(self) -> None:
        """kill -9 of every connection's process: what clients see is a reset; programs live on."""
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every connection's process, as on a machine that hangs, until `thaw`."""
        self._stopped = self.connections()
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def programs(self) -> list[int]:
        """Pids of everything that was started through it and still lives, daemons included."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and state(int(entry.name)) not in ("", "Z", "X"):
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """End it, its connections and everything that was started through it."""
        self.thaw()
        deadline = time.monotonic() + END_LIMIT_S
        own = below(self.process.pid)
        self.process.kill()
        self.process.wait()
        while left := {*self.programs(), *(pid for pid in own if command(pid).startswith("sshd"))}:
            assert time.monotonic() < deadline, f"these would not die: {left}"
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def command(pid: int) -> str:
    """Command line of a process that lives, or nothing."""
    if state(pid) in ("", "Z", "X"):
        return ""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return os.path.basename(words[0].decode(errors="replace"))


def below(root: int) -> list[int]:
    """Descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def sshd_program() -> str:
    """Where sshd is; the test fails where it is not."""
    found = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
    if found is None:
        pytest.fail("This test needs OpenSSH's sshd, and it is not installed: install the package openssh-server.")
    return found


def write_key(path: Path) -> str:
    """Make a key pair; returns the public key."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key())
    path.chmod(0o600)
    return " ".join(key.export_public_key().decode().split()[:2])


def launch(directory: Path, address: str = "127.0.0.1", **options: str | int) -> Sshd:
    """Start an sshd; `options` are lines of sshd_config that replace ours."""
    program = sshd_program()
    if os.geteuid() == 0:
        PRIVILEGE_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    home = directory / "home"
    home.mkdir(parents=True)
    public = write_key(directory / "id_ed25519")
    host_key = write_key(directory / "host_key")
    (directory / "authorized_keys").write_text(f"{public}\n")
    mark = uuid.uuid4().hex
    search = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    settings: dict[str, str | int] = {
        "HostKey": str(directory / "host_key"),
        "AuthorizedKeysFile": str(directory / "authorized_keys"),
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PrintMotd": "no",
        "PrintLastLog": "no",
        "LogLevel": "VERBOSE",
        "Subsystem": f"sftp internal-sftp -d {home}",
        "AcceptEnv": "LANG LC_*",
        "SetEnv": f"HOME={home} {MARK}={mark} PATH={search}",
        **options,
    }
    for attempt in range(PORT_ATTEMPTS):
        with socket.create_server((address, 0)) as free:
            port = int(free.getsockname()[1])
        config = directory / "sshd_config"
        lines = [f"ListenAddress {address}:{port}", *(f"{name} {value}" for name, value in settings.items())]
        config.write_text("\n".join(lines) + "\n")
        log = directory / "sshd.log"
        log.write_text("")
        started = subprocess.Popen(
            [program, "-D", "-f", str(config), "-E", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        made = Sshd(
            address, port, getpass.getuser(), directory / "id_ed25519", host_key, home, directory, started, mark
        )
        deadline = time.monotonic() + START_LIMIT_S
        while not re.search(r"^Server listening on", made.log, re.MULTILINE):
            if started.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.005)
        else:
            return made
        made.stop()
        if "Address already in use" not in made.log or attempt == PORT_ATTEMPTS - 1:
            pytest.fail(f"sshd did not start ({program} -f {config}): {made.log.strip() or 'it said nothing'}")
    raise AssertionError("unreachable")


StartSshd = Callable[..., Sshd]


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[StartSshd]:
    """Starts any number of them: `start_sshd(address="127.0.0.2", MaxSessions=3)`."""
    started: list[Sshd] = []

    def start(address: str = "127.0.0.1", **options: str | int) -> Sshd:
        started.append(launch(tmp_path / f"sshd{len(started)}", address, **options))
        return started[-1]

    yield start
    for made in started:
        made.stop()


@pytest.fixture
def sshd(start_sshd: StartSshd) -> Sshd:
    """One sshd with OpenSSH's own limits."""
    return start_sshd()
