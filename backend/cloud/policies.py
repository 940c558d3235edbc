"""What `keep` and `race` are about, kept in the journal: who runs it, whether it still does, what it has spent."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from backend.cloud.kept_races import LEASE_S, RACE_STEPS, RaceStore
from backend.journal import Journal

PREEMPTION_BUDGET, FAILURE_BUDGET = 20, 3
"""Preemptions are the nature of spot; a request that fails again and again needs a person (field notes, section 5)."""

_STEPS = (
    """
    CREATE TABLE keeps (
        project TEXT NOT NULL,
        zone TEXT NOT NULL,
        name TEXT NOT NULL,
        preemptions INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        preemption_budget INTEGER NOT NULL,
        failure_budget INTEGER NOT NULL,
        on_ready TEXT NOT NULL,
        ready_for REAL,
        last_text TEXT NOT NULL DEFAULT '',
        owner TEXT NOT NULL,
        alive_at REAL NOT NULL,
        ended_at REAL,
        PRIMARY KEY (project, zone, name)
    );
    CREATE TABLE races (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner TEXT NOT NULL,
        alive_at REAL NOT NULL,
        winner TEXT NOT NULL DEFAULT '',
        ended_at REAL
    );
    CREATE TABLE race_entries (
        race INTEGER NOT NULL,
        request TEXT NOT NULL,
        outcome TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX race_entries_by_race ON race_entries (race);
    """,
    *RACE_STEPS,
)


@dataclass(frozen=True, slots=True)
class Keep:
    """The policy of one request: made again when it is preempted or fails, within two budgets."""

    project: str
    zone: str
    name: str
    preemption_budget: int
    failure_budget: int
    on_ready: tuple[str, ...] = ()
    """A command of this machine, run once for each incarnation that becomes ready."""
    preemptions: int = 0
    failures: int = 0
    ready_for: float | None = None
    """Creation time (seconds since 1970) of the incarnation for which `on_ready` was last run."""
    last_text: str = ""
    running: bool = False
    """A process holds the lease."""
    ended: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.project, self.zone, self.name)


_KEEP = (
    "project, zone, name, preemption_budget, failure_budget, on_ready, preemptions, failures, ready_for, last_text, "
    "alive_at, ended_at, owner"
)


class PolicyStore(RaceStore):
    """The journal's tables of policies. `owner` names this process."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        journal.migrate("policies", _STEPS)
        self._journal = journal
        self._clock = clock
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    def start_keep(self, keep: Keep) -> Keep | None:
        """Takes the lease; counts go on where a former process left them. None while another one holds it."""
        now = self._clock()
        with self._journal.transaction() as connection:
            row = connection.execute(
                "SELECT alive_at, ended_at FROM keeps WHERE project = ? AND zone = ? AND name = ?", keep.key
            ).fetchone()
            if row is not None and row[1] is None and now - row[0] < LEASE_S:
                return None
            fresh = row is None or row[1] is not None
            connection.execute(
                "INSERT INTO keeps (project, zone, name, preemption_budget, failure_budget, on_ready, owner, alive_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET preemption_budget = excluded.preemption_budget, "
                "failure_budget = excluded.failure_budget, on_ready = excluded.on_ready, owner = excluded.owner, "
                "alive_at = excluded.alive_at, ended_at = NULL, last_text = ''",
                (
                    *keep.key,
                    keep.preemption_budget,
                    keep.failure_budget,
                    msgspec.json.encode(keep.on_ready).decode(),
                    self.owner,
                    now,
                ),
            )
            if fresh:
                connection.execute(
                    "UPDATE keeps SET preemptions = 0, failures = 0 WHERE project = ? AND zone = ? AND name = ?",
                    keep.key,
                )
        return self.keep(keep.key)

    def keep(self, key: tuple[str, str, str]) -> Keep | None:
        rows = self._journal.rows(f"SELECT {_KEEP} FROM keeps WHERE project = ? AND zone = ? AND name = ?", key)
        return self._keep(rows[0]) if rows else None

    def keeps(self) -> list[Keep]:
        """All policies that were not ended; `running` tells whether a process holds one."""
        rows = self._journal.rows(f"SELECT {_KEEP} FROM keeps WHERE ended_at IS NULL ORDER BY project, zone, name")
        return [self._keep(row) for row in rows]

    def _keep(self, row: tuple[object, ...]) -> Keep:
        ended, alive_at = row[11] is not None, float(str(row[10]))
        return Keep(
            project=str(row[0]),
            zone=str(row[1]),
            name=str(row[2]),
            preemption_budget=int(str(row[3])),
            failure_budget=int(str(row[4])),
            on_ready=msgspec.json.decode(str(row[5]), type=tuple[str, ...]),
            preemptions=int(str(row[6])),
            failures=int(str(row[7])),
            ready_for=None if row[8] is None else float(str(row[8])),
            last_text=str(row[9]),
            running=not ended and self._clock() - alive_at < LEASE_S,
            ended=ended,
        )

    def update_keep(
        self,
        key: tuple[str, str, str],
        *,
        preempted: bool = False,
        failed: bool = False,
        ready_for: float | None = None,
        text: str | None = None,
    ) -> bool:
        """A sign of life with what changed; False when another process has taken the lease."""
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE keeps SET alive_at = ?, preemptions = preemptions + ?, failures = failures + ?, "
                "ready_for = coalesce(?, ready_for), last_text = coalesce(?, last_text) "
                "WHERE project = ? AND zone = ? AND name = ? AND owner = ? AND ended_at IS NULL",
                (self._clock(), int(preempted), int(failed), ready_for, text, *key, self.owner),
            )
            return cursor.rowcount > 0

    def release_keep(self, key: tuple[str, str, str], *, end: bool, text: str = "") -> None:
        """Gives the lease back; `end` also ends the policy, else it waits for a process to take it up."""
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE keeps SET alive_at = 0, ended_at = ?, last_text = ? "
                "WHERE project = ? AND zone = ? AND name = ? AND owner = ?",
                (self._clock() if end else None, text, *key, self.owner),
            )

    def end_keep(self, key: tuple[str, str, str], text: str) -> bool:
        """Ends a policy that nobody else carries out; False when another process holds its lease."""
        now = self._clock()
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE keeps SET ended_at = ?, last_text = ? WHERE project = ? AND zone = ? AND name = ? "
                "AND ended_at IS NULL AND (owner = ? OR alive_at <= ?)",
                (now, text, *key, self.owner, now - LEASE_S),
            )
            return cursor.rowcount > 0
