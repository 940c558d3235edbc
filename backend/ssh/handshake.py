"""One SSH handshake: offered keys, checked host key, direct or through a jump host, and what its failure means."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from backend.context import Context
from backend.sanitize import plain
from backend.ssh import lean
from backend.ssh.handshake_errors import Reason, Retry, Unreachable
from backend.ssh.hostkeys import Trust, fingerprint
from backend.ssh.keys import AskPassphrase, Identity, load_identity
from backend.ssh.proxies import Proxy
from backend.ssh.routes import Hop, Route
from backend.targets import WorkerRef

HANDSHAKE_TIMEOUT_S = 20.0
"""From the start of the TCP connection to the end of authentication."""

KEEPALIVE_S = 15.0
KEEPALIVE_COUNT = 3
"""A dead peer is noticed after KEEPALIVE_S * KEEPALIVE_COUNT; without keepalive never."""
BUSY_KEEPALIVE_S = 5.0
"""While sessions are open: somebody waits for what they tell."""

CLOSE_TIMEOUT_S = 3.0
KEX_ALGORITHMS = ("curve25519-sha256", "ecdh-sha2-nistp256", "ecdh-sha2-nistp521", "diffie-hellman-group14-sha256")
ENCRYPTION_ALGORITHMS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
)


ATTEMPTS = {Reason.NETWORK: 6, Reason.TIMEOUT: 2, Reason.PROTOCOL: 1}
"""Tries in all. A server that drops connections because too many start at once (MaxStartups) is a NETWORK loss."""
REFUSED_ATTEMPTS = 3


class Client(asyncssh.SSHClient):
    """Checks one host key against what is trusted, keeps what was shown, and tells when the peer is lost after the login."""

    def __init__(self, trust: Trust, lost: Callable[[], None] = lambda: None) -> None:
        self._trust = trust
        self._lost = lost
        self._is_in = False
        self.shown: asyncssh.SSHKey | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        lean.connection(conn)

    def auth_completed(self) -> None:
        self._is_in = True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._is_in:
            self._lost()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = key
        return not self._trust.keys or key in self._trust.keys


class Dialler:
    """Makes connections; keeps the operator's keys and the connections to jump hosts.

    Args:
        context: Whose `ssh` names the key.
        ask_passphrase: For an encrypted key, asked once.
        timeout_s: For one handshake.
        made_key: Told of a key that was made because there was none; None makes none.
    """

    def __init__(
        self,
        context: Context,
        ask_passphrase: AskPassphrase | None,
        timeout_s: float,
        made_key: Callable[[str], None] | None = None,
    ) -> None:
        self._context = context
        self._ask = ask_passphrase
        self._timeout_s = timeout_s
        self._made_key = made_key
        self._identities: dict[Path | None, asyncio.Task[Identity]] = {}
        self._hops: dict[Hop, asyncio.Task[asyncssh.SSHClientConnection]] = {}

    async def connect(
        self, worker: WorkerRef, route: Route, client: Client, trust: Trust
    ) -> asyncssh.SSHClientConnection:
        """One attempt.

        Raises:
            Retry: Lost before authentication.
            Unreachable: Another try would not help.
            asyncssh.PermissionDenied: The keys were refused.
            asyncssh.HostKeyNotVerifiable: The worker's own key was refused.
        """
        if not route.proxy_command or route.hop is not None:
            return await self._connect(worker, route, client, trust, ())
        proxy = Proxy(route.proxy_command)
        try:
            return await self._connect(worker, route, client, trust, proxy.command)
        except Retry as failure:
            raise Retry(proxy.explained(failure.error), 1 if proxy.final else failure.attempts) from failure
        except Unreachable as error:
            raise proxy.explained(error) from error
        finally:
            proxy.close()

    async def _connect(
        self, worker: WorkerRef, route: Route, client: Client, trust: Trust, proxy_command: Sequence[str]
    ) -> asyncssh.SSHClientConnection:
        """The same, through a program or without one."""
        where = f"{route.host}:{route.port}"
        try:
            options = await self._options(route)
            if proxy_command:
                options["proxy_command"] = list(proxy_command)
            if route.hop is not None:
                options["tunnel"] = await self.hop(worker, route.hop)
            async with asyncio.timeout(self._timeout_s):
                return await asyncssh.connect(
                    route.host,
                    route.port,
                    client_factory=lambda: client,
                    known_hosts=([], [], []),
                    server_host_key_algs=trust.algorithms(),
                    **options,
                )
        except (asyncssh.PermissionDenied, asyncssh.HostKeyNotVerifiable):
            raise
        except TimeoutError as error:
            text = f"{worker.address} ({where}) did not answer within {self._timeout_s:.0f} s."
            cure = "Check the firewall for tcp:22, the route, and that the worker is up."
            raise Retry(Unreachable(worker, Reason.TIMEOUT, text, cure), ATTEMPTS[Reason.TIMEOUT]) from error
        except asyncssh.KeyExchangeFailed as error:
            text = f"{worker.address} ({where}) offers no key exchange that this client knows."
            cure = "A server that allows post-quantum exchanges alone is not supported; allow curve25519-sha256 too."
            raise Unreachable(worker, Reason.PROTOCOL, text, cure, raw=str(error)) from error
        except (asyncssh.ConnectionLost, asyncssh.ProtocolError, asyncssh.ChannelOpenError) as error:
            text = f"{worker.address} ({where}) dropped the connection before login."
            cure = "Its sshd may refuse so many at once (MaxStartups), or be starting."
            failure = Unreachable(worker, Reason.NETWORK, text, cure, raw=str(error))
            raise Retry(failure, ATTEMPTS[Reason.NETWORK]) from error
        except asyncssh.Error as error:
            text = f"{worker.address} ({where}) ended the handshake: {plain(str(error))}."
            raise Unreachable(worker, Reason.PROTOCOL, text, raw=str(error)) from error
        except OSError as error:
            raise _of_os_error(worker, where, error) from error

    async def _options(self, route: Route) -> dict[str, Any]:
        identity = await self.identity(route.key)
        options: dict[str, Any] = {
            "username": route.user,
            "client_keys": list(identity.keys),
            "config": None,
            "agent_path": None,
            "gss_host": None,
            "preferred_auth": "publickey",
            "compression_algs": ["none"],
            "kex_algs": KEX_ALGORITHMS,
            "encryption_algs": ENCRYPTION_ALGORITHMS,
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVE_COUNT,
        }
        return options

    async def identity(self, key: Path | None = None) -> Identity:
        """Keys, loaded once; a passphrase is asked for once.

        Args:
            key: A file that the operator's OpenSSH configuration names; None for the context's key.

        Raises:
            OperatorError: There is no usable key.
        """
        path = key or self._context.ssh.key
        task = self._identities.get(path)
        if task is None or (task.done() and _failed(task)):
            task = self._identities[path] = asyncio.ensure_future(load_identity(path, self._ask, self._made_key))
        return await asyncio.shield(task)

    async def load_quietly(self, key: Path | None = None) -> None:
        """Loads the keys if that needs nobody: no passphrase is asked for, and no key is made.

        Raises:
            OperatorError: It would, or there is no usable key.
        """
        path = key or self._context.ssh.key
        task = self._identities.get(path)
        if task is None or (task.done() and _failed(task)):
            found = await load_identity(path, None, None)
            self._identities[path] = asyncio.ensure_future(_known(found))

    async def hop(self, worker: WorkerRef, hop: Hop) -> asyncssh.SSHClientConnection:
        """The one connection to a jump host that all tunnels share.

        Its host key is checked against the operator's own known_hosts: no API knows it.
        """
        task = self._hops.get(hop)
        if task is None or (task.done() and (_failed(task) or task.result().is_closed())):
            task = self._hops[hop] = asyncio.ensure_future(self._open_hop(worker, hop))
        return await asyncio.shield(task)

    async def _open_hop(self, worker: WorkerRef, hop: Hop) -> asyncssh.SSHClientConnection:
        options = await self._options(Route(hop.host, hop.port, hop.user or self._context.ssh.user, key=hop.key))
        if not options["username"]:
            del options["username"]
        if hop.via is not None:
            options["tunnel"] = await self.hop(worker, hop.via)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncssh.connect(hop.host, hop.port, **options)
        except asyncssh.HostKeyNotVerifiable as error:
            cure = f"Run `ssh {hop.text.rpartition(':')[0]}` once and check its key."
            text = f"The jump host {hop.text} shows a host key that ~/.ssh/known_hosts does not have."
            raise Unreachable(worker, Reason.HOST_KEY, text, cure, raw=str(error)) from error
        except asyncssh.PermissionDenied as error:
            text = f"The jump host {hop.text} refuses the key."
            raise Unreachable(worker, Reason.PERMISSION, text, raw=str(error)) from error

    def refused_login(
        self, worker: WorkerRef, route: Route, error: Exception, why: str = "", cure: str = ""
    ) -> Unreachable:
        task = self._identities.get(route.key or self._context.ssh.key)
        known = task is not None and task.done() and not _failed(task)
        origin = f"the key of {task.result().origin}" if task is not None and known else "the operator's key"
        return Unreachable(
            worker,
            Reason.PERMISSION,
            f"{worker.address} refuses {origin} for user {plain(route.user)}. {why}".rstrip(),
            cure
            or "Add the public key to the node's ssh-keys metadata, or set user and key in the [ssh] of the context.",
            raw=str(error),
        )

    async def close(self) -> None:
        """Closes the connections to jump hosts and to the agent."""
        hops = list(self._hops.values())
        self._hops.clear()
        for task in hops:
            task.cancel()
        await asyncio.gather(*hops, return_exceptions=True)
        await close_all([task.result() for task in hops if not _failed(task)])
        identities = list(self._identities.values())
        for loading in identities:
            loading.cancel()
        await asyncio.gather(*identities, return_exceptions=True)
        for loaded in identities:
            if not _failed(loaded):
                loaded.result().close()


async def _known(found: Identity) -> Identity:
    return found


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None


async def close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    """Closes with a bound: wait_closed alone may hang on unread output."""
    if not connections:
        return
    for connection in connections:
        connection.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await asyncio.gather(*(connection.wait_closed() for connection in connections), return_exceptions=True)
    except TimeoutError:
        for connection in connections:
            connection.abort()


def refused_host_key(worker: WorkerRef, shown: asyncssh.SSHKey | None, trust: Trust, error: Exception) -> Unreachable:
    expected = " or ".join(fingerprint(key) for key in trust.keys) or "none"
    seen = fingerprint(shown) if shown is not None else "no key that can be checked"
    return Unreachable(
        worker,
        Reason.HOST_KEY,
        f"{worker.address} shows the host key {seen}, but {expected} is expected, and the API does not serve the new one.",
        "Somebody may be in between: nothing was sent. If the worker was re-imaged, wait until its guest attributes tell.",
        raw=str(error),
    )


def _of_os_error(worker: WorkerRef, where: str, error: OSError) -> Unreachable | Retry:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        text = f"{worker.address}: no more open files (limit {soft}, hard limit {hard})."
        return Unreachable(
            worker, Reason.FILES, text, "Raise it with `ulimit -n`, or take fewer workers.", raw=str(error)
        )
    reason = os.strerror(error.errno) if error.errno else plain(str(error))
    failure = Unreachable(
        worker,
        Reason.NETWORK,
        f"{worker.address} ({where}) can't be connected to: {reason}.",
        "Check that it is up, the route, and the firewall for tcp:22.",
        raw=str(error),
    )
    lost = isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError)
    return Retry(failure, ATTEMPTS[Reason.NETWORK] if lost else REFUSED_ATTEMPTS)
