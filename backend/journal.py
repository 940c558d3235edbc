"""The journal: what was seen and done, in SQLite, so that history survives restarts.

One file for all consoles of an operator (WAL, mode 0600). Each component owns its tables and their versions. The past
is never invented: a span whose beginning was not seen carries a lower bound (design: no invented past).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from backend import outages, spans, sqlite, stays
from backend.model import Event, EventKind, QueuedResource, StateSince
from backend.outcomes import OperatorError
from backend.spans import utc
from backend.stays import QueueWait, SeenRequest, StateSpan

ECHO_WINDOW = timedelta(seconds=45)
"""Two consoles that watch one fleet see each change of a slice within a few polls of each other."""

EVENTS_KEPT = timedelta(days=90)
"""Older events go: a quarter is longer than any incident is looked into. What was run where is kept by the runs' own tables."""

EVENTS_MOST = 200_000
"""Rows; some 40 MB. A fleet that flaps every second would fill a disk within the 90 days."""

PRUNE_EVERY_S = 3600.0
PRUNE_ROWS = 5_000
"""At a time: other consoles wait for the transaction, which takes milliseconds."""

_TOLD_BY_SPANS = frozenset({EventKind.STATE, EventKind.APPEARED, EventKind.GONE})
"""Events of requests: whoever moves the span records them, however late another console looks."""

_STEPS = (
    """
    CREATE TABLE events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        project TEXT NOT NULL,
        zone TEXT NOT NULL,
        subject TEXT NOT NULL,
        before TEXT NOT NULL,
        after TEXT NOT NULL,
        text TEXT NOT NULL,
        writer TEXT NOT NULL
    );
    CREATE INDEX events_by_subject ON events (subject, sequence);
    CREATE INDEX events_by_time ON events (at);
    CREATE TABLE spans (
        id INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        zone TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at REAL,
        state TEXT NOT NULL,
        accelerator_type TEXT NOT NULL,
        tier TEXT NOT NULL,
        entered_at REAL NOT NULL,
        entered_is_lower_bound INTEGER NOT NULL,
        left_at REAL
    );
    CREATE INDEX spans_open ON spans (project, zone) WHERE left_at IS NULL;
    CREATE INDEX spans_by_name ON spans (project, zone, name, entered_at);
    CREATE TABLE observed (
        project TEXT NOT NULL,
        zone TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (project, zone)
    );
    """,
    "ALTER TABLE spans ADD COLUMN chips INTEGER NOT NULL DEFAULT 0",
)


class Reader:
    """What the stores of components read by."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """What a query on `connection` finds: how the stores of components read.

        Raises:
            OperatorError: the file is damaged, or can't be read.
        """
        try:
            return self.connection.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise sqlite.told(self.path, error) from error

    def row(self, query: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """The first of them."""
        return next(iter(self.rows(query, values)), None)


class Journal(Reader):
    """An open journal. `connection` is for the thread that opened it; `observe` may run in any one other thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection, background: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self._background = background
        self._lock = threading.Lock()
        self._writer = uuid4().hex[:12]
        self._pruned_at = float("-inf")

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens or makes the file and brings its tables up to date.

        Raises:
            OperatorError: the file can't be opened, is damaged, or was written by a newer slicetower.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            sqlite.make_private(path)
            journal = cls(path, sqlite.connect(path), sqlite.connect(path))
        except (OSError, sqlite3.Error) as error:
            raise sqlite.told(path, error) from error
        try:
            journal.migrate("journal", _STEPS)
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        with self._lock:
            self._background.close()
        self.connection.close()

    def migrate(self, component: str, steps: Sequence[str]) -> None:
        """Runs those SQL scripts of a component that this file has not seen, each in one transaction.

        Steps are only ever appended: a step that was released never changes.

        Raises:
            OperatorError: the file is damaged, or was written by a newer release.
        """
        try:
            with sqlite.transaction(self.connection):
                self.connection.execute(
                    "CREATE TABLE IF NOT EXISTS components (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
                )
            while True:
                with sqlite.transaction(self.connection):
                    row = self.connection.execute(
                        "SELECT version FROM components WHERE name = ?", (component,)
                    ).fetchone()
                    version = row[0] if row else 0
                    if version > len(steps):
                        raise OperatorError(
                            f"The journal {self.path} was written by a newer slicetower "
                            f"({component} {version}, this one knows {len(steps)}).",
                            "Update slicetower, or move the file away to start a new history.",
                        )
                    if version == len(steps):
                        return
                    for statement in sqlite.statements(steps[version]):
                        self.connection.execute(statement)
                    self.connection.execute(
                        "INSERT INTO components VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
                        (component, version + 1),
                    )
        except sqlite3.Error as error:
            raise sqlite.told(self.path, error) from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction on `connection`; rolled back when the body raises.

        Raises:
            OperatorError: the file is locked for too long, full or damaged.
        """
        try:
            with sqlite.transaction(self.connection):
                yield self.connection
        except sqlite3.Error as error:
            raise sqlite.told(self.path, error) from error

    def record(self, events: Iterable[Event]) -> None:
        """Appends events, in one transaction."""
        rows = list(events)
        if rows:
            with self.transaction() as connection:
                self._insert(connection, rows)

    def events(self, *, after: int = 0, limit: int = 500, subject: str | None = None) -> list[Event]:
        """The newest `limit` events with a sequence above `after`, oldest first.

        Args:
            subject: Only those about it or about a part of it (`train-a` also finds `train-a/0`).
        """
        query = (
            "SELECT sequence, at, kind, project, zone, subject, before, after, text FROM events WHERE sequence > ?"
        )
        values: list[object] = [after]
        if subject is not None:
            query += " AND (subject = ? OR substr(subject, 1, ?) = ?)"
            values += [subject, len(subject) + 1, f"{subject}/"]
        rows = self.rows(f"{query} ORDER BY sequence DESC LIMIT ?", [*values, limit])
        return [
            Event(
                sequence=sequence,
                at=utc(at),
                kind=EventKind(kind),
                project=project,
                zone=zone,
                subject=about,
                before=before,
                after=now,
                text=text,
            )
            for sequence, at, kind, project, zone, about, before, now, text in reversed(rows)
        ]

    def observe(
        self,
        place: tuple[str, str],
        seen: Collection[QueuedResource],
        events: Sequence[Event],
        at: datetime,
    ) -> dict[tuple[str, str, str], StateSince]:
        """Takes one good poll of a (project, zone): moves the state spans, records its events, in one transaction.

        An observation that is older than what another console wrote changes nothing; an event that another console
        has just recorded is not recorded twice. Once in a while, events beyond EVENTS_KEPT and EVENTS_MOST go.

        Args:
            seen: Everything that the service listed there: what is missing is gone.

        Returns:
            Since when each is in its state.

        Raises:
            OperatorError: the file is locked for too long, full or damaged.
        """
        with self._lock, self._in_background() as connection:
            since, moved = spans.move(connection, place, seen, at.timestamp())
            self._insert(connection, [event for event in events if self._is_news(event, moved)])
            self._prune(at)
            return since

    def begin_outage(self, place: tuple[str, str], at: datetime, text: str) -> None:
        """A (project, zone) does not answer: an event, unless it is known already, to whichever console. For any thread.

        Raises:
            OperatorError: the file is locked for too long, full or damaged.
        """
        with self._lock, self._in_background() as connection:
            if outages.open_since(connection, place) is None:
                self._insert(connection, [outages.begun(place, at, text)])

    def end_outage(self, place: tuple[str, str], at: datetime) -> Event | None:
        """It answers: the event that says so if an outage was open, else None. For any thread.

        Raises:
            OperatorError: the file is locked for too long, full or damaged.
        """
        with self._lock, self._in_background() as connection:
            since = outages.open_since(connection, place)
            if since is None:
                return None
            event = outages.ended(place, at, since)
            self._insert(connection, [event])
            return event

    @contextmanager
    def _in_background(self) -> Iterator[sqlite3.Connection]:
        try:
            with sqlite.transaction(self._background):
                yield self._background
        except sqlite3.Error as error:
            raise sqlite.told(self.path, error) from error

    def last_states(self, place: tuple[str, str]) -> dict[str, str]:
        """Name -> state of the requests of a (project, zone) when they were last seen. For any thread."""
        with self._lock:
            try:
                return dict(
                    self._background.execute(
                        "SELECT name, state FROM spans WHERE project = ? AND zone = ? AND left_at IS NULL", place
                    )
                )
            except sqlite3.Error as error:
                raise sqlite.told(self.path, error) from error

    def timeline(self, key: tuple[str, str, str]) -> list[StateSpan]:
        """The states of a request in order; of a name that was used again, only those of the newest request."""
        return stays.timeline(self.rows(stays.TIMELINE, key))

    def requests_seen(self, since: datetime) -> list[SeenRequest]:
        """Every request that was there after a moment, also those that are gone, in the order of their first sight.

        For any thread: years of spans are read beside the loop.
        """
        return stays.requests(self._read_apart(stays.REQUESTS, [since.timestamp()]))

    def queue_waits(self, *, limit: int = 1000) -> list[QueueWait]:
        """Waits for capacity that were seen whole, newest first: from creation to PROVISIONING (or ACTIVE).

        One that was over when its request was first seen is left out: how long it took nobody knows. For any thread.
        """
        return stays.queue_waits(self._read_apart(stays.QUEUE_WAITS, [limit]))

    def _read_apart(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self.apart() as reader:
            return reader.rows(query, values)

    @contextmanager
    def apart(self) -> Iterator[Reader]:
        """A connection of its own to read by, which waits for no writer and is bound to no thread.

        Raises:
            OperatorError: the file is damaged, or can't be read.
        """
        try:
            connection = sqlite.connect(self.path, create=False)
        except sqlite3.Error as error:
            raise sqlite.told(self.path, error) from error
        with closing(connection):
            yield Reader(self.path, connection)

    def _insert(self, connection: sqlite3.Connection, events: Iterable[Event]) -> None:
        connection.executemany(
            "INSERT INTO events (at, kind, project, zone, subject, before, after, text, writer) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    event.at.timestamp(),
                    event.kind.value,
                    event.project,
                    event.zone,
                    event.subject,
                    event.before,
                    event.after,
                    event.text,
                    self._writer,
                )
                for event in events
            ],
        )

    def _prune(self, now: datetime) -> None:
        """Lets go of events that are too old or too many, some at a time."""
        at = now.timestamp()
        if at - self._pruned_at < PRUNE_EVERY_S:
            return
        gone = self._background.execute(
            "DELETE FROM events WHERE sequence IN (SELECT sequence FROM events WHERE at < ? "
            "OR sequence <= (SELECT max(sequence) FROM events) - ? ORDER BY sequence LIMIT ?)",
            ((now - EVENTS_KEPT).timestamp(), EVENTS_MOST, PRUNE_ROWS),
        ).rowcount
        if gone < PRUNE_ROWS:
            self._pruned_at = at

    def _is_news(self, event: Event, moved: Collection[str]) -> bool:
        """Whether no other console recorded the same: by the spans that moved, and for slices by what was just written."""
        if event.kind in _TOLD_BY_SPANS:
            return event.subject in moved
        at = event.at.timestamp()
        window = ECHO_WINDOW.total_seconds()
        row = self._background.execute(
            "SELECT 1 FROM events WHERE at BETWEEN ? AND ? AND kind = ? AND project = ? AND zone = ? AND subject = ? "
            "AND before = ? AND after = ? AND writer <> ? LIMIT 1",
            (
                at - window,
                at + window,
                event.kind.value,
                event.project,
                event.zone,
                event.subject,
                event.before,
                event.after,
                self._writer,
            ),
        ).fetchone()
        return row is None
