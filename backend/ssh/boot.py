"""Since when a worker's node is READY: the beginning of the minutes in which it may not know the operator's key yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from backend.model import Fleet
from backend.ssh.hostkeys import KeyJournal, node_of
from backend.targets import WorkerRef

YOUNG_S = 900.0
"""A node created this recently, whose READY nobody saw, counts as READY since it was first looked at."""


class ReadySince:
    """Answers from the journal's node states; asked only when a worker refuses the key.

    Args:
        journal: Where they are kept.
        fleet: The fleet as it is known now.
    """

    def __init__(self, journal: KeyJournal, fleet: Callable[[], Fleet]) -> None:
        self._journal = journal
        self._fleet = fleet
        self._first_asked: dict[str, float] = {}

    def __call__(self, worker: WorkerRef) -> float | None:
        """Unix seconds, or None when it is not known and the node is old."""
        now = time.time()
        first = self._first_asked.setdefault(node_of(worker), now)
        created = next(
            (
                item.created_at.timestamp()
                for resource in self._fleet().queued_resources
                for item in resource.slices
                if item.uid == worker.uid and item.node_id == worker.node_id and item.created_at is not None
            ),
            None,
        )
        row = self._journal.row(
            "SELECT MAX(at) FROM events WHERE subject = ? AND project = ? AND zone = ? "
            "AND kind = 'node-state' AND after = 'READY'",
            (f"{worker.queued_resource}/{worker.slice_index}", worker.project, worker.zone),
        )
        seen = row[0] if row is not None else None
        if seen is not None and (created is None or seen >= created):
            return float(seen)
        return first if created is not None and now - created < YOUNG_S else None
