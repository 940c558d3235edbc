"""Many long logs are read in slices, with a word about how far it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from textual.widgets import Static

import tui.run_logs as run_logs
from backend.context import Context
from backend.logs.store import LogStore
from backend.logs.worker_log import WorkerLog
from backend.outcomes import Outcome
from backend.runs.fanout import WorkerResult
from backend.targets import WorkerRef
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, console
from tui.screens.logs import READ_AT_ONCE, LogsScreen, RunLogs

COUNT = 3 * READ_AT_ONCE


@dataclass
class Ended:
    """A run of another day: its logs lie on disk, none is open."""

    store: LogStore
    id: str = "run"
    request: Any = field(default_factory=lambda: type("Request", (), {"title": "train", "argv": ()}))
    logs: dict[str, WorkerLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workers = tuple(WorkerRef("p", "z", "a", 0, place, "n", "u") for place in range(COUNT))
        self.results = [WorkerResult(worker, Outcome.OK, output_bytes=9) for worker in self.workers]

    def log_path(self, place: int) -> Path:
        return self.store.path(self.id, self.workers[place].file_stem)

    def has_log(self, place: int) -> bool:
        return self.log_path(place).exists()

    def log(self, place: int) -> WorkerLog:
        worker = self.workers[place]
        return self.logs.setdefault(worker.address, self.store.open(self.id, worker.file_stem))


def run_of_another_day(folder: Path) -> Any:
    writer = LogStore(folder)
    run = Ended(writer)
    for place in range(COUNT):
        run.log(place).append(f"said by {place}\n".encode(), at=float(place + 1))
    writer.close()
    return Ended(LogStore(folder))


async def test_reading_gives_way_after_every_slice_and_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "READ_SLICE_S", 0.0)
    run = run_of_another_day(tmp_path)
    told: list[tuple[int, int]] = []
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    merged = await RunLogs(run).merge(lambda read, of: told.append((read, of)))
    other.cancel()
    merged.refresh()
    assert told == [(read, COUNT) for read in range(1, COUNT + 1)]
    assert turns >= COUNT
    assert [line.text for line in merged.lines(0, merged.total)] == [f"said by {place}" for place in range(COUNT)]


async def test_the_merged_view_says_what_is_being_read_and_then_shows_it(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "READ_SLICE_S", 0.0)
    context: Context = simulators().context
    heads: list[str] = []
    update = Static.update

    def noted(widget: Static, content: Any = "", **options: Any) -> None:
        if widget.id == "logs-head":
            heads.append(str(content))
        update(widget, content, **options)

    monkeypatch.setattr(Static, "update", noted)
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        run = run_of_another_day(tmp_path / "logs")
        await driven.app.push_screen(LogsScreen(RunLogs(cast("Any", run)), merged=True))
        await driven.shows("said by 0", f"said by {COUNT - 1}")
        assert f"reading {COUNT:,} logs …" in heads
        assert f"reading {COUNT // 2:,} of {COUNT:,} logs …" in heads
        assert heads[-1].startswith("merged · train")
