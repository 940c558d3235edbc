"""Outages of a (project, zone) among the journal's events: when it first failed, and when it answered again.

Each is told once, whoever watches and however often it fails: an open outage is the last of these events.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime

from backend.model import Event, EventKind
from backend.spans import utc

SILENT, ANSWERING = "silent", "answering"
"""`Event.after` of the two."""


def open_since(connection: sqlite3.Connection, place: tuple[str, str]) -> datetime | None:
    """When the outage that has not ended was first seen; None while there is none."""
    row = connection.execute(
        "SELECT at, after FROM events WHERE subject = ? AND project = ? AND zone = ? AND kind = ? AND after IN (?, ?) "
        "ORDER BY sequence DESC LIMIT 1",
        (place[1], *place, EventKind.ERROR.value, SILENT, ANSWERING),
    ).fetchone()
    return utc(row[0]) if row is not None and row[1] == SILENT else None


def begun(place: tuple[str, str], at: datetime, text: str) -> Event:
    """
    Args:
        place: Project and zone.
        at: The first failure that was seen.
        text: The error in one sentence, safe to show.
    """
    return Event(at, EventKind.ERROR, *place, subject=place[1], before=ANSWERING, after=SILENT, text=text)


def ended(place: tuple[str, str], at: datetime, since: datetime | None) -> Event:
    """
    Args:
        place: Project and zone.
        at: The first answer.
        since: When it first failed; None if nobody knows.
    """
    ago = "" if since is None else f"; the first failure was {(at - since).total_seconds():.0f} s before"
    text = f"{place[1]} answers again{ago}"
    return Event(at, EventKind.ERROR, *place, subject=place[1], before=SILENT, after=ANSWERING, text=text)
