"""Whom a command is for: `QR`, `QR/SLICES` or `QR/SLICES/WORKERS`, matched exactly and ordered by number.

`train-a` is all its workers, `train-a/0` one slice, `train-a/*/0` the first worker of each slice, `train-a/0-3/0,2` ranges and
lists. `*` is the only pattern, and only where it is written; a standalone TPU VM counts as a request with one slice 0.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backend import inventory
from backend.model import Fleet, QueuedResource, QueuedResourceState, Slice
from backend.outcomes import OperatorError
from backend.sanitize import plain

GRAMMAR = "A target is QR, QR/SLICE or QR/SLICE/WORKER, such as train-a, train-a/0, train-a/*/0 or train-a/0-3/0,2."

NAMED = 5
"""Of the names that exist, so many are told where none is near."""


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """One worker as a run knows it: who it is (project, zone, QR, node uid, index) and where it answers."""

    project: str
    zone: str
    queued_resource: str
    slice_index: int
    worker_index: int
    node_id: str
    uid: str
    internal_ip: str = ""
    external_ip: str = ""

    @property
    def address(self) -> str:
        """`train-a/0/3`: its name everywhere, on screen, in filters and in JSON."""
        return f"{self.queued_resource}/{self.slice_index}/{self.worker_index}"

    @property
    def file_stem(self) -> str:
        """`train-a.0.3`: the same for file names."""
        return f"{self.queued_resource}.{self.slice_index}.{self.worker_index}"

    @property
    def order(self) -> tuple[str, int, int]:
        """Sorts 2 before 10."""
        return (self.queued_resource, self.slice_index, self.worker_index)


def workers_of_slice(item: Slice) -> tuple[WorkerRef, ...]:
    """The workers of one slice in the API's order."""
    name = item.queued_resource or item.node_id
    return tuple(
        WorkerRef(
            project=item.project,
            zone=item.zone,
            queued_resource=name,
            slice_index=item.index,
            worker_index=worker.index,
            node_id=item.node_id,
            uid=item.uid,
            internal_ip=worker.internal_ip,
            external_ip=worker.external_ip,
        )
        for worker in item.workers
    )


def workers_of(resource: QueuedResource) -> tuple[WorkerRef, ...]:
    """All workers that exist now, by slice and index."""
    return tuple(
        worker for item in sorted(resource.slices, key=lambda each: each.index) for worker in workers_of_slice(item)
    )


@dataclass(frozen=True, slots=True)
class _Indices:
    """A list of numbers and ranges, or everything."""

    text: str
    numbers: frozenset[int] | None
    """None means all."""

    def __contains__(self, index: int) -> bool:
        return self.numbers is None or index in self.numbers


MAX_INDEX = 65_535
"""Beyond any slice or worker index that exists; bounds what a mistyped range may expand to."""
INDEX_DIGITS = 18
"""Of an index are read: more is above the limit by the first of them, and thousands Python would not read."""


def _indices(part: str, target: str) -> _Indices:
    if part == "*":
        return _Indices(part, None)
    numbers: set[int] = set()
    for piece in part.split(","):
        first, dash, last = piece.partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise OperatorError(f"'{plain(piece)}' in the target '{plain(target)}' is no index, range or *.", GRAMMAR)
        low, high = (int(text[:INDEX_DIGITS]) for text in (first, last if dash else first))
        if low > high:
            raise OperatorError(
                f"The range '{plain(piece)}' in '{plain(target)}' runs backwards.", f"Write {high}-{low}."
            )
        if high > MAX_INDEX:
            raise OperatorError(f"The index {high} in '{plain(target)}' is beyond any slice or worker.", GRAMMAR)
        numbers.update(range(low, high + 1))
    return _Indices(part, frozenset(numbers))


def _named(fleet: Fleet) -> Iterator[tuple[str, str, tuple[WorkerRef, ...]]]:
    """(name, state, workers) of everything that a target can name."""
    for resource in fleet.queued_resources:
        yield resource.name, resource.state, workers_of(resource)
    listed: dict[str, list[WorkerRef]] = {}
    for item in fleet.standalone:
        yield item.node_id, item.state, workers_of_slice(item)
        if item.zone == inventory.ZONE and item.queued_resource:
            listed.setdefault(item.queued_resource, []).extend(workers_of_slice(item))
    for name, refs in listed.items():
        yield name, inventory.LISTED, tuple(sorted(refs, key=lambda each: each.order))


def _near(word: str, names: Iterable[str]) -> str:
    every = sorted(set(names))
    near = difflib.get_close_matches(word, every, n=3, cutoff=0.5)
    if near:
        return f"Near: {', '.join(plain(name) for name in near)}."
    if not every:
        return "There are no queued resources."
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return f"There are: {', '.join(plain(name) for name in every[:NAMED])}{more}."


Named = Sequence[tuple[str, str, tuple[WorkerRef, ...]]]


def _select_one(every: Named, target: str) -> Iterator[WorkerRef]:
    parts = target.split("/")
    if not target or len(parts) > 3 or "" in parts:
        raise OperatorError(f"'{plain(target)}' is no target.", GRAMMAR)
    wanted = parts[0]
    slices = _indices(parts[1], target) if len(parts) > 1 else _Indices("*", None)
    workers = _indices(parts[2], target) if len(parts) > 2 else _Indices("*", None)
    if "*" in wanted:
        named = [
            item for item in every if fnmatch.fnmatchcase(item[0], wanted.replace("[", "[[]").replace("?", "[?]"))
        ]
    else:
        named = [item for item in every if item[0] == wanted]
    if not named:
        raise OperatorError(
            f"No queued resource is called '{plain(wanted)}'.", _near(wanted, (item[0] for item in every))
        )
    if len(named) > 1 and "*" not in wanted:
        zones = ", ".join(sorted({refs[0].zone for _, _, refs in named if refs}))
        raise OperatorError(
            f"'{plain(wanted)}' exists {len(named)} times ({zones}).",
            "Use a context or --zone that holds only one of them.",
        )
    if not any(refs for _, _, refs in named):
        active = named[0][1] == QueuedResourceState.ACTIVE
        raise OperatorError(
            f"'{plain(wanted)}' has no workers{' now, though' if active else ':'} it is {plain(named[0][1])}.",
            f"`slicetower qr wait {plain(wanted)}` waits until "
            f"{'they are there again' if active else 'it is ACTIVE'}."
            if "*" not in wanted
            else "",
        )
    chosen = [
        worker
        for _, _, refs in named
        for worker in refs
        if worker.slice_index in slices and worker.worker_index in workers
    ]
    if not chosen:
        slice_count = max((worker.slice_index for _, _, refs in named for worker in refs), default=-1)
        worker_count = max((worker.worker_index for _, _, refs in named for worker in refs), default=-1)
        raise OperatorError(
            f"'{plain(target)}' matches no worker.",
            f"Slices run from 0 to {slice_count}, workers from 0 to {worker_count}.",
        )
    for name, _, refs in named:
        _require_present(name, target, "slice", slices, {worker.slice_index for worker in refs})
        in_slices = {worker.worker_index for worker in refs if worker.slice_index in slices}
        _require_present(name, target, "worker", workers, in_slices)
    yield from chosen


def _require_present(name: str, target: str, what: str, asked: _Indices, present: set[int]) -> None:
    """An index that was written and does not exist is a mistake, not a smaller selection."""
    missing = sorted((asked.numbers or frozenset()) - present)
    if missing:
        raise OperatorError(
            f"'{plain(target)}' asks for {what} {missing[0]}, which {plain(name)} does not have.",
            f"Its {what}s run from {min(present, default=0)} to {max(present, default=0)}.",
        )


def expand(texts: Sequence[str], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Targets with each `@name` replaced by the targets of that group, groups of groups too.

    Raises:
        OperatorError: There is no such group (near names), or it holds itself.
    """

    def opened(text: str, inside: tuple[str, ...]) -> Iterator[str]:
        if not text.startswith("@"):
            yield text
            return
        name = text[1:]
        if name not in groups:
            near = difflib.get_close_matches(name, groups, n=3, cutoff=0.5) or sorted(groups)[:5]
            known = f"There are: {', '.join(f'@{plain(each)}' for each in near)}." if near else ""
            cure = known or 'Write [groups] with NAME = ["train-a/0", ...] into the configuration.'
            raise OperatorError(f"There is no group '@{plain(name)}'.", cure)
        if name in inside:
            raise OperatorError(f"The group '@{plain(name)}' holds itself.", "Take it out of its own targets.")
        for each in groups[name]:
            yield from opened(each, (*inside, name))

    return tuple(each for text in texts for each in opened(text, ()))


def select(
    fleet: Fleet, texts: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None
) -> tuple[WorkerRef, ...]:
    """All workers that the targets name, in numeric order, each once.

    Args:
        fleet: What exists.
        texts: Targets, and `@name` for groups.
        groups: The targets of each saved group.

    Raises:
        OperatorError: A target is malformed, matches nothing, is ambiguous, or names an index or group that does not
            exist.
    """
    if not texts:
        raise OperatorError("No target was given.", GRAMMAR)
    return _select(list(_named(fleet)), expand(texts, groups or {}))


def select_among(
    workers: Sequence[WorkerRef], texts: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None
) -> tuple[WorkerRef, ...]:
    """The same among workers that are given, such as those of a run, which may be gone from the fleet.

    Raises:
        OperatorError: as `select`.
    """
    places: dict[str, list[WorkerRef]] = {}
    for worker in workers:
        places.setdefault(worker.address.rsplit("/", 2)[0], []).append(worker)
    return _select([(name, "", tuple(refs)) for name, refs in places.items()], expand(texts, groups or {}))


def _select(every: Named, texts: Sequence[str]) -> tuple[WorkerRef, ...]:
    found: dict[WorkerRef, None] = {}
    for text in texts:
        found.update(dict.fromkeys(_select_one(every, text)))
    return tuple(sorted(found, key=lambda worker: worker.order))


def fold(addresses: Iterable[str]) -> str:
    """Addresses in short: `train-a/0/0-3,7 train-a/1/*`-like ranges, for group headers.

    >>> fold(["a/0/0", "a/0/1", "a/0/2", "a/1/5"])
    'a/0/0-2 a/1/5'
    """
    slices: dict[tuple[str, int], list[int]] = {}
    for address in addresses:
        name, slice_text, worker_text = address.rsplit("/", 2)
        slices.setdefault((name, int(slice_text)), []).append(int(worker_text))
    same: dict[tuple[str, str], list[int]] = {}
    for (name, slice_index), members in sorted(slices.items()):
        same.setdefault((name, _ranges(sorted(set(members)))), []).append(slice_index)
    return " ".join(f"{name}/{_ranges(indices)}/{members}" for (name, members), indices in same.items())


def _ranges(numbers: Sequence[int]) -> str:
    pieces: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == previous + 1:
            previous = number
            continue
        pieces.append(str(start) if start == previous else f"{start}-{previous}")
        if number is not None:
            start = previous = number
    return ",".join(pieces)
