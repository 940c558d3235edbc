"""One run: how far it is, what became of each worker, and the way out when something is wrong."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from backend.diagnosis.attribution import Verdict, of_run
from backend.diagnosis.grouping import OUTPUT_LIMIT, WorkerOutput, group
from backend.model import EventKind
from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import FAILURES, WorkerResult
from backend.runs.model import RunState, StopReport
from backend.targets import WorkerRef, fold
from tui.actions import BY_ID, RUN, Action, bindings
from tui.durations import format_duration
from tui.screens.base import TableScreen
from tui.screens.confirm import Choice, Question
from tui.widgets.heat_strip import HeatSlice, HeatStrip
from tui.widgets.live_table import LiveTable
from tui.widgets.outcome_groups import OutcomeGroup, OutcomeGroups
from tui.widgets.rows import Cell, Column, Row, number_cell, outcome_cell
from tui.wording import count, size, utc_now

if TYPE_CHECKING:
    from backend.runs.manager import Run
    from tui.app import SliceTower

GROUP_EVERY_S = 1.0
"""Outputs are read and grouped at most this often, in a thread."""
COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=30),
    Column("outcome", "OUTCOME", min_width=12, max_width=24),
    Column("time", "TIME", width=8),
    Column("output", "OUTPUT", width=9, align="right"),
    Column("note", "NOTE", min_width=10, max_width=200, flex=1),
)


def detail(result: WorkerResult) -> str:
    """The number behind an outcome: exit code or signal."""
    if result.outcome is Outcome.FAILED and result.exit_code is not None:
        return f"exit {result.exit_code}"
    return f"SIG{result.signal}" if result.signal else ""


def rows(results: Iterable[WorkerResult], now: datetime) -> list[Row]:
    """One row a worker."""
    found = []
    for result in results:
        took = ((result.ended_at or now) - result.started_at).total_seconds() if result.started_at else None
        state = outcome_cell(result.outcome, detail=detail(result))
        if result.outcome is Outcome.PENDING:
            state = Cell(result.phase.value, token="outcome-pending", glyph="outcome-pending")
        found.append(
            Row(
                result.worker.address,
                (
                    result.worker.address,
                    state,
                    number_cell(took, format_duration(took) if took is not None else "-"),
                    number_cell(result.output_bytes, size(result.output_bytes)),
                    result.error or result.note,
                ),
            )
        )
    return found


def heat(results: Iterable[WorkerResult]) -> list[HeatSlice]:
    """One cell a worker, by slice."""
    slices: dict[str, list[str]] = {}
    for result in results:
        token = f"outcome-{result.outcome.value.replace('_', '-')}"
        slices.setdefault(f"{result.worker.queued_resource}/{result.worker.slice_index}", []).append(token)
    return [HeatSlice(label, tuple(tokens)) for label, tokens in slices.items()]


def progress_words(results: Iterable[WorkerResult]) -> str:
    """How many are where: outcomes of those that ended, of the others what they are at."""
    found = Counter(
        result.phase.value if result.outcome is Outcome.PENDING else result.outcome.value.replace("_", " ")
        for result in results
    )
    return ", ".join(f"{number} {word}" for word, number in found.items())


def _tail(path: Path) -> bytes:
    """The end of a log, from the beginning of a line."""
    try:
        with path.open("rb") as file:
            left_out = max(0, path.stat().st_size - OUTPUT_LIMIT)
            file.seek(left_out)
            end = file.read(OUTPUT_LIMIT)
            return end[end.find(b"\n") + 1 :] if left_out else end
    except FileNotFoundError:
        # A worker that never began has no log.
        return b""


def _left_out(path: Path) -> int:
    """Bytes of a log before the end that is shown."""
    try:
        return max(0, path.stat().st_size - OUTPUT_LIMIT)
    except FileNotFoundError:
        return 0


def gather(results: Sequence[WorkerResult], paths: Sequence[Path]) -> list[OutcomeGroup]:
    """Groups of workers that ended alike with the same output. Reads logs from disk: call it in a thread.

    Args:
        results: One entry a worker.
        paths: Their logs, in the same order.
    """
    ended = [result for result in results if result.ended]
    by_path = {result.worker.address: path for result, path in zip(results, paths, strict=True)}
    known = [result for result in ended if result.outcome in FAILURES]
    first = min(known, key=lambda item: (item.ended_at is None, item.ended_at), default=None)
    by_address = {result.worker.address: result for result in ended}
    outputs = [
        WorkerOutput(address, result.outcome, result.exit_code, _tail(by_path[address]))
        for address, result in by_address.items()
    ]
    found = []
    for each in group(outputs):
        head = by_address[each.addresses[0]]
        text = each.text or head.error
        found.append(
            OutcomeGroup(
                outcome=each.outcome.value,
                count=len(each.addresses),
                members=fold(each.addresses),
                detail=detail(head),
                lines=tuple(text.split("\n")) if text else (),
                cut_bytes=_left_out(by_path[each.addresses[0]]),
                is_first_failure=first is not None and first.worker.address in each.addresses,
                first_member=first.worker.address
                if first is not None and first.worker.address in each.addresses
                else each.addresses[0],
            )
        )
    return sorted(found, key=lambda item: (item.outcome == Outcome.OK, not item.is_first_failure, -item.count))


def stop_words(report: StopReport) -> str:
    """What became of stopping, in a sentence."""
    if report.clean:
        return f"Stopped on {count(len(report.stopped), 'worker')}; nothing of it is left there."
    parts = [f"stopped on {count(len(report.stopped), 'worker')}"] if report.stopped else []
    parts += [f"{address} still has pids {', '.join(map(str, pids))}" for address, pids in report.survivors]
    parts += [f"{address} could not be checked: {why}" for address, why in report.unverified]
    return "; ".join(parts) + "."


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
            case "stop" | "detach":
                return run.state is not RunState.ENDED
            case "start-rest":
                return run.state is RunState.RUNNING and run.batch < len(run.batches)
            case "retry":
                return any(result.outcome in FAILURES for result in run.results)
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
            parts.append(f"batch {run.batch} of {len(run.batches)}")
        parts += [summary, format_duration(took)]
        self.query_one("#run-head", Static).update(" · ".join(part for part in parts if part))
        self.query_one(HeatStrip).set_slices(heat(run.results))
        self.table.set_rows(rows(run.results, now))
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
        self._show_logs("", only=[str(key) for key in self.table.marks])

    def _show_logs(self, address: str, only: list[str] | None = None) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        logs = RunLogs(self.run_, only)
        self.console.push_screen(LogsScreen(logs, start=address, merged=not address and not only))

    def marked_workers(self) -> list[WorkerRef]:
        """The marked workers, or that of the cursor."""
        keys = {row.key for row in self.table.selected_rows()}
        return [result.worker for result in self.run_.results if result.worker.address in keys]

    def do_plot(self) -> None:
        from tui.screens.run_plot import RunPlotScreen

        self.console.push_screen(RunPlotScreen(self.run_))

    def do_run_command(self) -> None:
        """On the marked workers or that of the cursor where the workers are seen, else on all of this run."""
        seen = self.query_one(ContentSwitcher).current == "table"
        chosen = self.marked_workers() if seen else []
        self.console.open_run_form(fold_targets(chosen or [result.worker for result in self.run_.results]))

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

    def do_retry(self) -> None:
        failed = [result.worker for result in self.run_.results if result.outcome in FAILURES]
        if not failed:
            raise OperatorError("No worker of this run has failed.")
        command = self.run_.request.title or " ".join(self.run_.request.argv)
        self.console.open_run_form(fold_targets(failed), command)


async def ask_stop(console: SliceTower, run: Run) -> None:
    """Asks, then stops the remote groups and verifies that nothing is left."""
    living = sum(not result.ended for result in run.results)
    choices = (Choice("stop", "Stop it there", "error"), Choice("detach", "Detach"), Choice("no", "Let it run"))
    lines = [f"It still runs on {count(living, 'worker')}."]
    answer = await console.push_screen_wait(Question(f"Stop run {run.id}?", lines, choices, chosen=2))
    if answer == "detach":
        run.detach()
        console.say(f"Run {run.id} goes on by itself.")
    elif answer == "stop":
        report = await run.stop()
        words = stop_words(report)
        console.note(EventKind.ACTION, f"run {run.id}: {words}", subject=run.id)
        console.say(words, severity="information" if report.clean else "error")


def fold_targets(workers: Iterable[WorkerRef]) -> list[str]:
    """Addresses of workers, as short as targets can be."""
    addresses = [worker.address for worker in workers]
    return fold(addresses).split() if addresses else []
