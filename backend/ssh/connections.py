"""SSH connections, kept and reused: one pool for everything that talks to workers.

Connecting is limited, running is not. The time-out of a handshake starts when its turn has come, so that a long queue is
never mistaken for a dead worker. Losses before authentication are retried with jitter; a refused key or a wrong host key
never is, but for the minutes after READY in which a worker does not know the operator's key yet.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Self

import asyncssh

from backend.context import Context
from backend.outcomes import OperatorError
from backend.ssh import handshake
from backend.ssh.enrolment import Enrolled, Enrolment
from backend.ssh.handshake import (
    HANDSHAKE_TIMEOUT_S,
    Client,
    Dialler,
    close_all,
    refused_host_key,
)
from backend.ssh.handshake_errors import Reason, Retry, Unreachable
from backend.ssh.hostkeys import HostKeys, HostKeySource, KeyJournal, Trust, fingerprint, node_of
from backend.ssh.keys import AskPassphrase, Identity
from backend.ssh.routes import Route, Turns, route_to
from backend.targets import WorkerRef

RETRY_BASE_S = 0.25
RETRY_CAP_S = 4.0

SESSIONS_PER_CONNECTION = 8
"""OpenSSH's MaxSessions is 10; a few are left to tunnels and to chance."""

BOOT_GRACE_S = 180.0
"""After READY the operator's key may be unknown to a worker for this long (field notes: 1 to 2 minutes)."""
BOOT_RETRY_S = 10.0
"""OpenSSH 9.8 punishes sources whose logins fail often: seldom is better than soon."""

SPARE_FILES = 128
"""Open files that everything else may need."""
FILES_PER_WORKER = 3
"""A socket, a log and its index."""

__all__ = ["ConnectionPool", "Lease", "Note", "Reason", "Unreachable", "require_files"]

Note = Callable[[str], None]
"""Told what is being waited for, in a few words; the empty text when nothing is any more."""


@dataclass(slots=True, eq=False)
class _Line:
    """One open connection and how many sessions use it."""

    connection: asyncssh.SSHClientConnection
    sessions: int = 0
    limit: int = SESSIONS_PER_CONNECTION
    watched: bool = False
    """Its keepalive is the one for those that wait."""

    def watch(self) -> None:
        """Asks a busy peer for life more often than an idle one."""
        busy = self.sessions > 0
        if busy != self.watched and not self.connection.is_closed():
            self.watched = busy
            self.connection.set_keepalive(handshake.BUSY_KEEPALIVE_S if busy else handshake.KEEPALIVE_S)

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
        enrolment: Adds the key to nodes that refuse it; None adds nothing.
        made_key: Told of a key that was made because the operator had none; None makes none.
        news: Told of each connection that was opened, or why it could not be.
        lost: Told of each that ended without having been closed here.
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
        enrolment: Enrolment | None = None,
        made_key: Callable[[str], None] | None = None,
        news: Callable[[WorkerRef, Unreachable | None], None] = lambda _worker, _error: None,
        lost: Callable[[WorkerRef], None] = lambda _worker: None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        boot_retry_s: float = BOOT_RETRY_S,
    ) -> None:
        self._context = context
        self.host_keys = HostKeys(journal, host_keys)
        self._ready_since = ready_since
        self.instance_name = instance_name
        self._boot_retry_s = boot_retry_s
        self._enrolment = enrolment
        self._users: dict[str, str] = {}
        """Users of nodes with OS Login, by node."""
        self._turns = Turns(context.ssh.connect_limit)
        self._places: dict[tuple[str, int, str, str], _Place] = {}
        self.dialler = Dialler(context, ask_passphrase, handshake_timeout_s, made_key)
        self._news, self._lost = news, lost
        self._closing = False
        self._looking: asyncio.TimerHandle | None = None
        """Of `_look`; none while all connections are idle."""

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
                    if self._looking is None:
                        loop = asyncio.get_running_loop()
                        self._looking = loop.call_later(handshake.BUSY_KEEPALIVE_S, self._look)
                    return Lease(line)
            if self._closing:
                raise Unreachable(worker, Reason.NETWORK, f"{worker.address}: the connections are being closed.")
            if place.opening is None:
                place.opening = asyncio.ensure_future(self._attempt(worker, place))
            await self._opened(place, place.opening, note)

    def _look(self) -> None:
        """Sets keepalives of all connections at once: to do so at both ends of every command costs more than it tells."""
        lines = [line for place in self._places.values() for line in place.lines]
        for line in lines:
            line.watch()
        again = any(line.watched for line in lines) and not self._closing
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(handshake.BUSY_KEEPALIVE_S, self._look) if again else None

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

    async def _attempt(self, worker: WorkerRef, place: _Place) -> _Line:
        try:
            line = await self._open(worker, place)
        except Unreachable as error:
            self._news(worker, error)
            raise
        self._news(worker, None)
        return line

    async def _open(self, worker: WorkerRef, place: _Place) -> _Line:
        """Brings one connection up, with all its retries.

        Raises:
            Unreachable: With the reason.
        """
        try:
            route = await self.route(worker)
            trust = await self.host_keys.trust(worker)
        except Unreachable:
            raise
        except OperatorError as error:
            raise Unreachable(worker, Reason.ADDRESS, error.what, error.cure, raw=error.raw) from error
        attempt = 0
        rekeyed = False
        enrolled: Enrolled | None = None
        while True:
            attempt += 1
            client = Client(trust, partial(self._lost, worker))
            try:
                async with self._turns.turn(route):
                    place.tell("")
                    connection = await self.dialler.connect(worker, route, client, trust)
            except asyncssh.HostKeyNotVerifiable as error:
                changed = (
                    None if rekeyed or client.shown is None else await self._retrust(worker, client.shown, trust)
                )
                if changed is None:
                    raise refused_host_key(worker, client.shown, trust, error) from error
                trust, rekeyed = changed, True
            except Retry as failure:
                if attempt >= failure.attempts:
                    raise failure.error from failure
                pause = random.uniform(0, min(RETRY_CAP_S, RETRY_BASE_S * 2**attempt))
                place.tell(f"trying again ({failure.error.reason}), attempt {attempt + 1} of {failure.attempts}")
                await asyncio.sleep(pause)
            except asyncssh.PermissionDenied as error:
                left, since = self._grace(worker)
                if left <= 0:
                    route, enrolled = await self._after_refusal(worker, place, route, enrolled, error)
                    continue
                place.tell(f"booting: publickey refused {since:.0f} s after READY, asking again for {left:.0f} s")
                await asyncio.sleep(min(left, self._boot_retry_s * random.uniform(0.8, 1.2)))
            else:
                if client.shown is not None:
                    self.host_keys.accept(worker, trust, client.shown)
                line = _Line(connection)
                place.lines.append(line)
                return line

    async def route(self, worker: WorkerRef) -> Route:
        """Where to connect for a worker, and as whom.

        Raises:
            OperatorError: It has no address of the context's kind.
        """
        route = await route_to(worker, self._context, self.instance_name)
        user = self._users.get(node_of(worker))
        return replace(route, user=user) if user else route

    async def _after_refusal(
        self, worker: WorkerRef, place: _Place, route: Route, enrolled: Enrolled | None, error: Exception
    ) -> tuple[Route, Enrolled]:
        """Returns when another login is worth a try, and with which route.

        Raises:
            Unreachable: It is not.
        """
        if self._enrolment is None:
            raise self.dialler.refused_login(worker, route, error) from error
        first = enrolled is None
        if enrolled is None:
            place.tell("publickey refused: looking at the node's metadata")
            enrolled = await self._enrolment.enrol(worker, route.user, await self.dialler.identity(route.key))
        left = enrolled.until - time.time()
        if first and enrolled.user:
            self._users[node_of(worker)] = enrolled.user
            return replace(route, user=enrolled.user), enrolled
        if left <= 0:
            raise self.dialler.refused_login(worker, route, error, enrolled.why, enrolled.cure) from error
        if not first:
            place.tell(f"the key was added to the node, asking again for {left:.0f} s")
            await asyncio.sleep(min(left, self._boot_retry_s * random.uniform(0.8, 1.2)))
        return route, enrolled

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

    async def identity(self) -> Identity:
        """The operator's keys, loaded once; a passphrase is asked for once.

        Raises:
            OperatorError: There is no usable key.
        """
        return await self.dialler.identity()

    async def require_key(self) -> None:
        """Loads the operator's key before it is needed by hundreds at once.

        Raises:
            OperatorError: There is no usable key.
        """
        if self._context.ssh.route != "config":
            await self.dialler.identity()

    async def disconnect(self, worker: WorkerRef) -> None:
        """Closes the connections to one worker; what runs there is not stopped."""
        place = self._places.pop(_place_of(worker), None)
        if place is not None:
            await close_all([line.connection for line in place.lines])

    async def close(self) -> None:
        """Ends attempts and closes everything, within CLOSE_TIMEOUT_S."""
        self._closing = True
        if self._looking is not None:
            self._looking.cancel()
        openings = [place.opening for place in self._places.values() if place.opening is not None]
        for task in openings:
            task.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await close_all([line.connection for place in self._places.values() for line in place.lines])
        await self.dialler.close()
        if self._enrolment is not None:
            await self._enrolment.close()
        self.host_keys.flush()
        self._places.clear()


def _place_of(worker: WorkerRef) -> tuple[str, int, str, str]:
    """A worker whose address changed is connected to anew."""
    return (node_of(worker), worker.worker_index, worker.internal_ip, worker.external_ip)
