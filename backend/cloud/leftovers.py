"""What of a described queued resource a create request cannot repeat: named, so that nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_TOP = frozenset(
    [
        "name",
        "createTime",
        "tpu",
        "spot",
        "bestEffort",
        "guaranteed",
        "queueingPolicy",
        "state",
        "reservationName",
        "provisioningModel",
        "runDuration",
    ]
)
_GUARANTEED = frozenset(("minDuration", "reserved"))
_RUN = frozenset(("maxRunDuration", "terminationTime"))
_SPEC = frozenset(["parent", "nodeId", "multiNodeParams", "multisliceParams", "node"])
_NODE = frozenset(
    [
        "acceleratorType",
        "acceleratorConfig",
        "runtimeVersion",
        "networkConfig",
        "networkConfigs",
        "serviceAccount",
        "tags",
        "labels",
        "metadata",
        "description",
        "cidrBlock",
        "dataDisks",
        "shieldedInstanceConfig",
        "bootDiskConfig",
        "autocheckpointEnabled",
    ]
)
_NODE_OUTPUT = frozenset(
    [
        "name",
        "state",
        "healthDescription",
        "networkEndpoints",
        "health",
        "createTime",
        "id",
        "apiVersion",
        "symptoms",
        "queuedResource",
        "multisliceNode",
        "schedulingConfig",
        "upcomingMaintenance",
        "useTpuVm",
        "bootDisk",
    ]
)
_NETWORK = frozenset(["network", "subnetwork", "enableExternalIps"])
_BOOT = frozenset(["customerEncryptionKey", "enableConfidentialCompute"])
_DISK = frozenset(("sourceDisk", "mode", "workerIds"))


def leftovers(body: Mapping[str, Any]) -> tuple[str, ...]:
    """JSON paths of a QueuedResource that `from_json` does not read and that hold something, in order."""
    found = _unread(body, _TOP, "")
    found += _unread(body.get("guaranteed") or {}, _GUARANTEED, "guaranteed.")
    found += _unread(body.get("runDuration") or {}, _RUN, "runDuration.")
    specs = (body.get("tpu") or {}).get("nodeSpec") or ()
    found += _unread(body.get("tpu") or {}, frozenset(("nodeSpec",)), "tpu.")
    for spec in specs:
        found += _unread(spec, _SPEC, "nodeSpec.")
        node = spec.get("node") or {}
        found += _unread(node, _NODE | _NODE_OUTPUT, "node.")
        for network in (node.get("networkConfig") or {}, *(node.get("networkConfigs") or ())):
            found += _unread(network, _NETWORK, "node.networkConfig.")
        found += _unread(node.get("bootDiskConfig") or {}, _BOOT, "node.bootDiskConfig.")
        for disk in node.get("dataDisks") or ():
            found += _unread(disk, _DISK, "node.dataDisks.")
    return tuple(dict.fromkeys(found))


def _unread(value: Mapping[str, Any], known: Iterable[str], prefix: str) -> list[str]:
    names = set(known)
    return [f"{prefix}{key}" for key, item in value.items() if key not in names and item not in ({}, [], "", None, 0)]
