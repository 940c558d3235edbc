"""The error texts of Cloud TPU that operators have met, each with its meaning and its cure: data for `errors`.

Sources: research, field notes, section 1a, and the stored payloads in tests/fixtures/api.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


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


HTTP_TO_CODE = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    412: Code.FAILED_PRECONDITION,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


class ErrorKind(StrEnum):
    """What went wrong, in the words that decide what to do next."""

    QUOTA = "quota"
    NEVER_GRANTED = "quota-never-granted"
    SERVING_QUOTA = "serving-quota"
    RATE = "rate"
    CAPACITY = "capacity"
    RESERVATION = "reservation"
    ADDRESSES = "addresses"
    INTERNAL = "internal"
    PERMISSION = "permission"
    API_DISABLED = "api-disabled"
    BILLING = "billing"
    CREDENTIALS = "credentials"
    NOT_FOUND = "not-found"
    ALREADY_EXISTS = "already-exists"
    STATE_GATE = "state-gate"
    ZONE = "zone"
    TYPE_IN_ZONE = "type-in-zone"
    FLEX = "flex-start"
    BAD_REQUEST = "bad-request"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNIMPLEMENTED = "unimplemented"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Rule:
    """One known text. `what` and `cure` may use {action} {subject} {limit} {where} and the pattern's groups."""

    kind: ErrorKind
    pattern: str
    what: str
    cure: str
    codes: tuple[int, ...] = ()


_EXHAUSTED = (Code.RESOURCE_EXHAUSTED,)

RULES: tuple[Rule, ...] = (
    Rule(
        ErrorKind.STATE_GATE,
        r"DeleteQueuedResource is not supported when state is (?P<state>\w+)",
        "Could not {action} {subject} yet: the API does not delete a request that is {state}.",
        "{state_cure}",
    ),
    Rule(
        ErrorKind.STATE_GATE,
        r"(?P<call>\w*Reset\w*) is not supported when state is (?P<state>\w+)",
        "Could not {action} {subject}: the API resets only what is ACTIVE, and it is {state}.",
        "A SUSPENDED or FAILED request never comes back: recreate it.",
    ),
    Rule(
        ErrorKind.STATE_GATE,
        r"not supported when state is (?P<state>\w+)",
        "Could not {action} {subject}: the API refuses that while the state is {state}.",
        "Wait for the next state and try again.",
    ),
    Rule(
        ErrorKind.API_DISABLED,
        r"SERVICE_DISABLED|has not been used in project|API has not been used|it is disabled",
        "Could not {action} {subject}: the Cloud TPU API is not enabled in this project.",
        "gcloud services enable tpu.googleapis.com, then wait a minute or two.",
    ),
    Rule(
        ErrorKind.BILLING,
        r"NO_VALID_BILLING_ACCOUNT|BILLING_DISABLED|billing",
        "Could not {action} {subject}: the project has no working billing account; that takes the TPU API down.",
        "Check it: gcloud billing projects describe PROJECT. Nothing else helps until billing is on.",
        (Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT),
    ),
    Rule(
        ErrorKind.ADDRESSES,
        r"IN_USE_ADDRESSES",
        "Could not {action} {subject}: the region's quota of external addresses is used up; every worker takes one.",
        "Create with --internal-ips (Private Google Access for Google's APIs, Cloud NAT for the rest), or ask for "
        "more IN_USE_ADDRESSES quota of compute.googleapis.com.",
    ),
    Rule(
        ErrorKind.RATE,
        r"requests per minute|qps|[Rr]ate limit|RATE_LIMIT_EXCEEDED|per-minute|Read requests|Write requests",
        "Could not {action} {subject}: too many calls a minute in this project.",
        "Wait a minute. The create rate is shared by everybody in the project; slicetower sends at most 60 a minute.",
        _EXHAUSTED,
    ),
    Rule(
        ErrorKind.SERVING_QUOTA,
        r"(?P<quota>TPU\w*Serving\w*)(?P<rest>.*)",
        "Could not {action} {subject}: {quota}{limit}. Types of this size count under the small 'Serving' quota, in "
        "any tier.",
        "Use a type that is not counted there (v5litepod-4, or v5litepod-16 and larger), or ask for more of it.",
        _EXHAUSTED,
    ),
    Rule(
        ErrorKind.NEVER_GRANTED,
        r"(?:[Qq]uota (?:limit )?)'(?P<quota>[^']+)'.*Limit:? 0(?:,0)*(?![\d.])",
        "Could not {action} {subject}: this project was never granted {quota} (limit 0{where}).",
        "Ask for that quota, or use a tier, type or zone where the project has some.",
        _EXHAUSTED,
    ),
    Rule(
        ErrorKind.QUOTA,
        r"(?:[Qq]uota (?:limit )?)'(?P<quota>[^']+)'",
        "Could not {action} {subject}: the quota {quota} is used up{limit}.",
        "Requests that are FAILED or SUSPENDED still hold quota: `slicetower qr cleanup` shows and deletes them. "
        "Else use another zone or tier, or ask for more.",
        _EXHAUSTED,
    ),
    Rule(
        ErrorKind.RESERVATION,
        r"[Ii]nsufficient reserved capacity",
        "Could not {action} {subject}: no capacity of that reservation is left. The service says this also to "
        "requests that named no reservation.",
        "With --reserved: see what holds the reservation (all sizes share it). Without: this type is not to be had "
        "on demand here; try --spot or another zone.",
    ),
    Rule(
        ErrorKind.RESERVATION,
        r"[Rr]eservation(?: \S+)? not found",
        "Could not {action} {subject}: no such reservation. The service says this also to plain on-demand requests "
        "of a type that the project may not have on demand.",
        "List them (gcloud alpha compute tpus reservations list), or ask with --spot.",
    ),
    Rule(
        ErrorKind.CAPACITY,
        r"no more capacity in the zone|[Ss]tockout|ZONE_RESOURCE_POOL_EXHAUSTED|not enough (?:resources|capacity)",
        "Could not {action} {subject}: the zone has no more capacity now. Quota is not the reason.",
        "Try another zone or a smaller type, or leave a queued resource waiting.",
    ),
    Rule(
        ErrorKind.FLEX,
        r"FLEX_START provisioning model is not supported for accelerator type \"(?P<type>[^\"]*)\" in location "
        r"\"(?P<where_>[^\"]*)\"",
        "Could not {action} {subject}: {where_} offers no flex-start for {type}, whatever the quota says.",
        "Use another zone for flex-start, or another tier.",
    ),
    Rule(
        ErrorKind.TYPE_IN_ZONE,
        r"could not be found in the zonal accelerator configurations|accelerator (?P<type>\S+) was not found in zone",
        "Could not {action} {subject}: the zone does not have this accelerator type.",
        "See what it has: gcloud compute tpus accelerator-types list --zone=ZONE.",
    ),
    Rule(
        ErrorKind.TYPE_IN_ZONE,
        r"Accelerator type (?P<type>\S+) as preemptible \((?P<p>\w+)\) and reserved \((?P<r>\w+)\) is not available",
        "Could not {action} {subject}: the zone does not offer {type} in this tier (preemptible {p}, reserved {r}).",
        "Use another tier or zone.",
    ),
    Rule(
        ErrorKind.ZONE,
        r"requested zone \"?(?P<where_>[\w-]+)\"? is not supported|Location \S+ is not found|"
        r"zone .* (?:invalid|unknown)",
        "Could not {action} {subject}: there is no Cloud TPU in that zone.",
        "gcloud compute tpus locations list shows where it is.",
    ),
    Rule(
        ErrorKind.BAD_REQUEST,
        r"unable to complete the operation\. Please try again, or contact support",
        "Could not {action} {subject}: the service refused it without a reason. A frequent one: several slices of a "
        "type before v4.",
        "Check type, runtime and tier; Multislice needs v4 or later. If they are right, give support the EID.",
        (Code.INVALID_ARGUMENT,),
    ),
    Rule(
        ErrorKind.PERMISSION,
        r"Read access to project '(?P<project>[^']*)' was denied",
        "Could not {action} {subject}: this account may not read project {project}.",
        "Check project, zone and account: gcloud config list, gcloud auth list.",
    ),
    Rule(
        ErrorKind.CREDENTIALS,
        r"ACCESS_TOKEN_EXPIRED|invalid authentication credentials|Reauthentication|invalid_grant|"
        r"CREDENTIALS_MISSING|Request had invalid|missing required authentication",
        "Could not {action} {subject}: the credentials are missing or have expired.",
        "gcloud auth application-default login",
    ),
)

BY_CODE: dict[int, tuple[ErrorKind, str, str]] = {
    Code.CANCELLED: (ErrorKind.CANCELLED, "Could not {action} {subject}: it was cancelled.", ""),
    Code.INVALID_ARGUMENT: (
        ErrorKind.BAD_REQUEST,
        "Could not {action} {subject}: the service calls the request wrong: {text}",
        "Correct what it names; the preview shows what is sent.",
    ),
    Code.DEADLINE_EXCEEDED: (
        ErrorKind.TIMEOUT,
        "No answer in time when asked to {action} {subject}; it may have been done all the same.",
        "Look before trying again: `slicetower qr list`.",
    ),
    Code.NOT_FOUND: (
        ErrorKind.NOT_FOUND,
        "Could not {action} {subject}: there is nothing of that name.",
        "Check name, zone and project.",
    ),
    Code.ALREADY_EXISTS: (
        ErrorKind.ALREADY_EXISTS,
        "Could not {action} {subject}: the name is taken, perhaps by one that is still being deleted.",
        "Look at it (`slicetower qr describe`), choose another name, or `qr recreate` it.",
    ),
    Code.PERMISSION_DENIED: (
        ErrorKind.PERMISSION,
        "Could not {action} {subject}: this account is not permitted to.",
        "Grant it roles/tpu.admin on the project (and roles/iam.serviceAccountUser on the workers' account), or use "
        "another account: gcloud auth list.",
    ),
    Code.RESOURCE_EXHAUSTED: (
        ErrorKind.QUOTA,
        "Could not {action} {subject}: the service says that a resource is exhausted: {text}",
        "That may be quota (also held by FAILED and SUSPENDED requests), request rate or capacity: read its words.",
    ),
    Code.FAILED_PRECONDITION: (
        ErrorKind.STATE_GATE,
        "Could not {action} {subject}: its state does not allow that: {text}",
        "Look at its state and try again when it has moved.",
    ),
    Code.ABORTED: (
        ErrorKind.UNAVAILABLE,
        "Could not {action} {subject}: another operation on it got in between.",
        "Look at it and try again.",
    ),
    Code.UNIMPLEMENTED: (
        ErrorKind.UNIMPLEMENTED,
        "Could not {action} {subject}: this endpoint does not know the call.",
        "Check the context's endpoint; some calls exist only in v2alpha1.",
    ),
    Code.INTERNAL: (
        ErrorKind.INTERNAL,
        "Could not {action} {subject}: the service reports an internal error. For large spot slices this mostly "
        "means that capacity was withdrawn; it also follows bursts of creates.",
        "Delete the dead request, then try a smaller slice, another zone, or fewer creates at once. It is no quota.",
    ),
    Code.UNAVAILABLE: (
        ErrorKind.UNAVAILABLE,
        "Could not {action} {subject}: the Cloud TPU API did not answer.",
        "It is mostly short: try again. If it lasts, check the network and the endpoint.",
    ),
    Code.UNAUTHENTICATED: (
        ErrorKind.CREDENTIALS,
        "Could not {action} {subject}: the credentials are missing or have expired.",
        "gcloud auth application-default login",
    ),
}

DELETE_CURES = {
    "ACTIVE": "Its slices run: delete with --force to delete them too.",
    "PROVISIONING": "Not even --force helps in this state. The wish is kept and retried until the request is gone.",
    "CREATING": "It will be ACCEPTED in a moment. The wish is kept and retried until the request is gone.",
    "SUSPENDING": "It will be SUSPENDED soon. The wish is kept and retried until the request is gone.",
    "DELETING": "It is already being deleted.",
}
