"""Benchmarks in the journal: each with its figures, its steps and everything that it takes to repeat it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from backend.bench.model import BenchError, BenchRecord, BenchRequest, BenchState, BenchSummary, StepPoint
from backend.journal import Journal
from backend.outcomes import OperatorError

_STEPS = (
    """
    CREATE TABLE benches (
        id TEXT PRIMARY KEY,
        started_at REAL NOT NULL,
        ended_at REAL,
        state TEXT NOT NULL,
        queued_resource TEXT NOT NULL,
        accelerator_type TEXT NOT NULL,
        slices INTEGER NOT NULL,
        facts TEXT NOT NULL,
        summary TEXT NOT NULL,
        points TEXT NOT NULL
    );
    CREATE INDEX benches_by_time ON benches (started_at);
    """,
    """
    CREATE TABLE baselines (
        name TEXT PRIMARY KEY,
        bench TEXT NOT NULL,
        saved_at REAL NOT NULL
    );
    """,
)
_FACTS = ("target", "project", "zone", "devices", "platform", "context", "program_digest", "note", "topology")
_FIGURES = ("peak_tflops_per_device", "predicted_tflops_per_device")


class BenchStore:
    """The journal's part of benchmarks.

    Raises:
        OperatorError: The journal can't be read or written.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.migrate("bench", _STEPS)

    def save(self, record: BenchRecord) -> None:
        """Writes a benchmark, or what is new of it."""
        facts: dict[str, Any] = {name: getattr(record, name) for name in (*_FACTS, *_FIGURES)}
        facts["request"] = record.request.to_json()
        facts["versions"] = dict(record.versions)
        facts["errors"] = [asdict(error) for error in record.errors]
        with self._journal.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO benches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.id,
                    record.started_at.timestamp(),
                    record.ended_at.timestamp() if record.ended_at else None,
                    record.state.value,
                    record.queued_resource,
                    record.accelerator_type,
                    record.slices,
                    json.dumps(facts),
                    json.dumps(record.summary.to_json()),
                    json.dumps([asdict(point) for point in record.points]),
                ),
            )

    def records(self, *, limit: int = 200, queued_resource: str | None = None) -> list[BenchRecord]:
        """Newest first."""
        where, values = ("WHERE queued_resource = ?", [queued_resource]) if queued_resource is not None else ("", [])
        rows = self._journal.rows(f"SELECT * FROM benches {where} ORDER BY started_at DESC LIMIT ?", [*values, limit])
        return [_record(row) for row in rows]

    def find(self, bench_id: str) -> BenchRecord | None:
        """By its id."""
        row = self._journal.row("SELECT * FROM benches WHERE id = ?", [bench_id])
        return _record(row) if row else None

    def get(self, bench_id: str) -> BenchRecord:
        """By its id, or by a beginning of it that only one has; `last` is the newest.

        Raises:
            OperatorError: None, or several.
        """
        if bench_id == "last":
            newest = self.records(limit=1)
            if not newest:
                raise OperatorError("No benchmark was run yet.", "`slicetower bench shardings TARGET` runs one.")
            return newest[0]
        exact = self.find(bench_id)
        if exact is not None:
            return exact
        rows: Sequence[Any] = self._journal.rows(
            "SELECT * FROM benches WHERE substr(id, 1, ?) = ? ORDER BY started_at DESC LIMIT 5",
            [len(bench_id), bench_id],
        )
        if not rows or not bench_id:
            raise OperatorError(f"There is no benchmark '{bench_id}'.", "`slicetower bench list` shows them.")
        if len(rows) > 1:
            names = ", ".join(row[0] for row in rows)
            raise OperatorError(f"'{bench_id}' begins the names of several benchmarks: {names}.", "Write more of it.")
        return _record(rows[0])

    # Baselines

    def save_baseline(self, name: str, record: BenchRecord) -> None:
        """Gives a benchmark a name to compare later ones with; the name's earlier one is replaced.

        Raises:
            OperatorError: The name is empty, or the benchmark has no figures to compare with.
        """
        if not name.strip():
            raise OperatorError("A baseline needs a name.", "Write `slicetower bench baseline NAME ID`.")
        if record.summary.tflops_per_device is None:
            raise OperatorError(
                f"{record.id} has no throughput: nothing can be compared with it.", "Take one that is done."
            )
        with self._journal.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO baselines VALUES (?, ?, ?)",
                (name, record.id, datetime.now(UTC).timestamp()),
            )

    def baselines(self) -> dict[str, BenchRecord]:
        """By name, in the order of the names."""
        rows = self._journal.rows("SELECT name, bench FROM baselines ORDER BY name")
        return {name: record for name, bench in rows if (record := self.find(bench)) is not None}

    def baseline(self, name: str) -> BenchRecord:
        """The benchmark of that name.

        Raises:
            OperatorError: There is none.
        """
        known = self.baselines()
        if name not in known:
            names = f"There are: {', '.join(known)}." if known else "`slicetower bench baseline NAME ID` saves one."
            raise OperatorError(f"There is no baseline '{name}'.", names)
        return known[name]


def _record(row: Sequence[Any]) -> BenchRecord:
    identity, started, ended, state, resource, kind, slices, facts_text, summary, points = row
    facts = json.loads(facts_text)
    return BenchRecord(
        id=identity,
        request=BenchRequest.from_json(facts["request"]),
        queued_resource=resource,
        accelerator_type=kind,
        slices=slices,
        state=BenchState(state),
        started_at=datetime.fromtimestamp(started, UTC),
        ended_at=datetime.fromtimestamp(ended, UTC) if ended is not None else None,
        versions=facts.get("versions", {}),
        summary=BenchSummary.from_json(json.loads(summary)),
        points=tuple(StepPoint(**point) for point in json.loads(points)),
        errors=tuple(BenchError(**error) for error in facts.get("errors", ())),
        **{name: facts.get(name, "") for name in _FACTS if name != "devices"},
        devices=int(facts.get("devices", 0)),
        **{name: facts.get(name) for name in _FIGURES},
    )
