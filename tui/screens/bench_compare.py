"""Benchmarks beside each other: one plot with the same axes, a table against the first with its noise, and scaling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from jobs.statistics import rate_words
from tui.actions import BY_ID, COMPARE, bindings
from tui.screens.base import TableScreen
from tui.screens.bench_figures import AXES, MESH, series
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row, number_cell
from tui.widgets.throughput_plot import ThroughputPlot
from tui.wording import count

if TYPE_CHECKING:
    from backend.bench.compare import Comparison
    from backend.bench.model import BenchRecord

COLUMNS = (
    Column("letter", "", width=2),
    MESH,
    Column("rate", "RATE/DEVICE", min_width=13, max_width=14, align="right"),
    Column("ratio", "OF A", width=7, align="right"),
    Column("noise", "NOISE", width=7, align="right", hint="Half the 10 to 90 % bands of both together."),
    Column("verdict", "VERDICT", width=10),
    Column("target", "TARGET", min_width=6, max_width=16, priority=2),
    Column("differs", "DIFFERS IN", min_width=10, max_width=80, priority=1),
    AXES,
)


def letter(place: int) -> str:
    """As the plot names its curves."""
    return chr(ord("A") + place) if place < 26 else "+"


def row(place: int, told: Comparison) -> Row:
    """One benchmark against the first."""
    record = told.record
    rate = record.summary.tflops_per_device
    return Row(
        record.id,
        (
            letter(place),
            record.request.mesh.short(),
            number_cell(rate, rate_words(rate) if rate is not None else None),
            number_cell(told.ratio, f"{told.ratio:.3f}" if told.ratio is not None else None),
            number_cell(told.noise, f"{told.noise:.1%}" if told.noise is not None else None),
            told.verdict if place else "the first",
            record.target,
            ", ".join(told.differences),
            record.request.mesh.words(),
        ),
    )


def scaling_lines(records: Sequence[BenchRecord]) -> list[str]:
    """Weak scaling in words; nothing when there is one slice count alone."""
    from backend.bench.compare import weak_scaling

    points = weak_scaling(records)
    if len(points) < 2:
        return []
    told = [
        f"{count(each.slices, 'slice')} {rate_words(each.tflops_total)} ({each.efficiency:.1%} of linear"
        f" {rate_words(each.tflops_total / each.efficiency)})"
        for each in points
    ]
    return ["weak scaling: " + "; ".join(told)]


class CompareScreen(TableScreen):
    """Of benchmarks that were marked; the oldest is what the others are held against."""

    SCOPE = COMPARE
    BINDINGS: ClassVar = bindings(COMPARE)
    CSS_PATH = "work.tcss"
    crumb = "compare"

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__()
        self._ids = tuple(ids)
        self._seen: object = None

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="compare"):
            yield ThroughputPlot(marker=self.console.settings.plot or None, id="plot")
            yield LiveTable(COLUMNS, id="table")
            yield Static(id="compare-words", markup=False)

    def records(self) -> list[BenchRecord]:
        """As they are now, the oldest first."""
        benches = self.console.require_tower().benches
        found = []
        for each in self._ids:
            bench = benches.active.get(each)
            found.append(bench.record if bench is not None else benches.store.get(each))
        return sorted(found, key=lambda record: record.started_at)

    def tick(self) -> None:
        from backend.bench.compare import compare

        tower = self.console.tower
        version = tower.benches.version if tower is not None else self._seen
        if version == self._seen:
            return
        self._seen = version
        records = self.records()
        told = compare(records)
        label = self.console.context.label
        self.query_one(ThroughputPlot).set_series(
            [
                series(each, each.points, title=f"{each.target} {each.request.mesh.short()}", label=label)
                for each in records
            ]
        )
        self.table.set_rows([row(place, each) for place, each in enumerate(told)])
        lines = [
            f"{letter(place)} differs in {', '.join(each.differences)}"
            for place, each in enumerate(told)
            if place and each.differences
        ]
        self.query_one("#compare-words", Static).update(plain_text("\n".join([*scaling_lines(records), *lines])))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        from tui.screens.bench import BenchScreen

        found = self.table.cursor_row
        if found is None:
            raise OperatorError("There is no benchmark under the cursor.")
        benches = self.console.require_tower().benches
        bench = benches.active.get(str(found.key))
        self.console.push_screen(BenchScreen(bench, None if bench is not None else benches.store.get(str(found.key))))
