"""All benchmarks that the journal knows, the living ones live; marked ones are compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget

from backend.outcomes import OperatorError
from jobs.statistics import rate_words
from tui.actions import BENCHES, BY_ID, bindings
from tui.screens.base import TableScreen
from tui.screens.bench import BenchScreen, ask_stop_bench, export_lines, show_repeat
from tui.screens.bench_figures import AXES, CPU, MESH, NO_UTILISATION_CELL, series_of
from tui.screens.exports import Exporting
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.widgets.throughput_plot import ThroughputPlot

if TYPE_CHECKING:
    from backend.bench.model import BenchRecord

COLUMNS = (
    Column("started", "STARTED (UTC)", width=14),
    Column("state", "STATE", min_width=8, max_width=10),
    Column("target", "TARGET", min_width=8, max_width=24),
    MESH,
    Column("rate", "RATE/DEVICE", min_width=13, max_width=14, align="right"),
    Column("step", "STEP (S)", width=9, align="right", priority=3),
    Column("mfu", "MFU", min_width=6, max_width=8, align="right", priority=1),
    Column("steps", "STEPS", width=5, align="right", priority=2),
    Column("type", "SLICES x TYPE", min_width=12, max_width=20, priority=1),
    AXES,
)
TOKENS = {"failed": "state-failed", "stopped": "stale", "done": "state-active", "stepping": "state-provisioning"}
COMPARED_MOST = 6


def row(record: BenchRecord) -> Row:
    """One benchmark."""
    figures = record.summary
    rate, step, mfu = figures.tflops_per_device, figures.step_time_s, figures.mfu
    cpu = record.platform == CPU
    mfu = None if cpu else mfu
    return Row(
        record.id,
        (
            Cell(f"{record.started_at:%m-%d %H:%M:%S}", token="muted", sort=record.started_at.timestamp()),
            Cell(record.state.value, token=TOKENS.get(record.state.value, "")),
            record.target,
            record.request.mesh.short(),
            number_cell(rate, rate_words(rate) if rate is not None else None),
            number_cell(step, f"{step:.4g}" if step is not None else None),
            number_cell(mfu, f"{mfu:.1%}" if mfu is not None else NO_UTILISATION_CELL if cpu else None),
            number_cell(figures.steps),
            f"{record.slices} x {record.accelerator_type}",
            record.request.mesh.words(),
        ),
    )


class BenchesScreen(Exporting, TableScreen):
    """The list, and the plot of what is marked or under the cursor."""

    SCOPE = BENCHES
    BINDINGS: ClassVar = bindings(BENCHES)
    CSS_PATH = "work.tcss"
    crumb = "benchmarks"

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, BenchRecord] = {}
        self._seen: object = None
        self._drawn: object = None

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="benches"):
            yield LiveTable(
                COLUMNS, id="table", empty="Nothing was measured yet. b on a queued resource measures it."
            )
            yield ThroughputPlot(marker=self.console.settings.plot or None, id="plot")

    def tick(self) -> None:
        tower = self.console.tower
        if tower is None:
            return
        benches = tower.benches
        if benches.version != self._seen:
            self._seen = benches.version
            kept = {record.id: record for record in benches.store.records()}
            live = {bench.id: bench.record for bench in benches.active.values()}
            self._records = {**kept, **live}
            newest = sorted(self._records.values(), key=lambda record: record.started_at, reverse=True)
            self.table.set_rows([row(record) for record in newest])
        self._draw()

    def _draw(self) -> None:
        """Curves are lettered as `=` letters them: the oldest is A."""
        chosen = [self._records[str(found.key)] for found in self.table.selected_rows() if found.key in self._records]
        state = (self._seen, tuple(record.id for record in chosen))
        if state == self._drawn:
            return
        self._drawn = state
        plot = self.query_one(ThroughputPlot)
        plot.display = bool(chosen)
        label = self.console.context.label
        shown = sorted(chosen, key=lambda record: record.started_at)[:COMPARED_MOST]
        titles = [f"{record.target} {record.request.mesh.short()}" for record in shown]
        if len(shown) == 1:
            titles = [shown[0].request.mesh.words()]
        plot.set_series(series_of(shown, titles, label))

    @on(LiveTable.RowHighlighted)
    @on(LiveTable.MarksChanged)
    def _chosen(self) -> None:
        self._draw()

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def chosen_id(self) -> str:
        """The benchmark of the cursor.

        Raises:
            OperatorError: There is none.
        """
        found = self.table.cursor_row
        if found is None:
            raise OperatorError("There is no benchmark under the cursor.")
        return str(found.key)

    def do_open(self) -> None:
        bench_id = self.chosen_id()
        benches = self.console.require_tower().benches
        bench = benches.active.get(bench_id)
        self.console.push_screen(BenchScreen(bench, None if bench is not None else benches.store.get(bench_id)))

    def do_logs(self) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        run = self.console.find_run(self.chosen_id())
        self.console.push_screen(LogsScreen(RunLogs(run), start=run.workers[0].address))

    def chosen(self) -> list[BenchRecord]:
        """The marked benchmarks, or that of the cursor, with all their steps.

        Raises:
            OperatorError: There is none.
        """
        benches = self.console.require_tower().benches
        ids = [str(found.key) for found in self.table.selected_rows()]
        if not ids:
            raise OperatorError("There is no benchmark under the cursor.")
        return [live.record if (live := benches.active.get(each)) else benches.store.get(each) for each in ids]

    def export_name(self) -> str:
        return "benches"

    def require_rows(self) -> None:
        self.chosen()

    async def export_lines(self, form: str) -> Iterable[str]:
        """The steps of the marked benchmarks, or of that of the cursor."""
        return export_lines(self.chosen(), form)

    def do_repeat(self) -> None:
        show_repeat(self.console, self.chosen())

    async def do_compare(self) -> None:
        """What is marked beside each other; one alone with a saved baseline."""
        from tui.screens.bench_compare import CompareScreen
        from tui.screens.confirm import Pick

        chosen = [str(found.key) for found in self.table.selected_rows()]
        if len(chosen) > 1:
            self.console.push_screen(CompareScreen(chosen))
            return
        known = self.console.require_tower().benches.store.baselines()
        if not chosen or not known:
            raise OperatorError("Comparing needs two benchmarks or more.", "space marks them; B saves a baseline.")
        picks = [(name, f"{name}: {each.target} {each.request.mesh.short()}") for name, each in known.items()]
        name = await self.console.push_screen_wait(Pick("Compare with which baseline?", picks))
        if name:
            self.console.push_screen(CompareScreen(chosen, name))

    async def do_baseline(self) -> None:
        from tui.screens.bench_compare import ask_baseline

        await ask_baseline(self.console, self.chosen_id())

    async def do_sweeps(self) -> None:
        """Asks for one of the sweeps that were begun, and shows it."""
        from tui.screens.confirm import Pick
        from tui.screens.sweep import SweepScreen, sweep_words

        sweeps = self.console.require_tower().sweeps
        known = [sweeps.find(each) for each in dict.fromkeys((*sweeps.active, *sweeps.store.ids()))]
        if not known:
            raise OperatorError("No sweep was begun yet.", "f6 on the benchmark form begins one.")
        known.sort(key=lambda each: each.started_at, reverse=True)
        chosen = await self.console.push_screen_wait(
            Pick("Which sweep?", [(each.id, sweep_words(each)) for each in known])
        )
        if chosen:
            self.console.push_screen(SweepScreen(sweeps.find(chosen)))

    def do_benchmark(self) -> None:
        record = self._records[self.chosen_id()]
        found = self.console.fleet.find(record.queued_resource)
        if not found:
            raise OperatorError(f"{record.queued_resource} is gone.")
        self.console.open_bench_form(found[0])

    async def do_stop(self) -> None:
        bench = self.console.require_tower().benches.active.get(self.chosen_id())
        if bench is None or bench.state.is_over:
            raise OperatorError("The benchmark is over; there is nothing to stop.")
        await ask_stop_bench(self.console, bench)
