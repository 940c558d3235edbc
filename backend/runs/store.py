"""Runs in the journal: everything that history, retry and a reattach need. Values of secrets are never written."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

from backend.model import Event
from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.model import RunHead, RunRecord, RunRequest, RunState
from backend.runs.sightings import Sighting, from_record
from backend.sanitize import plain
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

_REQUEST_FIELDS = (
    "argv",
    "shell",
    "batch",
    "on_failure",
    "max_failures",
    "timeout_s",
    "detach",
    "gang",
    "force",
    "environment",
    "secret_environment",
    "worker_environment",
    "setup",
    "kind",
    "title",
    "at_boot",
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


class RunJournal(Protocol):
    """The part of backend.journal.Journal that is needed here."""

    def migrate(self, component: str, steps: Sequence[str]) -> None: ...

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...

    def row(self, query: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None: ...

    def record(self, events: Iterable[Event]) -> object: ...


class RunStore:
    """Reads and writes run records.

    Raises:
        OperatorError: The journal can't be read or written.
    """

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self._heads: dict[str, tuple[tuple[object, ...], RunHead]] = {}
        """Of runs that have ended, with what they were read from: they are counted once."""
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

    def get(self, text: str) -> RunRecord:
        """A run by its id, or by an unambiguous beginning or end of it; `last` is the newest.

        Raises:
            OperatorError: There is no such run, or several.
        """
        if text == "last":
            found = self._ids("ORDER BY started_at DESC LIMIT 1", ())
        else:
            found = self._ids("WHERE id = ?", (text,))
            if not found and len(text) >= 3:
                found = self._ids(
                    "WHERE substr(id, 1, ?) = ? OR substr(id, -?) = ?", (len(text), text, len(text), text)
                )
        if len(found) > 1:
            raise OperatorError(f"'{plain(text)}' stands for {len(found)} runs.", f"They are {', '.join(found[:5])}.")
        if not found:
            raise OperatorError(f"There is no run '{plain(text)}'.", "`slicetower runs list` shows them.")
        return self._read(found[0])

    def history(self, *, limit: int = 200) -> list[RunRecord]:
        """The newest runs first."""
        return [self._read(run_id) for run_id in self._ids("ORDER BY started_at DESC LIMIT ?", (limit,))]

    def heads(self, *, limit: int = 200) -> list[RunHead]:
        """The newest runs first, without their workers: cheap however many those are, and cheaper when asked again."""
        rows = self._journal.rows(
            "SELECT id, state, note, started_at, ended_at FROM runs ORDER BY started_at DESC LIMIT ?", (limit,)
        )
        known, self._heads = self._heads, {}
        found = []
        for row in rows:
            kept = known.get(row[0])
            head = kept[1] if kept is not None and kept[0] == row else self._head(*row)
            if head.state is RunState.ENDED:
                self._heads[head.id] = (row, head)
            found.append(head)
        return found

    def _head(self, run_id: str, state: str, note: str, started_at: float, ended_at: float | None) -> RunHead:
        (request,) = self._required(run_id, "request")
        summary: dict[Outcome, int] = {}
        phases: dict[str, int] = {}
        for outcome, phase, number in self._journal.rows(
            "SELECT outcome, phase, count(*) FROM run_workers WHERE run = ? GROUP BY outcome, phase ORDER BY min(place)",
            (run_id,),
        ):
            word = phase if outcome == Outcome.PENDING else outcome.replace("_", " ")
            summary[Outcome(outcome)] = summary.get(Outcome(outcome), 0) + number
            phases[word] = phases.get(word, 0) + number
        return RunHead(
            id=run_id,
            request=_load(request),
            state=RunState(state),
            started_at=datetime.fromtimestamp(started_at, UTC),
            ended_at=_moment(ended_at),
            note=note,
            size=sum(summary.values()),
            summary=summary,
            phases=phases,
        )

    def open_runs(self) -> list[RunRecord]:
        """Every run that was not seen to end, oldest first."""
        return [self._read(run_id) for run_id in self._ids("WHERE state != 'ended' ORDER BY started_at", ())]

    def has(self, run_id: str) -> bool:
        return bool(self._ids("WHERE id = ?", (run_id,)))

    def open_ids(self, context: str = "") -> list[tuple[str, RunState]]:
        """Ids and states of the same, without their workers; of one context where one is given."""
        rows = self._journal.rows(
            "SELECT id, state FROM runs WHERE state != 'ended' AND (? = '' OR context = ?) ORDER BY started_at",
            (context, context),
        )
        return [(str(run_id), RunState(state)) for run_id, state in rows]

    def _ids(self, clause: str, values: tuple[object, ...]) -> list[str]:
        return [str(row[0]) for row in self._journal.rows(f"SELECT id FROM runs {clause}", values)]

    def _required(self, run_id: str, columns: str) -> tuple[Any, ...]:
        row = self._journal.row(f"SELECT {columns} FROM runs WHERE id = ?", (run_id,))
        if row is None:
            raise OperatorError(f"Run {run_id} was removed, by another slicetower.")
        return row

    def _read(self, run_id: str) -> RunRecord:
        row = self._required(
            run_id,
            "context, state, request, remote_text, bundle_digest, bundle_source, note, started_at, ended_at",
        )
        results = tuple(self.results(run_id))
        return RunRecord(
            id=run_id,
            context=row[0],
            state=RunState(row[1]),
            request=_load(row[2]),
            workers=tuple(result.worker for result in results),
            results=results,
            remote_text=row[3],
            bundle_digest=row[4],
            bundle_source=row[5],
            note=row[6],
            started_at=datetime.fromtimestamp(row[7], UTC),
            ended_at=_moment(row[8]),
        )

    def results(self, run_id: str) -> list[WorkerResult]:
        """The workers of a run as they were last written, in the run's order."""
        rows = self._journal.rows(
            "SELECT worker, outcome, phase, exit_code, signal, started_at, ended_at, output_bytes, error, process_group "
            "FROM run_workers WHERE run = ? ORDER BY place",
            (run_id,),
        )
        return [
            WorkerResult(
                worker=WorkerRef(*json.loads(row[0])),
                outcome=Outcome(row[1]),
                phase=Phase(row[2]),
                exit_code=row[3],
                signal=row[4],
                started_at=_moment(row[5]),
                ended_at=_moment(row[6]),
                output_bytes=row[7],
                error=row[8],
                process_group=row[9],
            )
            for row in rows
        ]

    def add_symptoms(self, run_id: str, symptoms: Iterable[Sighting]) -> None:
        """Known failures that were seen in a run's logs, each signature once a worker."""
        rows = [
            (run_id, each.place, each.line, each.finding.id, each.finding.line, json.dumps(each.blames))
            for each in symptoms
        ]
        if rows:
            with self._journal.transaction() as connection:
                connection.executemany("INSERT OR IGNORE INTO run_symptoms VALUES (?, ?, ?, ?, ?, ?)", rows)

    def symptoms(self, run_id: str, workers: Sequence[WorkerRef]) -> list[Sighting]:
        """The same, in the order in which they were seen; what this release does not know any more is left out."""
        rows = self._journal.rows(
            "SELECT place, line, text, blames FROM run_symptoms WHERE run = ? ORDER BY rowid", (run_id,)
        )
        found = (
            from_record(place, workers[place].address, line, text, json.loads(blames))
            for place, line, text, blames in rows
            if place < len(workers)
        )
        return [each for each in found if each is not None]


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
    return json.dumps({name: getattr(request, name) for name in _REQUEST_FIELDS}, default=dict)


def _load(text: str) -> RunRequest:
    """Fields that a newer release wrote are passed over."""
    values: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in _REQUEST_FIELDS}
    values["argv"] = tuple(values.get("argv", ()))
    values["environment"] = tuple((name, value) for name, value in values.get("environment", ()))
    values["secret_environment"] = tuple(values.get("secret_environment", ()))
    return RunRequest(**values)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


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
