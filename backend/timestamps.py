"""Times as text."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: datetime, *, timespec: str = "auto") -> str:
    """A moment in UTC, `2026-01-31T12:00:00Z`; `timespec` is that of `datetime.isoformat`."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
