"""Logs of a run that are no longer here are told, and never opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.bench.live import Bench
from backend.logs.store import LogStore
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.live import Run
from tests.tui.fixed.facts import BENCHES, LIVE, NOW, SHORN_ID, WORKERS
from tests.tui.fixed.scenes import run_of
from tests.tui.fixed.world import fixed_console
from tui.screens.logs import RunLogs


def test_only_logs_that_are_here_are_listed_once_their_worker_has_ended(tmp_path: Path) -> None:
    results = [WorkerResult(worker, Outcome.OK, Phase.ENDED, 0, output_bytes=9) for worker in WORKERS[:3]]
    results.append(WorkerResult(WORKERS[3]))
    run = Run("r", LIVE, results, "exec x", LogStore(tmp_path), NOW, writable_logs=False)
    path = run.log_path(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"one line\n")
    assert RunLogs(run).names == [WORKERS[1].address]
    assert RunLogs(run, [WORKERS[0].address]).names == []
    followed = Run("r", LIVE, results, "exec x", LogStore(tmp_path), NOW)
    assert RunLogs(followed).names == [WORKERS[1].address, WORKERS[3].address]


async def test_a_benchmark_whose_logs_were_removed_keeps_its_figures_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        await run_of(driven, SHORN_ID, "v")
        await driven.until(lambda: "No log of this run is on this machine" in driven.toasts())
        assert "step time" in driven.text
        bench = Bench(driven.app.find_run(SHORN_ID), BENCHES[1])
        assert bench.told(10) == []
