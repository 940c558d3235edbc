"""An interactive shell on a worker: the system's own ssh, given exactly the host key that was verified.

Terminals behave best with the program that was made for them; what is checked is the same as for every connection.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from backend.context import Context
from backend.outcomes import OperatorError
from backend.ssh.connections import ConnectionPool
from backend.ssh.keys import key_file
from backend.targets import WorkerRef

ALIAS = "slicetower-worker"
"""The name under which the key stands in the generated known_hosts: an address may belong to another worker tomorrow."""


async def ssh_command(
    pool: ConnectionPool,
    context: Context,
    worker: WorkerRef,
    folder: Path,
    command: Sequence[str] = (),
    *,
    terminal: bool = True,
) -> list[str]:
    """The ssh command line for one worker, after its host key was verified by connecting to it.

    Args:
        pool: Verifies and pins the key.
        context: Route, user and key.
        worker: Whom to log in to.
        folder: Private; gets a known_hosts file that must outlive the command.
        command: Runs instead of a login shell, word by word.
        terminal: Whether a command gets a terminal; a login shell always does.

    Raises:
        OperatorError: The worker can't be reached, or its key is not the one that the API serves.
    """
    await pool.connection(worker)
    route = await pool.route(worker)
    lines = pool.host_keys.known(worker)
    if not lines:
        raise OperatorError(f"The host key of {worker.address} is not known.", "Try again.")
    known = folder / f"{worker.file_stem}.known_hosts"
    known.write_text("".join(f"{ALIAS} {line}\n" for line in lines))
    options = [
        f"UserKnownHostsFile={known}",
        "GlobalKnownHostsFile=/dev/null",
        "StrictHostKeyChecking=yes",
        "UpdateHostKeys=no",
        f"HostKeyAlias={ALIAS}",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=3",
    ]
    words = ["ssh"]
    if context.ssh.route != "config":
        words += ["-F", "none"]
    key = route.key or key_file(context.ssh.key)
    if key is not None:
        words += ["-i", str(key)]
        options.append("IdentitiesOnly=yes")
    if route.hop is not None:
        words += ["-J", route.hop.chain]
    elif route.proxy_command:
        options.append(f"ProxyCommand={shlex.join(route.proxy_command)}")
    for option in options:
        words += ["-o", option]
    words += ["-p", str(route.port), "-l", route.user]
    words += ["-t"] if command and terminal else []
    words += ["--", route.host]
    return [*words, shlex.join(command)] if command else words
