"""SSH connections, kept and reused: one pool for everything that talks to workers.

Connecting is limited, running is not. The time-out of a handshake starts when its turn has come, so that a long queue is
never mistaken for a dead worker. Losses before authentication are retried with jitter; a refused key or a wrong host key
never is, but for the minutes after READY in which a worker does not know the operator's key yet.
"""

from __future__ import annotations

import asyncio
import errno
import random
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import asyncssh

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.ssh.hostkeys import HostKeys, HostKeySource, KeyJournal, Trust, fingerprint, node_of
from backend.ssh.keys import AskPassphrase, Identity, load_identity
from backend.ssh.routes import Hop, Route, connect_limit, route_to
from backend.targets import WorkerRef

HANDSHAKE_TIMEOUT_S = 20.0
"""From the start of the TCP connection to the end of authentication."""

KEEPALIVE_S = 15.0
KEEPALIVE_COUNT = 3
"""A dead peer is noticed after KEEPALIVE_S * KEEPALIVE_COUNT; without keepalive never."""

RETRY_BASE_S = 0.25
RETRY_CAP_S = 4.0

SESSIONS_PER_CONNECTION = 8
"""OpenSSH's MaxSessions is 10; a few are left to tunnels and to chance."""

BOOT_GRACE_S = 180.0
"""After READY the operator's key may be unknown to a worker for this long (field notes: 1 to 2 minutes)."""
BOOT_RETRY_S = 10.0
"""OpenSSH 9.8 punishes sources whose logins fail often: seldom is better than soon."""

CLOSE_TIMEOUT_S = 3.0
SPARE_FILES = 128
"""Open files that everything else may need."""
FILES_PER_WORKER = 3
"""A socket, a log and its index."""

KEX_ALGORITHMS = ("curve25519-sha256", "ecdh-sha2-nistp256", "ecdh-sha2-nistp521", "diffie-hellman-group14-sha256")
ENCRYPTION_ALGORITHMS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
)

Note = Callable[[str], None]
"""Told what is being waited for, in a few words; the empty text when nothing is any more."""


class Reason(StrEnum):
    """Why a worker can't be reached."""

    ADDRESS = "address"
    NETWORK = "network"
    TIMEOUT = "timeout"
    PERMISSION = "permission"
    HOST_KEY = "host key"
    PROTOCOL = "protocol"
    FILES = "open files"


ATTEMPTS = {Reason.NETWORK: 6, Reason.TIMEOUT: 2, Reason.PROTOCOL: 1}
"""Tries in all. A server that drops connections because too many start at once (MaxStartups) is a NETWORK loss."""
REFUSED_ATTEMPTS = 3


class Unreachable(OperatorError):
    """No session could be opened on a worker: nothing was started there."""

    def __init__(self, worker: WorkerRef, reason: Reason, what: str, cure: str = "", *, raw: str = "") -> None:
        super().__init__(what, cure, exit_code=ExitCode.UNREACHABLE, raw=plain(raw))
        self.worker = worker
        self.reason = reason


class _Retry(Exception):
    """A handshake failed in a way that another try may mend."""

    def __init__(self, error: Unreachable, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts


class _Client(asyncssh.SSHClient):
    """Checks one host key against what is trusted, and keeps what was shown."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self.shown: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = key
        return not self._trust.keys or key in self._trust.keys


@dataclass(slots=True, eq=False)
class _Line:
    """One open connection and how many sessions use it."""

    connection: asyncssh.SSHClientConnection
    sessions: int = 0
    limit: int = SESSIONS_PER_CONNECTION

    @property
    def usable(self) -> bool:
        return not self.connection.is_closed() and self.sessions < self.limit


@dataclass(slots=True, eq=False)
class _Place:
    """Everything about one worker."""

    lines: list[_Line] = field(default_factory=list)
    opening: asyncio.Task[_Line] | None = None
    waiting: int = 0
    notes: set[Note] = field(default_factory=set)

    def tell(self, text: str) -> None:
        for note in tuple(self.notes):
            note(text)


class Lease:
    """The right to open one session on a connection; give it back when the session has ended."""

    def __init__(self, line: _Line) -> None:
        self._line: _Line | None = line
        self.connection = line.connection
        line.sessions += 1

    def release(self) -> None:
        if self._line is not None:
            self._line.sessions -= 1
            self._line = None

    def crowded(self) -> None:
        """The server refused one more session here: it allows fewer than was thought."""
        if self._line is not None:
            self._line.limit = max(1, self._line.sessions - 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def require_files(workers: int) -> None:
    """Raises the limit of open files as far as it goes, and refuses what does not fit.

    Raises:
        OperatorError: With the numbers.
    """
    needed = workers * FILES_PER_WORKER + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(hard, max(needed, soft))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if needed > soft:
        raise OperatorError(
            f"{workers} workers need {needed} open files, and this process may have {soft} (hard limit {hard}).",
            f"Run `ulimit -n {needed}` first (as root, or in limits.conf), or take fewer workers.",
        )


class ConnectionPool:
    """Open connections by worker.

    Args:
        context: Route, port, user, key and the limit of handshakes in flight.
        host_keys: The API's host keys; None trusts on first use.
        journal: Keeps the pins.
        ask_passphrase: For an encrypted key, asked once.
        ready_since: When a worker's node became READY (Unix seconds), if that is known: begins the boot grace.
        instance_name: Compute Engine name of a worker, for the route `iap`.
    """

    def __init__(
        self,
        context: Context,
        host_keys: HostKeySource | None,
        journal: KeyJournal,
        *,
        ask_passphrase: AskPassphrase | None = None,
        ready_since: Callable[[WorkerRef], float | None] = lambda _worker: None,
        instance_name: Callable[[WorkerRef], Awaitable[str]] | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        boot_retry_s: float = BOOT_RETRY_S,
    ) -> None:
        self._context = context
        self.host_keys = HostKeys(journal, host_keys)
        self._ask = ask_passphrase
        self._ready_since = ready_since
        self._instance_name = instance_name
        self._timeout_s = handshake_timeout_s
        self._boot_retry_s = boot_retry_s
        self._handshakes = asyncio.Semaphore(connect_limit(context))
        self._places: dict[tuple[str, int, str, str], _Place] = {}
        self._identity: asyncio.Task[Identity] | None = None
        self._hops: dict[Hop, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._closing = False

    @property
    def connected(self) -> int:
        """Workers with an open connection."""
        return sum(any(not line.connection.is_closed() for line in place.lines) for place in self._places.values())

    def is_connected(self, worker: WorkerRef) -> bool:
        place = self._places.get(_place_of(worker))
        return place is not None and any(not line.connection.is_closed() for line in place.lines)

    async def connection(self, worker: WorkerRef, note: Note | None = None) -> asyncssh.SSHClientConnection:
        """An open connection to a worker, made if there is none. Long-lived users take a `lease`.

        Raises:
            Unreachable: With the reason.
        """
        async with await self.lease(worker, note) as lease:
            return lease.connection

    async def lease(self, worker: WorkerRef, note: Note | None = None) -> Lease:
        """Room for one session on a connection to a worker: another connection is made when all are full.

        Raises:
            Unreachable: With the reason.
        """
        place = self._places.setdefault(_place_of(worker), _Place())
        while True:
            place.lines = [line for line in place.lines if not line.connection.is_closed()]
            for line in place.lines:
                if line.usable:
                    return Lease(line)
            if self._closing:
                raise Unreachable(worker, Reason.NETWORK, f"{worker.address}: the connections are being closed.")
            if place.opening is None:
                place.opening = asyncio.ensure_future(self._open(worker, place))
            await self._opened(place, place.opening, note)

    async def _opened(self, place: _Place, opening: asyncio.Task[_Line], note: Note | None) -> None:
        """Waits for a connection that others may wait for too; the last one who gives up ends the attempt."""
        if note is not None:
            place.notes.add(note)
        place.waiting += 1
        try:
            await asyncio.shield(opening)
        finally:
            place.waiting -= 1
            if note is not None:
                place.notes.discard(note)
            if opening.done():
                if place.opening is opening:
                    place.opening = None
            elif place.waiting == 0:
                opening.cancel()
                place.opening = None

    async def _open(self, worker: WorkerRef, place: _Place) -> _Line:
        """Brings one connection up, with all its retries.

        Raises:
            Unreachable: With the reason.
        """
        try:
            route = await route_to(worker, self._context, self._instance_name)
            trust = await self.host_keys.trust(worker)
        except Unreachable:
            raise
        except OperatorError as error:
            raise Unreachable(worker, Reason.ADDRESS, error.what, error.cure, raw=error.raw) from error
        attempt = 0
        rekeyed = False
        while True:
            attempt += 1
            client = _Client(trust)
            try:
                async with self._handshakes:
                    place.tell("")
                    connection = await self._handshake(worker, route, client, trust)
            except asyncssh.HostKeyNotVerifiable as error:
                changed = (
                    None if rekeyed or client.shown is None else await self._retrust(worker, client.shown, trust)
                )
                if changed is None:
                    raise _refused_host_key(worker, client.shown, trust, error) from error
                trust, rekeyed = changed, True
            except _Retry as failure:
                if attempt >= failure.attempts:
                    raise failure.error from failure
                pause = random.uniform(0, min(RETRY_CAP_S, RETRY_BASE_S * 2**attempt))
                place.tell(f"trying again ({failure.error.reason}), attempt {attempt + 1} of {failure.attempts}")
                await asyncio.sleep(pause)
            except asyncssh.PermissionDenied as error:
                left, since = self._grace(worker)
                if left <= 0:
                    raise self._refused_login(worker, route, error) from error
                place.tell(f"booting: publickey refused {since:.0f} s after READY, asking again for {left:.0f} s")
                await asyncio.sleep(min(left, self._boot_retry_s * random.uniform(0.8, 1.2)))
            else:
                if client.shown is not None:
                    self.host_keys.accept(worker, trust, client.shown)
                line = _Line(connection)
                place.lines.append(line)
                return line

    async def _retrust(self, worker: WorkerRef, shown: asyncssh.SSHKey, trust: Trust) -> Trust | None:
        try:
            return await self.host_keys.retrust(worker, shown, trust)
        except OperatorError as error:
            raise Unreachable(
                worker,
                Reason.HOST_KEY,
                f"{worker.address} shows another host key, {fingerprint(shown)}, and the API can't be asked about it.",
                error.cure,
                raw=error.what,
            ) from error

    def _grace(self, worker: WorkerRef) -> tuple[float, float]:
        """Seconds of boot grace that are left, and since READY."""
        ready = self._ready_since(worker)
        if ready is None:
            return 0.0, 0.0
        since = max(0.0, time.time() - ready)
        return BOOT_GRACE_S - since, since

    async def _handshake(
        self, worker: WorkerRef, route: Route, client: _Client, trust: Trust
    ) -> asyncssh.SSHClientConnection:
        """One attempt.

        Raises:
            _Retry: Lost before authentication.
            Unreachable: Another try would not help.
            asyncssh.PermissionDenied: The keys were refused.
            asyncssh.HostKeyNotVerifiable: The worker's own key was refused.
        """
        where = f"{route.host}:{route.port}"
        try:
            options = await self._options(route)
            if route.hop is not None:
                options["tunnel"] = await self._hop(worker, route.hop)
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
            raise _Retry(Unreachable(worker, Reason.TIMEOUT, text, cure), ATTEMPTS[Reason.TIMEOUT]) from error
        except asyncssh.KeyExchangeFailed as error:
            text = f"{worker.address} ({where}) offers no key exchange that this client knows."
            cure = "A server that allows post-quantum exchanges alone is not supported; allow curve25519-sha256 too."
            raise Unreachable(worker, Reason.PROTOCOL, text, cure, raw=str(error)) from error
        except (asyncssh.ConnectionLost, asyncssh.ProtocolError, asyncssh.ChannelOpenError) as error:
            text = f"{worker.address} ({where}) dropped the connection before login."
            cure = "Its sshd may refuse so many at once (MaxStartups), or be starting."
            failure = Unreachable(worker, Reason.NETWORK, text, cure, raw=str(error))
            raise _Retry(failure, ATTEMPTS[Reason.NETWORK]) from error
        except asyncssh.Error as error:
            text = f"{worker.address} ({where}) ended the handshake: {plain(str(error))}."
            raise Unreachable(worker, Reason.PROTOCOL, text, raw=str(error)) from error
        except OSError as error:
            raise _of_os_error(worker, where, error) from error

    async def _options(self, route: Route) -> dict[str, Any]:
        identity = await self.identity()
        keys: list[Any] = list(identity.keys)
        if route.key is not None:
            keys = [*(await load_identity(route.key, self._ask)).keys, *keys]
        options: dict[str, Any] = {
            "username": route.user,
            "client_keys": keys,
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
        if route.proxy_command and route.hop is None:
            options["proxy_command"] = list(route.proxy_command)
        return options

    async def identity(self) -> Identity:
        """The operator's keys, loaded once; a passphrase is asked for once.

        Raises:
            OperatorError: There is no usable key.
        """
        if self._identity is None or (self._identity.done() and _failed(self._identity)):
            self._identity = asyncio.ensure_future(load_identity(self._context.ssh.key, self._ask))
        return await asyncio.shield(self._identity)

    async def _hop(self, worker: WorkerRef, hop: Hop) -> asyncssh.SSHClientConnection:
        """The one connection to a jump host that all tunnels share.

        Its host key is checked against the operator's own known_hosts: no API knows it.
        """
        task = self._hops.get(hop)
        if task is None or (task.done() and (_failed(task) or task.result().is_closed())):
            task = self._hops[hop] = asyncio.ensure_future(self._open_hop(worker, hop))
        return await asyncio.shield(task)

    async def _open_hop(self, worker: WorkerRef, hop: Hop) -> asyncssh.SSHClientConnection:
        options = await self._options(Route(hop.host, hop.port, hop.user or self._context.ssh.user))
        if not options["username"]:
            del options["username"]
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

    def _refused_login(self, worker: WorkerRef, route: Route, error: Exception) -> Unreachable:
        origin = "the operator's key"
        if self._identity is not None and self._identity.done() and not _failed(self._identity):
            origin = f"the key of {self._identity.result().origin}"
        return Unreachable(
            worker,
            Reason.PERMISSION,
            f"{worker.address} refuses {origin} for user {plain(route.user)}.",
            "Add the public key to the node's ssh-keys metadata, or set user and key in the [ssh] of the context.",
            raw=str(error),
        )

    async def disconnect(self, worker: WorkerRef) -> None:
        """Closes the connections to one worker; what runs there is not stopped."""
        place = self._places.pop(_place_of(worker), None)
        if place is not None:
            await _close_all([line.connection for line in place.lines])

    async def close(self) -> None:
        """Ends attempts and closes everything, within CLOSE_TIMEOUT_S."""
        self._closing = True
        openings = [place.opening for place in self._places.values() if place.opening is not None]
        for task in openings:
            task.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await _close_all([line.connection for place in self._places.values() for line in place.lines])
        for hop in self._hops.values():
            hop.cancel()
        await asyncio.gather(*self._hops.values(), return_exceptions=True)
        await _close_all([hop.result() for hop in self._hops.values() if not _failed(hop)])
        if self._identity is not None:
            self._identity.cancel()
            await asyncio.gather(self._identity, return_exceptions=True)
            if not _failed(self._identity):
                self._identity.result().close()
        self._places.clear()
        self._hops.clear()


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None


def _place_of(worker: WorkerRef) -> tuple[str, int, str, str]:
    """A worker whose address changed is connected to anew."""
    return (node_of(worker), worker.worker_index, worker.internal_ip, worker.external_ip)


async def _close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
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


def _refused_host_key(
    worker: WorkerRef, shown: asyncssh.SSHKey | None, trust: Trust, error: Exception
) -> Unreachable:
    expected = " or ".join(fingerprint(key) for key in trust.keys) or "none"
    seen = fingerprint(shown) if shown is not None else "no key that can be checked"
    return Unreachable(
        worker,
        Reason.HOST_KEY,
        f"{worker.address} shows the host key {seen}, but {expected} is expected, and the API does not serve the new one.",
        "Somebody may be in between: nothing was sent. If the worker was re-imaged, wait until its guest attributes tell.",
        raw=str(error),
    )


def _of_os_error(worker: WorkerRef, where: str, error: OSError) -> Unreachable | _Retry:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        text = f"{worker.address}: no more open files (limit {soft}, hard limit {hard})."
        return Unreachable(
            worker, Reason.FILES, text, "Raise it with `ulimit -n`, or take fewer workers.", raw=str(error)
        )
    reason = plain(error.strerror or str(error))
    failure = Unreachable(
        worker,
        Reason.NETWORK,
        f"{worker.address} ({where}) can't be connected to: {reason}.",
        "Check that it is up, the route, and the firewall for tcp:22.",
        raw=str(error),
    )
    lost = isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError)
    return _Retry(failure, ATTEMPTS[Reason.NETWORK] if lost else REFUSED_ATTEMPTS)
