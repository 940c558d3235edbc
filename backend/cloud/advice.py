"""What to say beside a queued resource: whether it is ready, what is missing, how long is long, what to do about it.

Times and rules: the Multislice overview (15 minutes), and what operators saw (research: field notes, sections 0 and 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import explain
from backend.model import (
    DEAD_STATES,
    WAITING_STATES,
    NodeState,
    QueuedResource,
    QueuedResourceState,
    Slice,
    SshWord,
    Standing,
    StateSince,
)

ACCOUNT_TEAM_S = 15 * 60.0
"""Waiting or provisioning for longer: the document says to contact the account team."""
PROVISIONING_USUAL_S = 5 * 60.0
"""Most requests that will become ACTIVE at all have done so by then."""
PROVISIONING_STUCK_S = 30 * 60.0
"""From here on some were stuck with no node at all, and some took 1 to 2 hours and came."""
PROVISIONING_HOPELESS_S = 2 * 3600.0
DELETING_STUCK_S = 60 * 60.0
"""A delete takes 2 to 5 minutes."""

MAINTENANCE_HEALTH = "UNHEALTHY_MAINTENANCE"
"""On a READY spot slice it came 1 to 4 minutes before each preemption that was seen."""


class Urgency(StrEnum):
    """How loud a note is."""

    NONE = "none"
    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Advice:
    """One note. `keys` names the console's keys that help; the CLI leaves it out."""

    text: str = ""
    keys: str = ""
    urgency: Urgency = Urgency.NONE

    def __str__(self) -> str:
        return f"{self.text}: {self.keys}" if self.keys else self.text


@dataclass(frozen=True, slots=True)
class Missing:
    """What one slice lacks for the request to be ready."""

    slice_index: int
    what: str


_DEAD_KEYS = "D delete, R recreate"
_SHORT_CAUSES = {
    ErrorKind.CAPACITY: "no capacity in the zone",
    ErrorKind.INTERNAL: "capacity withdrawn (code 13)",
    ErrorKind.ADDRESSES: "no external addresses left",
    ErrorKind.QUOTA: "quota used up",
    ErrorKind.SERVING_QUOTA: "'Serving' quota used up",
    ErrorKind.NEVER_GRANTED: "quota never granted",
    ErrorKind.RESERVATION: "reservation has no room",
    ErrorKind.FLEX: "no flex-start here",
    ErrorKind.PERMISSION: "not permitted",
    ErrorKind.BILLING: "billing is off",
}


def readiness(qr: QueuedResource) -> tuple[Missing, ...]:
    """Which slice lacks which piece of readiness, as far as the cloud can say; ssh has its own word.

    A slice is ready when its node is there, READY, not reported unhealthy, and has all its endpoints.
    """
    present = {item.index: item for item in qr.slices}
    found: list[Missing] = []
    for index in range(qr.slice_count):
        item = present.get(index)
        what = "no node" if item is None else _lacks(item, qr.workers_per_slice)
        if what:
            found.append(Missing(index, what))
    return tuple(found)


def _lacks(item: Slice, workers: int) -> str:
    if item.state != NodeState.READY:
        return item.state
    if item.health not in ("", "HEALTH_UNSPECIFIED", "HEALTHY"):
        return item.health
    if not item.workers:
        return "no endpoint"
    if len(item.workers) < workers:
        return f"{len(item.workers)} of {workers} endpoints"
    return ""


def _named(missing: tuple[Missing, ...]) -> str:
    first = f"slice {missing[0].slice_index}: {missing[0].what}"
    return first if len(missing) == 1 else f"{first}, and {len(missing) - 1} more"


CLOUDS_WORD = "ready by the cloud's word"
"""Of a view that asked no worker whether ssh answers."""


def advice(qr: QueuedResource, since: StateSince | None, now: datetime, ssh: SshWord | None = None) -> Advice:
    """The NOTE of one request.

    Args:
        qr: The request, joined with its slices.
        since: When its state began, as far as it was seen.
        now: The present, UTC.
        ssh: Whether ssh answers; None where nobody asks.
    """
    age_s = _age_s(qr, since, now)
    alarm = _alarm(qr)
    if alarm is not None:
        return alarm
    match qr.state:
        case QueuedResourceState.ACTIVE:
            return _active(qr, ssh)
        case QueuedResourceState.PROVISIONING:
            return _provisioning(qr, age_s)
        case QueuedResourceState.FAILED:
            return _failed(qr)
        case QueuedResourceState.SUSPENDED:
            return Advice("never comes back, holds quota", _DEAD_KEYS, Urgency.WARNING)
        case QueuedResourceState.SUSPENDING:
            who = "by the service" if qr.state_initiator == "SERVICE" else ""
            return Advice(f"being taken away {who}".strip(), "", Urgency.WARNING)
        case QueuedResourceState.DELETING:
            if age_s >= DELETING_STUCK_S:
                return Advice("deleting for over an hour: ask support", "", Urgency.WARNING)
            return Advice("being deleted", "", Urgency.INFO)
    if qr.state in WAITING_STATES and age_s >= ACCOUNT_TEAM_S:
        return Advice("15 min passed: ask your account team", "", Urgency.WARNING)
    if qr.state in WAITING_STATES and qr.valid_until is not None:
        return Advice(f"given up at {qr.valid_until:%Y-%m-%d %H:%M}Z", "", Urgency.INFO)
    return Advice()


def _age_s(qr: QueuedResource, since: StateSince | None, now: datetime) -> float:
    """Seconds in the present state, at least. A request that waits has waited since it was made."""
    starts = [] if since is None else [since.at]
    if qr.state in WAITING_STATES and qr.created_at is not None:
        starts.append(qr.created_at)
    return max(((now - start).total_seconds() for start in starts), default=0.0)


def _alarm(qr: QueuedResource) -> Advice | None:
    """READY and UNHEALTHY_MAINTENANCE: minutes before a preemption."""
    if qr.state in DEAD_STATES:
        return None
    hit = [item for item in qr.slices if item.health == MAINTENANCE_HEALTH and item.state == NodeState.READY]
    if not hit:
        return None
    return Advice(
        f"slice {hit[0].index} in maintenance, preemption likely in minutes: checkpoint now", "", Urgency.ALARM
    )


def _active(qr: QueuedResource, ssh: SshWord | None) -> Advice:
    missing = readiness(qr)
    if missing:
        return Advice(_named(missing), "", Urgency.WARNING)
    if ssh is not None and ssh.standing is not Standing.ANSWERS:
        return Advice(ssh.text, "", Urgency.WARNING if ssh.standing is Standing.LACKS else Urgency.INFO)
    ready = CLOUDS_WORD if ssh is None else "ready"
    for item in qr.slices:
        if item.maintenance is not None:
            when = item.maintenance.window_start or "soon"
            return Advice(f"{ready}; maintenance of slice {item.index} from {when}", "", Urgency.INFO)
    return Advice(ready, "", Urgency.OK)


def _provisioning(qr: QueuedResource, age_s: float) -> Advice:
    if age_s < PROVISIONING_USUAL_S:
        return Advice()
    nodes = "" if qr.slices else ", no node yet"
    if age_s < ACCOUNT_TEAM_S:
        return Advice(f"longer than the usual 2 to 5 min{nodes}", "", Urgency.INFO)
    if age_s < PROVISIONING_STUCK_S:
        return Advice(f"15 min passed{nodes}: ask your account team", "", Urgency.WARNING)
    if age_s < PROVISIONING_HOPELESS_S:
        return Advice(f"30 min passed{nodes}: stuck, or one that takes 1 to 2 h", "", Urgency.WARNING)
    return Advice(f"2 h passed{nodes}: stuck", "D delete", Urgency.WARNING)


def _failed(qr: QueuedResource) -> Advice:
    running = [item for item in qr.slices if item.state == NodeState.READY]
    if running:
        return Advice(
            f"failed with {len(running)} of {qr.slice_count} slices running: delete and ask again",
            _DEAD_KEYS,
            Urgency.ALARM,
        )
    cause = ""
    if qr.error is not None:
        kind = explain(qr.error.code, qr.error.message, action="create", subject=qr.name).kind
        cause = _SHORT_CAUSES.get(kind, "")
    return Advice(f"{cause}; holds quota" if cause else "holds quota", _DEAD_KEYS, Urgency.WARNING)
