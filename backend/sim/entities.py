"""The things of the simulated world: queued resources, nodes, operations. `requests` and `nodes` have their rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backend.model import QueuedResourceState, Tier
from backend.sim.clock import Appointment
from backend.sim.refusals import Json
from jobs.accelerators import Accelerator

Key = tuple[str, str, str]
"""(project, zone, id)."""


@dataclass(eq=False)
class Node:
    """One slice. `template` is its JSON as it was asked for, in the words of the API version that asked."""

    project: str
    zone: str
    node_id: str
    uid: int
    accelerator: Accelerator
    template: Json
    created_at: float
    state: str = "CREATING"
    health: str = ""
    health_description: str = ""
    addresses: tuple[str, ...] = ()
    """One per worker, in order; empty until it is provisioned."""
    owner: str = ""
    """Id of the queued resource, or empty for a TPU VM made by itself."""
    slice_index: int = 0
    slice_count: int = 1
    spot: bool = False
    reservation: str = ""
    """Name of the reservation pool that it draws from, or empty."""
    metadata: dict[str, str] = field(default_factory=dict)
    released: bool = False
    """Its hardware was taken: it holds no capacity, whatever becomes of its record."""
    symptoms: list[Json] = field(default_factory=list)
    maintenance: Json | None = None
    revision: int = 0
    """Bumped with every change: views are cached by it."""
    pending: Appointment | None = None
    """The one thing that this node is waiting for."""

    @property
    def key(self) -> Key:
        return (self.project, self.zone, self.node_id)

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.node_id}"

    @property
    def leaving(self) -> bool:
        """On its way out: nothing brings it back."""
        return self.state in ("DELETING", "PREEMPTED", "TERMINATED")

    @property
    def startup_script(self) -> str | None:
        return self.metadata.get("startup-script") or None

    def expect(self, appointment: Appointment | None) -> None:
        """Replaces what it was waiting for."""
        if self.pending is not None:
            self.pending.cancel()
        self.pending = appointment


@dataclass(frozen=True, slots=True)
class Fate:
    """What is bound to happen to a request, said by a scenario or an injected fault."""

    provisioning: str = ""
    """`fail`: FAILED after minutes of PROVISIONING; `hang`: never leaves it; `partial`: FAILED with some slices up;
    `withdrawn`: a delete was refused, the capacity goes soon."""
    code: int = 13
    message: str = "an internal error has occurred"


@dataclass(eq=False)
class Request:
    """One queued resource."""

    project: str
    zone: str
    name: str
    accelerator: Accelerator
    node_ids: tuple[str, ...]
    tier: Tier
    template: Json
    """The QueuedResource as it was asked for, without its output fields."""
    api_version: str
    created_at: float
    state: QueuedResourceState = QueuedResourceState.CREATING
    initiator: str = ""
    error: Json | None = None
    entered_at: float = 0.0
    """When `state` began."""
    reservation: str = ""
    valid_after: float | None = None
    valid_until: float | None = None
    run_limit_s: float | None = None
    """flex-start: so long after ACTIVE it is taken down."""
    terminates_at: float | None = None
    queued_from: float | None = None
    """From when on capacity may be given to it; None: not in the queue."""
    uids: dict[str, int] = field(default_factory=dict)
    fate: Fate = field(default_factory=Fate)
    revision: int = 0
    pending: Appointment | None = None

    @property
    def key(self) -> Key:
        return (self.project, self.zone, self.name)

    @property
    def full_name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/queuedResources/{self.name}"

    @property
    def chips(self) -> int:
        return self.accelerator.chips * len(self.node_ids)

    @property
    def multislice(self) -> bool:
        return len(self.node_ids) > 1

    def expect(self, appointment: Appointment | None) -> None:
        """Replaces what it was waiting for."""
        if self.pending is not None:
            self.pending.cancel()
        self.pending = appointment


@dataclass(eq=False)
class Operation:
    """One long-running operation."""

    project: str
    zone: str
    operation_id: str
    verb: str
    target: str
    api_version: str
    created_at: float
    ended_at: float | None = None
    error: Json | None = None
    cancel_requested: bool = False
    undo: Callable[[], None] | None = None
    """While its work has not begun: makes it as if it had never been asked for."""
    empty_response: bool = False
    """The delete of a node answers with google.protobuf.Empty, everything else with its target."""

    @property
    def done(self) -> bool:
        return self.ended_at is not None

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/operations/{self.operation_id}"
