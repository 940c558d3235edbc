"""What to think over before a create request is sent: advice, never a refusal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from backend.cloud.requests import MAX_SLICES, CreateRequest, Problem, accelerator_of, alpha_only
from backend.model import DEAD_STATES, QueuedResource, QueuedResourceState, Tier
from jobs import accelerators
from jobs.accelerators import Accelerator

FLEX_START_SHORT_S = 600.0
"""Below this a flex-start run is hardly worth its boot."""
EXTERNAL_ADDRESS_QUOTA = 8
"""External addresses of a region in a new project (IN_USE_ADDRESSES)."""
SERVING_TYPES = frozenset({"v5litepod-8"})
"""Types that count under the small 'Serving' quota, in any tier."""

_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def warnings(
    request: CreateRequest, *, existing: Iterable[QueuedResource] = (), zone_types: Collection[str] | None = None
) -> list[Problem]:
    """What to think over before sending; nothing here forbids it.

    Args:
        request: What would be sent.
        existing: The fleet's queued resources, of any zone.
        zone_types: What the API lists for the zone, when it was asked; None: the catalogue's word.
    """
    return [*_warn_zone(request, zone_types), *_warn_fleet(request, existing), *_warn_rest(request)]


def _warn_zone(request: CreateRequest, zone_types: Collection[str] | None) -> Iterator[Problem]:
    found = accelerator_of(request)
    if found is None or not request.zone:
        return
    if zone_types is not None:
        if found.name not in zone_types:
            same = [name for name in zone_types if name.startswith(f"{found.generation.type_prefix}-")]
            cure = (
                f"It lists {', '.join(sorted(same)[:6])}." if same else f"It lists no {found.generation.name} at all."
            )
            yield Problem("zone", f"{request.zone} does not list {found.name}.", cure)
    elif request.zone not in found.generation.zones:
        known = ", ".join(found.generation.zones[:4])
        yield Problem(
            "zone", f"{request.zone} is not known to offer {found.generation.name}.", f"Known zones: {known}."
        )
    if found.generation.runtime_fits(request.runtime_version) is None and request.runtime_version:
        yield Problem(
            "runtime_version",
            f"Whether the runtime {request.runtime_version} fits {request.shape} is not known here.",
            f"Recommended: {found.generation.runtime_versions[0]}.",
        )


def _warn_fleet(request: CreateRequest, existing: Iterable[QueuedResource]) -> Iterator[Problem]:
    here = [
        item
        for item in existing
        if (item.project, item.zone) == (request.project, request.zone) and item.name != request.name
    ]
    kind = accelerator_of(request)
    dead = [item for item in here if item.state in DEAD_STATES and _counts_against(item, kind)]
    if dead:
        chips = sum(item.chips for item in dead)
        yield Problem(
            "zone",
            f"{', '.join(item.name for item in dead[:3])} {'are dead and hold' if len(dead) > 1 else 'is dead and holds'} the "
            f"quota of {chips} chips here.",
            f"Delete {'them' if len(dead) > 1 else 'it'} first: `slicetower qr cleanup`.",
        )
    waiting = [
        item
        for item in here
        if kind is not None
        and item.accelerator_type == kind.name
        and item.tier is request.tier
        and item.state not in DEAD_STATES
        and item.state not in (QueuedResourceState.ACTIVE, QueuedResourceState.DELETING)
    ]
    if waiting:
        yield Problem(
            "zone",
            f"{waiting[0].name} waits already for {request.shape} {request.tier} in {request.zone}.",
            "A second request of one kind in one zone comes no sooner and uses quota; try another zone.",
        )


def _counts_against(item: QueuedResource, kind: Accelerator | None) -> bool:
    """Whether both count under one quota: each generation has its own. True while either's is not known."""
    if kind is None:
        return True
    try:
        return accelerators.parse(item.accelerator_type).generation == kind.generation
    except accelerators.UnknownAccelerator:
        return True


def _warn_rest(request: CreateRequest) -> Iterator[Problem]:
    found = accelerator_of(request)
    if found is not None and found.name in SERVING_TYPES:
        yield Problem(
            "accelerator_type",
            f"{found.name} counts under the small 'Serving' quota, in any tier.",
            "v5litepod-4 and v5litepod-16 do not.",
        )
    workers = found.workers * request.node_count if found is not None else 0
    external = any(item.external_ips for item in request.network_configs) or (
        not request.network_configs and not request.internal_ips
    )
    if external and workers > EXTERNAL_ADDRESS_QUOTA:
        yield Problem(
            "internal_ips",
            f"Each of the {workers} workers takes an external address; a new project has {EXTERNAL_ADDRESS_QUOTA} a region.",
            "Check the quota IN_USE_ADDRESSES, or give --internal-ips.",
        )
    if request.max_run_duration_s is not None:
        if request.tier is not Tier.FLEX_START:
            yield Problem(
                "max_run_duration_s",
                "--max-run-duration is documented for flex-start alone.",
                "Add flex-start or drop it.",
            )
        elif request.max_run_duration_s < FLEX_START_SHORT_S:
            yield Problem("max_run_duration_s", "Under 10 minutes little more than the boot gets done.", "")
    if request.cidr_range and not request.cidr_range.endswith("/29"):
        yield Problem("cidr_range", "gcloud's help asks for a /29 range.", "For example 192.168.0.0/29.")
    longest = request.node_ids[-1] if request.node_count <= MAX_SLICES else ""
    if longest and _ID.fullmatch(longest) and not _DNS_LABEL.fullmatch(longest):
        yield Problem(
            "node_prefix" if request.node_count > 1 else "node_id",
            f"The slice name {longest} is no host name.",
            "Lower-case letters, digits and hyphens, at most 63 in all, are safe.",
        )
    lacking = alpha_only(request)
    if lacking:
        yield Problem("provisioning_model", f"{', '.join(lacking)} exists in v2alpha1 alone.", "")
