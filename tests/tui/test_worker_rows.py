"""Lines of workers are looked at when they can have changed, and made again when they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

import tui.screens.worker_rows as worker_rows
from backend.model import Fleet, QueuedResource, Slice, Worker
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.model import RunState
from backend.targets import WorkerRef
from tui.screens.worker_rows import AGE_S, Newest, WorkerRows, everything, slices_of

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
WORKERS = 4


@dataclass
class Log:
    last_at: float


@dataclass
class Ran:
    """What of a run its lines tell."""

    results: list[WorkerResult]
    logs: dict[str, Log]
    state: RunState = RunState.RUNNING
    started_at: datetime = NOW
    request: Any = field(default_factory=lambda: type("Request", (), {"title": "train", "argv": ()}))


def fleet(state: str = "READY") -> Fleet:
    workers = tuple(Worker(index, f"10.0.0.{index}") for index in range(WORKERS))
    one = Slice("p", "z", "train-a-0", 0, state, queued_resource="train-a", workers=workers)
    return Fleet(queued_resources=(QueuedResource("p", "z", "train-a", "ACTIVE", slices=(one,)),), loaded=True)


class Watched:
    """Rows of a fleet, with a count of the workers that were looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked: list[str] = []
        self.lines, self.newest = WorkerRows(), Newest()
        self.set_fleet(fleet())
        facts = worker_rows.facts

        def counted(worker: WorkerRef, *given: Any) -> Any:
            self.looked.append(worker.address)
            return facts(worker, *given)

        monkeypatch.setattr(worker_rows, "facts", counted)

    def set_fleet(self, known: Fleet) -> None:
        self.workers, self.slices = everything(known), slices_of(known)

    def texts(self, run: Ran | None, after_s: float = 0.0, shown: Sequence[str] = ()) -> list[list[str]]:
        self.looked.clear()
        latest = self.newest.of([cast("Any", run)] if run is not None else [])
        rows = self.lines.rows(self.workers, self.slices, latest, NOW + timedelta(seconds=after_s), shown)
        return [[cell if isinstance(cell, str) else cell.text for cell in row.cells] for row in rows]


def ran(known: Fleet, outcome: Outcome) -> Ran:
    results = [WorkerResult(worker, outcome) for worker in everything(known)]
    return Ran(results, {result.worker.address: Log(NOW.timestamp()) for result in results})


def test_workers_without_a_run_are_looked_at_once_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    assert [line[1] for line in watched.texts(None)] == ["READY"] * WORKERS
    assert len(watched.looked) == WORKERS
    watched.texts(None, 3600)
    assert not watched.looked
    watched.set_fleet(fleet("REPAIRING"))
    assert [line[1] for line in watched.texts(None, 3601)] == ["REPAIRING"] * WORKERS


def test_an_outcome_is_told_at_once_wherever_its_line_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    run = ran(fleet(), Outcome.PENDING)
    watched.texts(run)
    run.results[2].outcome = Outcome.FAILED
    run.results[2].exit_code = 3
    texts = watched.texts(run)
    assert watched.looked == ["train-a/0/2"]
    assert [line[2] for line in texts] == ["waiting", "waiting", "failed (exit 3)", "waiting"]
    run.results[0].phase = Phase.RUNNING
    assert watched.texts(run)[0][2] == "running"


def test_ages_on_the_screen_are_those_of_now_and_others_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    run = ran(fleet(), Outcome.OK)
    run.state = RunState.ENDED
    assert [line[2:4] for line in watched.texts(run)] == [["ok", "0s"]] * WORKERS
    assert [line[3] for line in watched.texts(run, 2, shown=["train-a/0/1"])] == ["0s", "2s", "0s", "0s"]
    assert watched.looked == ["train-a/0/1"]
    late = AGE_S * 1.5
    assert [line[3] for line in watched.texts(run, late)] == [f"{late:.0f}s"] * WORKERS


def test_equal_facts_keep_the_very_row(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    run = ran(fleet(), Outcome.PENDING)
    latest = watched.newest.of([cast("Any", run)])
    first = watched.lines.rows(watched.workers, watched.slices, latest, NOW)
    run.results[0] = replace(run.results[0])
    watched.set_fleet(fleet())
    second = watched.lines.rows(watched.workers, watched.slices, latest, NOW)
    assert [one is other for one, other in zip(first, second, strict=True)] == [True] * WORKERS


def test_a_newer_run_takes_the_place_of_the_older(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    older, newer = ran(fleet(), Outcome.OK), ran(fleet(), Outcome.FAILED)
    older.state = newer.state = RunState.ENDED
    newer.started_at = NOW + timedelta(seconds=1)
    assert watched.texts(older)[0][2] == "ok"
    latest = watched.newest.of([cast("Any", newer), cast("Any", older)])
    rows = watched.lines.rows(watched.workers, watched.slices, latest, NOW)
    assert {row.key: row.cells[2].text for row in rows if not isinstance(row.cells[2], str)} == dict.fromkeys(
        (f"train-a/0/{index}" for index in range(WORKERS)), "failed"
    )
