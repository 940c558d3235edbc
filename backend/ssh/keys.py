"""The operator's own keys: the context's file, else gcloud's `~/.ssh/google_compute_engine`, else the agent."""

from __future__ import annotations

import asyncio
import getpass
import os
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
    """OpenSSH line of the first key, as node metadata wants it; empty when the agent does not tell."""
    agent: asyncssh.SSHAgentClient | None = None

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()


def login_name(user: str) -> str:
    """The user on the workers: the context's, else the operator's own name, as gcloud does."""
    return user or getpass.getuser()


def key_file(configured: Path | None) -> Path | None:
    """The private key file that is used, or None when only the agent is left.

    Raises:
        OperatorError: The context names a file that does not exist.
    """
    if configured is not None:
        if not configured.exists():
            raise OperatorError(f"The key {configured} of the context does not exist.", "Correct key = in its [ssh].")
        return configured
    default = GCLOUD_KEY.expanduser()
    return default if default.exists() else None


async def load_identity(configured: Path | None, ask: AskPassphrase | None = None) -> Identity:
    """Loads the operator's keys.

    Args:
        configured: The context's key file.
        ask: Asks for the passphrase of an encrypted key, once.

    Raises:
        OperatorError: No key anywhere, a damaged one, a wrong passphrase, or nobody to ask for it.
    """
    path = key_file(configured)
    if path is None:
        return await _from_agent()
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


async def _from_agent() -> Identity:
    """All connections share one agent connection: an agent that is asked by hundreds at once refuses some."""
    cure = f"Run `gcloud compute ssh` or `ssh-keygen -t ed25519 -f {GCLOUD_KEY}`, or start an ssh-agent with a key."
    socket_path = os.environ.get("SSH_AUTH_SOCK", "")
    if not socket_path:
        raise OperatorError(f"There is no ssh key: neither {GCLOUD_KEY} nor an agent.", cure)
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_S):
            agent = await asyncssh.connect_agent(socket_path)
            keys = await agent.get_keys()
    except (OSError, ValueError, TimeoutError) as error:
        raise OperatorError(
            "There is no ssh key file, and the agent does not answer.", cure, raw=str(error)
        ) from error
    if not keys:
        agent.close()
        raise OperatorError("There is no ssh key file, and the agent holds no key.", cure)
    return Identity(tuple(keys), "the ssh agent", agent=agent)


def create_key(path: Path, comment: str) -> str:
    """Makes an Ed25519 key pair (0600) where none is, and returns the public line.

    Raises:
        OperatorError: The file exists, or can't be written.
    """
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(key.export_private_key("openssh"))
        public = key.export_public_key("openssh")
        path.with_name(path.name + ".pub").write_bytes(public)
    except OSError as error:
        raise OperatorError(f"The key {path} can't be made: {error.strerror}.") from error
    return public.decode("ascii").strip()
