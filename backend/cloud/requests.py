"""What an operator asks of Cloud TPU: a create request with every option of gcloud's alpha and GA `create`.

A `CreateRequest` is a plain fact. `backend.cloud.validation` says whether it may be sent, `backend.cloud.encoding`
how it looks in either API version, `backend.cloud.equivalents` which gcloud or curl command is the same.

Sources: `queued-resources create` of gcloud 528 and 578, the discovery documents of v2 and v2alpha1, and the message
classes of google-cloud-tpu 1.28.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from backend.model import Tier
from jobs import accelerators
from jobs.accelerators import Accelerator, UnknownAccelerator

ApiVersion = Literal["v2", "v2alpha1"]

RUN_KEY = "slicetower-run"
"""Metadata key that names the run of the job that a request carries, so that a recreate finds its record again."""

MAX_SLICES = 256
"""Slices in one queued resource (the Multislice page)."""

PROVISIONING_MODELS = ("standard", "spot", "reservation-bound", "flex-start")
"""gcloud's spelling of v2alpha1 QueuedResource.ProvisioningModel."""

RESERVATION_HOST_KINDS = ("projects", "folders", "organizations")


@dataclass(frozen=True, slots=True)
class Network:
    """One `--network-config` (alpha): a network interface of every worker."""

    network: str = ""
    subnetwork: str = ""
    external_ips: bool = False


@dataclass(frozen=True, slots=True)
class DataDisk:
    """One `--data-disk`: a persistent disk attached to every worker. `mode` is read-only or read-write."""

    source: str
    mode: str = "read-write"


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A request for one or more slices. Empty fields are not sent."""

    name: str
    """The queued resource id."""
    project: str
    zone: str
    accelerator_type: str = ""
    """`v5litepod-16`; exclusive with `type` and `topology`."""
    type: str = ""
    """Generation alone, in gcloud's spelling: `v4`, `v5litepod`, `v5p`, `v6e`."""
    topology: str = ""
    runtime_version: str = ""
    node_id: str = ""
    """Name of the only slice; exclusive with more than one slice. Empty: the id of the queued resource."""
    node_count: int = 1
    """Slices."""
    node_prefix: str = ""
    """Slices are PREFIX-0, PREFIX-1, ...; empty: the id of the queued resource."""
    workload_type: str = ""
    """Only `AVAILABILITY_OPTIMIZED` means anything; v2alpha1, several slices."""
    tier: Tier = Tier.ON_DEMAND
    guaranteed: bool = False
    """gcloud's `--guaranteed`: an explicit `guaranteed {}` on an on-demand or reserved request."""
    min_duration_s: float | None = None
    """gcloud's hidden `--min-duration`: guaranteed.minDuration."""
    reservation: str = ""
    """A reservation's short name or its full resource name."""
    reservation_host: str = ""
    """`projects/ID`, `folders/ID` or `organizations/ID`: any reservation that this host shares."""
    provisioning_model: str = ""
    """One of PROVISIONING_MODELS, where it says more than the tier does: `spot` and `flex-start` are the tiers of that
    name, and the field is emptied then."""
    max_run_duration_s: float | None = None
    """After this time the slices are deleted by the service (flex-start)."""
    valid_after_duration_s: float | None = None
    valid_after_time: datetime | None = None
    valid_until_duration_s: float | None = None
    valid_until_time: datetime | None = None
    network: str = ""
    """Empty: the network named `default`."""
    subnetwork: str = ""
    internal_ips: bool = False
    """True: no external address for the workers. External ones are the API's and gcloud's default."""
    network_configs: tuple[Network, ...] = ()
    """Several interfaces; exclusive with `network`, `subnetwork` and `internal_ips`."""
    service_account: str = ""
    scopes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    metadata_files: tuple[tuple[str, str], ...] = ()
    """(key, path on this machine): read when the request is encoded."""
    description: str = ""
    cidr_range: str = ""
    """gcloud's `--range`: a CIDR block for the workers' network."""
    data_disks: tuple[DataDisk, ...] = ()
    shielded_secure_boot: bool = False
    boot_disk_kms_key: str = ""
    boot_disk_confidential: bool = False
    autocheckpoint_enabled: bool = False

    def __post_init__(self) -> None:
        if self.provisioning_model == "flex-start" and self.tier is Tier.ON_DEMAND:
            object.__setattr__(self, "tier", Tier.FLEX_START)
            object.__setattr__(self, "provisioning_model", "")
        if self.provisioning_model == "spot" and self.tier is Tier.SPOT:
            object.__setattr__(self, "provisioning_model", "")

    @property
    def key(self) -> tuple[str, str, str]:
        """(project, zone, name), as `QueuedResource.key`."""
        return (self.project, self.zone, self.name)

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The names that the service will give the slices, in numeric order."""
        if self.node_count <= 1:
            return (self.node_id or self.name,)
        prefix = self.node_prefix or self.name
        return tuple(f"{prefix}-{index}" for index in range(self.node_count))

    @property
    def shape(self) -> str:
        """What one slice is, in words: `v5litepod-16` or `v4 2x2x4`."""
        return self.accelerator_type or f"{self.type} {self.topology}".strip()


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request may not be sent, or should be thought over: about which field, what is wrong, what to do."""

    field: str
    """Name of a field of CreateRequest."""
    what: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.cure}".strip()


class Transport(StrEnum):
    GRPC = "grpc"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Carrier:
    """How a request travels, and why not by the plain way (gRPC, v2alpha1)."""

    transport: Transport
    version: ApiVersion
    reasons: tuple[str, ...] = ()
    """One sentence per option that forced this carrier."""


GRPC_V2ALPHA1_LACKS: dict[str, str] = {
    "provisioning_model": "provisioningModel",
    "max_run_duration_s": "runDuration",
}
"""Options that the v2alpha1 message classes of google-cloud-tpu 1.28 have no field for -> their JSON name."""

V2_LACKS: dict[str, str] = {
    "workload_type": "workloadType",
    "autocheckpoint_enabled": "autocheckpointEnabled",
    "boot_disk_confidential": "bootDiskConfig.enableConfidentialCompute",
    "provisioning_model": "provisioningModel",
    "max_run_duration_s": "runDuration",
}
"""Options that API version v2 does not have at all -> their JSON name in v2alpha1."""

GRPC_V2_LACKS: dict[str, str] = {"boot_disk_kms_key": "bootDiskConfig"}
"""Options that v2 has, but not in the message classes of google-cloud-tpu 1.28."""


def set_options(request: CreateRequest) -> frozenset[str]:
    """Names of the fields that carry something, with the tiers that need a field of their own in the API."""
    names = {
        name
        for name in (*GRPC_V2ALPHA1_LACKS, *V2_LACKS, *GRPC_V2_LACKS)
        if getattr(request, name) not in ("", None, False)
    }
    if request.tier is Tier.FLEX_START:
        names.add("provisioning_model")
    if request.tier is Tier.BEST_EFFORT:
        names.add("best_effort")
    return frozenset(names)


def alpha_only(request: CreateRequest) -> tuple[str, ...]:
    """JSON names of what this request asks for and version v2 does not have, in the order of V2_LACKS."""
    options = set_options(request)
    names = [json_name for option, json_name in V2_LACKS.items() if option in options]
    if "best_effort" in options:
        names.append("bestEffort")
    return tuple(dict.fromkeys(names))


def carrier(request: CreateRequest, *, version: ApiVersion = "v2alpha1") -> Carrier:
    """Which transport and API version carries every option of the request.

    Args:
        request: What will be sent.
        version: The version that is preferred; v2 gives way to v2alpha1 where it lacks an option.
    """
    options = set_options(request)
    reasons: list[str] = []
    if version == "v2":
        lacking = alpha_only(request)
        if lacking:
            version = "v2alpha1"
            reasons.append(f"API version v2 has no {', '.join(lacking)}.")
        else:
            missing = [name for option, name in GRPC_V2_LACKS.items() if option in options]
            if missing:
                text = f"The client library has no field for {', '.join(missing)} in v2: sent over REST."
                return Carrier(Transport.REST, "v2", (text,))
            return Carrier(Transport.GRPC, "v2")
    missing = [name for option, name in GRPC_V2ALPHA1_LACKS.items() if option in options]
    if missing:
        reasons.append(f"The client library has no field for {', '.join(missing)}: sent over REST.")
        return Carrier(Transport.REST, "v2alpha1", tuple(reasons))
    return Carrier(Transport.GRPC, "v2alpha1", tuple(reasons))


def accelerator_of(request: CreateRequest) -> Accelerator | None:
    """The catalogue's entry of what is asked for; None where it is unknown or incomplete."""
    try:
        if request.accelerator_type:
            return accelerators.parse(request.accelerator_type)
        if request.type and request.topology:
            return accelerators.from_topology(request.type, request.topology)
    except UnknownAccelerator:
        return None
    return None
