"""All runs that the journal knows, the living ones live."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Vertical
from textual.widget import Widget

from backend.outcomes import OperatorError, Outcome
from backend.runs.audit import audit_csv, audit_json
from backend.runs.model import RunHead, RunState
from tui.actions import BY_ID, RUNS, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.exports import Exporting
from tui.screens.run_detail import RunDetail, last_lines, speaker
from tui.screens.run_questions import ask_note, ask_stop, note_words
from tui.screens.run_rows import fold_targets, phase_counts
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.runs.fanout import WorkerResult
    from backend.runs.manager import Run
    from backend.targets import WorkerRef

COLUMNS = (
    Column("started", "STARTED (UTC)", width=14),
    Column("state", "STATE", min_width=8, max_width=10),
    Column("workers", "WORKERS", width=7, align="right", priority=2),
    Column("outcome", "OUTCOMES", min_width=10, max_width=40),
    Column("time", "TIME", width=8, priority=3),
    Column("command", "COMMAND", min_width=24, max_width=200, flex=1),
    Column("note", "NOTE", min_width=4, max_width=40, priority=1),
    Column("id", "RUN", min_width=6, max_width=24, priority=0),
)
STATE_TOKENS = {RunState.RUNNING: "state-provisioning", RunState.DETACHED: "state-waiting", RunState.ENDED: "muted"}


def outcome_words(item: Run | RunHead) -> Cell:
    """`8 ok`, `7 running, 1 failed`: bad news coloured."""
    summary = item.summary
    text = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in summary.items())
    if item.state is RunState.RUNNING:
        phases = item.phases if isinstance(item, RunHead) else phase_counts(item.results)
        text = ", ".join(f"{number} {word}" for word, number in phases.items())
    bad = any(outcome not in (Outcome.OK, Outcome.PENDING, Outcome.NOT_STARTED) for outcome in summary)
    return Cell(text, token="outcome-failed" if bad else "")


def row(item: Run | RunHead, now: datetime, note: str = "") -> Row:
    """One run, live or kept, with the operator's words on it."""
    took = ((item.ended_at or now) - item.started_at).total_seconds()
    size = item.size if isinstance(item, RunHead) else len(item.workers)
    command = item.request.title or " ".join(item.request.argv)
    return Row(
        item.id,
        (
            Cell(f"{item.started_at:%m-%d %H:%M:%S}", token="muted", sort=item.started_at.timestamp()),
            Cell(item.state.value, token=STATE_TOKENS.get(item.state, "muted")),
            number_cell(size),
            outcome_words(item),
            number_cell(took, format_duration(took) if item.ended_at or item.state is RunState.RUNNING else "-"),
            command,
            Cell(note, token="muted"),
            Cell(item.id, token="muted"),
        ),
    )


class RunsScreen(Exporting, TableScreen):
    """Newest first."""

    SCOPE = RUNS
    BINDINGS: ClassVar = bindings(RUNS)
    crumb = "runs"

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[str, Run | RunHead] = {}
        self._notes: dict[str, str] = {}
        self._shown: tuple[object, ...] | None = None
        """Which state of which run the detail shows."""
        self._results: Sequence[WorkerResult] = ()
        self._lines: list[str] | None = None
        """The end of the log that the detail shows; None while it is read."""

    def compose_body(self) -> Iterable[Widget]:
        with Vertical(id="runs"):
            yield LiveTable(COLUMNS, id="table", empty="Nothing was run yet. x on workers runs a command.")
            yield RunDetail(id="run-detail")

    def tick(self) -> None:
        tower = self.console.tower
        if tower is None:
            return
        live = {run.id: run for run in self.console.live_runs()}
        records = tower.runs.heads()
        items: list[Run | RunHead] = list(live.values())
        items += [record for record in records if record.id not in live]
        # A living run is only on screen: its words are in its record.
        tags = tower.runs.audit.all_tags()
        self._notes = {record.id: note_words(record.note, tags.get(record.id, ())) for record in records}
        now = utc_now()
        newest_first = sorted(items, key=lambda item: item.started_at, reverse=True)
        self._items = {item.id: item for item in newest_first}
        self.table.set_rows([row(item, now, self._notes.get(item.id, "")) for item in newest_first])
        self._show_detail()

    @on(LiveTable.RowHighlighted)
    def _show_detail(self) -> None:
        """The run of the cursor; its last lines are read anew when it has changed."""
        found = self.table.cursor_row
        item = self._items.get(str(found.key)) if found is not None else None
        pane = self.query_one(RunDetail)
        pane.display = item is not None
        if item is None:
            return
        state = (item.id, item.phases if isinstance(item, RunHead) else item.version, self._notes.get(item.id, ""))
        if state == self._shown:
            return
        if self._shown is None or self._shown[0] != item.id:
            self._lines = None
        self._shown = state
        self._results = self._results_of(item)
        if not self._results:
            pane.display = False
            return
        said = speaker(self._results)
        self.background(self._read_end(item.id, said.worker), group="end of log", title="read the end of a log")
        self._draw_detail(item)

    def _draw_detail(self, item: Run | RunHead) -> None:
        self.query_one(RunDetail).show(item.request, self._results, self._notes.get(item.id, ""), self._lines)

    def _results_of(self, item: Run | RunHead) -> Sequence[WorkerResult]:
        if isinstance(item, RunHead):
            return self.console.require_tower().runs.store.results(item.id)
        return item.results

    async def _read_end(self, run_id: str, worker: WorkerRef) -> None:
        path = self.console.require_tower().runs.logs.path(run_id, worker.file_stem)
        lines = await asyncio.to_thread(last_lines, path)
        item = self._items.get(run_id)
        if item is not None and self._shown is not None and self._shown[0] == run_id:
            self._lines = lines
            self._draw_detail(item)

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def chosen_run(self) -> Run:
        """The run of the cursor, live or read from the journal.

        Raises:
            OperatorError: There is none.
        """
        found = self.table.cursor_row
        if found is None:
            raise OperatorError("There is no run under the cursor.")
        return self.console.find_run(str(found.key))

    def do_open(self) -> None:
        self.console.open_run(self.chosen_run())

    def do_logs(self) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        run = self.chosen_run()
        self.console.push_screen(LogsScreen(RunLogs(run), merged=True))

    def do_plot(self) -> None:
        from tui.screens.run_plot import RunPlotScreen

        self.console.push_screen(RunPlotScreen(self.chosen_run()))

    async def do_run_command(self) -> None:
        """The same again on the same workers."""
        run = self.chosen_run()
        await self.console.again(run, fold_targets(run.workers))

    async def do_note(self) -> None:
        await ask_note(self.console, self.chosen_run().id)

    def export_name(self) -> str:
        return "runs"

    def require_rows(self) -> None:
        if not self.table.visible_rows and not self.table.marks:
            filtered = self.table.filter_text
            raise OperatorError("There is no run to export.", "No run matches the filter." if filtered else "")

    async def export_lines(self, form: str) -> Iterable[str]:
        """Who ran what, where, when, and how it ended: marked runs, those that the filter shows, or every one that is kept."""
        runs, table = self.console.require_tower().runs, self.table
        shown = {row.key for row in table.visible_rows} if table.filter_text else None
        chosen = table.marks or shown
        runs.close_abandoned()
        rows = runs.audit_rows(frozenset(map(str, chosen)) if chosen is not None else None)
        first = await asyncio.to_thread(next, rows, None)
        if first is None:
            raise OperatorError("There is no run to export.", "One that was just begun is kept a moment later.")
        # The others are read where they are written: beside the loop.
        rows = chain([first], rows)
        return audit_csv(rows) if form == "csv" else audit_json(rows)

    def do_prune(self) -> None:
        from tui.screens.prune import PruneFormScreen

        self.console.require_tower()
        self.console.push_screen(PruneFormScreen())

    async def do_stop(self) -> None:
        run = self.chosen_run()
        if run.state is RunState.ENDED:
            raise OperatorError(f"Run {run.id} has ended already.")
        await ask_stop(self.console, run)
