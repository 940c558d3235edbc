"""Runs as the journal has them: read by the loop's connection, or beside the loop by one of its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.model import RunHead, RunRecord, RunRequest, RunState
from backend.runs.sightings import Sighting, from_record
from backend.sanitize import plain
from backend.targets import WorkerRef

REQUEST_FIELDS = (
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


EVERY_RUN = 2**31
"""A limit that leaves none out."""


class RunReader(Protocol):
    """The part of backend.journal.Reader that is needed here."""

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...

    def row(self, query: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None: ...


class RunHistory:
    """Reads run records.

    Raises:
        OperatorError: The journal can't be read.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._heads: dict[str, tuple[tuple[object, ...], RunHead]] = {}
        """Of runs that have ended, with what they were read from: they are counted once."""

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

    def oldest_first(self, only: Collection[str] | None = None) -> Iterator[RunRecord]:
        """Every run that is kept, or these alone: one after another, so that thousands are never held at once."""
        for run_id in self._ids("ORDER BY started_at", ()):
            if only is None or run_id in only:
                yield self._read(run_id)

    def heads(self, *, limit: int = 200) -> list[RunHead]:
        """The newest runs first, without their workers: cheap however many those are, and cheaper when asked again."""
        rows = self._reader.rows(
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
        for outcome, phase, number in self._reader.rows(
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
        rows = self._reader.rows(
            "SELECT id, state FROM runs WHERE state != 'ended' AND (? = '' OR context = ?) ORDER BY started_at",
            (context, context),
        )
        return [(str(run_id), RunState(state)) for run_id, state in rows]

    def _ids(self, clause: str, values: tuple[object, ...]) -> list[str]:
        return [str(row[0]) for row in self._reader.rows(f"SELECT id FROM runs {clause}", values)]

    def _required(self, run_id: str, columns: str) -> tuple[Any, ...]:
        row = self._reader.row(f"SELECT {columns} FROM runs WHERE id = ?", (run_id,))
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
        rows = self._reader.rows(
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

    def symptoms(self, run_id: str, workers: Sequence[WorkerRef]) -> list[Sighting]:
        """The same, in the order in which they were seen; what this release does not know any more is left out."""
        rows = self._reader.rows(
            "SELECT place, line, text, blames FROM run_symptoms WHERE run = ? ORDER BY rowid", (run_id,)
        )
        found = (
            from_record(place, workers[place].address, line, text, json.loads(blames))
            for place, line, text, blames in rows
            if place < len(workers)
        )
        return [each for each in found if each is not None]


def _load(text: str) -> RunRequest:
    """Fields that a newer release wrote are passed over."""
    values: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in REQUEST_FIELDS}
    values["argv"] = tuple(values.get("argv", ()))
    values["environment"] = tuple((name, value) for name, value in values.get("environment", ()))
    values["secret_environment"] = tuple(values.get("secret_environment", ()))
    return RunRequest(**values)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
