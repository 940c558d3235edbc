"""The fleet as facts: queued resources, slices and workers, frozen, in the field's own words.

Everything here is plain data without I/O. States are strings, because the service may name one that this release
does not know: an unknown state is shown as it came, and counts as neither ready nor dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class QueuedResourceState(StrEnum):
    """States of a queued resource (google.cloud.tpu.v2alpha1.QueuedResourceState.State)."""

    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    PROVISIONING = "PROVISIONING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    DELETING = "DELETING"


class NodeState(StrEnum):
    """States of a node (google.cloud.tpu.v2alpha1.Node.State) that the product reasons about."""

    CREATING = "CREATING"
    READY = "READY"
    RESTARTING = "RESTARTING"
    REIMAGING = "REIMAGING"
    DELETING = "DELETING"
    REPAIRING = "REPAIRING"
    STOPPED = "STOPPED"
    STOPPING = "STOPPING"
    STARTING = "STARTING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"


class Tier(StrEnum):
    """How the capacity is paid for, in the words of gcloud's flags."""

    RESERVED = "reserved"
    SPOT = "spot"
    ON_DEMAND = "on-demand"
    BEST_EFFORT = "best-effort"
    FLEX_START = "flex-start"
    UNSURE = "on-demand?"
    """On-demand or flex-start: what tells them apart was not read yet. Never part of a request to create."""


WAITING_STATES = frozenset(
    {QueuedResourceState.CREATING, QueuedResourceState.ACCEPTED, QueuedResourceState.WAITING_FOR_RESOURCES}
)
"""Not yet selected for capacity."""

DEAD_STATES = frozenset({QueuedResourceState.FAILED, QueuedResourceState.SUSPENDED})
"""Dead ends: they hold quota until they are deleted, and never come back (research: field notes, section 2b)."""


@dataclass(frozen=True, slots=True)
class Status:
    """A google.rpc.Status: the cloud's own word on what went wrong, kept verbatim."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """Something that the service noticed on a worker, e.g. OUT_OF_MEMORY."""

    kind: str
    details: str = ""
    worker_id: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Maintenance:
    """An upcoming maintenance of one node; window times are strings as the API gives them (RFC 3339)."""

    kind: str
    status: str
    can_reschedule: bool = False
    window_start: str = ""
    window_end: str = ""
    latest_start: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """One TPU VM of a slice. `index` is the API's order of network endpoints."""

    index: int
    internal_ip: str = ""
    external_ip: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """One TPU slice: one API node. `index` is its place in the queued resource, in numeric order."""

    project: str
    zone: str
    node_id: str
    index: int
    state: str
    uid: str = ""
    """The node's numeric id; a re-created node of the same name has another. Empty until the API gives it."""
    health: str = ""
    health_description: str = ""
    accelerator_type: str = ""
    topology: str = ""
    runtime_version: str = ""
    queued_resource: str = ""
    """The id (last path part) of the queued resource that owns it, or empty for a TPU VM made by itself."""
    workers: tuple[Worker, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    maintenance: Maintenance | None = None
    created_at: datetime | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def ready(self) -> bool:
        """READY, and not reported unhealthy, with at least one endpoint."""
        return (
            self.state == NodeState.READY
            and self.health in ("", "HEALTH_UNSPECIFIED", "HEALTHY")
            and bool(self.workers)
        )


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """A request for capacity, joined with the nodes that it owns.

    `name` is the id alone; the identity is `key`. Fields that the API did not send are empty, never guessed.
    """

    project: str
    zone: str
    name: str
    state: str
    accelerator_type: str = ""
    topology: str = ""
    slice_count: int = 1
    node_ids: tuple[str, ...] = ()
    runtime_version: str = ""
    tier: Tier = Tier.ON_DEMAND
    created_at: datetime | None = None
    state_initiator: str = ""
    error: Status | None = None
    reservation: str = ""
    valid_until: datetime | None = None
    slices: tuple[Slice, ...] = ()
    chips_per_slice: int = 0
    """From the catalogue (jobs.accelerators) by type; 0 when the type is unknown."""
    workers_per_slice: int = 0
    """From the catalogue until endpoints are known; real endpoints always win."""

    @property
    def key(self) -> tuple[str, str, str]:
        """(project, zone, name): what identifies the request."""
        return (self.project, self.zone, self.name)

    @property
    def chips(self) -> int:
        return self.chips_per_slice * self.slice_count

    @property
    def workers_expected(self) -> int:
        known = sum(len(item.workers) for item in self.slices if item.workers)
        missing = self.slice_count - sum(1 for item in self.slices if item.workers)
        return known + max(missing, 0) * self.workers_per_slice

    @property
    def workers_ready(self) -> int:
        return sum(len(item.workers) for item in self.slices if item.ready)

    @property
    def ready(self) -> bool:
        """ACTIVE with every slice READY and healthy: what the cloud can say; ssh has its own word."""
        return (
            self.state == QueuedResourceState.ACTIVE
            and len(self.slices) == self.slice_count
            and all(item.ready for item in self.slices)
        )


class Standing(StrEnum):
    """How far it is known that ssh answers on the workers of a request."""

    ANSWERS = "answers"
    LACKS = "lacks"
    ASKING = "asking"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class SshWord:
    """Whether ssh answers on what the cloud calls ready: the piece of readiness that no API tells."""

    standing: Standing
    text: str
    """In a few words: `slice 1: no ssh on worker 2 (connection refused)`, `asking ssh 5/16`."""
    answered: int = 0
    of: int = 0
    """Workers."""


@dataclass(frozen=True, slots=True)
class StateSince:
    """When the present state began, as far as it was seen."""

    at: datetime
    is_lower_bound: bool
    """True when the change itself was not seen: the state is at least this old."""


@dataclass(frozen=True, slots=True)
class ZonePoll:
    """How the watching of one (project, zone) goes."""

    project: str
    zone: str
    last_good_at: datetime | None = None
    failures: int = 0
    """Consecutive failed polls."""
    error: str = ""
    """One sentence for the operator; empty while the last poll was good."""
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """A long-running operation of the service (google.longrunning.Operation with its OperationMetadata)."""

    project: str
    zone: str
    name: str
    """The id, the last path part: `operation-...`."""
    done: bool = False
    verb: str = ""
    target: str = ""
    """The full resource name that it works on."""
    detail: str = ""
    cancel_requested: bool = False
    error: Status | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def path(self) -> str:
        """The full name: projects/P/locations/ZONE/operations/ID."""
        return f"projects/{self.project}/locations/{self.zone}/operations/{self.name}"


class EventKind(StrEnum):
    """What the journal records."""

    STATE = "state"
    APPEARED = "appeared"
    GONE = "gone"
    NODE_STATE = "node-state"
    NODE_HEALTH = "node-health"
    ACTION = "action"
    ERROR = "error"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, as it was seen: a change of state, an action of ours, an error, an alarm."""

    at: datetime
    kind: EventKind
    project: str = ""
    zone: str = ""
    subject: str = ""
    """Whom it is about: `train-a`, `train-a/0`, a run id, or empty for the console itself."""
    before: str = ""
    after: str = ""
    text: str = ""
    """One sentence, already safe to show."""
    sequence: int = 0
    """The journal's row id; 0 until it is written."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that is known now. A new snapshot has a higher `version`; equal versions are the same object."""

    version: int = 0
    queued_resources: tuple[QueuedResource, ...] = ()
    standalone: tuple[Slice, ...] = ()
    """TPU VMs that no queued resource owns."""
    polls: tuple[ZonePoll, ...] = ()
    since: dict[tuple[str, str, str], StateSince] = field(default_factory=dict)
    """By `QueuedResource.key`."""
    loaded: bool = False
    """False until every zone was polled once: an empty fleet and an unknown one are different things."""

    def tells_as(self, other: Fleet | None) -> bool:
        """Whether it tells the same as another snapshot, but for when it was asked: most polls bring nothing new.

        What did not change is the same object in both, so this costs nothing for thousands of workers.
        """
        return other is self or (
            other is not None
            and self.queued_resources is other.queued_resources
            and self.standalone is other.standalone
            and self.loaded == other.loaded
            and [(poll.error, poll.cure) for poll in self.polls] == [(poll.error, poll.cure) for poll in other.polls]
            and self.since == other.since
        )

    def find(self, name: str) -> tuple[QueuedResource, ...]:
        """All requests of exactly this id, over zones and projects."""
        return tuple(item for item in self.queued_resources if item.name == name)
