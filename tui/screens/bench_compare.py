"""Benchmarks beside each other: one plot with the same axes, a table against the first with its noise, and scaling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from jobs.statistics import rate_words
from tui.actions import BY_ID, COMPARE, bindings
from tui.screens.base import TableScreen
from tui.screens.bench_figures import AXES, MESH, series_of
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
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


SCALING_WIDTH = 24
"""Cells of a bar that is all of linear scaling."""


def letter(place: int) -> str:
    """As the plot names its curves."""
    return chr(ord("A") + place) if place < 26 else "+"


def row(place: int, told: Comparison, first: str = "the first") -> Row:
    """One benchmark against the first, which `first` names."""
    record = told.record
    rate = record.summary.tflops_per_device
    return Row(
        record.id,
        (
            Cell(letter(place), token=f"worker-{place % 8 + 1}"),
            record.request.mesh.short(),
            number_cell(rate, rate_words(rate) if rate is not None else None),
            number_cell(told.ratio, f"{told.ratio:.3f}" if told.ratio is not None else None),
            number_cell(told.noise, f"{told.noise:.1%}" if told.noise is not None else None),
            told.verdict if place else first,
            record.target,
            ", ".join(told.differences),
            record.request.mesh.words(),
        ),
    )


def scaling_lines(records: Sequence[BenchRecord], full: str, empty: str) -> list[str]:
    """Weak scaling as bars against linear; nothing when there is one slice count alone.

    Args:
        full: A cell of what was reached.
        empty: A cell of what linear scaling would have reached beyond it.
    """
    from backend.bench.compare import weak_scaling

    points = weak_scaling(records)
    if len(points) < 2:
        return []
    lines = [f"weak scaling against linear from {count(points[0].slices, 'slice')}, all devices"]
    for each in points:
        reached = min(SCALING_WIDTH, max(1, round(each.efficiency * SCALING_WIDTH)))
        bar = full * reached + empty * (SCALING_WIDTH - reached)
        linear = rate_words(each.tflops_total / each.efficiency)
        lines.append(
            f"  {count(each.slices, 'slice'):>10} {bar} {each.efficiency:>6.1%}  {rate_words(each.tflops_total)} of {linear}"
        )
    return lines


class CompareScreen(TableScreen):
    """Of benchmarks that were marked; the oldest is what the others are held against."""

    SCOPE = COMPARE
    BINDINGS: ClassVar = bindings(COMPARE)
    CSS_PATH = "work.tcss"

    def __init__(self, ids: Sequence[str], baseline: str = "") -> None:
        """
        Args:
            ids: What is compared.
            baseline: The saved baseline that all of them are held against; none: the oldest of them.
        """
        super().__init__()
        self._ids = tuple(ids)
        self._baseline = baseline
        self.crumb = f"compare with {baseline}" if baseline else "compare"
        self._seen: object = None

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="compare"):
            yield ThroughputPlot(marker=self.console.settings.plot or None, told=True, id="plot")
            yield LiveTable(COLUMNS, id="table")
            yield Static(id="compare-words", markup=False)

    def records(self) -> list[BenchRecord]:
        """As they are now, the oldest first."""
        benches = self.console.require_tower().benches
        found = []
        for each in self._ids:
            bench = benches.active.get(each)
            found.append(bench.record if bench is not None else benches.store.get(each))
        found.sort(key=lambda record: record.started_at)
        if not self._baseline:
            return found
        first = benches.store.baseline(self._baseline)
        return [first, *(each for each in found if each.id != first.id)]

    def tick(self) -> None:
        from backend.bench.compare import compare, regressions

        tower = self.console.tower
        version = tower.benches.version if tower is not None else self._seen
        if version == self._seen:
            return
        self._seen = version
        records = self.records()
        told = compare(records)
        label = self.console.context.label
        self.query_one(ThroughputPlot).set_series(
            series_of(records, [f"{each.target} {each.request.mesh.short()}" for each in records], label)
        )
        first = "baseline" if self._baseline else "the first"
        self.table.set_rows([row(place, each, first) for place, each in enumerate(told)])
        glyphs = self.console.glyphs
        lines = [*(regressions(told) if self._baseline else [])]
        lines += scaling_lines(records, glyphs["bar-full"], glyphs["bar-empty"])
        lines += [
            f"{letter(place)} differs in {', '.join(each.differences)}"
            for place, each in enumerate(told)
            if place and each.differences
        ]
        self.query_one("#compare-words", Static).update(plain_text("\n".join(lines)))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    async def do_baseline(self) -> None:
        found = self.table.cursor_row
        if found is not None:
            await ask_baseline(self.console, str(found.key))

    def do_open(self) -> None:
        from tui.screens.bench import BenchScreen

        found = self.table.cursor_row
        if found is None:
            raise OperatorError("There is no benchmark under the cursor.")
        benches = self.console.require_tower().benches
        bench = benches.active.get(str(found.key))
        self.console.push_screen(BenchScreen(bench, None if bench is not None else benches.store.get(str(found.key))))


async def ask_baseline(console: Any, identity: str) -> None:
    """Asks for the name under which a benchmark is kept to be compared with later ones."""
    from tui.screens.confirm import Ask

    benches = console.require_tower().benches
    bench = benches.active.get(identity)
    record = bench.record if bench is not None else benches.store.get(identity)
    known = benches.store.baselines()
    lines = [f"{record.target} {record.request.mesh.short()}: = on one benchmark compares it with a baseline."]
    if known:
        lines.append(f"There are: {', '.join(known)}; the same name replaces one.")
    name = await console.push_screen_wait(Ask("Save this benchmark as a baseline named", lines, value=record.target))
    if name:
        benches.store.save_baseline(name, record)
        console.say(f"Saved as baseline {name}.")
