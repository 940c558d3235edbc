"""Whether a create request may be sent, and what to think over before: decided here, before anything leaves.

`problems` are refusals: the service would refuse too, only later and in vaguer words. `warnings` (from `cautions`) are
advice.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from backend.cloud.cautions import warnings
from backend.cloud.encoding import METADATA_FILE_LIMIT, TYPE_ENUM
from backend.cloud.errors import near_names
from backend.cloud.requests import (
    MAX_SLICES,
    PROVISIONING_MODELS,
    RESERVATION_HOST_KINDS,
    CreateRequest,
    Problem,
)
from backend.local_files import is_there, own_path
from backend.model import Tier
from jobs import accelerators
from jobs.accelerators import Generation, UnknownAccelerator

__all__ = ["problems", "warnings"]

METADATA_TOTAL_LIMIT = 512 * 1024
"""Bytes of all metadata of a VM together (Compute Engine)."""
FLEX_START_MAXIMUM_S = 7 * 24 * 3600.0
"""The longest run of flex-start capacity."""

_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+\d+-[a-z]+\d*[a-z]?")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z0-9][a-z0-9-]{0,62}")
_METADATA_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def problems(
    request: CreateRequest,
    *,
    taken_names: Collection[str] = (),
    taken_node_ids: Collection[str] = (),
    now: datetime | None = None,
) -> list[Problem]:
    """Why the request may not be sent; empty when it may.

    Args:
        request: What would be sent.
        taken_names: Ids of the queued resources in the same project and zone.
        taken_node_ids: Ids of the nodes there.
        now: The present, for times that have passed.
    """
    return [
        *_names(request, taken_names, taken_node_ids),
        *_slices(request),
        *_accelerator(request),
        *_tier(request),
        *_times(request, now or datetime.now(UTC)),
        *_network(request),
        *_metadata(request),
        *_disks(request),
    ]


def _names(request: CreateRequest, taken: Collection[str], nodes: Collection[str]) -> Iterator[Problem]:
    if not request.name:
        yield Problem("name", "A queued resource needs an id.", "Give it one, such as train-a.")
    elif not _ID.fullmatch(request.name):
        yield Problem(
            "name", f"'{request.name}' cannot be an id.", "Use letters, digits and . _ ~ + % -, such as train-a."
        )
    elif request.name in taken:
        yield Problem(
            "name",
            f"{request.name} exists already in {request.zone}.",
            f"Choose another id, or `slicetower qr recreate {request.name}`.",
        )
    if not request.project:
        yield Problem("project", "No project is given.", "Give --project or a context that has one.")
    elif not _PROJECT.fullmatch(request.project):
        yield Problem(
            "project",
            f"'{request.project}' cannot be a project id.",
            "Project ids have lower-case letters, digits and hyphens; `gcloud projects list` shows yours.",
        )
    if not request.zone:
        yield Problem("zone", "No zone is given.", "Give --zone, such as us-west4-a.")
    elif not _ZONE.fullmatch(request.zone):
        zones = (zone for item in accelerators.GENERATIONS for zone in item.zones)
        yield Problem("zone", f"'{request.zone}' cannot be a zone.", _did_you_mean(near_names(request.zone, zones)))
    for field, value in (("node_id", request.node_id), ("node_prefix", request.node_prefix)):
        if value and not _ID.fullmatch(value):
            yield Problem(field, f"'{value}' cannot name a slice.", "Use letters, digits and . _ ~ + % -.")
    clash = sorted(set(request.node_ids) & set(nodes)) if nodes and request.node_count <= MAX_SLICES else []
    if clash:
        yield Problem(
            "node_prefix" if request.node_count > 1 else "node_id",
            f"A slice named {clash[0]} exists already in {request.zone}.",
            "Choose another name for the slices.",
        )


def _slices(request: CreateRequest) -> Iterator[Problem]:
    count = request.node_count
    if count < 1:
        yield Problem("node_count", f"{count} slices cannot be asked for.", f"Ask for 1 to {MAX_SLICES}.")
    elif count > MAX_SLICES:
        yield Problem(
            "node_count",
            f"{count} slices are too many: a queued resource has at most {MAX_SLICES}.",
            f"Ask for {MAX_SLICES} or fewer, or make several requests.",
        )
    if count > 1 and request.node_id:
        yield Problem(
            "node_id",
            f"--node-id names one slice, and {count} are asked for.",
            "Give --node-prefix with several slices, or --node-id with one.",
        )
    if count == 1 and request.node_prefix:
        yield Problem("node_prefix", "A prefix names several slices, and one is asked for.", "Give --node-id.")
    if request.workload_type:
        if request.workload_type != "AVAILABILITY_OPTIMIZED":
            yield Problem(
                "workload_type",
                f"'{request.workload_type}' is no workload type that the API honours.",
                "The only one is AVAILABILITY_OPTIMIZED.",
            )
        elif count == 1:
            yield Problem("workload_type", "A workload type is for several slices.", "Leave it out.")


def _did_you_mean(near: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _accelerator(request: CreateRequest) -> Iterator[Problem]:
    if request.accelerator_type and (request.type or request.topology):
        yield Problem(
            "accelerator_type",
            "--accelerator-type and --type with --topology are two ways to say one thing.",
            "Give one of the two.",
        )
        return
    if not request.accelerator_type and not (request.type or request.topology):
        yield Problem("accelerator_type", "No accelerator type is given.", "Give one, such as v5litepod-16.")
        return
    if not request.accelerator_type and not (request.type and request.topology):
        missing, given = ("topology", "type") if request.type else ("type", "topology")
        yield Problem(missing, f"--{given} needs --{missing} too.", "For example --type=v4 --topology=2x2x4.")
        return
    field = "accelerator_type" if request.accelerator_type else "topology"
    try:
        if request.accelerator_type:
            found = accelerators.parse(request.accelerator_type)
        else:
            found = accelerators.from_topology(request.type, request.topology)
    except UnknownAccelerator as error:
        if not request.accelerator_type and accelerators.generation(request.type) is None:
            field = "type"
        yield Problem(field, error.what, _did_you_mean(error.near))
        return
    generation = found.generation
    if not generation.served:
        yield Problem(
            field,
            f"{request.shape}: the Cloud TPU API does not serve TPU {generation.name}.",
            "It is to be had on Compute Engine and GKE; here v2 to v6e are.",
        )
        return
    if request.type and request.type not in TYPE_ENUM:
        yield Problem("type", f"'{request.type}' is not how the API calls it.", f"Say {generation.type_prefix}.")
    if request.node_count > 1 and not generation.multislice:
        yield Problem(
            "node_count",
            f"{request.shape} cannot have {request.node_count} slices: Multislice needs v4 or later.",
            "Ask for one slice, or for a type such as v5litepod-16.",
        )
    yield from _runtime(request, generation)


def _runtime(request: CreateRequest, generation: Generation) -> Iterator[Problem]:
    recommended = generation.runtime_versions[0] if generation.runtime_versions else ""
    if not request.runtime_version:
        yield Problem("runtime_version", "No runtime version is given.", f"For {generation.name}: {recommended}.")
    elif generation.runtime_fits(request.runtime_version) is False:
        yield Problem(
            "runtime_version",
            f"The runtime {request.runtime_version} does not fit {request.shape}.",
            f"For {generation.name}: {recommended}.",
        )


_GUARANTEED_TIERS = frozenset({Tier.ON_DEMAND, Tier.RESERVED})


def _tier(request: CreateRequest) -> Iterator[Problem]:
    tier = request.tier
    if request.guaranteed and tier not in _GUARANTEED_TIERS:
        yield Problem("guaranteed", f"--guaranteed and --{tier} exclude each other.", "Choose one tier.")
    if request.min_duration_s is not None:
        if tier not in _GUARANTEED_TIERS:
            yield Problem(
                "min_duration_s",
                f"--min-duration is of the guaranteed tier, not of {tier}.",
                "Choose one of the two.",
            )
        if request.min_duration_s <= 0:
            yield Problem("min_duration_s", "--min-duration must be longer than 0.", "For example 3600s.")
    if request.reservation and request.reservation_host:
        yield Problem(
            "reservation", "--reservation and --reservation-host-... exclude each other.", "Choose one of the two."
        )
    if (request.reservation or request.reservation_host) and tier is not Tier.RESERVED:
        yield Problem(
            "reservation", f"A reservation is of the tier reserved, not of {tier}.", "Choose one of the two."
        )
    if request.reservation_host:
        kind, _, host = request.reservation_host.partition("/")
        if kind not in RESERVATION_HOST_KINDS or not host or "/" in host:
            yield Problem(
                "reservation_host",
                f"'{request.reservation_host}' is no reservation host.",
                "Write projects/ID, folders/ID or organizations/ID.",
            )
    model = request.provisioning_model
    if model and model not in PROVISIONING_MODELS:
        yield Problem(
            "provisioning_model",
            f"'{model}' is no provisioning model.",
            f"There are {', '.join(PROVISIONING_MODELS)}.",
        )
    elif (model == "spot" and tier is not Tier.SPOT) or model == "flex-start":
        yield Problem(
            "provisioning_model",
            f"The provisioning model {model} and the tier {tier} exclude each other.",
            "Choose one.",
        )
    elif model in ("standard", "reservation-bound") and tier is Tier.FLEX_START:
        yield Problem("provisioning_model", f"flex-start is a provisioning model as {model} is.", "Choose one.")
    elif model == "reservation-bound" and tier is not Tier.RESERVED:
        yield Problem("provisioning_model", "reservation-bound needs a reservation.", "Give --reservation.")
    run = request.max_run_duration_s
    if run is not None and run <= 0:
        yield Problem("max_run_duration_s", "--max-run-duration must be longer than 0.", "For example 4h.")
    elif run is not None and tier is Tier.FLEX_START and run > FLEX_START_MAXIMUM_S:
        yield Problem("max_run_duration_s", "flex-start capacity runs for 7 days at most.", "Give 168h or less.")


def _times(request: CreateRequest, now: datetime) -> Iterator[Problem]:
    for end in ("after", "until"):
        seconds = getattr(request, f"valid_{end}_duration_s")
        at = getattr(request, f"valid_{end}_time")
        if seconds is not None and at is not None:
            yield Problem(
                f"valid_{end}_time",
                f"--valid-{end}-time and --valid-{end}-duration exclude each other.",
                "Give one of the two.",
            )
        if seconds is not None and seconds <= 0:
            yield Problem(
                f"valid_{end}_duration_s", f"--valid-{end}-duration must be longer than 0.", "For example 45m."
            )
    if request.valid_until_time is not None and request.valid_until_time <= now:
        yield Problem("valid_until_time", "--valid-until-time has passed already.", "Give a time to come.")
    start = _moment(request.valid_after_time, request.valid_after_duration_s, now)
    end_at = _moment(request.valid_until_time, request.valid_until_duration_s, now)
    if start is not None and end_at is not None and start >= end_at:
        yield Problem(
            "valid_until_time", "The request would end before it may begin.", "Put valid-until behind valid-after."
        )


def _moment(at: datetime | None, seconds: float | None, now: datetime) -> float | None:
    if at is not None:
        return at.timestamp()
    return None if seconds is None else now.timestamp() + seconds


def _network(request: CreateRequest) -> Iterator[Problem]:
    if request.network_configs:
        if request.network or request.subnetwork or request.internal_ips:
            yield Problem(
                "network_configs",
                "--network-config excludes --network, --subnetwork and --internal-ips.",
                "Say it all in --network-config.",
            )
        for item in request.network_configs:
            if not item.network and not item.subnetwork:
                yield Problem(
                    "network_configs", "A --network-config names neither network nor subnetwork.", "Name one."
                )
    if request.cidr_range:
        try:
            ipaddress.ip_network(request.cidr_range)
        except ValueError:
            yield Problem("cidr_range", f"'{request.cidr_range}' is no CIDR range.", "For example 192.168.0.0/29.")
    if request.service_account and request.service_account != "default" and "@" not in request.service_account:
        yield Problem(
            "service_account",
            f"'{request.service_account}' is no service account.",
            "Give its e-mail address, such as NAME@PROJECT.iam.gserviceaccount.com.",
        )
    for tag in request.tags:
        if not _DNS_LABEL.fullmatch(tag):
            yield Problem("tags", f"'{tag}' cannot be a network tag.", "Use lower-case letters, digits and hyphens.")


def _duplicates(keys: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [key for key in keys if key in seen or seen.add(key)]  # type: ignore[func-returns-value]


def _metadata(request: CreateRequest) -> Iterator[Problem]:
    keys = [key for key, _ in (*request.metadata, *request.metadata_files)]
    for key in dict.fromkeys(_duplicates(keys)):
        yield Problem("metadata", f"The metadata key {key} is given twice.", "Give it once.")
    for key in keys:
        if not _METADATA_KEY.fullmatch(key):
            yield Problem("metadata", f"'{key}' cannot be a metadata key.", "Use letters, digits, _ and -.")
    total = 0
    for key, value in request.metadata:
        size = len(value.encode())
        total += size
        if size > METADATA_FILE_LIMIT:
            yield Problem(
                "metadata",
                f"The metadata value of {key} has {size:,} bytes; {METADATA_FILE_LIMIT:,} are allowed.",
                "Let a short startup script fetch the rest from a bucket.",
            )
    for key, name in request.metadata_files:
        path = own_path(name) if is_there(name) else None
        if path is None or not path.is_file():
            yield Problem("metadata_files", f"There is no file {name} (for {key}).", "Correct the path.")
            continue
        size = path.stat().st_size
        total += size
        if size > METADATA_FILE_LIMIT:
            yield Problem(
                "metadata_files",
                f"The file {name} has {size:,} bytes; a metadata value may have {METADATA_FILE_LIMIT:,}.",
                "Let a short startup script fetch the rest from a bucket.",
            )
    if total > METADATA_TOTAL_LIMIT:
        yield Problem(
            "metadata", f"The metadata has {total:,} bytes; {METADATA_TOTAL_LIMIT:,} are allowed.", "Shorten it."
        )
    for key in dict.fromkeys(_duplicates(key for key, _ in request.labels)):
        yield Problem("labels", f"The label {key} is given twice.", "Give it once.")
    for key, value in request.labels:
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield Problem(
                "labels",
                f"'{key}={value}' cannot be a label.",
                "Use lower-case letters, digits, _ and -, at most 63 each; the key begins with a letter.",
            )


def _disks(request: CreateRequest) -> Iterator[Problem]:
    for disk in request.data_disks:
        if "/disks/" not in disk.source:
            yield Problem(
                "data_disks",
                f"'{disk.source}' is no disk.",
                "Give its full path: projects/P/zones/ZONE/disks/NAME.",
            )
        if disk.mode not in ("read-only", "read-write"):
            yield Problem("data_disks", f"'{disk.mode}' is no disk mode.", "Say read-only or read-write.")
    if request.boot_disk_confidential and not request.boot_disk_kms_key:
        yield Problem("boot_disk_kms_key", "confidential-compute needs kms-key.", "Give both in --boot-disk.")
