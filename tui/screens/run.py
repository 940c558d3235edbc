"""One run: how far it is, what became of each worker, and the way out when something is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from backend.outcomes import OperatorError, Outcome
from backend.runs.attribution import Verdict, of_run
from backend.runs.fanout import RETRIED
from backend.runs.model import RunState
from backend.targets import WorkerRef
from tui.actions import BY_ID, RUN, Action, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.run_questions import ask_note, ask_stop, ask_unknown
from tui.screens.run_rows import (
    COLUMNS,
    detail,
    fold_targets,
    gaps,
    gather,
    heat,
    progress_words,
    rows,
    seen_lines,
)
from tui.widgets.heat_strip import HeatStrip
from tui.widgets.live_table import LiveTable
from tui.widgets.outcome_groups import OutcomeGroups
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.runs.manager import Run

GROUP_EVERY_S = 1.0
"""Outputs are read and grouped at most this often, in a thread."""


class RunScreen(TableScreen):
    """Progress and outcomes of one run, live or from the journal."""

    SCOPE = RUN
    BINDINGS: ClassVar = bindings(RUN)
    CSS_PATH = "work.tcss"

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run_ = run
        self.crumb = f"run {run.id}"
        self._seen: tuple[int, int] | None = None
        self._grouped = -1
        self._verdict: Verdict | None = None
        self._grouped_at = 0.0

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="run"):
            yield Static(id="run-head", markup=False)
            yield HeatStrip(id="run-heat")
            yield Static(id="run-alarm", markup=False)
            with ContentSwitcher(initial="groups", id="run-views"):
                yield OutcomeGroups(id="groups")
                yield LiveTable(COLUMNS, id="table")

    def main_widget(self) -> Widget:
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}")

    def applies(self, action: Action) -> bool:
        run = self.run_
        match action.id:
            case "stop":
                return run.state is not RunState.ENDED
            case "detach":
                # What has no supervisor there is tied to this console.
                return run.state is RunState.RUNNING and run.request.supervised
            case "start-rest":
                return run.state is RunState.RUNNING and run.batch < len(run.batches)
            case "retry":
                return any(result.outcome in RETRIED | {Outcome.UNKNOWN} for result in run.results)
            case "table.mark" | "sort":
                return self.query_one(ContentSwitcher).current == "table"
            case _:
                return True

    def _adopt(self) -> None:
        """A run that was opened from its record, or observed, gives way to the one that is driven here now."""
        tower = self.console.tower
        if tower is not None and self.run_.state is not RunState.ENDED:
            living = tower.runs.active.get(self.run_.id, self.run_)
            if living is not self.run_:
                self.run_, self._seen, self._grouped = living, None, -1

    def notes(self) -> dict[str, str]:
        """What is told of workers, by address, where no error is."""
        return {}

    def tick(self) -> None:
        self._adopt()
        run = self.run_
        ended = run.state is RunState.ENDED
        seen = (run.version, 0 if ended else int(time.monotonic()))
        if seen != self._seen:
            self._seen = seen
            self._draw(utc_now())
        due = time.monotonic() - self._grouped_at >= GROUP_EVERY_S
        if run.version != self._grouped and due:
            self._grouped, self._grouped_at = run.version, time.monotonic()
            self.background(self._group(), group="group", title="group the outputs")

    async def _group(self) -> None:
        run = self.run_
        paths = [run.log_path(index) for index in range(len(run.results))]
        groups = await asyncio.to_thread(gather, list(run.results), paths)
        if run.first_failure is not None:
            self._verdict = await asyncio.to_thread(of_run, run)
            self._alarm()
        view = self.query_one(OutcomeGroups)
        view.set_groups(groups)
        self._say_empty()

    def _draw(self, now: datetime) -> None:
        run = self.run_
        ended = sum(result.ended for result in run.results)
        took = ((run.ended_at or now) - run.started_at).total_seconds()
        summary = progress_words(run.results)
        parts = [
            run.request.title or " ".join(run.request.argv),
            run.state.value,
            f"{ended}/{len(run.results)} ended",
        ]
        if len(run.batches) > 1:
            # One that is read from the journal drives no batch: it had so many.
            batches = f"batch {run.batch} of {len(run.batches)}" if run.batch else f"{len(run.batches)} batches"
            parts.append(batches)
        parts += [summary, format_duration(took)]
        self.query_one("#run-head", Static).update(" · ".join(part for part in parts if part))
        self.query_one(HeatStrip).set_slices(heat(run.results))
        self.table.set_rows(rows(run.results, now, self.notes()))
        self._say_empty()
        self._alarm()

    def _say_empty(self) -> None:
        """What stands in place of groups: nothing has ended, or what has ended is being read."""
        results = self.run_.results
        if any(result.ended for result in results):
            words = "reading the outputs …"
        else:
            words = f"nothing has ended yet: {progress_words(results)}"
        self.query_one(OutcomeGroups).set_empty(words)

    def _alarm(self) -> None:
        run = self.run_
        text = ""
        if run.deadlock:
            key = self.console.settings.keymap.shown(BY_ID["start-rest"])
            text = f"{run.deadlock} {key} starts the rest."
        elif run.state is not RunState.ENDED and run.symptoms:
            text = "\n".join(seen_lines(run.symptoms, run.suspicion))
        elif run.first_failure is not None:
            first = run.first_failure
            verdict = self._verdict
            if verdict is not None:
                symptoms = [f"  follows from it: {symptom.text}" for symptom in verdict.symptoms]
                text = "\n".join(
                    [f"first failure: {verdict.text}", *([verdict.cure] if verdict.cure else []), *symptoms]
                )
                self._set_alarm(text)
                return
            words = first.error or detail(first)
            text = f"first failure: {first.worker.address} {first.outcome.value.replace('_', ' ')} {words}".strip()
        self._set_alarm(text)

    def _set_alarm(self, text: str) -> None:
        text = "\n".join(each for each in (text, *gaps(self.run_.results)) if each)
        alarm = self.query_one("#run-alarm", Static)
        alarm.display = bool(text)
        alarm.update(text)

    # Actions

    def do_view(self) -> None:
        views = self.query_one(ContentSwitcher)
        views.current = "table" if views.current == "groups" else "groups"
        self.focus_main()

    def do_filter(self) -> None:
        """The groups hold all outputs; a filter is for the workers."""
        if self.query_one(ContentSwitcher).current != "table":
            self.do_view()
        super().do_filter()

    @on(LiveTable.RowActivated)
    def _row(self, event: LiveTable.RowActivated) -> None:
        self._show_logs(str(event.row.key))

    @on(OutcomeGroups.EmptyActivated)
    def _no_group_yet(self) -> None:
        self._show_logs("")

    @on(OutcomeGroups.GroupActivated)
    def _group_activated(self, event: OutcomeGroups.GroupActivated) -> None:
        self._show_logs(event.group.first_member)

    def do_open(self) -> None:
        self.do_logs()

    def do_logs(self) -> None:
        if self.query_one(ContentSwitcher).current == "table":
            row = self.table.cursor_row
            self._show_logs(str(row.key) if row is not None else "")
        else:
            group = self.query_one(OutcomeGroups).current
            self._show_logs(group.first_member if group is not None else "")

    def do_logs_marked(self) -> None:
        """Of all when nothing is marked, as a table's deeds are without marks."""
        self._show_logs("", only=[str(key) for key in self.table.marks] or None)

    def _show_logs(self, address: str, only: list[str] | None = None) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        logs = RunLogs(self.run_, only)
        self.console.push_screen(LogsScreen(logs, start=address, merged=not address))

    def marked_workers(self) -> list[WorkerRef]:
        """The marked workers, or that of the cursor."""
        keys = {row.key for row in self.table.selected_rows()}
        return [result.worker for result in self.run_.results if result.worker.address in keys]

    async def do_note(self) -> None:
        await ask_note(self.console, self.run_.id)

    def do_plot(self) -> None:
        from tui.screens.run_plot import RunPlotScreen

        self.console.push_screen(RunPlotScreen(self.run_))

    def do_run_command(self) -> None:
        self.console.open_run_form(self.targets_here())

    def targets_here(self) -> list[str]:
        """The marked workers or that of the cursor where the workers are seen, else all of this run."""
        seen = self.query_one(ContentSwitcher).current == "table"
        chosen = self.marked_workers() if seen else []
        return fold_targets(chosen or [result.worker for result in self.run_.results])

    async def do_shell(self) -> None:
        workers = self.marked_workers()
        await self.console.open_shell(workers[0] if workers else None)

    async def do_stop(self) -> None:
        if self.run_.state is RunState.ENDED:
            raise OperatorError("The run has ended; there is nothing to stop.")
        await ask_stop(self.console, self.run_)

    def do_interrupt(self) -> Any:
        if self.run_.state is RunState.ENDED or self.get_selected_text():
            return self.console.do_interrupt()
        return self.do_stop()

    def do_detach(self) -> None:
        self.run_.detach()
        self.console.say(f"Run {self.run_.id} goes on by itself; it can be opened again from the runs.")

    def do_start_rest(self) -> None:
        self.run_.start_rest()

    async def do_retry(self) -> None:
        results = self.run_.results
        again = [result.worker for result in results if result.outcome in RETRIED]
        unknown = [result.worker for result in results if result.outcome is Outcome.UNKNOWN]
        if unknown and await ask_unknown(self.console, unknown, others=bool(again)):
            again = [result.worker for result in results if result.outcome in RETRIED | {Outcome.UNKNOWN}]
        elif not again:
            raise OperatorError("No worker of this run is known to have failed or been left out.")
        await self.console.again(self.run_, fold_targets(again))
