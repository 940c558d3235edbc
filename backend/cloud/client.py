"""What the console asks of Cloud TPU, in the model's words; google's libraries are loaded at the first call."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Mapping
from typing import Any

from backend.cloud import convert
from backend.cloud.channel import CALL_TIMEOUT_S, Channel
from backend.cloud.credentials import Credentials
from backend.cloud.errors import CloudError, explain
from backend.cloud.messages import locations, message, operations
from backend.cloud.pages import ItemCache, MalformedPage, split_page
from backend.cloud.requests import CreateRequest, Transport, carrier
from backend.context import Context
from backend.model import Operation, QueuedResource, Slice
from backend.outcomes import ExitCode, OperatorError

PAGE_SIZE = 1000
"""Asked of each list; the service may give fewer and a token."""

MAX_PAGES = 1000
"""A list that does not end is an error, not a wait."""

OPERATION_POLL_S = (0.5, 5.0)
"""Between looks at an operation: from, to."""

KEY_ATTEMPTS = 3
"""Tries to add an SSH key while others change the same metadata."""

_TPU = "google.cloud.tpu.{version}.Tpu"


class CloudClient:
    """One service. Every error of a call is a CloudError (exit code CLOUD), or an OperatorError about credentials."""

    def __init__(self, context: Context, *, credentials: Credentials | None = None) -> None:
        self.context = context
        self._channel = Channel(context, credentials)
        self._queued: dict[tuple[str, str], ItemCache[QueuedResource]] = {}
        self._nodes: dict[tuple[str, str], ItemCache[Slice]] = {}

    def prepare(self) -> None:
        """Loads google's libraries; blocks for about 0.15 s, so a console does it in a thread."""
        importlib.import_module("grpc.aio")
        for name in ("QueuedResource", "Node"):
            message(name)
        operations()

    async def close(self) -> None:
        await self._channel.close()

    async def rest_request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        action: str = "reach",
        subject: str = "Cloud TPU",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """One call of the REST API, e.g. `POST v2alpha1/projects/P/locations/Z/queuedResources`."""
        return await self._channel.rest(
            method, path, params=params, body=body, action=action, subject=subject, timeout_s=timeout_s
        )

    async def list_queued_resources(
        self, project: str, zone: str, *, attempts: int | None = None
    ) -> list[QueuedResource]:
        """Every request of a zone, not joined with nodes. Unchanged ones are the same objects as the last time."""
        cache = self._queued.get((project, zone))
        if cache is None:
            cache = self._queued[project, zone] = ItemCache(_queued_converter(project, zone))
        return await cache.take(await self._list("ListQueuedResources", project, zone, "queued resources", attempts))

    async def list_nodes(self, project: str, zone: str, *, attempts: int | None = None) -> list[Slice]:
        """Every node of a zone, as slices that don't know their place yet (see `convert.join`)."""
        cache = self._nodes.get((project, zone))
        if cache is None:
            cache = self._nodes[project, zone] = ItemCache(_node_converter(project, zone))
        return await cache.take(await self._list("ListNodes", project, zone, "nodes", attempts))

    async def get_queued_resource(self, project: str, zone: str, name: str) -> QueuedResource:
        request = message("GetQueuedResourceRequest")(name=_queued_name(project, zone, name))
        answer = await self._named("GetQueuedResource", request, name, "describe")
        return convert.queued_resource(message("QueuedResource").FromString(answer), project, zone)

    async def get_node(self, project: str, zone: str, node_id: str) -> Slice:
        request = message("GetNodeRequest")(name=_node_name(project, zone, node_id))
        answer = await self._named("GetNode", request, node_id, "describe")
        return convert.node(message("Node").FromString(answer), project, zone)

    async def describe(self, project: str, zone: str, name: str) -> dict[str, Any]:
        """The request as JSON with every field that the service sends (over REST: the library lacks some)."""
        return await self._raw_view(_queued_name(project, zone, name), name)

    async def describe_node(self, project: str, zone: str, node_id: str) -> dict[str, Any]:
        """The node as JSON with every field that the service sends."""
        return await self._raw_view(_node_name(project, zone, node_id), node_id)

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
            f"/{_TPU.format(version=way.version)}/CreateQueuedResource",
            raw,
            action="create",
            subject=request.name,
            routing=f"parent={request.parent}",
            read=False,
        )
        return convert.operation(operations().Operation.FromString(answer_bytes))

    async def delete_queued_resource(
        self, project: str, zone: str, name: str, *, force: bool, request_id: str = ""
    ) -> Operation:
        """Starts a delete. `force` also deletes running slices; without it the service refuses an ACTIVE request."""
        request = message("DeleteQueuedResourceRequest")(
            name=_queued_name(project, zone, name), force=force, request_id=request_id
        )
        return await self._operation("DeleteQueuedResource", request, name, "delete")

    async def reset_queued_resource(self, project: str, zone: str, name: str) -> Operation:
        """Restarts every worker of an ACTIVE request: memory is erased, disks stay, startup scripts run again."""
        request = message("ResetQueuedResourceRequest")(name=_queued_name(project, zone, name))
        return await self._operation("ResetQueuedResource", request, name, "reset")

    async def delete_node(self, project: str, zone: str, node_id: str) -> Operation:
        """Deletes a TPU VM that no request owns."""
        request = message("DeleteNodeRequest")(name=_node_name(project, zone, node_id))
        return await self._operation("DeleteNode", request, node_id, "delete")

    async def perform_maintenance(
        self, project: str, zone: str, name: str, node_ids: tuple[str, ...] = ()
    ) -> Operation:
        """Starts the pending maintenance of a request's slices now; all of them when none is named."""
        request = message("PerformMaintenanceQueuedResourceRequest")(
            name=_queued_name(project, zone, name), node_names=list(node_ids)
        )
        return await self._operation("PerformMaintenanceQueuedResource", request, name, "start the maintenance of")

    async def guest_attributes(self, item: Slice, query_path: str) -> list[dict[str, str]]:
        """Per worker, key -> value of its guest attributes under `query_path` (`hostkeys/`; empty: all)."""
        request = message("GetGuestAttributesRequest")(
            name=_node_name(item.project, item.zone, item.node_id), query_path=query_path
        )
        answer = await self._named("GetGuestAttributes", request, item.node_id, "read the guest attributes of")
        response = message("GetGuestAttributesResponse").FromString(answer)
        wanted = query_path.strip("/").partition("/")[0]
        return [
            {
                entry.key: entry.value
                for entry in each.query_value.items
                if entry.namespace.strip("/") in ("", wanted) or not wanted
            }
            for each in response.guest_attributes
        ]

    async def host_keys(self, item: Slice) -> dict[int, list[str]]:
        """Worker index -> its public host keys, `ssh-ed25519 AAAA...`; workers that published none are left out."""
        found = await self.guest_attributes(item, "hostkeys/")
        keys = {
            index: [f"{kind} {value.strip()}" for kind, value in sorted(each.items()) if value.strip()]
            for index, each in enumerate(found)
        }
        return {index: lines for index, lines in keys.items() if lines}

    async def hostnames(self, item: Slice) -> dict[int, str]:
        """Worker index -> its host name, as an IAP tunnel wants it. The attribute's namespace is not documented."""
        found = await self.guest_attributes(item, "")
        names = {index: each.get("hostname", "") for index, each in enumerate(found)}
        return {index: name for index, name in names.items() if name}

    async def add_ssh_key(self, item: Slice, user: str, public_key: str, *, timeout_s: float = 300.0) -> bool:
        """Adds `user:key` to the node's metadata, keeping every key that is there.

        The API replaces the whole map, so the node is read again afterwards; a key that another operator's
        patch has just swept away is added once more.

        Returns:
            False when it was there already.

        Raises:
            OperatorError: others kept changing the metadata; all CloudErrors.
        """
        line = f"{user}:{public_key.strip()}"
        name = _node_name(item.project, item.zone, item.node_id)
        for attempt in range(KEY_ATTEMPTS):
            answer = await self._named("GetNode", message("GetNodeRequest")(name=name), item.node_id, "describe")
            current = message("Node").FromString(answer)
            lines = [text for text in current.metadata.get("ssh-keys", "").splitlines() if text.strip()]
            if any(text.strip() == line for text in lines):
                return attempt > 0
            update = message("UpdateNodeRequest")()
            update.update_mask.paths.append("metadata")
            update.node.name = name
            for key, value in current.metadata.items():
                update.node.metadata[key] = value
            update.node.metadata["ssh-keys"] = "\n".join([*lines, line])
            operation = await self._operation(
                "UpdateNode", update, item.node_id, "add an SSH key to", routing=f"node.name={name}"
            )
            await self.wait_operation(operation, timeout_s)
        raise OperatorError(
            f"The SSH key could not be added to {item.node_id}: its metadata is changed by others all the time.",
            "Try again, or add the key to the project's metadata.",
            exit_code=ExitCode.CLOUD,
        )

    async def operations(self, project: str, zone: str) -> list[Operation]:
        request = operations().ListOperationsRequest(name=_parent(project, zone), page_size=PAGE_SIZE)
        method = "/google.longrunning.Operations/ListOperations"
        found: list[Operation] = []
        for _ in range(MAX_PAGES):
            answer = await self._channel.call(
                method, request, action="list the operations of", subject=zone, routing=f"name={request.name}"
            )
            response = operations().ListOperationsResponse.FromString(answer)
            found += [convert.operation(raw) for raw in response.operations]
            if not response.next_page_token:
                return found
            request.page_token = response.next_page_token
        raise _endless(zone, "operations")

    async def get_operation(self, path: str) -> Operation:
        """One operation by its full name."""
        request = operations().GetOperationRequest(name=path)
        answer = await self._channel.call(
            "/google.longrunning.Operations/GetOperation",
            request,
            action="describe",
            subject=convert.last_part(path),
            routing=f"name={path}",
        )
        return convert.operation(operations().Operation.FromString(answer))

    async def cancel_operation(self, path: str) -> None:
        """Asks the service to cancel an operation; it may end all the same."""
        await self._channel.call(
            "/google.longrunning.Operations/CancelOperation",
            operations().CancelOperationRequest(name=path),
            action="cancel",
            subject=convert.last_part(path),
            routing=f"name={path}",
            read=False,
        )

    async def wait_operation(self, operation: Operation, timeout_s: float) -> Operation:
        """Waits until it is done. A service that is unavailable meanwhile is asked again.

        Raises:
            CloudError: the operation ended with an error.
            OperatorError: it is not done after `timeout_s` (exit code TIMED_OUT); it goes on at the service.
        """
        pause, most = OPERATION_POLL_S
        try:
            async with asyncio.timeout(timeout_s):
                while not operation.done:
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                    pause = min(pause * 1.5, most)
                    try:
                        operation = await self.get_operation(operation.path)
                    except CloudError as error:
                        if not error.transient:
                            raise
                        pause = max(pause, error.retry_after_s or 0.0)
        except TimeoutError as error:
            raise OperatorError(
                f"The operation {operation.name} is not done after {timeout_s:.0f} s; it goes on at the service.",
                "Look with `slicetower operations list`.",
                exit_code=ExitCode.TIMED_OUT,
            ) from error
        if operation.error is not None:
            raise explain(
                operation.error.code,
                operation.error.message,
                action=operation.verb or "finish the operation on",
                subject=convert.last_part(operation.target) or operation.name,
            )
        return operation

    async def accelerator_types(self, project: str, zone: str) -> list[str]:
        """The type strings that the zone lists; listed is not the same as in stock."""
        pages = await self._list("ListAcceleratorTypes", project, zone, "accelerator types", None)
        raw = [message("AcceleratorType").FromString(data) for page in pages for data in page]
        return sorted({item.type_ or convert.last_part(item.name) for item in raw}, key=convert.natural)

    async def runtime_versions(self, project: str, zone: str) -> list[str]:
        pages = await self._list("ListRuntimeVersions", project, zone, "runtime versions", None)
        raw = [message("RuntimeVersion").FromString(data) for page in pages for data in page]
        return sorted({item.version or convert.last_part(item.name) for item in raw}, key=convert.natural)

    async def reservations(self, project: str, zone: str) -> list[str]:
        """Short names of the zone's reservations."""
        pages = await self._list("ListReservations", project, zone, "reservations", None)
        raw = [message("Reservation").FromString(data) for page in pages for data in page]
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
            response = locations().ListLocationsResponse.FromString(answer)
            found += [item.location_id or convert.last_part(item.name) for item in response.locations]
            if not response.next_page_token:
                return sorted(found)
            request.page_token = response.next_page_token
        raise _endless(project, "locations")

    async def _list(self, method: str, project: str, zone: str, what: str, attempts: int | None) -> list[list[bytes]]:
        parent = _parent(project, zone)
        request = message(f"{method}Request")(parent=parent, page_size=PAGE_SIZE)
        pages: list[list[bytes]] = []
        for _ in range(MAX_PAGES):
            answer = await self._tpu_call(
                method, request, f"list the {what} of", f"{project}, {zone}", f"parent={parent}", attempts=attempts
            )
            try:
                items, token = split_page(answer)
            except MalformedPage as error:
                raise OperatorError(
                    f"The list of {what} of {zone} can't be read: {error}.",
                    "Check that the endpoint is Cloud TPU's.",
                    exit_code=ExitCode.CLOUD,
                ) from error
            pages.append(items)
            if not token:
                return pages
            request.page_token = token
        raise _endless(zone, what)

    async def _tpu_call(
        self,
        method: str,
        request: Any,
        action: str,
        subject: str,
        routing: str,
        *,
        read: bool = True,
        attempts: int | None = None,
    ) -> bytes:
        options = {} if attempts is None else {"attempts": attempts}
        return await self._channel.call(
            f"/{_TPU.format(version='v2alpha1')}/{method}",
            request,
            action=action,
            subject=subject,
            routing=routing,
            read=read,
            **options,
        )

    async def _named(self, method: str, request: Any, subject: str, action: str) -> bytes:
        return await self._tpu_call(method, request, action, subject, f"name={request.name}")

    async def _operation(self, method: str, request: Any, subject: str, action: str, routing: str = "") -> Operation:
        routing = routing or f"name={request.name}"
        answer = await self._tpu_call(method, request, action, subject, routing, read=False)
        return convert.operation(operations().Operation.FromString(answer))

    async def _raw_view(self, name: str, subject: str) -> dict[str, Any]:
        return await self.rest_request("GET", f"v2alpha1/{name}", action="describe", subject=subject)


def _queued_converter(project: str, zone: str) -> Any:
    kind = message("QueuedResource")
    return lambda data: convert.queued_resource(kind.FromString(data), project, zone)


def _node_converter(project: str, zone: str) -> Any:
    kind = message("Node")
    return lambda data: convert.node(kind.FromString(data), project, zone)


def _parent(project: str, zone: str) -> str:
    return f"projects/{project}/locations/{zone}"


def _queued_name(project: str, zone: str, name: str) -> str:
    return f"{_parent(project, zone)}/queuedResources/{name}"


def _node_name(project: str, zone: str, node_id: str) -> str:
    return f"{_parent(project, zone)}/nodes/{node_id}"


def _endless(zone: str, what: str) -> OperatorError:
    return OperatorError(
        f"The list of {what} of {zone} does not end after {MAX_PAGES} pages.",
        "Check that the endpoint is Cloud TPU's.",
        exit_code=ExitCode.CLOUD,
    )
