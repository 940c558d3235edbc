"""One sweep as it fills: a table with bars, the best marked, why points were left out; stopped and taken up here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from jobs.statistics import rate_words
from tui.actions import BY_ID, SWEEP, Action, bindings
from tui.screens.base import TableScreen
from tui.screens.bench_figures import AXES, MESH
from tui.screens.confirm import Choice, Question
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell

if TYPE_CHECKING:
    from backend.bench.sweep import Sweep, SweepPoint

BAR_WIDTH = 16
"""Cells of the best point's bar."""
COLUMNS = (
    MESH,
    Column("dimension", "D", width=6, align="right", priority=3),
    Column("batch", "B", width=7, align="right"),
    Column("state", "STATE", width=8),
    Column("rate", "RATE/DEVICE", min_width=13, max_width=14, align="right"),
    Column("bar", "OF THE BEST", width=BAR_WIDTH + 5),
    Column("target", "TARGET", min_width=6, max_width=16, priority=2),
    Column("most", "AT MOST", width=8, align="right", priority=1),
    AXES,
)
TOKENS = {"done": "state-active", "running": "state-provisioning", "failed": "state-failed", "skipped": "muted"}


def row(point: SweepPoint, best: SweepPoint | None, bar: str) -> Row:
    """One point; bars are as long as its share of the best."""
    request, rate = point.request, point.tflops_per_device
    share = None
    if rate is not None and best is not None and best.tflops_per_device:
        share = rate / best.tflops_per_device
    length = max(1, round(share * BAR_WIDTH)) if share is not None else 0
    words = f"{share:>4.0%} {bar * length}" if share is not None else ""
    if point is best:
        words = f"best {bar * length}"
    return Row(
        point.position,
        (
            request.mesh.short(),
            number_cell(request.embedding_dimension),
            number_cell(request.batch_size),
            Cell(point.state.value, token=TOKENS.get(point.state.value, "muted")),
            number_cell(rate, rate_words(rate) if rate is not None else None),
            Cell(words, token="plot-median" if point is best else "plot-band", sort=share or 0.0),
            point.target,
            number_cell(
                point.at_most_tflops or None, f"{point.at_most_tflops:.4g}" if point.at_most_tflops else None
            ),
            request.mesh.words(),
        ),
    )


def sweep_words(sweep: Sweep) -> str:
    """How far it is and what is best, on one line."""
    states: dict[str, int] = {}
    for point in sweep.points:
        states[point.state.value] = states.get(point.state.value, 0) + 1
    parts = [sweep.id, *(f"{number} {state}" for state, number in states.items())]
    best = sweep.best
    if best is not None and best.tflops_per_device is not None:
        parts.append(f"best {best.request.mesh.words()}: {rate_words(best.tflops_per_device)} a device")
    if sweep.stopped:
        parts.append(f"ended early: {sweep.stopped}")
    return "; ".join(parts)


class SweepScreen(TableScreen):
    """Live, or as the journal has it."""

    SCOPE = SWEEP
    BINDINGS: ClassVar = bindings(SWEEP)
    CSS_PATH = "work.tcss"

    def __init__(self, sweep: Sweep) -> None:
        super().__init__()
        self.sweep = sweep
        self.crumb = f"sweep {', '.join(sweep.targets)}"
        self._seen: object = None

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="sweep"):
            yield Static(id="sweep-head", markup=False)
            yield LiveTable(COLUMNS, id="table", empty="This sweep has no points.")
            yield Static(id="sweep-point", markup=False)

    @property
    def running(self) -> bool:
        tower = self.console.tower
        return tower is not None and tower.sweeps.is_running(self.sweep.id)

    def applies(self, action: Action) -> bool:
        if action.id == "stop":
            return self.running
        if action.id == "go-on":
            return not self.running and self._unfinished()
        return True

    def _unfinished(self) -> bool:
        from backend.bench.sweep import was_left

        return any(was_left(point) for point in self.sweep.points)

    def tick(self) -> None:
        seen = (self.sweep.version, self.running)
        if seen == self._seen:
            return
        self._seen = seen
        words = sweep_words(self.sweep)
        if not self.running and self._unfinished():
            words += f"; {self.console.settings.keymap.shown(BY_ID['go-on'])} goes on with it"
        self.query_one("#sweep-head", Static).update(plain_text(words))
        bar, best = self.console.glyphs["bar-full"], self.sweep.best
        self.table.set_rows([row(point, best, bar) for point in self.sweep.points])
        self._tell()

    def point(self) -> SweepPoint | None:
        """The one under the cursor."""
        found = self.table.cursor_row
        return next((each for each in self.sweep.points if found is not None and each.position == found.key), None)

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        point = self.point()
        if point is None:
            return
        words = f"{point.state.value}: {point.note}" if point.note else point.state.value
        if point.step_time_s is not None and point.tflops_per_device is not None:
            words += f": {point.step_time_s:.4g} s a step, {rate_words(point.tflops_per_device)} a device"
        lines = [f"{point.request.mesh.words()}: {words}", point.request.command(point.target)]
        self.query_one("#sweep-point", Static).update(plain_text("\n".join(lines)))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        from tui.screens.bench import BenchScreen

        point = self.point()
        if point is None or not point.bench:
            raise OperatorError("This point was not run: there is no benchmark to open.")
        benches = self.console.require_tower().benches
        bench = benches.active.get(point.bench)
        self.console.push_screen(BenchScreen(bench, None if bench is not None else benches.store.get(point.bench)))

    def do_go_on(self) -> None:
        if self.running or not self._unfinished():
            raise OperatorError("Nothing of this sweep is left to be run.")
        resources = []
        for name in self.sweep.targets:
            found = self.console.fleet.find(name)
            if not found:
                raise OperatorError(f"{name} is gone.")
            resources.append(found[0])
        self.console.require_tower().sweeps.begin(self.sweep, resources)
        self.console.note(EventKind.ACTION, f"{self.sweep.id} goes on", subject=self.sweep.targets[0])

    async def do_stop(self) -> None:
        """Asks, then ends the benchmark at work; the rest is kept."""
        choices = (Choice("stop", "Stop it there", "error"), Choice("no", "Let it run"))
        lines = [sweep_words(self.sweep), "What is done is kept; the rest can be run later."]
        if await self.console.push_screen_wait(Question("Stop this sweep?", lines, choices, chosen=1)) == "stop":
            await self.console.require_tower().sweeps.stop(self.sweep)
            self.console.note(EventKind.ACTION, f"{self.sweep.id} was stopped", subject=self.sweep.targets[0])
            self.console.say("Stopped; nothing of it is left on its workers.")
