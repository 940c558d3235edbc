"""A create request as the flags of `gcloud compute tpus queued-resources create`, alpha or GA."""

from __future__ import annotations

from collections.abc import Iterable

from backend.cloud.requests import CreateRequest
from backend.model import Tier
from backend.timestamps import rfc3339

_DELIMITERS = ",:;|#~@!&+"


def join_list(items: Iterable[str]) -> str:
    """The text that `split_list` reads as these items: with another delimiter where one of them has a comma."""
    parts = list(items)
    text = "".join(parts)
    delimiter = next((mark for mark in _DELIMITERS if mark not in text), "")
    if not delimiter:
        delimiter = next(chr(point) for point in range(0x2460, 0x10000) if chr(point) not in text)
    joined = delimiter.join(parts)
    if delimiter == "," and not joined.startswith("^"):
        return joined
    return f"^{delimiter}^{joined}"


def join_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """The text that `split_pairs` reads as these pairs."""
    return join_list(f"{key}={value}" for key, value in pairs)


def seconds(value: float) -> str:
    """A duration as gcloud reads it: `2700s`, `1.5s`."""
    return f"{f'{value:.6f}'.rstrip('0').rstrip('.')}s"


ALPHA_FLAGS: dict[str, str] = {
    "workload_type": "--workload-type",
    "provisioning_model": "--provisioning-model",
    "max_run_duration_s": "--max-run-duration",
    "reservation": "--reservation",
    "network_configs": "--network-config",
    "boot_disk_confidential": "--boot-disk confidential-compute",
    "autocheckpoint_enabled": "--autocheckpoint-enabled",
}
"""Field -> the flag that gcloud has in alpha alone."""
GA_TYPES = ("v2", "v3", "v4")
"""What GA's `--type` accepts; later generations need `--accelerator-type` there."""


def alpha_flags(request: CreateRequest) -> tuple[str, ...]:
    """The flags of this request that GA gcloud does not have; empty when GA can ask for all of it."""
    found = [flag for name, flag in ALPHA_FLAGS.items() if getattr(request, name)]
    if request.tier is Tier.BEST_EFFORT:
        found.append("--best-effort")
    if request.tier is Tier.FLEX_START:
        found.append("--provisioning-model=flex-start")
    if request.type and request.type not in GA_TYPES:
        found.append(f"--type={request.type}")
    return tuple(found)


def create_flags(request: CreateRequest, *, alpha: bool) -> list[str]:
    """The flags, unquoted, that ask gcloud for this request; project and zone come last.

    Args:
        request: What to ask for.
        alpha: For `gcloud alpha`. GA lacks the flags of `alpha_flags`: ask there first.
    """
    out: list[str] = []

    def add(name: str, value: str) -> None:
        if value:
            out.append(f"--{name}={value}")

    def switch(name: str, on: bool) -> None:
        if on:
            out.append(f"--{name}")

    if request.node_count > 1:
        add("node-count", str(request.node_count))
        add("node-prefix", request.node_prefix)
        add("workload-type", request.workload_type)
    else:
        add("node-id", request.node_id or request.name)
    add("accelerator-type", request.accelerator_type)
    add("type", request.type)
    add("topology", request.topology)
    add("runtime-version", request.runtime_version)
    switch("spot", request.tier is Tier.SPOT)
    switch("best-effort", request.tier is Tier.BEST_EFFORT)
    switch("reserved", request.tier is Tier.RESERVED)
    switch("guaranteed", request.guaranteed)
    flex = request.tier is Tier.FLEX_START
    # gcloud alpha marks a --spot request STANDARD unless the model is said too (SetProvisioningModel, 528 to 578).
    spot = "spot" if alpha and request.tier is Tier.SPOT else ""
    add("provisioning-model", "flex-start" if flex else request.provisioning_model or spot)
    if request.max_run_duration_s is not None:
        add("max-run-duration", seconds(request.max_run_duration_s))
    if request.min_duration_s is not None:
        add("min-duration", seconds(request.min_duration_s))
    add("reservation", request.reservation)
    if request.reservation_host:
        kind, _, host = request.reservation_host.partition("/")
        add(f"reservation-host-{kind.removesuffix('s')}", host)
    for end in ("after", "until"):
        span, at = getattr(request, f"valid_{end}_duration_s"), getattr(request, f"valid_{end}_time")
        add(f"valid-{end}-duration", "" if span is None else seconds(span))
        add(f"valid-{end}-time", "" if at is None else rfc3339(at))
    add("network", request.network)
    add("subnetwork", request.subnetwork)
    switch("internal-ips", request.internal_ips)
    for item in request.network_configs:
        pairs = [("network", item.network), ("subnetwork", item.subnetwork)]
        words = [(key, value) for key, value in pairs if value]
        # Without the key they are internal; gcloud 528 reads external-ips=false as true.
        external = [("external-ips", "true")] if item.external_ips else []
        add("network-config", join_pairs([*words, *external]))
    add("range", request.cidr_range)
    add("tags", join_list(request.tags) if request.tags else "")
    add("service-account", request.service_account)
    add("scopes", join_list(request.scopes) if request.scopes else "")
    add("metadata", join_pairs(request.metadata) if request.metadata else "")
    add("metadata-from-file", join_pairs(request.metadata_files) if request.metadata_files else "")
    add("labels", join_pairs(request.labels) if request.labels else "")
    add("description", request.description)
    for disk in request.data_disks:
        add("data-disk", join_pairs([("source", disk.source), ("mode", disk.mode)]))
    boot = [("kms-key", request.boot_disk_kms_key)] if request.boot_disk_kms_key else []
    if request.boot_disk_confidential:
        boot.append(("confidential-compute", "true"))
    add("boot-disk", join_pairs(boot) if boot else "")
    switch("shielded-secure-boot", request.shielded_secure_boot)
    switch("autocheckpoint-enabled", request.autocheckpoint_enabled)
    add("zone", request.zone)
    add("project", request.project)
    return out
