"""Programs that carry a connection: gcloud's tunnel through IAP, or the ProxyCommand of the operator's OpenSSH configuration.

asyncssh takes what such a program writes to stderr for bytes of the connection, and its closing stderr for the end of it. So
stderr goes to a file, its pipe stays open, and what stands in the file is told when the connection does not come up.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backend.sanitize import plain
from backend.ssh.handshake_errors import Unreachable

_WRAPPED = 'exec 3>&2 2>"$0";exec "$@"'
SAID_BYTES = 4096

FINAL = ("4033", "not authorized", "was not found", "gcloud auth login")
"""What gcloud says that another try would not change."""
IAP_CURES = (
    ("4003", "Let the VPC firewall allow tcp:22 from 35.235.240.0/20, and look whether the worker's sshd runs."),
    ("4010", "The tunnel took too long: try again, or go through a jump host."),
    ("4033", "Your account needs roles/iap.tunnelResourceAccessor on the project."),
    ("not authorized", "Your account needs roles/iap.tunnelResourceAccessor on the project."),
    ("was not found", "Check that the worker's VM exists: its name is that of its guest attributes."),
    ("gcloud auth login", "Run `gcloud auth login`."),
)
"""(what gcloud says, cure)"""


class Proxy:
    """One run of such a program."""

    def __init__(self, command: Sequence[str]) -> None:
        descriptor, name = tempfile.mkstemp(prefix="slicetower-tunnel-")
        os.close(descriptor)
        self._file = Path(name)
        self.command = ["/bin/sh", "-c", _WRAPPED, name, *command]
        self._program = "gcloud" if command[0] == "gcloud" else "ProxyCommand"

    def last_words(self) -> str:
        """The last line that it wrote to stderr, safe to show; empty when it wrote nothing."""
        try:
            lines = self._file.read_bytes()[-SAID_BYTES:].decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return plain(next((line for line in reversed(lines) if line.strip()), ""), limit=400)

    @property
    def final(self) -> bool:
        """Another try would end the same way."""
        said = self.last_words()
        return any(words in said for words in FINAL)

    def explained(self, error: Unreachable) -> Unreachable:
        """The same, with what the program said about it."""
        said = self.last_words()
        if not said:
            return error
        cure = next((cure for words, cure in IAP_CURES if words in said), error.cure)
        return Unreachable(
            error.worker, error.reason, f"{error.what} {self._program} said: {said}", cure, raw=error.raw
        )

    def close(self) -> None:
        """Forgets the file; the program may write on."""
        with suppress(OSError):
            self._file.unlink()


def expanded(command: str, *, host: str, name: str, port: int, user: str) -> str:
    """A ProxyCommand with its tokens filled in as ssh_config(5) says; `ssh -G` leaves them as they are written."""
    tokens = {"%h": host, "%n": name, "%p": str(port), "%r": user, "%%": "%"}
    pieces = []
    place = 0
    while place < len(command):
        token = command[place : place + 2]
        known = tokens.get(token)
        pieces.append(command[place] if known is None else known)
        place += 1 if known is None else 2
    return "".join(pieces)
