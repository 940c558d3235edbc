"""A long-running operation as facts: for the command line's JSON and for the console's page."""

from __future__ import annotations

from typing import Any

from backend.model import Operation
from backend.timestamps import rfc3339


def facts(item: Operation) -> dict[str, Any]:
    """Stable names (docs/json.md); times in RFC 3339 to the millisecond."""

    def told(moment: Any) -> str | None:
        return None if moment is None else rfc3339(moment, timespec="milliseconds")

    return {
        "name": item.name,
        "zone": item.zone,
        "project": item.project,
        "verb": item.verb,
        "target": item.target,
        "done": item.done,
        "cancel_requested": item.cancel_requested,
        "detail": item.detail,
        "error": None if item.error is None else {"code": item.error.code, "message": item.error.message},
        "created_at": told(item.created_at),
        "ended_at": told(item.ended_at),
    }
