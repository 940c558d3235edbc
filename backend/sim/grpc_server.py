"""The service over gRPC: generic handlers on the google-cloud-tpu library's own messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from backend.sim import wire
from backend.sim.api import ALPHA_ONLY, Api
from backend.sim.refusals import Json, Refusal
from backend.sim.views import CACHED_VIEWS

RESPONSES = {
    "ListNodes": "ListNodesResponse",
    "GetNode": "Node",
    "CreateNode": "Operation",
    "DeleteNode": "Operation",
    "StopNode": "Operation",
    "StartNode": "Operation",
    "UpdateNode": "Operation",
    "ListQueuedResources": "ListQueuedResourcesResponse",
    "GetQueuedResource": "QueuedResource",
    "CreateQueuedResource": "Operation",
    "DeleteQueuedResource": "Operation",
    "ResetQueuedResource": "Operation",
    "GenerateServiceIdentity": "GenerateServiceIdentityResponse",
    "ListAcceleratorTypes": "ListAcceleratorTypesResponse",
    "GetAcceleratorType": "AcceleratorType",
    "ListRuntimeVersions": "ListRuntimeVersionsResponse",
    "GetRuntimeVersion": "RuntimeVersion",
    "GetGuestAttributes": "GetGuestAttributesResponse",
    "ListReservations": "ListReservationsResponse",
    "SimulateMaintenanceEvent": "Operation",
    "PerformMaintenance": "Operation",
    "PerformMaintenanceQueuedResource": "Operation",
}
"""The 22 RPCs of v2alpha1; v2 lacks those of `ALPHA_ONLY`."""
MIXINS = {
    "google.longrunning.Operations": {
        "GetOperation": "Operation",
        "ListOperations": "ListOperationsResponse",
        "CancelOperation": "Empty",
        "DeleteOperation": "Empty",
    },
    "google.cloud.location.Locations": {"GetLocation": "Location", "ListLocations": "ListLocationsResponse"},
}
CACHED_LISTS = {"ListNodes": ("nodes", "Node"), "ListQueuedResources": ("queuedResources", "QueuedResource")}
"""Lists whose entries are converted once per change."""
_DETAILS = error_details_pb2.DESCRIPTOR
"""Keeps the error details registered: google.rpc.Status carries them by name."""

Handler = Callable[[Message, Any], Awaitable[Message]]


class GrpcService:
    """Handlers of every service for a grpc.aio server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._converted: dict[tuple[str, str], tuple[Json, Message]] = {}

    def handlers(self) -> tuple[grpc.GenericRpcHandler[Any, Any], ...]:
        """One generic handler per service."""
        services = []
        for version in wire.VERSIONS:
            methods = {
                method: self._handler(method, version, response)
                for method, response in RESPONSES.items()
                if version == "v2alpha1" or method not in ALPHA_ONLY
            }
            services.append(grpc.method_handlers_generic_handler(f"google.cloud.tpu.{version}.Tpu", methods))
        for service, mixed in MIXINS.items():
            methods = {method: self._handler(method, "v2alpha1", response) for method, response in mixed.items()}
            services.append(grpc.method_handlers_generic_handler(service, methods))
        return tuple(services)

    def _handler(self, method: str, version: str, response: str) -> grpc.RpcMethodHandler[Any, Any]:
        request_class = wire.message_class(version, f"{method}Request")

        async def handle(message: Message, context: Any) -> Message:
            try:
                body = await self._api.call(method, version, wire.from_message(message), rest=False)
            except Refusal as refusal:
                await _abort(context, refusal)
                raise
            if method in CACHED_LISTS:
                return self._list(method, version, response, body)
            return wire.to_message(version, response, body)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=request_class.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _list(self, method: str, version: str, response: str, body: Json) -> Message:
        field, entry = CACHED_LISTS[method]
        rest = {key: value for key, value in body.items() if key != field}
        message = wire.to_message(version, response, rest)
        entries = [self._entry(version, entry, view) for view in body[field]]
        target = getattr(message, "nodes" if field == "nodes" else "queued_resources")
        target.extend(entries)
        return message

    def _entry(self, version: str, entry: str, view: Json) -> Message:
        key = (version, view["name"])
        found = self._converted.get(key)
        if found is not None and found[0] is view:
            return found[1]
        message = wire.to_message(version, entry, view)
        if len(self._converted) >= CACHED_VIEWS:
            self._converted.clear()
        self._converted[key] = (view, message)
        return message


async def _abort(context: Any, refusal: Refusal) -> None:
    status = status_pb2.Status()
    json_format.ParseDict(refusal.to_status(), status)
    code = next(item for item in grpc.StatusCode if item.value[0] == int(refusal.code))
    trailing = (("grpc-status-details-bin", status.SerializeToString()),) if refusal.details else ()
    await context.abort(code, refusal.message, trailing)


async def serve(api: Api, port: int = 0) -> tuple[grpc.aio.Server, int]:
    """Starts on a loopback port (0: any) and returns the server and its port."""
    unlimited = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=unlimited)
    server.add_generic_rpc_handlers(GrpcService(api).handlers())
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, bound
