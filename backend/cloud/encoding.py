"""Create requests as the API's JSON, in both versions, and back from what the API describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from backend.cloud.requests import ApiVersion, CreateRequest, DataDisk, Network, alpha_only
from backend.local_files import own_path
from backend.model import Tier
from backend.outcomes import OperatorError

METADATA_FILE_LIMIT = 256 * 1024
"""Bytes of one metadata value that Compute Engine accepts."""

TYPE_ENUM = {
    "v2": "V2",
    "v3": "V3",
    "v4": "V4",
    "v5litepod": "V5LITE_POD",
    "v5p": "V5P",
    "v6e": "V6E",
}
"""gcloud's `--type` -> AcceleratorConfig.Type."""

_TYPE_OF_ENUM = {value: key for key, value in TYPE_ENUM.items()}
_SHORT_RESERVATION = re.compile(r"[A-Za-z0-9-]+")


def duration(seconds: float) -> str:
    """A google.protobuf.Duration in JSON: `3600s`, `1.5s`."""
    whole = f"{seconds:.9f}".rstrip("0").rstrip(".")
    return f"{whole}s"


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC with `Z`, with microseconds only where there are any."""
    moment = at.astimezone(UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{moment.microsecond:06d}Z" if moment.microsecond else f"{text}Z"


def parse_timestamp(text: str) -> datetime:
    """RFC 3339 as the API writes it (nanoseconds, `Z`) to an aware datetime.

    Raises:
        ValueError: the text is no time.
    """
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text.strip())
    parsed = datetime.fromisoformat(trimmed)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def load_files(request: CreateRequest) -> CreateRequest:
    """The same request with the metadata files read in.

    Raises:
        OperatorError: a file is missing, unreadable, too large or no UTF-8.
    """
    if not request.metadata_files:
        return request
    pairs = list(request.metadata)
    for key, name in request.metadata_files:
        path = own_path(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise OperatorError(
                f"The file {name} of --metadata-from-file {key} cannot be read: {error.strerror}.",
                "Correct the path.",
            ) from error
        if len(data) > METADATA_FILE_LIMIT:
            raise OperatorError(
                f"The file {name} has {len(data):,} bytes; a metadata value may have {METADATA_FILE_LIMIT:,}.",
                "Let a short startup script fetch the rest from a bucket.",
            )
        try:
            pairs.append((key, data.decode()))
        except UnicodeDecodeError as error:
            raise OperatorError(f"The file {name} is not UTF-8 text.", "Metadata values are text.") from error
    return replace(request, metadata=tuple(pairs), metadata_files=())


def reservation_name(request: CreateRequest, version: ApiVersion) -> str:
    """The full `reservationName`, or empty. GA gcloud's `--reserved` names any reservation (`-`) of the project."""
    if request.reservation_host:
        return f"{request.reservation_host}/locations/{request.zone}/reservations/-"
    if request.reservation:
        if _SHORT_RESERVATION.fullmatch(request.reservation):
            return f"{request.parent}/reservations/{request.reservation}"
        return request.reservation
    if request.tier is Tier.RESERVED and version == "v2":
        return f"{request.parent}/reservations/-"
    return ""


def _queueing_policy(request: CreateRequest, now: datetime | None) -> dict[str, Any]:
    after = request.valid_after_time, request.valid_after_duration_s
    until = request.valid_until_time, request.valid_until_duration_s
    if any(item is not None for item in after) and any(item is not None for item in until):
        at = now or datetime.now(UTC)
        start, end = (
            moment if moment is not None else datetime.fromtimestamp(at.timestamp() + float(seconds or 0), UTC)
            for moment, seconds in (after, until)
        )
        return {"validInterval": {"startTime": timestamp(start), "endTime": timestamp(end)}}
    if request.valid_after_time is not None:
        return {"validAfterTime": timestamp(request.valid_after_time)}
    if request.valid_after_duration_s is not None:
        return {"validAfterDuration": duration(request.valid_after_duration_s)}
    if request.valid_until_time is not None:
        return {"validUntilTime": timestamp(request.valid_until_time)}
    if request.valid_until_duration_s is not None:
        return {"validUntilDuration": duration(request.valid_until_duration_s)}
    return {}


def _node(request: CreateRequest) -> dict[str, Any]:
    node: dict[str, Any] = {}
    if request.accelerator_type:
        node["acceleratorType"] = request.accelerator_type
    if request.type or request.topology:
        node["acceleratorConfig"] = {
            "type": TYPE_ENUM.get(request.type, request.type.upper()),
            "topology": request.topology,
        }
    node["runtimeVersion"] = request.runtime_version
    if request.network_configs:
        node["networkConfigs"] = [
            {
                **({"network": item.network} if item.network else {}),
                **({"subnetwork": item.subnetwork} if item.subnetwork else {}),
                "enableExternalIps": item.external_ips,
            }
            for item in request.network_configs
        ]
    else:
        network: dict[str, Any] = {"network": request.network or "default"}
        if request.subnetwork:
            network["subnetwork"] = request.subnetwork
        network["enableExternalIps"] = not request.internal_ips
        node["networkConfig"] = network
    account: dict[str, Any] = {}
    if request.service_account:
        account["email"] = request.service_account
    if request.scopes:
        account["scope"] = list(request.scopes)
    if account:
        node["serviceAccount"] = account
    if request.tags:
        node["tags"] = list(request.tags)
    if request.labels:
        node["labels"] = dict(request.labels)
    if request.metadata:
        node["metadata"] = dict(request.metadata)
    if request.description:
        node["description"] = request.description
    if request.cidr_range:
        node["cidrBlock"] = request.cidr_range
    if request.data_disks:
        node["dataDisks"] = [
            {"sourceDisk": disk.source, "mode": disk.mode.upper().replace("-", "_")} for disk in request.data_disks
        ]
    if request.shielded_secure_boot:
        node["shieldedInstanceConfig"] = {"enableSecureBoot": True}
    if request.boot_disk_kms_key or request.boot_disk_confidential:
        disk: dict[str, Any] = {}
        if request.boot_disk_kms_key:
            disk["customerEncryptionKey"] = {"kmsKeyName": request.boot_disk_kms_key}
        if request.boot_disk_confidential:
            disk["enableConfidentialCompute"] = True
        node["bootDiskConfig"] = disk
    if request.autocheckpoint_enabled:
        node["autocheckpointEnabled"] = True
    return node


def to_json(
    request: CreateRequest, version: ApiVersion = "v2alpha1", *, now: datetime | None = None
) -> dict[str, Any]:
    """The `QueuedResource` body of the create call.

    Args:
        request: What to encode. Its metadata files are read here.
        version: v2 says multisliceParams and reservationName, v2alpha1 multiNodeParams and guaranteed.reserved.
        now: The moment to which relative durations are added where both ends are given.

    Raises:
        OperatorError: version v2 lacks an option of the request, or a metadata file cannot be read.
    """
    lacking = alpha_only(request) if version == "v2" else ()
    if lacking:
        raise OperatorError(f"API version v2 has no {', '.join(lacking)}.", "Send it as v2alpha1.")
    request = load_files(request)
    spec: dict[str, Any] = {"parent": request.parent}
    if request.node_count > 1:
        params: dict[str, Any] = {
            "nodeCount": request.node_count,
            **({"nodeIdPrefix": request.node_prefix} if request.node_prefix else {}),
        }
        if request.workload_type:
            params["workloadType"] = request.workload_type
        spec["multiNodeParams" if version == "v2alpha1" else "multisliceParams"] = params
    else:
        spec["nodeId"] = request.node_id or request.name
    spec["node"] = _node(request)
    body: dict[str, Any] = {"tpu": {"nodeSpec": [spec]}}
    reservation = reservation_name(request, version)
    if request.tier is Tier.SPOT:
        body["spot"] = {}
    elif request.tier is Tier.BEST_EFFORT:
        body["bestEffort"] = {}
    guaranteed: dict[str, Any] = {}
    if request.tier is Tier.RESERVED and version == "v2alpha1":
        guaranteed["reserved"] = True
    if request.min_duration_s is not None:
        guaranteed["minDuration"] = duration(request.min_duration_s)
    if guaranteed or request.guaranteed:
        body["guaranteed"] = guaranteed
    if reservation:
        body["reservationName"] = reservation
    policy = _queueing_policy(request, now)
    if policy:
        body["queueingPolicy"] = policy
    model = "flex-start" if request.tier is Tier.FLEX_START else request.provisioning_model
    if model:
        body["provisioningModel"] = model.upper().replace("-", "_")
    if request.max_run_duration_s is not None:
        body["runDuration"] = {"maxRunDuration": duration(request.max_run_duration_s)}
    return body


def _seconds(text: object) -> float | None:
    """A Duration in JSON to seconds; None where there is none."""
    if not isinstance(text, str) or not text.endswith("s"):
        return None
    return float(text[:-1])


def _time(text: object) -> datetime | None:
    return parse_timestamp(text) if isinstance(text, str) and text else None


def _common_prefix(node_ids: list[str]) -> str | None:
    """PREFIX when the ids are PREFIX-0 ... PREFIX-(n-1), in any order."""
    prefix = node_ids[0].rpartition("-")[0]
    return prefix if {f"{prefix}-{index}" for index in range(len(node_ids))} == set(node_ids) else None


def _tier(body: Mapping[str, Any], node: Mapping[str, Any]) -> Tier:
    scheduling = node.get("schedulingConfig") or {}
    if body.get("provisioningModel") == "FLEX_START":
        return Tier.FLEX_START
    if "spot" in body or (scheduling.get("spot") and "guaranteed" not in body):
        return Tier.SPOT
    if "bestEffort" in body:
        return Tier.BEST_EFFORT
    reserved = (body.get("guaranteed") or {}).get("reserved") or scheduling.get("reserved")
    return Tier.RESERVED if reserved or body.get("reservationName") else Tier.ON_DEMAND


def _reservation(name: str, parent: str) -> tuple[str, str]:
    """(reservation, reservation_host) of a reservationName; both empty for the project's own `-`."""
    if name == f"{parent}/reservations/-":
        return "", ""
    host = re.fullmatch(r"((?:projects|folders|organizations)/[^/]+)/locations/[^/]+/reservations/-", name)
    if host:
        return "", host[1]
    return (name.removeprefix(f"{parent}/reservations/"), "")


def from_json(body: Mapping[str, Any], *, name: str = "", project: str = "", zone: str = "") -> CreateRequest:
    """The request that would make the same again, from a create body or from what the API describes.

    Args:
        body: JSON of a QueuedResource of either version.
        name: Its id; taken from the body's `name` where empty.
        project: Likewise.
        zone: Likewise.

    Raises:
        OperatorError: the body has no node, or slices that one create call cannot make.
    """
    parts = str(body.get("name", "")).split("/")
    if len(parts) == 6:
        project, zone, name = project or parts[1], zone or parts[3], name or parts[5]
    specs = list((body.get("tpu") or {}).get("nodeSpec") or ())
    if not specs:
        raise OperatorError(f"The request {name} describes no slice.", "It cannot be created again from this.")
    first = specs[0]
    place = str(first.get("parent") or "").split("/")
    if len(place) == 4 and place[0] == "projects" and place[2] == "locations":
        zone = zone or place[3]
    node: dict[str, Any] = first.get("node") or {}
    params = first.get("multiNodeParams") or first.get("multisliceParams") or {}
    count = int(params.get("nodeCount") or len(specs))
    node_id, prefix = "", str(params.get("nodeIdPrefix") or "")
    if count == 1:
        node_id = str(first.get("nodeId") or "")
    elif len(specs) > 1:
        ids = [str(item.get("nodeId") or "") for item in specs]
        found = _common_prefix(ids)
        if found is None:
            raise OperatorError(
                f"The slices of {name} ({', '.join(ids[:4])}) have no common prefix.",
                "One create call cannot name them so: create it anew with --node-prefix.",
            )
        prefix = found
    if prefix == name:
        prefix = ""
    config = node.get("acceleratorConfig") or {}
    accelerator_type = str(node.get("acceleratorType") or "")
    networks = node.get("networkConfigs") or []
    network = node.get("networkConfig") or (networks[0] if len(networks) == 1 else {})
    account = node.get("serviceAccount") or {}
    boot = node.get("bootDiskConfig") or {}
    policy = body.get("queueingPolicy") or {}
    interval = policy.get("validInterval") or {}
    tier = _tier(body, node)
    parent = f"projects/{project}/locations/{zone}"
    reservation, host = _reservation(str(body.get("reservationName") or ""), parent)
    model = str(body.get("provisioningModel") or "").lower().replace("_", "-")
    guaranteed = body.get("guaranteed")
    return CreateRequest(
        name=name,
        project=project,
        zone=zone,
        accelerator_type=accelerator_type,
        type="" if accelerator_type else _TYPE_OF_ENUM.get(str(config.get("type", "")), str(config.get("type", ""))),
        topology="" if accelerator_type else str(config.get("topology") or ""),
        runtime_version=str(node.get("runtimeVersion") or ""),
        node_id=node_id,
        node_count=count,
        node_prefix=prefix,
        workload_type=str(params.get("workloadType") or "").replace("WORKLOAD_TYPE_UNSPECIFIED", ""),
        tier=tier,
        guaranteed=guaranteed is not None and not guaranteed,
        min_duration_s=_seconds((guaranteed or {}).get("minDuration")),
        reservation=reservation,
        reservation_host=host,
        provisioning_model="" if model in ("flex-start", "provisioning-model-unspecified") else model,
        max_run_duration_s=_seconds((body.get("runDuration") or {}).get("maxRunDuration")),
        valid_after_duration_s=_seconds(policy.get("validAfterDuration")),
        valid_after_time=_time(policy.get("validAfterTime") or interval.get("startTime")),
        valid_until_duration_s=_seconds(policy.get("validUntilDuration")),
        valid_until_time=_time(policy.get("validUntilTime") or interval.get("endTime")),
        network="" if network.get("network") == "default" else str(network.get("network") or ""),
        subnetwork=str(network.get("subnetwork") or ""),
        internal_ips=bool(network) and not network.get("enableExternalIps", False),
        network_configs=tuple(
            Network(
                str(item.get("network") or ""),
                str(item.get("subnetwork") or ""),
                bool(item.get("enableExternalIps", False)),
            )
            for item in (networks if len(networks) > 1 else ())
        ),
        service_account=str(account.get("email") or ""),
        scopes=tuple(account.get("scope") or ()),
        tags=tuple(node.get("tags") or ()),
        labels=tuple((node.get("labels") or {}).items()),
        metadata=tuple((node.get("metadata") or {}).items()),
        description=str(node.get("description") or ""),
        cidr_range=str(node.get("cidrBlock") or ""),
        data_disks=tuple(
            DataDisk(
                str(item.get("sourceDisk") or ""),
                str(item.get("mode") or "READ_WRITE").lower().replace("_", "-"),
            )
            for item in node.get("dataDisks") or ()
        ),
        shielded_secure_boot=bool((node.get("shieldedInstanceConfig") or {}).get("enableSecureBoot")),
        boot_disk_kms_key=str((boot.get("customerEncryptionKey") or {}).get("kmsKeyName") or ""),
        boot_disk_confidential=bool(boot.get("enableConfidentialCompute")),
        autocheckpoint_enabled=bool(node.get("autocheckpointEnabled")),
    )
