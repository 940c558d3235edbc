"""What may be asked for: reads the JSON of a request or node, refuses what the service would, applies quotas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from backend.model import Tier
from backend.sim import refusals
from backend.sim.refusals import Code, Json, Refusal
from backend.sim.world import World
from jobs import accelerators
from jobs.accelerators import Accelerator

RESOURCE_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
NODE_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
RATE_WINDOW_S = 60.0
OTHER_RUNTIMES = re.compile(
    r"tpu-vm-(tf|pt|base|v4)[-.\w]*|tpu-ubuntu\d{4}-base|v2-alpha-tpu[-.\w]*|v2-tpuv5-litepod|v2-nightly-tpu[-.\w]*"
)
"""Runtimes beside the catalogue's that the service has had."""
PROVISIONING_TIERS = {"SPOT": Tier.SPOT, "FLEX_START": Tier.FLEX_START, "RESERVATION_BOUND": Tier.RESERVED}
SERVING_CHIPS = 8
"""Chips up to which v5litepod falls under the small "Serving" quota, whatever the tier (field notes, 1a, row 6)."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A queued resource that may be accepted."""

    accelerator: Accelerator
    node_ids: tuple[str, ...]
    node: Json
    """The template of its nodes."""
    tier: Tier
    reservation_path: str
    valid_after: float | None
    valid_until: float | None
    run_limit_s: float | None
    workload_type: str


def admit_request(world: World, project: str, zone: str, name: str, body: Json, version: str) -> Admitted:
    """Raises Refusal for everything that the service refuses at once; quotas and rates come last, as there."""
    if not name or not RESOURCE_ID.fullmatch(name):
        raise refusals.bad_request(
            f'The queued resource id "{name}" does not follow the ^[A-Za-z0-9_.~+%-]+$ format.'
        )
    specs = body.get("tpu", {}).get("nodeSpec", [])
    if not specs:
        raise refusals.bad_request("The request must have at least one node spec.")
    if (project, zone, name) in world.requests:
        raise refusals.already_exists(f"projects/{project}/locations/{zone}/queuedResources/{name}")
    first = specs[0]
    node: Json = first.get("node", {})
    accelerator = accelerator_of(world, zone, node)
    node_ids, workload_type = _node_ids(specs, name, version)
    if len(node_ids) > 1 and not accelerator.generation.multislice:
        raise refusals.cannot_complete(f"Multislice is not supported for accelerator type {accelerator.name}.")
    check_runtime(node, accelerator)
    for node_id in node_ids:
        if not NODE_ID.fullmatch(node_id):
            raise refusals.bad_request(f'The node id "{node_id}" is not valid.')
        if (project, zone, node_id) in world.nodes:
            raise refusals.already_exists(f"projects/{project}/locations/{zone}/nodes/{node_id}")
    tier = _tier(body, node)
    after, until = _validity(body.get("queueingPolicy", {}), world.now)
    if until is not None and until <= world.now:
        raise refusals.bad_request("The valid until time must be in the future.")
    limit = body.get("runDuration", {}).get("maxRunDuration")
    check_quota(world, zone, accelerator, tier, len(node_ids))
    take_rate(world, 1)
    return Admitted(
        accelerator,
        node_ids,
        node,
        tier,
        str(body.get("reservationName", "")),
        after,
        until,
        duration_s(limit) if limit else None,
        workload_type,
    )


def accelerator_of(world: World, zone: str, node: Json) -> Accelerator:
    """The slice that a node's JSON asks for, as far as this zone has it.

    Raises:
        Refusal: No such zone, or no such type in it.
    """
    offered = world.scenario.zone(zone)
    if offered is None:
        raise refusals.zone_unsupported(zone)
    name = str(node.get("acceleratorType", ""))
    config = node.get("acceleratorConfig", {})
    if name and config:
        raise refusals.bad_request("Only one of accelerator_type and accelerator_config may be specified.")
    if config:
        name = f"{config.get('type', '')} {config.get('topology', '')}"
        try:
            found = accelerators.from_topology(str(config.get("type", "")), str(config.get("topology", "")))
        except accelerators.UnknownAccelerator as error:
            raise refusals.type_unknown_in_zone(name, zone) from error
    else:
        known = accelerators.find(name)
        if known is None:
            raise refusals.type_unknown_in_zone(name, zone)
        found = known
    if found.generation.type_prefix not in offered.capacity:
        raise refusals.type_unknown_in_zone(found.name, zone)
    return found


def check_runtime(node: Json, accelerator: Accelerator) -> None:
    """Raises Refusal for a runtime that does not exist or was made for another generation."""
    runtime = str(node.get("runtimeVersion", ""))
    if not runtime:
        raise refusals.bad_request("The runtime version must be specified.")
    fits = accelerator.generation.runtime_fits(runtime)
    if fits is False:
        raise refusals.bad_request(
            f'The runtime version "{runtime}" is not supported for accelerator type {accelerator.name}.'
        )
    if fits is None and not OTHER_RUNTIMES.fullmatch(runtime):
        raise refusals.bad_request(f'The runtime version "{runtime}" was not found.')


def _node_ids(specs: list[Json], name: str, version: str) -> tuple[tuple[str, ...], str]:
    params_name = "multisliceParams" if version == "v2" else "multiNodeParams"
    first = specs[0]
    params = first.get(params_name)
    if params is not None:
        if first.get("nodeId"):
            raise refusals.bad_request("Only one of node_id and multi_node_params may be specified.")
        if len(specs) > 1:
            raise refusals.bad_request("A multislice request must have exactly one node spec.")
        count = int(params.get("nodeCount", 0))
        if not 2 <= count <= accelerators.MAXIMUM_SLICES:
            raise refusals.bad_request(
                f"The node count must be between 2 and {accelerators.MAXIMUM_SLICES}, and is {count}."
            )
        prefix = params.get("nodeIdPrefix") or name
        return tuple(f"{prefix}-{index}" for index in range(count)), str(params.get("workloadType", ""))
    ids = tuple(str(spec.get("nodeId", "")) for spec in specs)
    if not all(ids):
        raise refusals.bad_request("The node id must be specified.")
    if len(set(ids)) < len(ids):
        raise refusals.bad_request("The node ids must be unique.")
    types = {str(spec.get("node", {}).get("acceleratorType")) for spec in specs}
    if len(types) > 1:
        raise refusals.bad_request("All nodes must be of one accelerator type.")
    return ids, ""


def _tier(body: Json, node: Json) -> Tier:
    model = str(body.get("provisioningModel", ""))
    scheduling = node.get("schedulingConfig", {})
    if "spot" in body or scheduling.get("spot") or scheduling.get("preemptible"):
        return Tier.SPOT
    if "bestEffort" in body:
        return Tier.BEST_EFFORT
    if model in PROVISIONING_TIERS:
        return PROVISIONING_TIERS[model]
    if body.get("guaranteed", {}).get("reserved") or body.get("reservationName") or scheduling.get("reserved"):
        return Tier.RESERVED
    return Tier.ON_DEMAND


def _validity(policy: Json, now: float) -> tuple[float | None, float | None]:
    after = until = None
    interval = policy.get("validInterval", {})
    if "validAfterDuration" in policy:
        after = now + duration_s(policy["validAfterDuration"])
    if "validUntilDuration" in policy:
        until = now + duration_s(policy["validUntilDuration"])
    for text in (policy.get("validAfterTime"), interval.get("startTime")):
        after = moment(text) if text else after
    for text in (policy.get("validUntilTime"), interval.get("endTime")):
        until = moment(text) if text else until
    return after, until


def duration_s(value: Any) -> float:
    """Of JSON's "3.5s". Raises Refusal."""
    text = str(value)
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise Refusal(Code.INVALID_ARGUMENT, f"Illegal duration format; duration must end with 's': {text}") from None


def moment(text: str) -> float:
    """Of RFC 3339. Raises Refusal."""
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text)
    try:
        parsed = datetime.fromisoformat(trimmed)
    except ValueError:
        raise Refusal(Code.INVALID_ARGUMENT, f"Illegal timestamp format: {text}") from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def quota_kind(tier: Tier) -> str:
    """Three kinds a generation: reserved, on-demand, and preemptible, which counts spot and best effort."""
    if tier in (Tier.SPOT, Tier.BEST_EFFORT):
        return "spot"
    return "reserved" if tier == Tier.RESERVED else "on-demand"


def quota_name(accelerator: Accelerator, kind: str) -> tuple[str, str]:
    """The service's name of a quota, and what it is counted in: `zone` or `region`."""
    generation = accelerator.generation.name
    special = {"spot": "Preemptible", "reserved": "Reserved", "on-demand": ""}[kind]
    if generation == "v5e":
        if accelerator.chips <= SERVING_CHIPS:
            return "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI", "zone"
        return f"TPUV5s{special}LitepodPerProjectPerZoneForTPUAPI", "zone"
    if generation in ("v5p", "v6e"):
        return f"TPU{generation.upper()}{special}PerProjectPerZoneForTPUAPI", "zone"
    pod = "Pod" if accelerator.workers > 1 else ""
    return f"TPU{generation.upper()}s{special}{pod}PerProjectPerRegionForTPUAPI", "region"


def chips_held(world: World, zone: str, prefix: str, kind: str) -> int:
    """Chips that count against a quota: every request that exists, dead ones too, and TPU VMs made by themselves."""
    held = sum(
        request.chips
        for request in world.requests.values()
        if request.zone == zone
        and request.accelerator.generation.type_prefix == prefix
        and quota_kind(request.tier) == kind
    )
    for node in world.nodes.values():
        own = "spot" if node.spot else "reserved" if node.reservation else "on-demand"
        if not node.owner and node.zone == zone and own == kind and node.accelerator.generation.type_prefix == prefix:
            held += node.accelerator.chips
    return held


def check_quota(world: World, zone: str, accelerator: Accelerator, tier: Tier, slices: int) -> None:
    """Raises Refusal (RESOURCE_EXHAUSTED) when the request does not fit beside everything that exists."""
    kind = quota_kind(tier)
    prefix = accelerator.generation.type_prefix
    limit = world.quotas.get((zone, prefix, kind))
    if limit is None or chips_held(world, zone, prefix, kind) + accelerator.chips * slices <= limit:
        return
    quota, scope = quota_name(accelerator, kind)
    place = zone if scope == "zone" else zone.rsplit("-", 1)[0]
    raise refusals.quota_exceeded(quota, limit, scope, place, world.scenario.project_number)


def take_rate(world: World, count: int) -> None:
    """Raises Refusal when the project creates too fast."""
    limit = world.creates_per_minute
    while world.creates and world.creates[0] <= world.now - RATE_WINDOW_S:
        world.creates.popleft()
    if limit and len(world.creates) + count > limit:
        raise refusals.rate_exceeded(limit, world.scenario.project_number)
    world.creates.extend([world.now] * count)
