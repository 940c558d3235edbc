"""Logs of a run that are no longer here are told, and never opened."""

from __future__ import annotations

from pathlib import Path

from backend.logs.store import LogStore
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.live import Run
from tests.tui.fixed.facts import LIVE, NOW, WORKERS
from tui.screens.logs import RunLogs


def test_only_logs_that_are_here_are_listed_once_their_worker_has_ended(tmp_path: Path) -> None:
    results = [WorkerResult(worker, Outcome.OK, Phase.ENDED, 0, output_bytes=9) for worker in WORKERS[:3]]
    results.append(WorkerResult(WORKERS[3]))
    run = Run("r", LIVE, results, "exec x", LogStore(tmp_path), NOW, writable_logs=False)
    path = run.log_path(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"one line\n")
    assert RunLogs(run).names == [WORKERS[1].address, WORKERS[3].address]
    assert RunLogs(run, [WORKERS[0].address]).names == []
