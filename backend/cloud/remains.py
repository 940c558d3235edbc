"""What lies about: dead requests, nodes whose request is gone, and requests of a race that nobody runs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from backend import inventory
from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.cloud.kept_races import LostRace
from backend.model import DEAD_STATES, Fleet, Operation, QueuedResource, QueuedResourceState, Slice


@dataclass(frozen=True, slots=True)
class Remains:
    """Found in one snapshot; nothing of a zone that did not answer is known, so nothing of it is here that is not seen."""

    dead: tuple[QueuedResource, ...]
    orphans: tuple[Slice, ...]
    """Nodes that say a queued resource owns them, which is not there."""
    zombies: tuple[QueuedResource, ...]
    """Entries of lost races that still wait for capacity."""
    winners: tuple[QueuedResource, ...]
    """Entries of lost races that are ACTIVE: kept, since somebody may use them."""
    waiting: tuple[tuple[QueuedResource, int], ...] = ()
    """Entries of races that wait on purpose for a process, each with its race: wanted, unless somebody says otherwise."""

    @property
    def requests(self) -> tuple[QueuedResource, ...]:
        return (*self.dead, *self.zombies)

    @property
    def chips(self) -> int:
        """Held by the dead."""
        return sum(item.chips for item in self.dead)

    def __bool__(self) -> bool:
        return bool(self.dead or self.orphans or self.zombies or self.waiting)


def remains(fleet: Fleet, lost_races: Sequence[LostRace]) -> Remains:
    """
    Args:
        fleet: What was seen.
        lost_races: Of the journal (`PolicyStore.lost_races`).
    """
    entered = {entry.key for race in lost_races for entry in race.entries}
    wanted = {entry.key: race.id for race in lost_races if race.waits for entry in race.entries}
    left = [item for item in fleet.queued_resources if item.key in entered and item.state not in DEAD_STATES]
    stale = {(poll.project, poll.zone) for poll in fleet.polls if poll.error}
    return Remains(
        dead=tuple(item for item in fleet.queued_resources if item.state in DEAD_STATES),
        orphans=tuple(
            each
            for each in fleet.standalone
            if each.queued_resource and each.zone != inventory.ZONE and (each.project, each.zone) not in stale
        ),
        zombies=tuple(item for item in left if item.state != QueuedResourceState.ACTIVE and item.key not in wanted),
        winners=tuple(item for item in left if item.state == QueuedResourceState.ACTIVE),
        waiting=tuple(
            (item, wanted[item.key])
            for item in left
            if item.key in wanted and item.state != QueuedResourceState.ACTIVE
        ),
    )


class Caller(Protocol):
    """What is needed of a client."""

    async def get_queued_resource(self, project: str, zone: str, name: str) -> QueuedResource: ...

    async def delete_node(self, project: str, zone: str, node_id: str) -> Operation: ...

    async def wait_operation(self, operation: Operation, timeout_s: float) -> Operation: ...


async def delete_orphan(client: Caller, item: Slice, timeout_s: float) -> bool:
    """Deletes a node, unless its request is there after all: the two lists were not read at the same moment.

    Returns:
        False: it was left alone.

    Raises:
        OperatorError: the cloud refuses, or it is not gone within `timeout_s`.
    """
    try:
        await client.get_queued_resource(item.project, item.zone, item.queued_resource)
    except CloudError as error:
        if error.kind is not ErrorKind.NOT_FOUND:
            raise
    else:
        return False
    operation = await client.delete_node(item.project, item.zone, item.node_id)
    await client.wait_operation(operation, timeout_s)
    return True
