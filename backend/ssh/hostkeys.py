"""Host keys: what the API serves is checked, and pinned to the node's uid, never to an address that is recycled.

A key is trusted when it is pinned, or when the API serves it. On a mismatch the API is asked again; only if it serves the
new key by then (a re-imaged worker) is that accepted, and journalled. Trust on first use happens only where the API has no
key at all, and is journalled as such.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

import asyncssh

from backend import inventory
from backend.model import Event, EventKind, Fleet, Slice
from backend.outcomes import OperatorError
from backend.targets import WorkerRef

T = TypeVar("T")

STEPS = (
    """
    CREATE TABLE hostkeys (
        node TEXT NOT NULL,
        worker_index INTEGER NOT NULL,
        keys TEXT NOT NULL,
        origin TEXT NOT NULL,
        pinned_at REAL NOT NULL,
        PRIMARY KEY (node, worker_index)
    );
    """,
)

WRITE_DELAY_S = 0.2
"""New pins are written together."""

NODES_AT_ONCE = 500
"""In one query."""

SLICE_KEYS_FRESH_S = 300.0
"""One API answer holds the keys of all workers of a slice; connecting to all of them asks once."""


class HostKeySource(Protocol):
    """Where host keys are known from: the API's guest attributes."""

    async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> Sequence[str]:
        """Public keys as OpenSSH lines; empty when the API has none for this worker.

        Args:
            fresh: Ask the API, whatever was heard before.

        Raises:
            OperatorError: The API could not be asked: that is not the same as having no key.
        """
        ...


class KeyJournal(Protocol):
    """The part of backend.journal.Journal that is needed here."""

    def migrate(self, component: str, steps: Sequence[str]) -> None: ...

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...

    def row(self, query: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None: ...

    def record(self, events: Iterable[Event]) -> object: ...


class HostKeyAsker(Protocol):
    """The part of backend.cloud.client.CloudClient that is needed here."""

    async def host_keys(self, item: Slice) -> dict[int, list[str]]: ...

    async def hostnames(self, item: Slice) -> dict[int, str]: ...


class SliceHostKeys:
    """The API as a HostKeySource: one question a slice, shared by all who wait for it.

    Args:
        client: The Cloud TPU client.
        fleet: The fleet as it is known now; the slice of a worker is found in it by uid.
        listed: Machines that the API does not serve; their keys stand there, or nowhere.
    """

    def __init__(
        self, client: HostKeyAsker, fleet: Callable[[], Fleet], listed: inventory.Inventory | None = None
    ) -> None:
        self._inventory = listed or inventory.Inventory()
        self._client = client
        self._fleet = fleet
        self._indexed: Fleet | None = None
        self._slices: dict[str, Slice] = {}
        self._keys: dict[str, _Shared[list[str]]] = {}
        self._names: dict[str, _Shared[str]] = {}

    async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> Sequence[str]:
        if worker.zone == inventory.ZONE:
            listed = self._inventory.find(worker)
            return listed.host_keys if listed is not None else ()
        item = self.slice_of(worker)
        answer = await _shared(self._keys, node_of(worker), lambda: self._client.host_keys(item), fresh=fresh)
        return answer.get(worker.worker_index, [])

    async def instance_name(self, worker: WorkerRef) -> str:
        """The Compute Engine name of a worker, which a tunnel through IAP asks for; empty when the API has none."""
        item = self.slice_of(worker)
        answer = await _shared(self._names, node_of(worker), lambda: self._client.hostnames(item), fresh=False)
        return answer.get(worker.worker_index, "")

    def slice_of(self, worker: WorkerRef) -> Slice:
        """The slice of a worker.

        Raises:
            OperatorError: The fleet has no such node any more.
        """
        fleet = self._fleet()
        if fleet is not self._indexed:
            owned = (item for resource in fleet.queued_resources for item in resource.slices)
            self._slices = {_node(item.uid, item.project, item.zone, item.node_id): item for item in owned}
            self._slices.update(
                (_node(item.uid, item.project, item.zone, item.node_id), item) for item in fleet.standalone
            )
            self._indexed = fleet
        found = self._slices.get(node_of(worker))
        if found is None:
            raise OperatorError(
                f"{worker.address} is no longer part of the fleet.", "Look at `slicetower fleet --once`."
            )
        return found


@dataclass(slots=True)
class _Shared(Generic[T]):
    asked_at: float
    answer: asyncio.Task[dict[int, T]]


async def _shared(
    kept: dict[str, _Shared[T]], node: str, ask: Callable[[], Awaitable[dict[int, T]]], *, fresh: bool
) -> dict[int, T]:
    """The answer about a slice: the one that is on its way, a recent one, or a new one. Errors are not kept."""
    now = time.monotonic()
    entry = kept.get(node)
    usable = entry is not None and (
        not entry.answer.done()
        or (
            not entry.answer.cancelled()
            and entry.answer.exception() is None
            and now - entry.asked_at < SLICE_KEYS_FRESH_S
            and not fresh
        )
    )
    if entry is None or not usable:
        entry = kept[node] = _Shared(now, asyncio.ensure_future(_awaited(ask)))
    return await asyncio.shield(entry.answer)


async def _awaited(ask: Callable[[], Awaitable[dict[int, T]]]) -> dict[int, T]:
    return await ask()


def node_of(worker: WorkerRef) -> str:
    """The identity that keys are pinned to: the node's uid, or its full name until the API tells a uid."""
    return _node(worker.uid, worker.project, worker.zone, worker.node_id)


def _node(uid: str, project: str, zone: str, node_id: str) -> str:
    return uid or f"{project}/{zone}/{node_id}"


@dataclass(frozen=True, slots=True)
class Trust:
    """Which keys a worker may show. No key at all: the API has none, and the first one seen will be pinned."""

    keys: tuple[asyncssh.SSHKey, ...]
    pinned: bool
    """Known from an earlier connection, so possibly out of date."""

    def algorithms(self) -> list[str]:
        """Host key algorithms to offer: those of trusted keys first, so that the server shows one that can be checked."""
        names = [name for key in self.keys for name in key.sig_algorithms]
        ordered = dict.fromkeys(
            [*(name.decode("ascii") for name in names if name != b"ssh-rsa"), *HOST_KEY_ALGORITHMS]
        )
        return list(ordered)


HOST_KEY_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-256",
    "rsa-sha2-512",
)


class HostKeys:
    """Decides about host keys, and remembers.

    Args:
        journal: Keeps the pins and the events.
        source: The API; None when there is nobody to ask, which is trust on first use everywhere.
    """

    def __init__(self, journal: KeyJournal, source: HostKeySource | None) -> None:
        self._journal = journal
        self._source = source
        self._pins: dict[tuple[str, int], tuple[asyncssh.SSHKey, ...]] = {}
        self._texts: dict[tuple[str, int], str] = {}
        """Pins that were read and not needed yet; empty where there is none."""
        self._unwritten: list[tuple[str, int, str, str, float]] = []
        self._writing: asyncio.TimerHandle | None = None
        journal.migrate("hostkeys", STEPS)

    async def trust(self, worker: WorkerRef) -> Trust:
        """What is known before connecting.

        Raises:
            OperatorError: The API could not be asked.
        """
        pinned = self._pinned(worker)
        if pinned:
            return Trust(pinned, pinned=True)
        return Trust(await self._ask(worker, fresh=False), pinned=False)

    async def retrust(self, worker: WorkerRef, shown: asyncssh.SSHKey, before: Trust) -> Trust | None:
        """After a mismatch: the new trust if the API serves the shown key by now, else None.

        Raises:
            OperatorError: The API could not be asked.
        """
        keys = await self._ask(worker, fresh=True)
        if shown not in keys:
            return None
        if before.pinned:
            self._pin(worker, keys, "api")
            self._tell(
                worker,
                f"The host key of {worker.address} changed to {fingerprint(shown)}, and the API serves the new one: accepted.",
            )
        return Trust(keys, pinned=False)

    def accept(self, worker: WorkerRef, trust: Trust, shown: asyncssh.SSHKey) -> None:
        """Pins after the handshake has proved that the worker holds the key."""
        if trust.pinned:
            return
        if trust.keys:
            self._pin(worker, trust.keys, "api")
            return
        self._pin(worker, (shown,), "first-use")
        self._tell(
            worker,
            f"The {'inventory' if worker.zone == inventory.ZONE else 'API'} has no host key for {worker.address}: "
            f"{fingerprint(shown)} trusted on first use.",
        )

    def known(self, worker: WorkerRef) -> tuple[str, ...]:
        """The pinned keys as OpenSSH lines, for a known_hosts file of the system's ssh."""
        return tuple(_line(key) for key in self._pinned(worker))

    def _pinned(self, worker: WorkerRef) -> tuple[asyncssh.SSHKey, ...]:
        """Read when it is first asked for: parsing the keys of a whole fleet at start would take seconds."""
        place = (node_of(worker), worker.worker_index)
        if place not in self._pins:
            if place not in self._texts:
                self.read([worker])
            text = self._texts.pop(place)
            if not text:
                return ()
            self._pins[place] = _parse(text.split("\n"))
        return self._pins[place]

    def read(self, workers: Sequence[WorkerRef]) -> None:
        """Reads the pins of many workers at once: to ask the journal for each costs as much as a tenth of its handshake."""
        places = {(node_of(worker), worker.worker_index) for worker in workers} - self._pins.keys()
        nodes = sorted({node for node, _ in places})
        self._texts.update(dict.fromkeys(places, ""))
        for start in range(0, len(nodes), NODES_AT_ONCE):
            some = nodes[start : start + NODES_AT_ONCE]
            query = f"SELECT node, worker_index, keys FROM hostkeys WHERE node IN ({','.join('?' * len(some))})"
            for node, index, keys in self._journal.rows(query, some):
                if (node, index) in places:
                    self._texts[node, index] = str(keys)

    async def _ask(self, worker: WorkerRef, *, fresh: bool) -> tuple[asyncssh.SSHKey, ...]:
        if self._source is None:
            return ()
        return _parse(await self._source.host_keys(worker, fresh=fresh))

    def _pin(self, worker: WorkerRef, keys: Sequence[asyncssh.SSHKey], origin: str) -> None:
        place = (node_of(worker), worker.worker_index)
        self._pins[place] = tuple(keys)
        lines = "\n".join(_line(key) for key in keys)
        self._unwritten.append((*place, lines, origin, time.time()))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self.flush)

    def flush(self) -> None:
        """Writes new pins: a fan-out makes hundreds a second, and each transaction costs as much as a handshake's signature."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        rows, self._unwritten = self._unwritten, []
        if rows:
            try:
                with self._journal.transaction() as connection:
                    connection.executemany(
                        "INSERT OR REPLACE INTO hostkeys (node, worker_index, keys, origin, pinned_at) "
                        "VALUES (?, ?, ?, ?, ?)",
                        rows,
                    )
            except OperatorError:
                # A full disk: kept, and tried with the next pins; what is lost is asked of the API again.
                self._unwritten = rows + self._unwritten

    def _tell(self, worker: WorkerRef, text: str) -> None:
        event = Event(
            at=datetime.now(UTC),
            kind=EventKind.ALARM,
            project=worker.project,
            zone=worker.zone,
            subject=worker.address,
            text=text,
        )
        self._journal.record([event])


def fingerprint(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 SHA256:...`, as ssh-keygen -l shows it."""
    return f"{key.get_algorithm()} {key.get_fingerprint()}"


def _line(key: asyncssh.SSHKey) -> str:
    algorithm, blob, *_ = key.export_public_key("openssh").decode("ascii").split()
    return f"{algorithm} {blob}"


def _parse(lines: Iterable[str]) -> tuple[asyncssh.SSHKey, ...]:
    """Keys that this client can check; a line of a kind that it does not know is left out."""
    keys: list[asyncssh.SSHKey] = []
    for line in lines:
        try:
            keys.append(asyncssh.import_public_key(line.strip()))
        except (asyncssh.KeyImportError, ValueError):
            continue
    return tuple(keys)
