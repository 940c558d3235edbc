"""Wishes that outlive a process: what the operator wants gone, or made again, kept in the journal until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from backend.cloud.requests import CreateRequest
from backend.journal import Journal

CREATES_PER_MINUTE = 60
"""Sent by this operator in a project. The service allows about 90 for everybody in it (field notes, 1a, row 4)."""
RATE_WINDOW_S = 60.0

_STEPS = (
    """
    CREATE TABLE intents (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        project TEXT NOT NULL,
        zone TEXT NOT NULL,
        name TEXT NOT NULL,
        force INTEGER NOT NULL,
        target_created_at REAL,
        request TEXT NOT NULL,
        request_id TEXT NOT NULL,
        wished_at REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        last_text TEXT NOT NULL DEFAULT '',
        outcome TEXT NOT NULL DEFAULT '',
        ended_at REAL
    );
    CREATE INDEX intents_open ON intents (project, zone, name) WHERE ended_at IS NULL;
    CREATE TABLE creates (project TEXT NOT NULL, at REAL NOT NULL);
    CREATE INDEX creates_by_project ON creates (project, at);
    """,
)


class IntentKind(StrEnum):
    DELETE = "delete"
    RECREATE = "recreate"


class IntentOutcome(StrEnum):
    """How a wish ended; empty while it is open."""

    DONE = "done"
    REFUSED = "refused"
    """The service refused for good (an ACTIVE request without force, a create over quota)."""
    REPLACED = "replaced"
    """Another request took the name: it is not the one that was meant."""
    WITHDRAWN = "withdrawn"
    """The operator changed his mind."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One wish. `target_created_at` (seconds since 1970) tells the meant request from a later one of its name."""

    id: int
    kind: IntentKind
    project: str
    zone: str
    name: str
    force: bool
    target_created_at: float | None
    request: CreateRequest | None
    """What a recreate will ask for."""
    request_id: str
    wished_at: float
    attempts: int = 0
    last_text: str = ""
    """What the last attempt met, in a sentence."""
    outcome: str = ""
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.project, self.zone, self.name)

    @property
    def open(self) -> bool:
        return self.ended_at is None


_COLUMNS = (
    "id, kind, project, zone, name, force, target_created_at, request, request_id, wished_at, attempts, last_text, "
    "outcome, ended_at"
)


class IntentStore:
    """The journal's tables of wishes and of the create rate. Cheap to make; several consoles may share the file."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        journal.migrate("intents", _STEPS)
        self._journal = journal
        self._clock = clock

    def wish(
        self,
        kind: IntentKind,
        key: tuple[str, str, str],
        *,
        force: bool,
        target_created_at: float | None,
        request: CreateRequest | None = None,
        request_id: str = "",
    ) -> Intent:
        """Keeps a wish before anything is sent. The same wish about the same request, still open, is kept once."""
        with self._journal.transaction() as connection:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM intents WHERE project = ? AND zone = ? AND name = ? AND kind = ? "
                "AND target_created_at IS ? AND ended_at IS NULL",
                (*key, kind.value, target_created_at),
            ).fetchone()
            if row is not None:
                if force and not row[5]:
                    connection.execute("UPDATE intents SET force = 1 WHERE id = ?", (row[0],))
                identity = row[0]
            else:
                cursor = connection.execute(
                    "INSERT INTO intents (kind, project, zone, name, force, target_created_at, request, request_id, "
                    "wished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        kind.value,
                        *key,
                        int(force),
                        target_created_at,
                        "" if request is None else msgspec.json.encode(request).decode(),
                        request_id,
                        self._clock(),
                    ),
                )
                identity = int(cursor.lastrowid or 0)
            row = connection.execute(f"SELECT {_COLUMNS} FROM intents WHERE id = ?", (identity,)).fetchone()
        return _intent(row)

    def get(self, identity: int) -> Intent | None:
        rows = self._journal.rows(f"SELECT {_COLUMNS} FROM intents WHERE id = ?", (identity,))
        return _intent(rows[0]) if rows else None

    def open_intents(self) -> list[Intent]:
        """All wishes that are not fulfilled, oldest first."""
        rows = self._journal.rows(f"SELECT {_COLUMNS} FROM intents WHERE ended_at IS NULL ORDER BY id")
        return [_intent(row) for row in rows]

    def not_made_again(self) -> list[Intent]:
        """The last recreate of each name, where its create was refused for good: newest first, with the request."""
        rows = self._journal.rows(
            f"SELECT {_COLUMNS} FROM intents WHERE id IN (SELECT max(id) FROM intents WHERE kind = ? "
            "GROUP BY project, zone, name) AND outcome = ? ORDER BY id DESC",
            (IntentKind.RECREATE.value, IntentOutcome.REFUSED.value),
        )
        return [_intent(row) for row in rows]

    def attempt(self, intent: Intent, text: str) -> None:
        """Notes one more attempt and what it met."""
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE intents SET attempts = attempts + 1, last_text = ? WHERE id = ?", (text, intent.id)
            )

    def end(self, intent: Intent, outcome: IntentOutcome, text: str = "") -> bool:
        """Closes a wish; False when another console has closed it already."""
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE intents SET outcome = ?, ended_at = ?, last_text = ? WHERE id = ? AND ended_at IS NULL",
                (outcome.value, self._clock(), text, intent.id),
            )
            return cursor.rowcount > 0

    def reserve_create(self, project: str) -> float:
        """Takes a place in the create rate of a project, shared by all processes of this journal.

        Returns:
            0.0 when the create may be sent now; else the seconds after which to ask again.
        """
        now = self._clock()
        with self._journal.transaction() as connection:
            connection.execute(
                "DELETE FROM creates WHERE at <= ? OR at > ?", (now - RATE_WINDOW_S, now + RATE_WINDOW_S)
            )
            count, oldest = connection.execute(
                "SELECT count(*), min(at) FROM creates WHERE project = ?", (project,)
            ).fetchone()
            if count >= CREATES_PER_MINUTE:
                return max(float(oldest) + RATE_WINDOW_S - now, 0.05)
            connection.execute("INSERT INTO creates VALUES (?, ?)", (project, now))
            return 0.0


def _intent(row: tuple[object, ...]) -> Intent:
    (
        identity,
        kind,
        project,
        zone,
        name,
        force,
        target,
        request,
        request_id,
        wished,
        attempts,
        text,
        outcome,
        ended,
    ) = row
    return Intent(
        id=int(str(identity)),
        kind=IntentKind(str(kind)),
        project=str(project),
        zone=str(zone),
        name=str(name),
        force=bool(force),
        target_created_at=None if target is None else float(str(target)),
        request=msgspec.json.decode(str(request), type=CreateRequest) if request else None,
        request_id=str(request_id),
        wished_at=float(str(wished)),
        attempts=int(str(attempts)),
        last_text=str(text),
        outcome=str(outcome),
        ended_at=None if ended is None else float(str(ended)),
    )
