"""Between JSON and the google-cloud-tpu library's own messages, as strictly as the service reads it.

Everything inside the simulator is JSON in the service's REST form (camelCase, int64 as strings, RFC 3339). A call
over gRPC is turned into it and its answer back; a call over REST is checked against the same messages, so that an unknown
field or a wrong type is refused on both. Fields that the service has and the library's release lacks are kept aside.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format
from google.protobuf.message import Message

from backend.sim import refusals
from backend.sim.refusals import Code, Json, Refusal

VERSIONS = ("v2alpha1", "v2")
UNKNOWN_TO_LIBRARY: dict[str, frozenset[str]] = {
    "QueuedResource": frozenset({"provisioningModel", "runDuration", "trafficConfig"}),
    "Node": frozenset(
        [
            "bootDisk",
            "useTpuVm",
            "confidentialInstanceConfig",
            "bootDiskConfig",
            "upcomingMaintenance",
            "autocheckpointEnabled",
        ]
    ),
    "SchedulingConfig": frozenset({"provisioningModel", "reservationName", "terminationTimestamp"}),
    "BootDiskConfig": frozenset(
        {"diskSizeGb", "sourceImage", "storagePool", "provisionedIops", "provisionedThroughput"}
    ),
    "AttachedDisk": frozenset({"workerIds"}),
}
"""Fields by message that gcloud 578 sends or the service answers with, and google-cloud-tpu 1.28 does not know."""
_OTHERS: dict[str, type[Message]] = {
    "Operation": operations_pb2.Operation,
    "GetOperationRequest": operations_pb2.GetOperationRequest,
    "ListOperationsRequest": operations_pb2.ListOperationsRequest,
    "ListOperationsResponse": operations_pb2.ListOperationsResponse,
    "CancelOperationRequest": operations_pb2.CancelOperationRequest,
    "DeleteOperationRequest": operations_pb2.DeleteOperationRequest,
    "GetLocationRequest": locations_pb2.GetLocationRequest,
    "ListLocationsRequest": locations_pb2.ListLocationsRequest,
    "ListLocationsResponse": locations_pb2.ListLocationsResponse,
    "Location": locations_pb2.Location,
    "Empty": empty_pb2.Empty,
}


@cache
def message_class(version: str, name: str) -> type[Message]:
    """The raw protobuf class of a message, by the API's version and the message's name."""
    if name in _OTHERS:
        return _OTHERS[name]
    module = importlib.import_module(f"google.cloud.tpu_{version}.types")
    raw: type[Message] = type(getattr(module, name).pb(getattr(module, name)()))
    return raw


def from_message(message: Message) -> Json:
    """A request as it came over gRPC."""
    answer: Json = json_format.MessageToDict(message)
    return answer


def to_message(version: str, name: str, body: Json) -> Message:
    """An answer for gRPC; what the library does not know is left out, as its own parser would."""
    message: Message = json_format.ParseDict(body, message_class(version, name)(), ignore_unknown_fields=True)
    return message


def strict(version: str, name: str, body: Json) -> Json:
    """A request that came over REST, in snake_case or camelCase, as the one form.

    Raises:
        Refusal: INVALID_ARGUMENT, for an unknown field or a value of the wrong type.
    """
    message = message_class(version, name)()
    known, extra = _split(body, message.DESCRIPTOR, "")
    try:
        json_format.ParseDict(known, message)
    except json_format.ParseError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"Invalid JSON payload received. {error}") from None
    answer: Json = json_format.MessageToDict(message)
    _merge(answer, extra)
    return answer


def camel(name: str) -> str:
    """`node_spec` as `nodeSpec`; anything else unchanged."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _split(body: object, descriptor: Any, where: str) -> tuple[Json, Json]:
    if not isinstance(body, dict):
        raise Refusal(Code.INVALID_ARGUMENT, f"Invalid value at '{where}': a message was expected, not {body!r}.")
    known: Json = {}
    extra: Json = {}
    fields: dict[str, Any] = {}
    for field in descriptor.fields:
        fields[field.json_name] = field
        fields[field.name] = field
        fields[camel(field.name.rstrip("_"))] = field  # proto-plus calls a field `type_` that is `type` on the wire
    for key, value in body.items():
        found = fields.get(key)
        if found is None:
            if camel(key) not in UNKNOWN_TO_LIBRARY.get(descriptor.name, ()):
                raise refusals.invalid_payload(key, where)
            extra[camel(key)] = value
            continue
        name = found.json_name
        inner = found.message_type
        if inner is None or inner.GetOptions().map_entry or not inner.full_name.startswith("google.cloud.tpu."):
            known[name] = value
        elif isinstance(value, list):
            pairs = [_split(item, inner, f"{_join(where, found.name)}[{i}]") for i, item in enumerate(value)]
            known[name] = [pair[0] for pair in pairs]
            if any(pair[1] for pair in pairs):
                extra[name] = [pair[1] for pair in pairs]
        elif isinstance(value, dict):
            known[name], more = _split(value, inner, _join(where, found.name))
            if more:
                extra[name] = more
        else:
            known[name] = value
    return known, extra


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _merge(target: Json, extra: Json) -> None:
    for key, value in extra.items():
        present: Any = target.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value)
        elif isinstance(value, list) and isinstance(present, list) and len(value) == len(present):
            for own, more in zip(present, value, strict=True):
                if isinstance(own, dict) and isinstance(more, dict):
                    _merge(own, more)
        else:
            target[key] = value
