"""What is known of the ssh servers of the fleet, and how it is said."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from backend import inventory
from backend.model import QueuedResource, QueuedResourceState, Slice, SshWord, Standing
from backend.targets import WorkerRef, workers_of_slice

TAKEN_AWAY = frozenset({QueuedResourceState.SUSPENDING, QueuedResourceState.SUSPENDED, QueuedResourceState.DELETING})
"""What is left of such a request needs no ssh."""
NAMED = 3
"""Slices, and workers of a slice, that are told by number."""

Key = tuple[str, ...]
"""Of a request (project, zone, name), or of a TPU VM that no request owns: the same with `/` before its node."""
Place = tuple[str, str, str, int]
"""Of a worker: (project, zone, node, index)."""


@dataclass(slots=True, eq=False)
class Voice:
    """One worker's ssh server."""

    worker: WorkerRef
    called: Called
    known: bool = False
    """Somebody asked since its slice became ready."""
    why: str = ""
    """Why it did not greet; empty where it did."""
    login: str = ""
    """Why it let nobody in, though it greets; until somebody gets in."""
    tries: int = 0
    """In vain, in a row."""
    due: float = float("inf")
    asking: bool = False
    queued: bool = False
    gone: bool = False

    @property
    def answers(self) -> bool:
        return self.known and not self.lacks

    @property
    def lacks(self) -> str:
        return self.login or self.why

    @property
    def place(self) -> Place:
        return place_of(self.worker)


@dataclass(slots=True, eq=False)
class SliceRoll:
    """The workers of one slice that the cloud calls ready."""

    item: Slice
    voices: dict[int, Voice]
    silent: dict[int, str] = field(default_factory=dict)
    """Why, by worker."""
    answered: int = 0


@dataclass(slots=True, eq=False)
class Called:
    """A request, or a TPU VM without one, whose workers are called."""

    key: Key
    item: QueuedResource | Slice
    slices: dict[str, SliceRoll] = field(default_factory=dict)
    """By node, in their order."""
    fresh: deque[Voice] = field(default_factory=deque)
    """Whom to ask now."""
    word: SshWord | None = None
    """Made when it is looked at after a change."""

    @property
    def workers(self) -> int:
        return sum(len(each.voices) for each in self.slices.values())

    @property
    def answered(self) -> int:
        return sum(each.answered for each in self.slices.values())


def key_of(item: QueuedResource | Slice) -> Key:
    return item.key if isinstance(item, QueuedResource) else (item.project, item.zone, f"/{item.node_id}")


def covers(called: Called, item: QueuedResource | Slice) -> bool:
    """Whether what is known is of the slices as they are now."""
    return called.item is item or [(each.item.uid, each.item.workers) for each in called.slices.values()] == [
        (one.uid, one.workers) for one in slices_to_call(item)
    ]


def place_of(worker: WorkerRef) -> Place:
    return (worker.project, worker.zone, worker.node_id, worker.worker_index)


def slices_to_call(item: QueuedResource | Slice) -> Iterable[Slice]:
    """What the cloud calls ready; of machines that are only listed nobody says anything, so they are called too."""
    if isinstance(item, QueuedResource):
        slices = item.slices if item.state not in TAKEN_AWAY else ()
        return sorted((each for each in slices if each.ready), key=lambda each: each.index)
    return (item,) if item.ready or item.state == inventory.LISTED else ()


def number_to_call(item: QueuedResource | Slice) -> int:
    """Workers that the cloud calls ready."""
    return sum(len(each.workers) for each in slices_to_call(item))


def same_slice(old: SliceRoll | None, new: Slice) -> SliceRoll:
    """The roll of a slice as it is now; what was known of a worker stays while node and address are the same."""
    voices: dict[int, Voice] = {}
    if old is not None and old.item.uid == new.uid:
        if old.item.workers == new.workers:
            old.item = new
            return old
        voices = old.voices
    kept = {
        worker.worker_index: voice
        for worker in workers_of_slice(new)
        if (voice := voices.get(worker.worker_index)) is not None
        and (voice.worker.internal_ip, voice.worker.external_ip) == (worker.internal_ip, worker.external_ip)
    }
    silent = {index: voice.lacks for index, voice in kept.items() if voice.known and voice.lacks}
    return SliceRoll(new, kept, silent, sum(voice.answers for voice in kept.values()))


def lacking(called: Called) -> str:
    """`slice 1: no ssh on worker 2 (connection refused)`; empty while nobody was found silent."""
    found = [each for each in called.slices.values() if each.silent]
    parts = [_lacks(each) for each in found[:NAMED]]
    if len(found) > NAMED:
        parts.append(f"and {len(found) - NAMED} slices more")
    return "; ".join(parts)


def _lacks(roll: SliceRoll) -> str:
    indices = sorted(roll.silent)
    reasons = list(dict.fromkeys(roll.silent[index] for index in indices))
    why = ", ".join(reasons[:2]) + (" …" if len(reasons) > 2 else "")
    if len(indices) == len(roll.voices) > 1:
        who = f"all {len(indices)} workers"
    else:
        more = f" and {len(indices) - NAMED} more" if len(indices) > NAMED else ""
        who = f"worker {', '.join(map(str, indices[:NAMED]))}{more}"
    return f"slice {roll.item.index}: no ssh on {who} ({why})"


def short(why: str) -> str:
    """For a line of its own: `refused` for `connection refused`."""
    return why.removeprefix("connection ")


def word_of(called: Called, not_asked: str, closed: str) -> SshWord:
    """What to say of a request.

    Args:
        called: It.
        not_asked: Why nobody is asked by itself; empty where everybody is.
        closed: Why nobody can be asked now; empty where everybody can.
    """
    answered, number = called.answered, called.workers
    if closed and not not_asked:
        return SshWord(Standing.LACKS, f"no ssh: {closed}", 0, number)
    lacks = lacking(called)
    if lacks:
        return SshWord(Standing.LACKS, lacks, answered, number)
    if answered == number:
        return SshWord(Standing.ANSWERS, f"ssh answers on {answered} of {number} workers", answered, number)
    if not_asked:
        some = f", answers on {answered}" if answered else ""
        return SshWord(Standing.NOT_ASKED, f"ssh not asked ({not_asked}){some}", answered, number)
    return SshWord(Standing.ASKING, f"asking ssh {answered}/{number}", answered, number)
