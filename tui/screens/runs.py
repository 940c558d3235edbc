"""All runs that the journal knows, the living ones live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.widget import Widget

from backend.outcomes import OperatorError, Outcome
from backend.runs.model import RunRecord, RunState
from tui.actions import BY_ID, RUNS, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.run_rows import fold_targets
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.runs.manager import Run

COLUMNS = (
    Column("started", "STARTED (UTC)", width=14),
    Column("state", "STATE", min_width=8, max_width=10),
    Column("workers", "WORKERS", width=7, align="right", priority=2),
    Column("outcome", "OUTCOMES", min_width=10, max_width=40),
    Column("time", "TIME", width=8, priority=3),
    Column("command", "COMMAND", min_width=12, max_width=200, flex=1),
    Column("id", "RUN", min_width=6, max_width=24, priority=1),
)
STATE_TOKENS = {RunState.RUNNING: "state-provisioning", RunState.DETACHED: "state-waiting", RunState.ENDED: "muted"}


def outcome_words(summary: Mapping[Outcome, int]) -> Cell:
    """`8 ok`, `7 ok, 1 failed`: bad news coloured."""
    text = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in summary.items())
    bad = any(outcome not in (Outcome.OK, Outcome.PENDING, Outcome.NOT_STARTED) for outcome in summary)
    return Cell(text, token="outcome-failed" if bad else "")


def row(item: Run | RunRecord, now: datetime) -> Row:
    """One run, live or kept."""
    took = ((item.ended_at or now) - item.started_at).total_seconds()
    size = len(item.workers)
    command = item.request.title or " ".join(item.request.argv)
    return Row(
        item.id,
        (
            Cell(f"{item.started_at:%m-%d %H:%M:%S}", token="muted", sort=item.started_at.timestamp()),
            Cell(item.state.value, token=STATE_TOKENS.get(item.state, "muted")),
            number_cell(size),
            outcome_words(item.summary),
            number_cell(took, format_duration(took) if item.ended_at or item.state is RunState.RUNNING else "-"),
            command,
            Cell(item.id, token="muted"),
        ),
    )


class RunsScreen(TableScreen):
    """Newest first."""

    SCOPE = RUNS
    BINDINGS: ClassVar = bindings(RUNS)
    crumb = "runs"

    def compose_body(self) -> Iterable[Widget]:
        yield LiveTable(COLUMNS, id="table", empty="Nothing was run yet. x on workers runs a command.")

    def tick(self) -> None:
        tower = self.console.tower
        if tower is None:
            return
        live = {run.id: run for run in self.console.live_runs()}
        items: list[Run | RunRecord] = list(live.values())
        items += [record for record in tower.runs.history() if record.id not in live]
        now = utc_now()
        self.table.set_rows(
            [row(item, now) for item in sorted(items, key=lambda item: item.started_at, reverse=True)]
        )

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

    async def do_stop(self) -> None:
        run = self.chosen_run()
        if run.state is RunState.ENDED:
            raise OperatorError(f"Run {run.id} has ended already.")
        from tui.screens.run import ask_stop

        await ask_stop(self.console, run)
