"""One benchmark: throughput drawn while it runs, every figure in words, and what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.runs.attribution import of_run
from backend.sanitize import plain_text
from tui.actions import BENCH, Action, bindings
from tui.screens.bench_figures import beside, figures, histogram_lines, last_words, series
from tui.screens.confirm import Choice, Question
from tui.screens.exports import Exporting
from tui.widgets.throughput_plot import ThroughputPlot

if TYPE_CHECKING:
    from backend.bench.manager import Bench
    from backend.bench.model import BenchRecord
    from tui.console import Console

MARGINS = 4
"""Cells of the page that are no text: its padding and the scrollbar."""
COLUMN_WIDTH = 48
"""Of the figures where they stand beside the plot, with their rule (work.tcss)."""
PLOT_EVERY = 2
"""Ticks between two looks at the readings: the plot is drawn once a second at most."""


class BenchScreen(Exporting):
    """Live, or read from the journal."""

    SCOPE = BENCH
    BINDINGS: ClassVar = bindings(BENCH)
    CSS_PATH = "work.tcss"

    def __init__(self, bench: Bench | None, record: BenchRecord | None = None) -> None:
        """
        Args:
            bench: A living one.
            record: One of the past, when there is no living one.
        """
        super().__init__()
        self.bench = bench
        self._record = bench.record if bench is not None else record
        self.crumb = f"bench {self._record.id if self._record is not None else ''}"
        self._seen = -1
        self._ticks = 0
        self._judged = False
        self._why: list[str] = []

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="bench"):
            yield Static(id="bench-head", markup=False)
            yield ThroughputPlot(marker=self.console.settings.plot or None, id="plot")
            with VerticalScroll(id="figures-scroll"):
                yield Static(id="figures", markup=False)

    def main_widget(self) -> Widget:
        return self.query_one("#figures-scroll")

    def applies(self, action: Action) -> bool:
        if action.id in ("stop", "detach"):
            return self.bench is not None and not self.bench.state.is_over
        return True

    def record(self) -> BenchRecord:
        """What is known now."""
        if self.bench is not None:
            return self.bench.record
        assert self._record is not None
        return self._record

    def _adopt(self) -> None:
        """A record that was opened before its benchmark was found again becomes live."""
        tower = self.console.tower
        if self.bench is None and self._record is not None and tower is not None and not self._record.state.is_over:
            self.bench = tower.benches.active.get(self._record.id)
            if self.bench is not None:
                self._seen = -1

    def tick(self) -> None:
        self._ticks += 1
        self._adopt()
        version = self.bench.version if self.bench is not None else 0
        if version == self._seen or (self._seen >= 0 and self._ticks % PLOT_EVERY):
            return
        self._seen = version
        record = self.record()
        self.query_one("#bench-head", Static).update(plain_text("\n".join(self.head(record))))
        plot = self.query_one(ThroughputPlot)
        plot.set_series(
            [series(record, record.points, title=self.title_of(record), label=self.console.context.label)]
        )
        if record.state.value == "failed" and not self._judged:
            self._judged = True
            self.background(self._judge(), group="verdict", title="look why it failed")
        width = (COLUMN_WIDTH if self.is_wide else self.size.width) - MARGINS
        self.query_one("#figures", Static).update(plain_text("\n".join(self.lines_of(record, width))))

    def on_resize(self) -> None:
        """The figures have another width, though nothing new was measured."""
        self._seen = -1
        self.call_after_refresh(self.tick)

    def head(self, record: BenchRecord) -> list[str]:
        """What is measured, and how far it is."""
        words = (
            self.bench.words() if self.bench is not None else f"{record.state.value}: {record.summary.steps} steps"
        )
        return [f"{record.target}: {record.request.mesh.words()}", words]

    def title_of(self, record: BenchRecord) -> str:
        """Over the plot; empty for the mesh."""
        return ""

    def lines_of(self, record: BenchRecord, width: int) -> list[str]:
        """Everything that is told with the plot, in so many cells."""
        lines = [*self._why, *(f"{error.address}: {error.what} {error.cure}".strip() for error in record.errors[:3])]
        newest = last_words(record.points)
        if newest and self.bench is not None and not self.bench.state.is_over:
            lines.append(f"now: {newest}")
        histogram = histogram_lines(record.points, self.console.glyphs["bar-full"])
        lines += beside(figures(record), histogram, width)
        lines += ["", *self.repeat_lines(record)]
        return lines

    def repeat_lines(self, record: BenchRecord) -> list[str]:
        """What it takes to measure it again."""
        versions = ", ".join(f"{name} {text}" for name, text in record.versions.items())
        return [record.command, *([versions] if versions else [])]

    async def _judge(self) -> None:
        """Whom the survivors name, and why: read from the ends of the logs, in a thread."""
        verdict = await asyncio.to_thread(of_run, self.console.find_run(self.record().id))
        if verdict is not None:
            self._why = [verdict.text, *([verdict.cure] if verdict.cure else []), *verdict.last_lines, ""]
            self._seen = -1

    def page_text(self) -> str:
        record = self.record()
        return plain_text("\n".join([*self.head(record), *self.lines_of(record, self.size.width)]))

    # Actions

    def do_logs(self) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        run = self.console.find_run(self.record().id)
        self.console.push_screen(LogsScreen(RunLogs(run), start=run.workers[0].address))

    def export_name(self) -> str:
        return f"bench-{self.record().id}"

    async def export_lines(self, form: str) -> Iterable[str]:
        """Its steps, and the command that repeats it."""
        return export_lines([self.record()], form)

    def do_repeat(self) -> None:
        show_repeat(self.console, [self.record()])

    def do_readings(self) -> None:
        from tui.screens.readings import ReadingsScreen

        self.console.push_screen(ReadingsScreen(self.readable()))

    def readable(self) -> Bench:
        """What holds the readings: the living one, or its logs read again.

        Raises:
            OperatorError: Its run is not known any more, or none of its logs is kept.
        """
        from backend.bench.live import Bench
        from tui.screens.logs import NO_LOGS

        if self.bench is not None:
            return self.bench
        run = self.console.find_run(self.record().id)
        if not any(run.has_log(place) for place in range(len(run.workers))):
            raise OperatorError(NO_LOGS, "Its figures are kept without them.")
        return Bench(run, self.record())

    def do_benchmark(self) -> None:
        record = self.record()
        found = self.console.fleet.find(record.queued_resource)
        if not found:
            raise OperatorError(f"{record.queued_resource} is gone.")
        self.console.open_bench_form(found[0])

    async def do_stop(self) -> None:
        bench = self.bench
        if bench is None or bench.state.is_over:
            raise OperatorError("The benchmark is over; there is nothing to stop.")
        await ask_stop_bench(self.console, bench)

    def do_interrupt(self) -> Any:
        if self.bench is None or self.bench.state.is_over or self.get_selected_text():
            return self.console.do_interrupt()
        return self.do_stop()

    def do_detach(self) -> None:
        self.console.say("It is detached already: it goes on when this console ends, and is found again.")


def export_lines(records: Sequence[BenchRecord], form: str) -> Iterable[str]:
    """Benchmarks as `bench export` writes them."""
    from backend.bench.compare import to_csv, to_json_lines

    return to_csv(records).splitlines() if form == "csv" else to_json_lines(records)


def show_repeat(console: Console, records: Sequence[BenchRecord]) -> None:
    """The command that measures each of them again, and on what it was measured."""
    from tui.screens.same import PageDialog

    lines = []
    for record in records:
        versions = ", ".join(f"{name} {text}" for name, text in record.versions.items())
        lines += [f"# {record.id}{f': {versions}' if versions else ''}", record.command, ""]
    console.push_screen(PageDialog("The same again", plain_text("\n".join(lines).rstrip())))


async def ask_stop_bench(console: Any, bench: Bench) -> None:
    """Asks, then ends its processes everywhere, verified."""
    choices = (Choice("stop", "Stop it there", "error"), Choice("no", "Let it run"))
    question = Question(f"Stop benchmark {bench.id}?", [bench.words()], choices, chosen=1)
    if await console.push_screen_wait(question) == "stop":
        await console.require_tower().benches.stop(bench)
        console.note(EventKind.ACTION, f"benchmark {bench.id} was stopped", subject=bench.id)
        console.say("Stopped; nothing of it is left on its workers.")
