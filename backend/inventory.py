"""Machines that no Cloud TPU API serves (7x on Compute Engine or GKE, any cluster with sshd), listed by the operator.

They are shown and driven as slices that stand alone, in a zone of their own. Nothing is known of them but what the list says, so
their state is LISTED: neither ready nor dead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backend.model import Slice, Worker
from backend.settings import Table, read_toml

ZONE = "inventory"
LISTED = "LISTED"

_KEYS = ("name", "accelerator_type", "user", "port", "key", "workers", "slices", "host_keys")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?")
_ADDRESS = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\d{1,5}))?|\[([0-9A-Fa-f:.%a-z0-9]+)\](?::(\d{1,5}))?)")
_HOST_KEY = re.compile(r"(ssh-|ecdsa-)[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( .*)?")


@dataclass(frozen=True, slots=True)
class ListedWorker:
    """How one machine is reached."""

    host: str
    port: int = 0
    """0: the context's."""
    user: str = ""
    """Empty: the context's."""
    key: Path | None = None
    host_keys: tuple[str, ...] = ()
    """OpenSSH lines; empty: trusted on first use."""


@dataclass(frozen=True, slots=True)
class ListedSlice:
    """One slice of the inventory; `node_id` is its own name, `name` that of all slices of its entry."""

    name: str
    index: int
    node_id: str
    workers: tuple[ListedWorker, ...]
    accelerator_type: str = ""

    def facts(self, project: str) -> Slice:
        """The slice as the fleet shows it."""
        return Slice(
            project=project,
            zone=ZONE,
            node_id=self.node_id,
            index=self.index,
            state=LISTED,
            uid=f"{ZONE}/{self.node_id}",
            accelerator_type=self.accelerator_type,
            queued_resource=self.name if self.name != self.node_id else "",
            workers=tuple(Worker(place, each.host, each.host) for place, each in enumerate(self.workers)),
        )


class Named(Protocol):
    """The part of a WorkerRef that finds it in the inventory."""

    @property
    def zone(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def worker_index(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Inventory:
    """All listed slices of a context."""

    slices: tuple[ListedSlice, ...] = ()
    _by_node: dict[str, ListedSlice] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._by_node.update((each.node_id, each) for each in self.slices)

    def __bool__(self) -> bool:
        return bool(self.slices)

    @property
    def key(self) -> Path | None:
        """The first key that is named: a context of listed machines alone needs no other."""
        return next((worker.key for each in self.slices for worker in each.workers if worker.key is not None), None)

    def find(self, worker: Named) -> ListedWorker | None:
        """None for a worker of the cloud, and for one that is no longer listed."""
        found = self._by_node.get(worker.node_id) if worker.zone == ZONE else None
        if found is None or worker.worker_index >= len(found.workers):
            return None
        return found.workers[worker.worker_index]

    def facts(self, project: str) -> tuple[Slice, ...]:
        return tuple(each.facts(project) for each in self.slices)


def load_inventory(table: Table, folder: Path) -> Inventory:
    """The inventory of a context: tables `[[inventory]]`, or `inventory = "FILE"` with such tables.

    Args:
        table: The context's table.
        folder: What paths are relative to.

    Raises:
        OperatorError: a mistake, with file, line, key, reason and cure.
    """
    if isinstance(table.data.get("inventory"), str):
        file = folder / Path(table.get_str("inventory")).expanduser()
        table, folder = read_toml(file), file.parent
        table.only(("inventory",))
    slices: list[ListedSlice] = []
    seen: dict[str, str] = {}
    for entry in table.tables("inventory"):
        for each in _entry(entry, folder):
            for name in dict.fromkeys((each.name, each.node_id)):
                if seen.setdefault(name, each.name) != each.name or any(
                    one.node_id == each.node_id for one in slices
                ):
                    raise entry.problem("name", f"'{name}' is listed twice.", "Give each entry a name of its own.")
            slices.append(each)
    return Inventory(tuple(slices))


def _entry(entry: Table, folder: Path) -> Iterator[ListedSlice]:
    entry.only(_KEYS)
    name = entry.get_str("name")
    if not _NAME.fullmatch(name):
        raise entry.problem(
            "name" if name else None,
            f"'{name}' is no name." if name else "an entry has no name.",
            'Write name = "lab": small letters, digits and dashes, as targets have it.',
        )
    lists = _lists(entry)
    keys = _host_keys(entry.table("host_keys"))
    used: set[str] = set()
    port, key = entry.get_int("port", 0, least=0, most=65535), entry.get_str("key")
    for index, texts in enumerate(lists):
        workers = []
        for text in texts:
            match = _ADDRESS.fullmatch(text)
            own = int((match[2] or match[4] or 0) if match is not None else 0)
            if match is None or own > 65535:
                raise entry.problem(None, f"'{text}' is no address.", 'Write "host", "host:port" or "[v6]:port".')
            used.add(text)
            workers.append(
                ListedWorker(
                    match[1] or match[3],
                    own or port,
                    entry.get_str("user"),
                    folder / Path(key).expanduser() if key else None,
                    keys.get(text, ()),
                )
            )
        node_id = name if len(lists) == 1 else f"{name}-{index}"
        yield ListedSlice(name, index, node_id, tuple(workers), entry.get_str("accelerator_type"))
    for address in keys:
        if address not in used:
            raise entry.problem(
                "host_keys",
                f"there is no worker '{address}'.",
                "Write the address as it stands in workers or slices.",
            )


def _lists(entry: Table) -> list[list[str]]:
    """Addresses by slice."""
    given = [key for key in ("workers", "slices") if key in entry.data]
    if len(given) != 1:
        raise entry.problem(
            given[0] if given else None,
            "has both workers and slices." if given else "has no workers.",
            'Write workers = ["10.0.0.1"] for one slice, or slices = [["10.0.0.1"], ["10.0.0.2"]].',
        )
    value = entry.data[given[0]]
    lists = [value] if given[0] == "workers" else value
    good = isinstance(lists, list) and lists and all(isinstance(each, list) and each for each in lists)
    if not good or not all(isinstance(text, str) for each in lists for text in each):
        raise entry.problem(
            given[0], "must be lists of addresses, none of them empty.", 'Write ["10.0.0.1", "10.0.0.2"].'
        )
    every = [text for each in lists for text in each]
    double = next((text for place, text in enumerate(every) if text in every[:place]), None)
    if double is not None:
        raise entry.problem(given[0], f"'{double}' is listed twice.", "A machine is one worker.")
    return [list(each) for each in lists]


def _host_keys(table: Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for address, value in table.data.items():
        lines = [value] if isinstance(value, str) else value
        if not isinstance(lines, list) or not all(
            isinstance(line, str) and _HOST_KEY.fullmatch(line) for line in lines
        ):
            raise table.problem(
                address,
                "is no host key.",
                'Write "ssh-ed25519 AAAA...", as `ssh-keyscan` prints it after the address.',
            )
        found[address] = tuple(lines)
    return found
