"""Every RPC of the service by its name, in JSON: what both transports call.

A method takes its request message as JSON and the API's version, and answers with JSON or raises a Refusal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

from backend.sim import changes, pages, refusals
from backend.sim.changes import Place
from backend.sim.entities import Operation
from backend.sim.refusals import Code, Json, Refusal
from backend.sim.views import Views
from backend.sim.world import World, hostname
from jobs import accelerators

RUNTIMES = ("tpu-vm-base", "tpu-vm-tf-2.16.1-pjrt", "tpu-vm-tf-2.16.1-pod-pjrt", "tpu-ubuntu2204-base")
TENSORFLOW_VERSIONS = ("2.15.0", "2.16.1", "2.17.0", "nightly")
"""What v1 lists for the TPU nodes of old; TPU VMs take runtime versions."""
_NAME = re.compile(r"projects/([^/]+)(?:/locations/([^/]+)(?:/([A-Za-z]+)/([^/]+))?)?")
_CHANGES: dict[str, Callable[[World, Place, Json, str], Operation]] = {
    "CreateQueuedResource": changes.create_queued_resource,
    "DeleteQueuedResource": changes.delete_queued_resource,
    "ResetQueuedResource": changes.reset_queued_resource,
    "PerformMaintenanceQueuedResource": changes.perform_maintenance_queued_resource,
    "CreateNode": changes.create_node,
    "DeleteNode": changes.delete_node,
    "StopNode": changes.stop_node,
    "StartNode": changes.start_node,
    "UpdateNode": changes.update_node,
    "PerformMaintenance": changes.perform_maintenance,
    "SimulateMaintenanceEvent": changes.simulate_maintenance_event,
}
ALPHA_ONLY = frozenset(
    ["ListReservations", "PerformMaintenance", "PerformMaintenanceQueuedResource", "SimulateMaintenanceEvent"]
)
"""RPCs that v2 does not have."""


class Api:
    """The service on a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.views = Views(world)
        self._reads: dict[str, Callable[[Json, str], Json]] = {
            "ListQueuedResources": self._list_queued_resources,
            "GetQueuedResource": self._get_queued_resource,
            "GetMaintenanceInfo": self._get_maintenance_info,
            "ListNodes": self._list_nodes,
            "GetNode": self._get_node,
            "GetGuestAttributes": self._get_guest_attributes,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListRuntimeVersions": self._list_runtime_versions,
            "GetRuntimeVersion": self._get_runtime_version,
            "ListReservations": self._list_reservations,
            "GenerateServiceIdentity": self._generate_service_identity,
            "ListLocations": self._list_locations,
            "GetLocation": self._get_location,
            "CancelOperation": self._cancel_operation,
            "DeleteOperation": self._delete_operation,
        }

    async def call(self, method: str, version: str, request: Json, *, rest: bool) -> Json:
        """Runs one RPC, after the trouble that was injected for it.

        Raises:
            Refusal: The service's answer is an error.
        """
        delay_s, trouble = self.world.trouble.meet(method)
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        if trouble is not None:
            raise trouble
        return self.answer(method, version, request, rest=rest)

    def answer(self, method: str, version: str, request: Json, *, rest: bool) -> Json:
        """As `call`, at once and without injected trouble."""
        if method in ALPHA_ONLY and version != "v2alpha1":
            raise Refusal(Code.UNIMPLEMENTED, f"Method {method} is not implemented in {version}.")
        if method in _CHANGES:
            name = request.get("name") or request.get("parent") or request.get("node", {}).get("name", "")
            place = self._place(str(name), creating=method.startswith("Create"))
            operation = _CHANGES[method](self.world, place, request, version)
            return self.views.operation(operation, rest=rest)
        if method == "GetOperation":
            return self.views.operation(self._operation(request), rest=rest)
        if method == "ListOperations":
            return self._list_operations(request, rest=rest)
        return self._reads[method](request, version)

    def _project(self, text: str) -> str:
        scenario = self.world.scenario
        if text not in (scenario.project, scenario.project_number):
            raise refusals.project_denied(text)
        return scenario.project

    def _place(self, name: str, *, creating: bool = False, anywhere: bool = False) -> Place:
        match = _NAME.fullmatch(name)
        if match is None or match[2] is None:
            raise Refusal(Code.INVALID_ARGUMENT, f"The resource name '{name}' is not valid.")
        project, zone = self._project(match[1]), match[2]
        if self.world.scenario.zone(zone) is None and not (anywhere and zone == "-"):
            raise refusals.zone_unsupported(zone) if creating else refusals.location_denied(zone, project)
        return Place(project, zone, match[4] or "")

    def _list_queued_resources(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("parent", "")))
        found = [
            (item.name, self.views.request(item, version))
            for item in self.world.requests.values()
            if item.project == place.project and item.zone == place.zone
        ]
        return _listed("queuedResources", found, request)

    def _get_queued_resource(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("name", "")))
        return self.views.request(self.world.request(place.project, place.zone, place.name), version)

    def _get_maintenance_info(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("name", "")))
        own = self.world.nodes_of(self.world.request(place.project, place.zone, place.name))
        infos = [
            {"nodeName": node.name, "nodeUid": str(node.uid), "upcomingMaintenance": node.maintenance}
            for node in own
            if node.maintenance is not None
        ]
        return {"nodeUpcomingMaintenances": infos}

    def _list_nodes(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("parent", "")), anywhere=True)
        found = [
            (item.name, self.views.node(item, version))
            for item in self.world.nodes.values()
            if item.project == place.project and place.zone in ("-", item.zone)
        ]
        return _listed("nodes", found, request)

    def _get_node(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("name", "")))
        return self.views.node(self.world.node(place.project, place.zone, place.name), version)

    def _get_guest_attributes(self, request: Json, version: str) -> Json:
        """One entry a worker, in order: `hostkeys/ssh-ed25519`, and `hostname`."""
        place = self._place(str(request.get("name", "")))
        node = self.world.node(place.project, place.zone, place.name)
        path = str(request.get("queryPath", ""))
        wanted = {str(item) for item in request.get("workerIds", ()) if str(item)}
        answer = []
        for index, address in enumerate(node.addresses if node.state == "READY" else ()):
            if wanted and str(index) not in wanted:
                continue
            kind, _, key = (self.world.served_keys.get(address) or self.world.machines.host_key(address)).partition(
                " "
            )
            items = [
                {"namespace": "hostkeys", "key": kind, "value": key},
                {"namespace": "guest-agent", "key": "hostname", "value": hostname(node, index)},
            ]
            fits = [item for item in items if f"{item['namespace']}/{item['key']}".startswith(path)]
            answer.append({"queryPath": path, "queryValue": {"items": fits}})
        return {"guestAttributes": answer}

    def _accelerator_types(self, place: Place) -> list[tuple[str, Json]]:
        offered = self.world.scenario.zone(place.zone)
        views = []
        for item in accelerators.all_types():
            if offered is None or item.generation.type_prefix not in offered.capacity:
                continue
            config = {"type": item.generation.type_enum, "topology": item.topology}
            name = f"projects/{place.project}/locations/{place.zone}/acceleratorTypes/{item.name}"
            views.append((item.name, {"name": name, "type": item.name, "acceleratorConfigs": [config]}))
        return sorted(views, key=lambda view: view[0])

    def _list_accelerator_types(self, request: Json, version: str) -> Json:
        return _listed("acceleratorTypes", self._accelerator_types(self._place(request.get("parent", ""))), request)

    def _get_accelerator_type(self, request: Json, version: str) -> Json:
        return _one(self._accelerator_types(self._place(request.get("name", ""))), request)

    def _runtime_versions(self, place: Place) -> list[tuple[str, Json]]:
        offered = self.world.scenario.zone(place.zone)
        prefixes = offered.capacity if offered is not None else {}
        known = {
            version
            for item in accelerators.GENERATIONS
            if item.type_prefix in prefixes
            for version in item.runtime_versions
        }
        parent = f"projects/{place.project}/locations/{place.zone}/runtimeVersions"
        return [
            (version, {"name": f"{parent}/{version}", "version": version}) for version in sorted(known | {*RUNTIMES})
        ]

    def _list_runtime_versions(self, request: Json, version: str) -> Json:
        return _listed("runtimeVersions", self._runtime_versions(self._place(request.get("parent", ""))), request)

    def _get_runtime_version(self, request: Json, version: str) -> Json:
        return _one(self._runtime_versions(self._place(request.get("name", ""))), request)

    def tensorflow_versions(self, parent: str, name: str, query: Mapping[str, str]) -> Json:
        """The list of v1, or one of it by name.

        Raises:
            Refusal: No such place or version.
        """
        place = self._place(parent)
        base = f"projects/{place.project}/locations/{place.zone}/tensorflowVersions"
        found = [(each, {"name": f"{base}/{each}", "version": each}) for each in TENSORFLOW_VERSIONS]
        if name:
            return _one(found, {"name": f"{base}/{name}"})
        request = {"pageSize": int(query.get("pageSize", 0) or 0), "pageToken": query.get("pageToken", "")}
        return _listed("tensorflowVersions", found, request)

    def _list_reservations(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("parent", "")))
        views: list[tuple[str, Json]] = []
        for item in self.world.reservations.values():
            if item.zone != place.zone:
                continue
            used = item.chips - self.world.free_chips(item.zone, item.type, item.name)
            standard = {
                "size": item.chips,
                "capacityUnits": "CHIPS",
                "resourceType": item.type,
                "usage": {"total": str(used)},
            }
            name = f"projects/{place.project}/locations/{place.zone}/reservations/{item.name}"
            views.append((item.name, {"name": name, "state": "ACTIVE", "standard": standard}))
        return _listed("reservations", views, request)

    def _generate_service_identity(self, request: Json, version: str) -> Json:
        self._place(str(request.get("parent", "")))
        number = self.world.scenario.project_number
        return {"identity": {"email": f"service-{number}@cloud-tpu.iam.gserviceaccount.example"}}

    def _locations(self, project: str) -> list[tuple[str, Json]]:
        return [
            (zone.name, {"name": f"projects/{project}/locations/{zone.name}", "locationId": zone.name})
            for zone in sorted(self.world.scenario.zones, key=lambda each: each.name)
        ]

    def _list_locations(self, request: Json, version: str) -> Json:
        match = _NAME.fullmatch(str(request.get("name", "")))
        if match is None:
            raise Refusal(Code.INVALID_ARGUMENT, "The name must be projects/PROJECT.")
        return _listed("locations", self._locations(self._project(match[1])), request)

    def _get_location(self, request: Json, version: str) -> Json:
        place = self._place(str(request.get("name", "")))
        return dict(self._locations(place.project))[place.zone]

    def _operation(self, request: Json) -> Operation:
        place = self._place(str(request.get("name", "")))
        name = f"projects/{place.project}/locations/{place.zone}/operations/{place.name}"
        found = self.world.operations.get(name)
        if found is None:
            raise refusals.not_found(name)
        return found

    def _list_operations(self, request: Json, *, rest: bool) -> Json:
        place = self._place(str(request.get("name", "")).removesuffix("/operations"))
        found = [
            (item.name, self.views.operation(item, rest=rest))
            for item in self.world.operations.values()
            if item.project == place.project and item.zone == place.zone
        ]
        return _listed("operations", found, request)

    def _cancel_operation(self, request: Json, version: str) -> Json:
        """Best effort, as the service says: what has begun goes on, and what waits to begin ends with code 1."""
        operation = self._operation(request)
        if not operation.done:
            operation.cancel_requested = True
            self.world.cancel(operation)
        return {}

    def _delete_operation(self, request: Json, version: str) -> Json:
        operation = self._operation(request)
        if not operation.done:
            raise Refusal(Code.FAILED_PRECONDITION, f"Operation '{operation.name}' is not done.")
        del self.world.operations[operation.name]
        return {}


def _listed(field: str, found: list[tuple[str, Json]], request: Json) -> Json:
    expression = str(request.get("filter", ""))
    chosen = [item for item in found if not expression or pages.matches(item[1], expression)]
    views, token = pages.page(sorted(chosen, key=lambda item: item[0]), request)
    answer: Json = {field: views}
    if token:
        answer["nextPageToken"] = token
    return answer


def _one(found: list[tuple[str, Json]], request: Json) -> Json:
    name = str(request.get("name", ""))
    view = dict(found).get(name.rsplit("/", 1)[-1])
    if view is None:
        raise refusals.not_found(name)
    return view
