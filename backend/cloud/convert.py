"""Raw messages of google.cloud.tpu.v2alpha1 become facts of the model, tolerantly: what is missing stays empty.

Enum numbers that this release does not know keep their number (`STATE_17`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from backend.cloud.messages import enum_names, message
from backend.model import (
    Maintenance,
    Operation,
    QueuedResource,
    Slice,
    Status,
    Symptom,
    Tier,
    Worker,
)
from jobs import accelerators

_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=65_536)
def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key by which `a-2` stands before `a-10`."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(text) if part)


def last_part(name: str) -> str:
    """`train-a` of `projects/P/locations/Z/queuedResources/train-a`; names differ in project id and number."""
    return name.rpartition("/")[2]


def enum_name(enum: str, number: int) -> str:
    """The name of an enum value; `STATE_17` for one that this release doesn't know."""
    return enum_names(enum).get(number) or f"{enum.rpartition('.')[2].upper()}_{number}"


def time(raw: Any) -> datetime | None:
    """A protobuf Timestamp, to the microsecond; None for an empty one."""
    if not raw.seconds and not raw.nanos:
        return None
    try:
        return datetime.fromtimestamp(raw.seconds, UTC).replace(microsecond=raw.nanos // 1000)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(maxsize=512)
def sizes(accelerator_type: str, type_: str = "", topology: str = "") -> tuple[int, int, str]:
    """(chips, workers, type string) of one slice by the catalogue; (0, 0, given) when it doesn't know."""
    found = accelerators.find(accelerator_type) if accelerator_type else None
    if found is None and type_ and topology:
        try:
            found = accelerators.from_topology(type_, topology)
        except accelerators.UnknownAccelerator:
            found = None
    if found is None:
        return 0, 0, accelerator_type or type_.lower()
    return found.chips, found.workers, accelerator_type or found.name


def _accelerator(node: Any) -> tuple[int, int, str, str]:
    """(chips, workers, type string, topology) of a node or of a node template."""
    config = node.accelerator_config
    type_ = enum_name("AcceleratorConfig.Type", config.type_) if config.type_ else ""
    chips, workers, name = sizes(node.accelerator_type, type_, config.topology)
    return chips, workers, name, config.topology


def queued_resource(raw: Any, project: str, zone: str) -> QueuedResource:
    """A raw QueuedResource, not yet joined with its nodes."""
    name = last_part(raw.name)
    count = 0
    node_ids: list[str] = []
    chips = workers = 0
    accelerator_type = topology = runtime_version = ""
    node = None
    for spec in raw.tpu.node_spec:
        if spec.HasField("multi_node_params"):
            several = max(spec.multi_node_params.node_count, 1)
            prefix = spec.multi_node_params.node_id_prefix or name
            node_ids += [f"{prefix}-{index}" for index in range(several)]
            count += several
        else:
            count += 1
            if spec.node_id:
                node_ids.append(spec.node_id)
        if node is None:
            node = spec.node
            runtime_version = node.runtime_version
            chips, workers, accelerator_type, topology = _accelerator(node)
    created_at = time(raw.create_time)
    state = raw.state
    error = None
    if state.HasField("failed_data") and state.failed_data.HasField("error"):
        error = Status(state.failed_data.error.code, state.failed_data.error.message)
    return QueuedResource(
        project=project,
        zone=zone,
        name=name,
        state=enum_name("QueuedResourceState.State", state.state),
        accelerator_type=accelerator_type,
        topology=topology,
        slice_count=max(count, 1),
        node_ids=tuple(sorted(node_ids, key=natural)),
        runtime_version=runtime_version,
        tier=_tier(raw, node),
        created_at=created_at,
        state_initiator=enum_name("QueuedResourceState.StateInitiator", state.state_initiator)
        if state.state_initiator
        else "",
        error=error,
        reservation=last_part(raw.reservation_name),
        valid_until=_valid_until(raw, created_at),
        chips_per_slice=chips,
        workers_per_slice=workers,
    )


def _tier(raw: Any, node: Any) -> Tier:
    if raw.HasField("spot"):
        return Tier.SPOT
    if raw.HasField("best_effort"):
        return Tier.BEST_EFFORT
    if raw.guaranteed.reserved or raw.reservation_name:
        return Tier.RESERVED
    if node is not None:
        scheduling = node.scheduling_config
        if scheduling.spot or scheduling.preemptible:
            return Tier.SPOT
        if scheduling.reserved:
            return Tier.RESERVED
    return Tier.ON_DEMAND


def _valid_until(raw: Any, created_at: datetime | None) -> datetime | None:
    if not raw.HasField("queueing_policy"):
        return None
    policy = raw.queueing_policy
    if policy.HasField("valid_until_time"):
        return time(policy.valid_until_time)
    if policy.HasField("valid_interval"):
        return time(policy.valid_interval.end_time)
    if policy.HasField("valid_until_duration") and created_at is not None:
        return created_at + timedelta(seconds=policy.valid_until_duration.seconds)
    return None


def node(raw: Any, project: str, zone: str) -> Slice:
    """A raw Node as a slice with index 0; `join` gives it its place."""
    interfaces = max(len(raw.network_configs), 1)
    endpoints = raw.network_endpoints if interfaces == 1 else raw.network_endpoints[::interfaces]
    _, _, accelerator_type, topology = _accelerator(raw)
    return Slice(
        project=project,
        zone=zone,
        node_id=last_part(raw.name),
        index=0,
        state=enum_name("Node.State", raw.state),
        uid=str(raw.id) if raw.id else "",
        health=enum_name("Node.Health", raw.health) if raw.health else "",
        health_description=raw.health_description,
        accelerator_type=accelerator_type,
        topology=topology,
        runtime_version=raw.runtime_version,
        queued_resource=last_part(raw.queued_resource),
        workers=tuple(
            [
                Worker(index, endpoint.ip_address, endpoint.access_config.external_ip)
                for index, endpoint in enumerate(endpoints)
            ]
        ),
        symptoms=tuple(
            Symptom(
                enum_name("Symptom.SymptomType", item.symptom_type),
                item.details,
                item.worker_id,
                time(item.create_time),
            )
            for item in raw.symptoms
        ),
        maintenance=_maintenance(raw.upcoming_maintenance) if raw.HasField("upcoming_maintenance") else None,
        created_at=time(raw.create_time),
        labels=tuple(sorted(raw.labels.items())),
    )


def _maintenance(raw: Any) -> Maintenance:
    return Maintenance(
        kind=enum_name("UpcomingMaintenance.MaintenanceType", raw.type_),
        status=enum_name("UpcomingMaintenance.MaintenanceStatus", raw.maintenance_status),
        can_reschedule=raw.can_reschedule,
        window_start=raw.window_start_time,
        window_end=raw.window_end_time,
        latest_start=raw.latest_window_start_time,
    )


def operation(raw: Any) -> Operation:
    """A google.longrunning.Operation. Its metadata is read whatever package its type URL names."""
    parts = raw.name.split("/")
    metadata = message("OperationMetadata")()
    if raw.metadata.type_url.endswith("OperationMetadata"):
        metadata.MergeFromString(raw.metadata.value)
    return Operation(
        project=parts[1] if len(parts) > 4 else "",
        zone=parts[3] if len(parts) > 4 else "",
        name=parts[-1],
        done=raw.done,
        verb=metadata.verb,
        target=metadata.target,
        detail=metadata.status_detail,
        cancel_requested=metadata.cancel_requested,
        error=Status(raw.error.code, raw.error.message) if raw.HasField("error") else None,
        created_at=time(metadata.create_time),
        ended_at=time(metadata.end_time),
    )


def operation_from_json(body: Mapping[str, Any]) -> Operation:
    """The same from the REST API's JSON, whose metadata names a type that no library knows."""
    metadata = message("OperationMetadata")()
    _parse({key: value for key, value in (body.get("metadata") or {}).items() if key != "@type"}, metadata)
    parts = str(body.get("name", "")).split("/")
    error = body.get("error") or None
    return Operation(
        project=parts[1] if len(parts) > 4 else "",
        zone=parts[3] if len(parts) > 4 else "",
        name=parts[-1],
        done=bool(body.get("done", False)),
        verb=metadata.verb,
        target=metadata.target,
        detail=metadata.status_detail,
        cancel_requested=metadata.cancel_requested,
        error=Status(int(error.get("code", 0)), str(error.get("message", ""))) if error else None,
        created_at=time(metadata.create_time),
        ended_at=time(metadata.end_time),
    )


def _parse(body: Mapping[str, Any], raw: Any) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(dict(body), raw, ignore_unknown_fields=True)


def in_order(queued: Sequence[QueuedResource]) -> list[QueuedResource]:
    """Requests in natural order of name, each name once."""
    by_name = {item.name: item for item in queued}
    return [by_name[name] for name in sorted(by_name, key=natural)]


def owners(
    queued: Sequence[QueuedResource], nodes: Iterable[Slice]
) -> tuple[dict[str, list[Slice]], tuple[Slice, ...]]:
    """Whose each node of one (project, zone) is: by the owner that it names, or by the names that requests asked for.

    Returns:
        The nodes of each request by its name, and those that no request owns, in natural order.
    """
    by_name = {item.name: item for item in queued}
    by_node_id = {node_id: item.name for item in queued for node_id in item.node_ids}
    owned: dict[str, list[Slice]] = {}
    standalone: list[Slice] = []
    for item in nodes:
        owner = item.queued_resource if item.queued_resource in by_name else by_node_id.get(item.node_id, "")
        # A node that names another owner is not taken for its name alone: the name was used again.
        if owner and item.queued_resource in ("", owner):
            owned.setdefault(owner, []).append(item)
        else:
            standalone.append(item)
    return owned, tuple(sorted(standalone, key=lambda item: natural(item.node_id)))


def with_slices(request: QueuedResource, nodes: list[Slice]) -> QueuedResource:
    """A request with its nodes as its slices."""
    slices = _placed(request, nodes)
    return replace(request, slices=slices) if slices else request


def _placed(item: QueuedResource, nodes: list[Slice]) -> tuple[Slice, ...]:
    """The slices in numeric order. The index is the node's place among those that were asked for."""
    if len(nodes) == 1 and item.node_ids == (nodes[0].node_id,):
        return (_owned(nodes[0], item.name, 0),)
    places = {node_id: index for index, node_id in enumerate(item.node_ids)}
    placed: list[Slice] = []
    strangers: list[Slice] = []
    for each in nodes:
        index = places.get(each.node_id)
        if index is None:
            strangers.append(each)
        else:
            placed.append(_owned(each, item.name, index))
    taken = {each.index for each in placed}
    free = (index for index in range(len(nodes) + len(taken)) if index not in taken)
    placed += [
        _owned(each, item.name, index)
        for each, index in zip(sorted(strangers, key=lambda each: natural(each.node_id)), free, strict=False)
    ]
    return tuple(sorted(placed, key=lambda each: each.index))


def _owned(item: Slice, owner: str, index: int) -> Slice:
    if item.index == index and item.queued_resource == owner:
        return item
    return replace(item, index=index, queued_resource=owner)
