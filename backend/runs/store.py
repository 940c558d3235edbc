"""Runs in the journal: everything that history, retry and a reattach need. Values of secrets are never written."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from backend.model import Event
from backend.runs.fanout import WorkerResult
from backend.runs.history import REQUEST_FIELDS, RunHistory, RunReader
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.sightings import Sighting
from backend.ssh.scripts import storable
from backend.targets import WorkerRef

STEPS = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        context TEXT NOT NULL,
        kind TEXT NOT NULL,
        title TEXT NOT NULL,
        state TEXT NOT NULL,
        request TEXT NOT NULL,
        remote_text TEXT NOT NULL,
        bundle_digest TEXT NOT NULL,
        bundle_source TEXT NOT NULL,
        note TEXT NOT NULL,
        started_at REAL NOT NULL,
        ended_at REAL
    );
    CREATE INDEX runs_by_time ON runs (started_at);
    CREATE TABLE run_workers (
        run TEXT NOT NULL,
        place INTEGER NOT NULL,
        worker TEXT NOT NULL,
        outcome TEXT NOT NULL,
        phase TEXT NOT NULL,
        exit_code INTEGER,
        signal TEXT,
        started_at REAL,
        ended_at REAL,
        output_bytes INTEGER NOT NULL,
        error TEXT NOT NULL,
        process_group INTEGER NOT NULL,
        PRIMARY KEY (run, place)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE run_symptoms (
        run TEXT NOT NULL,
        place INTEGER NOT NULL,
        line INTEGER NOT NULL,
        signature TEXT NOT NULL,
        text TEXT NOT NULL,
        blames TEXT NOT NULL,
        PRIMARY KEY (run, place, signature)
    );
    """,
)

WORKER_TEXTS = 32_768
"""Workers whose text is kept: each is written three times a run, and more often in a long one."""

_WORKER_FIELDS = (
    "project",
    "zone",
    "queued_resource",
    "slice_index",
    "worker_index",
    "node_id",
    "uid",
    "internal_ip",
    "external_ip",
)


class RunJournal(RunReader, Protocol):
    """The part of backend.journal.Journal that is needed here."""

    def migrate(self, component: str, steps: Sequence[str]) -> None: ...

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def apart(self) -> AbstractContextManager[RunReader]: ...

    def record(self, events: Iterable[Event]) -> object: ...


class RunStore(RunHistory):
    """Reads and writes run records.

    Raises:
        OperatorError: The journal can't be read or written.
    """

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)
        self._journal = journal
        journal.migrate("runs", STEPS)

    def create(self, record: RunRecord) -> None:
        """Writes a new run with all its workers, in one transaction.

        Raises:
            OperatorError: The journal can't be written: nothing may be started then.
        """
        row = (
            record.id,
            record.context,
            record.request.kind,
            storable(record.request.title),
            record.state,
            _dump(record.request),
            record.remote_text,
            record.bundle_digest,
            storable(record.bundle_source),
            record.note,
            record.started_at.timestamp(),
            _seconds(record.ended_at),
        )
        workers = [_worker_row(record.id, place, result) for place, result in enumerate(record.results)]
        with self._journal.transaction() as connection:
            connection.execute(f"INSERT INTO runs VALUES ({','.join('?' * len(row))})", row)
            connection.executemany(f"INSERT INTO run_workers VALUES ({','.join('?' * 12)})", workers)

    def update(self, run_id: str, results: Iterable[tuple[int, WorkerResult]]) -> None:
        """Writes the present state of some workers, by their place in the run."""
        rows = [_worker_row(run_id, place, result) for place, result in results]
        if rows:
            with self._journal.transaction() as connection:
                connection.executemany(f"INSERT OR REPLACE INTO run_workers VALUES ({','.join('?' * 12)})", rows)

    def set_state(self, run_id: str, state: RunState, ended_at: datetime | None) -> None:
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE runs SET state = ?, ended_at = ? WHERE id = ?", (state, _seconds(ended_at), run_id)
            )

    def set_note(self, run_id: str, note: str) -> None:
        """The operator's own words on a run."""
        with self._journal.transaction() as connection:
            connection.execute("UPDATE runs SET note = ? WHERE id = ?", (note, run_id))

    def delete(self, run_id: str) -> None:
        """Forgets a run; its logs are the caller's."""
        with self._journal.transaction() as connection:
            connection.execute("DELETE FROM run_workers WHERE run = ?", (run_id,))
            connection.execute("DELETE FROM run_symptoms WHERE run = ?", (run_id,))
            connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def add_symptoms(self, run_id: str, symptoms: Iterable[Sighting]) -> None:
        """Known failures that were seen in a run's logs, each signature once a worker."""
        rows = [
            (run_id, each.place, each.line, each.finding.id, each.finding.line, json.dumps(each.blames))
            for each in symptoms
        ]
        if rows:
            with self._journal.transaction() as connection:
                connection.executemany("INSERT OR IGNORE INTO run_symptoms VALUES (?, ?, ?, ?, ?, ?)", rows)


@lru_cache(maxsize=WORKER_TEXTS)
def _worker_text(worker: WorkerRef) -> str:
    return json.dumps([getattr(worker, name) for name in _WORKER_FIELDS])


def _worker_row(run_id: str, place: int, result: WorkerResult) -> tuple[object, ...]:
    return (
        run_id,
        place,
        _worker_text(result.worker),
        result.outcome,
        result.phase,
        result.exit_code,
        result.signal,
        _seconds(result.started_at),
        _seconds(result.ended_at),
        result.output_bytes,
        result.error,
        result.process_group,
    )


def _dump(request: RunRequest) -> str:
    return json.dumps({name: getattr(request, name) for name in REQUEST_FIELDS}, default=dict)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id(random_index: int, *, now: float | None = None) -> str:
    """`20261130-145501-k3f9`: sorts by time, can be said aloud.

    Args:
        random_index: Any number; makes runs of the same second differ.
        now: Unix seconds.
    """
    tail = ""
    for _ in range(4):
        random_index, rest = divmod(random_index, len(_ALPHABET))
        tail += _ALPHABET[rest]
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + tail


def is_run_id(text: str) -> bool:
    """Whether a text from elsewhere may be the name of a run, and so of a folder."""
    return re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]{4}", text) is not None
