"""The operator's own keys: the context's file, else gcloud's `~/.ssh/google_compute_engine`, else the agent, else a new one.

A key that is made goes where gcloud looks too: one key for both, and nothing to add twice.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from backend.outcomes import OperatorError

GCLOUD_KEY = Path("~/.ssh/google_compute_engine")
AGENT_TIMEOUT_S = 10.0

AskPassphrase = Callable[[Path], Awaitable[str | None]]
"""Asks the operator for the passphrase of a key file; None gives up."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Keys that are offered, best first, loaded once for all connections."""

    keys: tuple[asyncssh.SSHKey | asyncssh.SSHKeyPair, ...]
    origin: str
    """Where they come from, for messages."""
    public_key: str = ""
    """OpenSSH line of the key, as node metadata wants it; empty when the agent holds several."""
    agent: asyncssh.SSHAgentClient | None = None

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()


def gcloud_key() -> Path:
    """Where gcloud looks for a key, and makes one."""
    return GCLOUD_KEY.expanduser()


def key_file(configured: Path | None) -> Path | None:
    """The private key file that is used, or None when only the agent is left.

    Raises:
        OperatorError: The context names a file that does not exist.
    """
    if configured is not None:
        if not configured.exists():
            raise OperatorError(f"The key {configured} of the context does not exist.", "Correct key = in its [ssh].")
        return configured
    default = gcloud_key()
    return default if default.exists() else None


async def load_identity(
    configured: Path | None, ask: AskPassphrase | None = None, made: Callable[[str], None] | None = None
) -> Identity:
    """Loads the operator's keys.

    Args:
        configured: The context's key file.
        ask: Asks for the passphrase of an encrypted key, once.
        made: Told of a key that was made because there was none; None makes none.

    Raises:
        OperatorError: No key anywhere, a damaged one, a wrong passphrase, or nobody to ask for it.
    """
    path = key_file(configured)
    if path is None:
        found = await _from_agent(required=made is None)
        if found is not None:
            return found
        assert made is not None
        path = gcloud_key()
        if await asyncio.to_thread(create_key, path, f"{getpass.getuser()}@{socket.gethostname()}"):
            made(f"There was no ssh key: {path} was made (Ed25519, without a passphrase, readable by you alone).")
    key = await _read(path, ask)
    public = key.export_public_key("openssh").decode("ascii", "replace").strip()
    return Identity((key,), str(path), public)


async def _read(path: Path, ask: AskPassphrase | None) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(path)
    except asyncssh.KeyEncryptionError:
        pass  # It has a passphrase.
    except (OSError, asyncssh.KeyImportError) as error:
        if "passphrase" not in str(error).lower():
            raise OperatorError(
                f"The key {path} can't be read: {error}.", "Give another one with key = in the context's [ssh]."
            ) from error
    if ask is None:
        raise OperatorError(f"The key {path} has a passphrase.", f"Run `ssh-add {path}`, or use a terminal.")
    passphrase = await ask(path)
    if passphrase is None:
        raise OperatorError(f"The key {path} stays locked.", f"Run `ssh-add {path}`.")
    try:
        return await asyncio.to_thread(asyncssh.read_private_key, path, passphrase)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        raise OperatorError(f"That is not the passphrase of {path}.", "Try again.") from error


async def _from_agent(*, required: bool) -> Identity | None:
    """All connections share one agent connection: an agent that is asked by hundreds at once refuses some."""
    cure = f"Run `gcloud compute ssh` or `ssh-keygen -t ed25519 -f {GCLOUD_KEY}`, or start an ssh-agent with a key."
    socket_path = os.environ.get("SSH_AUTH_SOCK", "")
    if not socket_path:
        if not required:
            return None
        raise OperatorError(f"There is no ssh key: neither {GCLOUD_KEY} nor an agent.", cure)
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_S):
            agent = await asyncssh.connect_agent(socket_path)
            keys = await agent.get_keys()
    except (OSError, ValueError, TimeoutError) as error:
        if not required:
            return None
        raise OperatorError(
            "There is no ssh key file, and the agent does not answer.", cure, raw=str(error)
        ) from error
    if not keys:
        agent.close()
        if not required:
            return None
        raise OperatorError("There is no ssh key file, and the agent holds no key.", cure)
    return Identity(tuple(keys), "the ssh agent", _public_line(keys[0]) if len(keys) == 1 else "", agent=agent)


def _public_line(pair: asyncssh.SSHKeyPair) -> str:
    blob = base64.b64encode(pair.public_data).decode("ascii")
    return f"{pair.algorithm.decode('ascii', 'replace')} {blob}"


def create_key(path: Path, comment: str) -> bool:
    """Makes an Ed25519 key pair (0600) where none is. False when another process was quicker.

    Raises:
        OperatorError: A public key without its private one lies there, or nothing can be written.
    """
    public = path.with_name(path.name + ".pub")
    if public.exists() and not path.exists():
        raise OperatorError(
            f"There is {public}, but not its private key {path}, and no agent that holds it.",
            f"Bring the private key back, or move {public} away: then a new pair is made.",
        )
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    whole = path.with_name(f"{path.name}.new-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(key.export_private_key("openssh"))
        try:
            os.link(whole, path)
        finally:
            whole.unlink()
        public.write_bytes(key.export_public_key("openssh"))
    except FileExistsError:
        return False
    except OSError as error:
        raise OperatorError(f"The key {path} can't be made: {error.strerror}.") from error
    return True
