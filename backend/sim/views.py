"""What the world shows of itself: JSON in the service's REST form, for either version of the API."""

from __future__ import annotations

import copy
from collections.abc import Callable

from backend.model import QueuedResourceState as State
from backend.sim.entities import Node, Operation, Request
from backend.sim.nodes import stamp
from backend.sim.refusals import Json
from backend.sim.world import World

RUNTIME_PORT = 8470
"""The port that endpoints name; nothing of ours connects to it."""
STATE_DATA = {
    State.CREATING: "creatingData",
    State.ACCEPTED: "acceptedData",
    State.PROVISIONING: "provisioningData",
    State.ACTIVE: "activeData",
    State.SUSPENDING: "suspendingData",
    State.SUSPENDED: "suspendedData",
    State.DELETING: "deletingData",
}
"""WAITING_FOR_RESOURCES has no data; FAILED has its error."""
CACHED_VIEWS = 4_096
"""Twice the 256 nodes of eight of the largest requests; views of what is gone leave with the rest."""
API_VERSIONS = {"v2": "V2", "v2alpha1": "V2_ALPHA1"}
SERVICE_ACCOUNT_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TPU_OPERATION_METADATA = "type.googleapis.com/google.cloud.tpu.{version}.OperationMetadata"
"""Over gRPC, where the client library unpacks it by this name."""
REST_OPERATION_METADATA = "type.googleapis.com/google.cloud.common.OperationMetadata"
"""Over REST, as the overview document shows it."""


class Views:
    """Cached by the revision of each thing: asking again for what did not change costs nothing.

    The answers are shared: nobody may change them.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._cache: dict[tuple[str, str], tuple[int, Json]] = {}

    def node(self, node: Node, version: str) -> Json:
        return self._cached(node.name, version, node.revision, lambda: self._node(node, version))

    def request(self, request: Request, version: str) -> Json:
        return self._cached(request.full_name, version, request.revision, lambda: self._request(request, version))

    def operation(self, operation: Operation, *, rest: bool) -> Json:
        """Never cached: cheap, and its answer carries its target as it is now."""
        kind = REST_OPERATION_METADATA if rest else TPU_OPERATION_METADATA.format(version=operation.api_version)
        metadata: Json = {
            "@type": kind,
            "createTime": stamp(operation.created_at),
            "target": operation.target,
            "verb": operation.verb,
            "cancelRequested": operation.cancel_requested,
            "apiVersion": operation.api_version,
        }
        answer: Json = {"name": operation.name, "metadata": metadata, "done": operation.done}
        if operation.ended_at is not None:
            metadata["endTime"] = stamp(operation.ended_at)
            if operation.error is not None:
                answer["error"] = operation.error
            elif operation.empty_response:
                answer["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
            else:
                answer["response"] = self._target(operation)
        return answer

    def _target(self, operation: Operation) -> Json:
        _, project, _, zone, kind, name = operation.target.split("/")
        word = "QueuedResource" if kind == "queuedResources" else "Node"
        answer: Json = {"@type": f"type.googleapis.com/google.cloud.tpu.{operation.api_version}.{word}"}
        if kind == "queuedResources":
            request = self.world.requests.get((project, zone, name))
            shown = self.request(request, operation.api_version) if request else {"name": operation.target}
        else:
            node = self.world.nodes.get((project, zone, name))
            shown = self.node(node, operation.api_version) if node else {"name": operation.target}
        return {**answer, **shown}

    def _cached(self, name: str, version: str, revision: int, make: Callable[[], Json]) -> Json:
        found = self._cache.get((name, version))
        if found is not None and found[0] == revision:
            return found[1]
        view = make()
        if len(self._cache) >= CACHED_VIEWS:
            self._cache.clear()
        self._cache[(name, version)] = (revision, view)
        return view

    def _parent(self, zone: str) -> str:
        """With the project's number, as the service writes it inside of resources."""
        return f"projects/{self.world.scenario.project_number}/locations/{zone}"

    def _request(self, request: Request, version: str) -> Json:
        template = copy.deepcopy(request.template)
        for output in ("state", "name", "createTime"):
            template.pop(output, None)
        first = template["tpu"]["nodeSpec"][0]
        owner = f"{self._parent(request.zone)}/queuedResources/{request.name}"
        spot = request.tier == "spot"
        node = {
            "bootDisk": {},
            "networkConfig": {"enableExternalIps": True},
            "schedulingConfig": {"spot": True} if spot else {},
            "serviceAccount": {},
            "shieldedInstanceConfig": {},
            **first.get("node", {}),
            "queuedResource": owner,
            "useTpuVm": True,
        }
        specs = [
            {"parent": self._parent(request.zone), "nodeId": node_id, "node": node} for node_id in request.node_ids
        ]
        template["tpu"] = {"nodeSpec": specs}
        if version == "v2":
            template.pop("bestEffort", None)
            template.get("guaranteed", {}).pop("reserved", None)
        if request.terminates_at is not None:
            template["runDuration"] = {
                **template.get("runDuration", {}),
                "terminationTime": stamp(request.terminates_at),
            }
        return {
            "name": request.full_name,
            "createTime": stamp(request.created_at),
            **template,
            "state": _state(request),
        }

    def _node(self, node: Node, version: str) -> Json:
        template = node.template
        scheduling: Json = {"spot": True} if node.spot else {"reserved": True} if node.reservation else {}
        view: Json = {
            "name": node.name,
            "state": node.state,
            "createTime": stamp(node.created_at),
            "schedulingConfig": template.get("schedulingConfig") or scheduling,
            "runtimeVersion": template.get("runtimeVersion", ""),
        }
        if node.owner:
            view["queuedResource"] = f"{self._parent(node.zone)}/queuedResources/{node.owner}"
        if node.state == "CREATING":
            # The service shows little of a node that comes up (field notes: node_creating_sparse).
            return view
        generation = node.accelerator.generation
        network = template.get("networkConfig", {"enableExternalIps": True})
        external = bool(network.get("enableExternalIps", False))
        region = node.zone.rsplit("-", 1)[0]
        subnetwork = network.get("subnetwork") or "default"
        view |= {
            "acceleratorType": node.accelerator.name,
            "acceleratorConfig": {"type": generation.type_enum, "topology": node.accelerator.topology},
            "apiVersion": API_VERSIONS[version],
            "id": str(node.uid),
            "networkConfig": {
                **network,
                "network": _path(network.get("network") or "default", f"projects/{node.project}/global/networks"),
                "subnetwork": _path(subnetwork, f"projects/{node.project}/regions/{region}/subnetworks"),
                "enableExternalIps": external,
            },
            "networkEndpoints": [_endpoint(address, external) for address in node.addresses],
            "serviceAccount": template.get("serviceAccount")
            or {
                "email": f"{self.world.scenario.project_number}-compute@developer.gserviceaccount.example",
                "scope": [SERVICE_ACCOUNT_SCOPE],
            },
            "shieldedInstanceConfig": template.get("shieldedInstanceConfig", {}),
            "bootDisk": template.get("bootDisk", {}),
            "useTpuVm": True,
        }
        if node.health:
            view["health"] = node.health
        if node.addresses:
            view["cidrBlock"] = f"{node.addresses[0].rsplit('.', 1)[0]}.0/24"
        if node.health_description:
            view["healthDescription"] = node.health_description
        if node.slice_count > 1:
            view["multisliceNode"] = True
        if node.metadata:
            view["metadata"] = dict(node.metadata)
        for name in ("description", "labels", "tags", "dataDisks", "autocheckpointEnabled", "bootDiskConfig"):
            if template.get(name):
                view[name] = template[name]
        if node.symptoms:
            view["symptoms"] = list(node.symptoms)
        if node.maintenance is not None:
            view["upcomingMaintenance"] = node.maintenance
        return view


def _state(request: Request) -> Json:
    state: Json = {"state": str(request.state)}
    if request.initiator:
        state["stateInitiator"] = request.initiator
    if request.state == State.FAILED:
        state["failedData"] = {"error": request.error} if request.error else {}
    elif request.state in STATE_DATA:
        state[STATE_DATA[request.state]] = {}
    return state


def _endpoint(address: str, external: bool) -> Json:
    endpoint: Json = {"ipAddress": address, "port": RUNTIME_PORT}
    if external:
        endpoint["accessConfig"] = {"externalIp": address}
    return endpoint


def _path(name: str, folder: str) -> str:
    return name if "/" in name else f"{folder}/{name}"
