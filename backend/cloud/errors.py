"""What an error of the Cloud TPU API means, and what to do about it: the one place that knows.

Texts, meanings and cures follow what operators reported (research: field notes, section 1a). The code alone says too
little: RESOURCE_EXHAUSTED is four different things, and INTERNAL on a spot slice is mostly missing capacity.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backend.cloud.error_texts import BY_CODE, DELETE_CURES, HTTP_TO_CODE, RULES, Code, ErrorKind
from backend.outcomes import ExitCode, OperatorError

TRANSIENT = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT, ErrorKind.RATE})
"""Kinds after which the same call may be sent again."""


class CloudError(OperatorError):
    """An answer of the Cloud TPU API that is an error, explained. The exit code is CLOUD.

    Attributes:
        code: google.rpc.Code.
        kind: What it means.
        message: The service's own text, verbatim.
        eid: `0x...` of the text; support asks for it. Empty where there is none.
        retry_after_s: From RetryInfo; None where the service gave none.
        state: The state that gated a call, e.g. PROVISIONING for a refused delete.
    """

    def __init__(
        self,
        what: str,
        cure: str = "",
        *,
        code: int,
        kind: ErrorKind,
        message: str = "",
        eid: str = "",
        retry_after_s: float | None = None,
        state: str = "",
    ) -> None:
        raw = f"{code_name(code)}: {message}" if message else code_name(code)
        super().__init__(what, cure, exit_code=ExitCode.CLOUD, raw=raw)
        self.code = int(code)
        self.kind = kind
        self.message = message
        self.eid = eid
        self.retry_after_s = retry_after_s
        self.state = state

    @property
    def transient(self) -> bool:
        """The same call may be sent again later."""
        return self.kind in TRANSIENT


def code_name(code: int) -> str:
    """`RESOURCE_EXHAUSTED` for 8; the number itself where it is none of google.rpc.Code."""
    try:
        return Code(code).name
    except ValueError:
        return f"code {code}"


_EID = re.compile(r"\[?EID:?\s*(0x[0-9a-fA-F]+)\]?")
_LIMIT = re.compile(r"[Ll]imit:?\s+([\d.,]+?)(?:[.,]?(?=\s|$))(?:\s*in\s+(?:region|zone)\s+([\w-]+))?")


NEARNESS = 0.55
"""From this similarity on (difflib's ratio) a name may have been meant."""


def eid(message: str) -> str:
    """The error id that support asks for, e.g. `0x4fe8a2`; empty where there is none."""
    found = _EID.search(message)
    return found[1] if found else ""


def near_names(name: str, known: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """Up to `count` known names that look like `name`, best first; prefixes count as near."""
    scored = []
    for candidate in set(known):
        ratio = difflib.SequenceMatcher(None, candidate, name).ratio()
        begins = bool(name) and (candidate.startswith(name) or name.startswith(candidate))
        if begins or ratio >= NEARNESS:
            scored.append((-ratio, candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:count])


def _detail(details: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    return next((item for item in details if str(item.get("@type", "")).endswith(kind)), {})


def explain(
    code: int,
    message: str,
    *,
    action: str,
    subject: str,
    details: Sequence[Mapping[str, Any]] = (),
    near: Sequence[str] = (),
) -> CloudError:
    """The cause and the cure of a google.rpc.Status.

    Args:
        code: google.rpc.Code (not the HTTP status; see `from_http`).
        message: The service's text.
        action: What was tried, as an infinitive: `create`, `delete`, `list the requests of`.
        subject: What it was tried on: `train-a`, `zone us-east5-a`.
        details: The status' details as JSON objects with `@type` (ErrorInfo, RetryInfo, QuotaFailure ...).
        near: Names that exist, for a NOT_FOUND.
    """
    reason = str(_detail(details, "ErrorInfo").get("reason", ""))
    delay = str(_detail(details, "RetryInfo").get("retryDelay", ""))
    retry_after_s = float(delay[:-1]) if re.fullmatch(r"[\d.]+s", delay) else None
    quota = " ".join(
        str(item.get("description", "")) for item in _detail(details, "QuotaFailure").get("violations", ())
    )
    haystack = " ".join(part for part in (message, reason, quota) if part)
    limit = _LIMIT.search(haystack)
    values = {
        "action": action,
        "subject": subject,
        "text": message.strip() or "no text",
        "limit": f" (limit {limit[1]}{f' in {limit[2]}' if limit[2] else ''})" if limit else "",
        "where": f" in {limit[2]}" if limit and limit[2] else "",
    }
    kind, what, cure, state = _classify(code, haystack, values)
    if kind is ErrorKind.NOT_FOUND and near:
        cure = f"Near: {', '.join(near)}."
    if kind is ErrorKind.RATE and retry_after_s is not None:
        cure = f"The service asks to wait {retry_after_s:g} s. {cure}"
    return CloudError(
        what, cure, code=code, kind=kind, message=message, eid=eid(message), retry_after_s=retry_after_s, state=state
    )


def _classify(code: int, haystack: str, values: Mapping[str, str]) -> tuple[ErrorKind, str, str, str]:
    for rule in RULES:
        if rule.codes and code not in rule.codes:
            continue
        found = re.search(rule.pattern, haystack, re.DOTALL)
        if found is None:
            continue
        groups = {key: value for key, value in found.groupdict().items() if value is not None}
        state = groups.get("state", "")
        state_cure = DELETE_CURES.get(state, "The wish is kept and retried until the request is gone.")
        filled = {"type": "this type", "where_": "the zone", **values, **groups, "state_cure": state_cure}
        return rule.kind, rule.what.format_map(filled), rule.cure.format_map(filled), state
    kind, what, cure = BY_CODE.get(
        code, (ErrorKind.OTHER, "Could not {action} {subject}: {text}", "The original text is all that is known.")
    )
    return kind, what.format_map(values), cure, ""


def from_http(status: int, body: bytes | str, *, action: str, subject: str, near: Sequence[str] = ()) -> CloudError:
    """The same for an answer of the REST API: `{"error": {"code", "message", "status", "details"}}`, or any text."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    message, code, details = text.strip()[:500], int(HTTP_TO_CODE.get(status, Code.UNKNOWN)), []
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict):
        message = str(error.get("message", ""))
        name = str(error.get("status", ""))
        code = int(Code[name]) if name in Code.__members__ else code
        details = [item for item in error.get("details", ()) if isinstance(item, dict)]
    return explain(code, message, action=action, subject=subject, details=details, near=near)


def details_from_grpc(trailing: Iterable[tuple[str, str | bytes]]) -> list[dict[str, Any]]:
    """The `details` for `explain` out of a gRPC error's trailing metadata (`grpc-status-details-bin`)."""
    from google.protobuf import json_format
    from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # noqa: F401

    for key, value in trailing:
        if key != "grpc-status-details-bin":
            continue
        status = status_pb2.Status()
        status.ParseFromString(value if isinstance(value, bytes) else value.encode("latin-1"))
        return [json_format.MessageToDict(item) for item in status.details if _known(item)]
    return []


def _known(item: Any) -> bool:
    """An Any of a type that is linked in here; others cannot be shown."""
    from google.protobuf import symbol_database

    try:
        symbol_database.Default().GetSymbol(item.type_url.rpartition("/")[2])
    except KeyError:
        return False
    return True
