"""A gRPC server in the test's own loop that speaks the few calls a client makes, and fails on demand.

Not a simulator: it holds what a test put in, nothing moves by itself. The real messages travel over a real socket.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import grpc

from backend.cloud.messages import locations, message, operations
from backend.context import Context

CREATED = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@dataclass
class Fault:
    code: grpc.StatusCode
    text: str
    times: int
    retry_delay_s: float | None
    parent: str


class FakeCloud:
    """What is listed by parent, what was asked, and what will fail."""

    def __init__(self) -> None:
        self.queued: dict[str, list[Any]] = defaultdict(list)
        self.nodes: dict[str, list[Any]] = defaultdict(list)
        self.guest: list[dict[str, str]] = []
        self.operation: Any = operations().Operation(name="projects/p/locations/z/operations/operation-1", done=True)
        self.calls: Counter[str] = Counter()
        self.requests: list[tuple[str, Any]] = []
        self.metadata: dict[str, str] = {}
        self.page_size = 1000
        self.hold: asyncio.Event | None = None
        self.before_update: Callable[[], None] = lambda: None
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self.endpoint = ""

    def fail(
        self,
        method: str,
        code: grpc.StatusCode,
        text: str = "",
        *,
        times: int = 1_000_000,
        retry_delay_s: float | None = None,
        parent: str = "",
    ) -> None:
        self._faults[method].append(Fault(code, text, times, retry_delay_s, parent))

    def heal(self) -> None:
        self._faults.clear()

    def context(self, *zones: str, **changes: Any) -> Context:
        return Context(
            name="fake",
            project="p",
            zones=zones or ("z",),
            endpoint=self.endpoint,
            rest_endpoint="http://127.0.0.1:9",
            transport="insecure",
            credentials="none",
            **changes,
        )

    async def answer(self, method: str, request: Any, context: Any) -> Any:
        self.calls[method] += 1
        self.requests.append((method, request))
        self.metadata = dict(context.invocation_metadata())
        await self._maybe_fail(method, request, context)
        if self.hold is not None:
            await self.hold.wait()
        parent = getattr(request, "parent", "")
        name = getattr(request, "name", "")
        match method:
            case "ListQueuedResources":
                return self._page(
                    message("ListQueuedResourcesResponse"), "queued_resources", self.queued[parent], request
                )
            case "ListNodes":
                return self._page(message("ListNodesResponse"), "nodes", self.nodes[parent], request)
            case "GetNode" | "GetQueuedResource":
                items = self.nodes if method == "GetNode" else self.queued
                for item in items[name.rpartition("/")[0].rpartition("/")[0]]:
                    if item.name == name:
                        return item
                await context.abort(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
            case "UpdateNode":
                self.before_update()
                for item in self.nodes[request.node.name.rpartition("/nodes/")[0]]:
                    if item.name == request.node.name:
                        item.metadata.clear()
                        item.metadata.update(request.node.metadata)
                return self.operation
            case "GetGuestAttributes":
                namespace = request.query_path.strip("/").partition("/")[0]
                response = message("GetGuestAttributesResponse")()
                for attributes in self.guest:
                    value = response.guest_attributes.add().query_value
                    for key, text in attributes.items():
                        value.items.add(namespace=namespace, key=key, value=text)
                return response
            case "ListOperations":
                return operations().ListOperationsResponse(operations=[self.operation])
            case "CancelOperation":
                from google.protobuf import empty_pb2

                return empty_pb2.Empty()
            case "ListLocations":
                return locations().ListLocationsResponse(locations=[locations().Location(location_id="us-west4-a")])
            case "ListAcceleratorTypes":
                kinds = ("v5litepod-16", "v5litepod-8")
                made = [
                    message("AcceleratorType")(name=f"{parent}/acceleratorTypes/{kind}", type_=kind) for kind in kinds
                ]
                return message("ListAcceleratorTypesResponse")(accelerator_types=made)
            case _:
                return self.operation
        raise AssertionError(method)

    async def _maybe_fail(self, method: str, request: Any, context: Any) -> None:
        for fault in self._faults[method]:
            if fault.times <= 0 or (fault.parent and fault.parent != getattr(request, "parent", "")):
                continue
            fault.times -= 1
            if fault.retry_delay_s is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", _retry_info(fault)),))
            await context.abort(fault.code, fault.text)

    def _page(self, response: Any, field: str, items: list[Any], request: Any) -> Any:
        start = int(request.page_token or 0)
        size = min(request.page_size or 100, self.page_size)
        token = str(start + size) if start + size < len(items) else ""
        return response(**{field: items[start : start + size], "next_page_token": token})


def _retry_info(fault: Fault) -> bytes:
    from google.protobuf import any_pb2, duration_pb2
    from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

    info = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=int(fault.retry_delay_s or 0)))
    packed = any_pb2.Any()
    packed.Pack(info)
    status = status_pb2.Status(code=fault.code.value[0], message=fault.text, details=[packed])
    serialized: bytes = status.SerializeToString()
    return serialized


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, fake: FakeCloud) -> None:
        self._fake = fake

    def service(self, details: Any) -> Any:
        service, _, method = details.method.lstrip("/").rpartition("/")
        if "longrunning" in service:
            request = getattr(operations(), f"{method}Request")
        elif "location" in service:
            request = locations().ListLocationsRequest
        else:
            request = message(f"{method}Request")

        async def behaviour(raw: Any, context: Any) -> Any:
            return await self._fake.answer(method, raw, context)

        handler: Callable[[Any, Any], Awaitable[Any]] = behaviour
        return grpc.unary_unary_rpc_method_handler(
            handler,
            request_deserializer=request.FromString,
            response_serializer=lambda item: item.SerializeToString(),
        )


@asynccontextmanager
async def fake_cloud(credentials: Any = None) -> AsyncIterator[FakeCloud]:
    """A running one; with server credentials it speaks TLS."""
    fake = FakeCloud()
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers((_Handlers(fake),))
    any_port = "127.0.0.1:0"
    secure = credentials is not None
    port = server.add_secure_port(any_port, credentials) if secure else server.add_insecure_port(any_port)
    fake.endpoint = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(grace=0)


def parent(zone: str = "z", project: str = "p") -> str:
    return f"projects/{project}/locations/{zone}"


def raw_request(
    name: str,
    state: str = "ACTIVE",
    *,
    slices: int = 1,
    accelerator_type: str = "v5litepod-16",
    zone: str = "z",
    created: datetime | None = CREATED,
) -> Any:
    """A raw QueuedResource as the service lists it: node specs expanded to one per slice."""
    raw = message("QueuedResource")(name=f"{parent(zone)}/queuedResources/{name}")
    raw.state.state = state
    if created is not None:
        raw.create_time.FromDatetime(created.replace(tzinfo=None))
    for index in range(slices):
        spec = raw.tpu.node_spec.add(node_id=f"{name}-{index}")
        spec.node.accelerator_type = accelerator_type
        spec.node.runtime_version = "v2-alpha-tpuv5-lite"
    raw.spot.SetInParent()
    return raw


def raw_node(
    node_id: str,
    owner: str = "",
    state: str = "READY",
    *,
    workers: int = 4,
    uid: int = 1,
    health: str = "HEALTHY",
    zone: str = "z",
) -> Any:
    raw = message("Node")(name=f"{parent(zone)}/nodes/{node_id}", state=state, id=uid, health=health)
    raw.accelerator_type = "v5litepod-16"
    if owner:
        raw.queued_resource = f"projects/123/locations/{zone}/queuedResources/{owner}"
    for index in range(workers):
        endpoint = raw.network_endpoints.add(ip_address=f"10.0.{index // 250}.{index % 250}", port=8470)
        endpoint.access_config.external_ip = f"192.0.2.{index % 250}"
    return raw
