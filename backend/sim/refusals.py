"""How the service says no: google.rpc.Status with the texts that operators have met.

Texts are from research into public reports (field notes, sections 0 to 2); where none is known for a case, it is
worded after its nearest neighbour. An EID is made from the text, so that the same refusal has the same one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

Json = dict[str, Any]


class Code(IntEnum):
    """google.rpc.Code."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}
"""As google/rpc/code.proto maps them."""

DELETABLE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED")
"""States from which a queued resource may be deleted without force, in the order of the service's text."""


class Refusal(Exception):
    """A google.rpc.Status that ends a call."""

    def __init__(self, code: Code, message: str, details: Sequence[Json] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)

    def to_rest(self) -> Json:
        """The body of an HTTP answer."""
        error: Json = {"code": HTTP_STATUS[self.code], "message": self.message, "status": self.code.name}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    def to_status(self) -> Json:
        """google.rpc.Status as JSON, as operations carry it."""
        status: Json = {"code": int(self.code), "message": self.message}
        if self.details:
            status["details"] = list(self.details)
        return status


def eid(text: str) -> str:
    """The mark that support asks for."""
    return f"[EID: 0x{zlib.crc32(text.encode()) * 0x9E3779B97F4A7C15 % 2**64:016x}]"


def _resource_info(name: str) -> Json:
    return {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": name}


def not_found(name: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, f"Resource '{name}' was not found", [_resource_info(name)])


def already_exists(name: str) -> Refusal:
    return Refusal(Code.ALREADY_EXISTS, f"Resource '{name}' already exists", [_resource_info(name)])


def bad_request(text: str) -> Refusal:
    message = f"Cloud TPU received a bad request. {text}"
    return Refusal(Code.INVALID_ARGUMENT, f"{message} {eid(message)}")


def zone_unsupported(zone: str) -> Refusal:
    return bad_request(f'The requested zone "{zone}" is not supported.')


def type_unknown_in_zone(accelerator: str, zone: str) -> Refusal:
    return bad_request(
        f'The requested accelerator configuration for accelerator type, "{accelerator}", could not be found in the'
        f' zonal accelerator configurations for "{zone}".; the accelerator {accelerator} was not found in zone {zone}'
    )


def cannot_complete(text: str) -> Refusal:
    message = f"Cloud TPU was unable to complete the operation. {text}"
    return Refusal(Code.INVALID_ARGUMENT, f"{message} {eid(message)}")


def invalid_payload(name: str, where: str) -> Refusal:
    at = f" at '{where}'" if where else ""
    return Refusal(
        Code.INVALID_ARGUMENT, f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
    )


def project_denied(project: str) -> Refusal:
    return Refusal(
        Code.PERMISSION_DENIED,
        f"Read access to project '{project}' was denied: please check billing account associated and retry",
    )


def location_denied(zone: str, project: str) -> Refusal:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "LOCATION_POLICY_VIOLATED",
        "domain": "googleapis.com",
        "metadata": {"consumer": f"projects/{project}", "location": zone, "service": "tpu.googleapis.com"},
    }
    return Refusal(Code.PERMISSION_DENIED, f"Permission denied on 'locations/{zone}' (or it may not exist).", [info])


def wrong_state(method: str, state: str, allowed: Sequence[str]) -> Refusal:
    return Refusal(
        Code.FAILED_PRECONDITION,
        f"{method} is not supported when state is {state} (must be one of [{' '.join(allowed)}])",
    )


def quota_exceeded(quota: str, limit: int, scope: str, place: str, project_number: str) -> Refusal:
    """`scope` is "zone" or "region"."""
    violation = {
        "subject": f"project:{project_number}",
        "description": f"Quota '{quota}' exhausted. Limit {limit} in {scope} {place}",
    }
    return Refusal(
        Code.RESOURCE_EXHAUSTED,
        f"Quota limit '{quota}' has been exceeded. Limit: {limit} in {scope} {place}.",
        [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}],
    )


def rate_exceeded(limit: int, project_number: str) -> Refusal:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "RATE_LIMIT_EXCEEDED",
        "domain": "googleapis.com",
        "metadata": {
            "consumer": f"projects/{project_number}",
            "quota_limit": "CreateNodeRequestsPerMinutePerProject",
            "quota_limit_value": str(limit),
            "quota_metric": "tpu.googleapis.com/qps/create",
            "service": "tpu.googleapis.com",
        },
    }
    return Refusal(
        Code.RESOURCE_EXHAUSTED,
        "Quota exceeded for quota metric 'Create requests' and limit 'Maximum number of CreateNode requests per"
        f" minute' of service 'tpu.googleapis.com' for consumer 'project_number:{project_number}'.",
        [info],
    )


def no_capacity(zone: str) -> Refusal:
    message = (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are'
        " offered (see https://cloud.google.com/tpu/docs/regions)"
    )
    return Refusal(Code.RESOURCE_EXHAUSTED, f"{message} {eid(message)}")


def flex_unsupported(accelerator: str, zone: str) -> Refusal:
    return Refusal(
        Code.INVALID_ARGUMENT,
        f'FLEX_START provisioning model is not supported for accelerator type "{accelerator}" in location "{zone}"',
    )


def internal_error() -> Refusal:
    return Refusal(Code.INTERNAL, "an internal error has occurred")


def cancelled() -> Refusal:
    return Refusal(Code.CANCELLED, "The operation was cancelled.")
