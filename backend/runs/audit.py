"""Who ran what, where, when and how it ended; tags of runs. Beside the run records, in the same journal.

Who: the login of the machine that started the run. Values of secret variables are in no record, so in no export either.
"""

from __future__ import annotations

import csv
import getpass
import io
import itertools
import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backend.outcomes import OperatorError
from backend.runs.fanout import WorkerResult
from backend.runs.history import RunReader
from backend.runs.model import RunRecord
from backend.runs.store import RunJournal
from backend.sanitize import plain
from backend.timestamps import rfc3339

_STEPS = (
    """
    CREATE TABLE run_origins (run TEXT PRIMARY KEY, user TEXT NOT NULL, host TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE run_tags (run TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (run, tag)) WITHOUT ROWID;
    CREATE INDEX run_tags_by_tag ON run_tags (tag);
    """,
)
TAG_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Who started a run, from where; empty for runs from before this was kept."""

    user: str = ""
    host: str = ""


def who() -> Origin:
    """The login that runs this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    return Origin(user, socket.gethostname())


def checked_tag(text: str) -> str:
    """A tag as it is kept.

    Raises:
        OperatorError: It is empty, too long, or holds blanks, commas or controls.
    """
    tag = text.strip()
    if not tag or len(tag) > TAG_LENGTH or plain(tag) != tag or any(char.isspace() or char == "," for char in tag):
        raise OperatorError(f"'{plain(text)}' is no tag.", f"A tag is one word of at most {TAG_LENGTH} characters.")
    return tag


class AuditHistory:
    """Origins and tags as the journal has them."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def origin(self, run_id: str) -> Origin:
        row = self._reader.row("SELECT user, host FROM run_origins WHERE run = ?", (run_id,))
        return Origin(*row) if row else Origin()

    def tags(self, run_id: str) -> tuple[str, ...]:
        rows = self._reader.rows("SELECT tag FROM run_tags WHERE run = ? ORDER BY tag", (run_id,))
        return tuple(str(row[0]) for row in rows)

    def all_tags(self) -> dict[str, tuple[str, ...]]:
        """Those of every run that has any, by its id."""
        found: dict[str, tuple[str, ...]] = {}
        for run_id, tag in self._reader.rows("SELECT run, tag FROM run_tags ORDER BY run, tag"):
            found[run_id] = (*found.get(run_id, ()), str(tag))
        return found

    def tagged(self, tag: str) -> frozenset[str]:
        """Ids of the runs that have a tag."""
        return frozenset(row[0] for row in self._reader.rows("SELECT run FROM run_tags WHERE tag = ?", (tag,)))

    def rows(self, records: Iterable[RunRecord]) -> Iterator[dict[str, Any]]:
        """One flat row for each worker of each run: AUDIT_FIELDS in order; times are datetimes or None."""
        for record in records:
            origin, tags = self.origin(record.id), " ".join(self.tags(record.id))
            for result in record.results:
                yield _row(record, result, origin, tags)


class RunAudit(AuditHistory):
    """Origins and tags."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)
        self._journal = journal
        journal.migrate("run_audit", _STEPS)

    def started(self, run_id: str) -> None:
        """Notes that a run was started by this process."""
        origin = who()
        with self._journal.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO run_origins VALUES (?, ?, ?)", (run_id, origin.user, origin.host)
            )

    def tag(self, run_id: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Adds and removes tags; one that is there already, or is not there, stays so.

        Raises:
            OperatorError: Something is no tag; nothing was changed.
        """
        added = [(run_id, checked_tag(each)) for each in add]
        removed = [(run_id, checked_tag(each)) for each in remove]
        with self._journal.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO run_tags VALUES (?, ?)", added)
            connection.executemany("DELETE FROM run_tags WHERE run = ? AND tag = ?", removed)

    def forget(self, run_id: str) -> None:
        """Drops what is kept of a run here."""
        with self._journal.transaction() as connection:
            connection.execute("DELETE FROM run_tags WHERE run = ?", (run_id,))
            connection.execute("DELETE FROM run_origins WHERE run = ?", (run_id,))


AUDIT_FIELDS = (
    "run",
    "user",
    "host",
    "context",
    "kind",
    "title",
    "command",
    "code",
    "project",
    "zone",
    "target",
    "node",
    "started_at",
    "worker_started_at",
    "worker_ended_at",
    "state",
    "outcome",
    "exit_code",
    "signal",
    "output_bytes",
    "error",
    "note",
    "tags",
)


def audit_json(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object a row; times as RFC 3339 to the millisecond."""
    for row in rows:
        yield json.dumps({name: _moment(value) for name, value in row.items()})


def audit_csv(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line of AUDIT_FIELDS, then one a row; every cell is safe to show, and none is a formula of a spreadsheet."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    for cells in itertools.chain([AUDIT_FIELDS], ([_cell(row[name]) for name in AUDIT_FIELDS] for row in rows)):
        writer.writerow(cells)
        yield buffer.getvalue().removesuffix("\r\n")
        buffer.seek(0)
        buffer.truncate()


def _moment(value: Any) -> Any:
    return rfc3339(value, timespec="milliseconds") if isinstance(value, datetime) else value


def _cell(value: Any) -> str:
    text = "" if value is None else plain(str(_moment(value)))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _row(record: RunRecord, result: WorkerResult, origin: Origin, tags: str) -> dict[str, Any]:
    return {
        "run": record.id,
        "user": origin.user,
        "host": origin.host,
        "context": record.context,
        "kind": record.request.kind,
        "title": record.request.title,
        "command": record.remote_text,
        "code": record.bundle_digest,
        "project": result.worker.project,
        "zone": result.worker.zone,
        "target": result.worker.address,
        "node": result.worker.uid or result.worker.node_id,
        "started_at": record.started_at,
        "worker_started_at": result.started_at,
        "worker_ended_at": result.ended_at,
        "state": record.state,
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "output_bytes": result.output_bytes,
        "error": result.error,
        "note": record.note,
        "tags": tags,
    }
