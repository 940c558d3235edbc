"""What is known of one (project, zone), and how soon it is worth another look."""

from __future__ import annotations

import asyncio
from time import monotonic

from backend.cloud.changes import Look
from backend.cloud.errors import CloudError
from backend.model import NodeState, QueuedResourceState, StateSince, ZonePoll
from backend.outcomes import OperatorError

FAST_S = 1.0
"""Between polls while something has just moved, or after `poke`."""
MOVING_S = 2.0
"""While something is on its way."""
WAITING_S = 5.0
"""While requests wait for capacity, or something has been on its way for long without a change."""
SLOW_S = 10.0
"""While nothing moves."""
JITTER = 0.15
"""Part of each pause that is left to chance, so that many consoles don't poll in step."""
LIVELY_S = 20.0
"""After a change, polls stay fast for this long."""
PATIENCE_S = 300.0
"""After this long without a change, a moving fleet is polled no faster than a waiting one."""
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 2.0, 60.0
"""After failed polls: doubled each time."""
_MOVING_STATES = frozenset(
    {
        QueuedResourceState.CREATING,
        QueuedResourceState.ACCEPTED,
        QueuedResourceState.PROVISIONING,
        QueuedResourceState.SUSPENDING,
        QueuedResourceState.DELETING,
    }
)
_RESTING_NODES = frozenset({NodeState.READY, NodeState.STOPPED, NodeState.PREEMPTED, NodeState.TERMINATED})


class Zone:
    """What is known of one (project, zone), and when to look again."""

    def __init__(self, project: str, zone: str) -> None:
        self.place = (project, zone)
        self.look = Look(project, zone, (), ())
        self.since: dict[tuple[str, str, str], StateSince] = {}
        self.poll = ZonePoll(project, zone)
        self.polled = False
        self.error: OperatorError | None = None
        self.wake = asyncio.Event()
        self.lock = asyncio.Lock()
        self.polled_at = 0.0
        self.changed_at = monotonic() - LIVELY_S
        """When something last changed; at first, what moves is given the patience of something that just did."""
        self.fast_until = 0.0

    def pause_s(self, now: float) -> float:
        """Seconds until the next poll, without jitter."""
        if self.poll.failures:
            back_off = min(FIRST_BACK_OFF_S * 2.0 ** (self.poll.failures - 1), MOST_BACK_OFF_S)
            return max(back_off, self.asked_to_wait_s)
        if now < self.fast_until or now - self.changed_at < LIVELY_S:
            return FAST_S
        requests = self.look.queued_resources
        states = {item.state for item in requests}
        mending = any(item.state == QueuedResourceState.ACTIVE and not item.ready for item in requests)
        nodes = {each.state for item in requests for each in item.slices}
        nodes |= {each.state for each in self.look.standalone}
        if states & _MOVING_STATES or nodes - _RESTING_NODES or mending:
            return MOVING_S if now - self.changed_at < PATIENCE_S else WAITING_S
        return WAITING_S if QueuedResourceState.WAITING_FOR_RESOURCES in states else SLOW_S

    @property
    def asked_to_wait_s(self) -> float:
        """What the service's RetryInfo asked for; 0 where it did not."""
        return (self.error.retry_after_s or 0.0) if isinstance(self.error, CloudError) else 0.0

    @property
    def will_not_mend(self) -> bool:
        """Whether polls fail for a reason that waiting does not change; twice, since a token may be renewed between."""
        return self.poll.failures > 1 and not (isinstance(self.error, CloudError) and self.error.transient)
