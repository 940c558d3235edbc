"""What the console asks of Cloud TPU, in the model's words; google's libraries are loaded at the first call."""

from __future__ import annotations

import importlib
from typing import Any

from backend.cloud import convert
from backend.cloud.calls import MAX_PAGES, PAGE_SIZE, TPU_SERVICE, endless, node_name, parsed, queued_name
from backend.cloud.credentials import Credentials
from backend.cloud.flex import Models
from backend.cloud.login_calls import LoginCalls
from backend.cloud.messages import locations, message, operations
from backend.cloud.pages import ItemCache
from backend.cloud.requests import CreateRequest, Transport, carrier
from backend.context import Context
from backend.model import Operation, QueuedResource, Slice


class CloudClient(LoginCalls):
    """One service. Every error of a call is a CloudError (exit code CLOUD), or an OperatorError about credentials."""

    def __init__(self, context: Context, *, credentials: Credentials | None = None) -> None:
        super().__init__(context, credentials=credentials)
        self._queued: dict[tuple[str, str], ItemCache[QueuedResource]] = {}
        self._nodes: dict[tuple[str, str], ItemCache[Slice]] = {}
        self._models = Models(lambda path, params: self.rest_request("GET", path, params, action="list"))

    def prepare(self) -> None:
        """Loads google's libraries; blocks for about 0.15 s, so a console does it in a thread."""
        importlib.import_module("grpc.aio")
        for name in ("QueuedResource", "Node"):
            message(name)
        operations()

    async def list_queued_resources(
        self, project: str, zone: str, *, attempts: int | None = None
    ) -> list[QueuedResource]:
        """Every request of a zone, not joined with nodes. Unchanged ones are the same objects as the last time."""
        cache = self._queued.get((project, zone))
        if cache is None:
            cache = self._queued[project, zone] = ItemCache(_queued_converter(project, zone))
        found = await cache.take(await self._list("ListQueuedResources", project, zone, "queued resources", attempts))
        return await self._models.tell((project, zone), found)

    async def list_nodes(self, project: str, zone: str, *, attempts: int | None = None) -> list[Slice]:
        """Every node of a zone, as slices that don't know their place yet (see `convert.with_slices`)."""
        cache = self._nodes.get((project, zone))
        if cache is None:
            cache = self._nodes[project, zone] = ItemCache(_node_converter(project, zone))
        return await cache.take(await self._list("ListNodes", project, zone, "nodes", attempts))

    async def get_queued_resource(self, project: str, zone: str, name: str) -> QueuedResource:
        request = message("GetQueuedResourceRequest")(name=queued_name(project, zone, name))
        answer = await self._named("GetQueuedResource", request, name, "describe")
        return convert.queued_resource(parsed(message("QueuedResource"), answer), project, zone)

    async def describe(self, project: str, zone: str, name: str) -> dict[str, Any]:
        """The request as JSON with every field that the service sends (over REST: the library lacks some)."""
        return await self._raw_view(queued_name(project, zone, name), name)

    async def describe_node(self, project: str, zone: str, node_id: str) -> dict[str, Any]:
        """The node as JSON with every field that the service sends."""
        return await self._raw_view(node_name(project, zone, node_id), node_id)

    async def create_queued_resource(self, request: CreateRequest, *, request_id: str) -> Operation:
        """Sends a create over the way that carries all of its options. It ends when the request is queued.

        Args:
            request_id: A UUID; the service takes a second create of the same id for the first.
        """
        from backend.cloud.encoding import to_json

        way = carrier(request)
        body = to_json(request, way.version)
        if way.transport is Transport.REST:
            answer = await self.rest_request(
                "POST",
                f"{way.version}/{request.parent}/queuedResources",
                {"queuedResourceId": request.name, "requestId": request_id},
                body,
                action="create",
                subject=request.name,
            )
            return convert.operation_from_json(answer)
        from google.protobuf import json_format

        raw = message("CreateQueuedResourceRequest", way.version)(
            parent=request.parent, queued_resource_id=request.name, request_id=request_id
        )
        json_format.ParseDict(body, raw.queued_resource)
        answer_bytes = await self._channel.call(
            f"/{TPU_SERVICE.format(version=way.version)}/CreateQueuedResource",
            raw,
            action="create",
            subject=request.name,
            routing=f"parent={request.parent}",
            read=False,
        )
        return convert.operation(parsed(operations().Operation, answer_bytes))

    async def delete_queued_resource(
        self, project: str, zone: str, name: str, *, force: bool, request_id: str = ""
    ) -> Operation:
        """Starts a delete. `force` also deletes running slices; without it the service refuses an ACTIVE request."""
        request = message("DeleteQueuedResourceRequest")(
            name=queued_name(project, zone, name), force=force, request_id=request_id
        )
        return await self._operation("DeleteQueuedResource", request, name, "delete")

    async def reset_queued_resource(self, project: str, zone: str, name: str) -> Operation:
        """Restarts every worker of an ACTIVE request: memory is erased, disks stay, startup scripts run again."""
        request = message("ResetQueuedResourceRequest")(name=queued_name(project, zone, name))
        return await self._operation("ResetQueuedResource", request, name, "reset")

    async def delete_node(self, project: str, zone: str, node_id: str) -> Operation:
        """Deletes a TPU VM that no request owns."""
        request = message("DeleteNodeRequest")(name=node_name(project, zone, node_id))
        return await self._operation("DeleteNode", request, node_id, "delete")

    async def perform_maintenance(
        self, project: str, zone: str, name: str, node_ids: tuple[str, ...] = ()
    ) -> Operation:
        """Starts the pending maintenance of a request's slices now; all of them when none is named."""
        request = message("PerformMaintenanceQueuedResourceRequest")(
            name=queued_name(project, zone, name), node_names=list(node_ids)
        )
        return await self._operation("PerformMaintenanceQueuedResource", request, name, "start the maintenance of")

    async def accelerator_types(self, project: str, zone: str) -> list[str]:
        """The type strings that the zone lists; listed is not the same as in stock."""
        pages = await self._list("ListAcceleratorTypes", project, zone, "accelerator types", None)
        raw = [parsed(message("AcceleratorType"), data) for page in pages for data in page]
        return sorted({item.type_ or convert.last_part(item.name) for item in raw}, key=convert.natural)

    async def runtime_versions(self, project: str, zone: str) -> list[str]:
        pages = await self._list("ListRuntimeVersions", project, zone, "runtime versions", None)
        raw = [parsed(message("RuntimeVersion"), data) for page in pages for data in page]
        return sorted({item.version or convert.last_part(item.name) for item in raw}, key=convert.natural)

    async def reservations(self, project: str, zone: str) -> list[str]:
        """Short names of the zone's reservations."""
        pages = await self._list("ListReservations", project, zone, "reservations", None)
        raw = [parsed(message("Reservation"), data) for page in pages for data in page]
        return sorted(convert.last_part(item.name) for item in raw)

    async def locations(self, project: str) -> list[str]:
        """The zones that the service knows for a project."""
        request = locations().ListLocationsRequest(name=f"projects/{project}", page_size=PAGE_SIZE)
        found: list[str] = []
        for _ in range(MAX_PAGES):
            answer = await self._channel.call(
                "/google.cloud.location.Locations/ListLocations",
                request,
                action="list the zones of",
                subject=project,
                routing=f"name={request.name}",
            )
            response = parsed(locations().ListLocationsResponse, answer)
            found += [item.location_id or convert.last_part(item.name) for item in response.locations]
            if not response.next_page_token:
                return sorted(found)
            request.page_token = response.next_page_token
        raise endless(project, "locations")

    async def _raw_view(self, name: str, subject: str) -> dict[str, Any]:
        return await self.rest_request("GET", f"v2alpha1/{name}", action="describe", subject=subject)


def _queued_converter(project: str, zone: str) -> Any:
    kind = message("QueuedResource")
    return lambda data: convert.queued_resource(parsed(kind, data), project, zone)


def _node_converter(project: str, zone: str) -> Any:
    kind = message("Node")
    return lambda data: convert.node(parsed(kind, data), project, zone)
