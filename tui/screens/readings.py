"""What the figures of a benchmark are made of: each reading with its worker and its line, and how they are put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain, plain_text
from jobs.statistics import rate_words
from tui.actions import BY_ID, READINGS, bindings
from tui.screens.base import TableScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import count

if TYPE_CHECKING:
    from backend.bench.afterwards import FileReadings
    from backend.bench.live import Bench, ToldReading
    from backend.bench.model import BenchRecord

NEWEST = 2000
"""Readings that are listed; the figures are made of all."""
COLUMNS = (
    Column("step", "STEP", width=7, align="right"),
    Column("worker", "WORKER", min_width=8, max_width=32, flex=1),
    Column("seconds", "SECONDS", width=11, align="right"),
    Column("rate", "RATE/DEVICE", min_width=13, max_width=14, align="right"),
    Column("counts", "COUNTS", width=11),
    Column("line", "LINE", width=8, align="right", hint="Of the worker's log, from 1."),
)


def row(place: int, told: ToldReading) -> Row:
    """One reading."""
    reading = told.reading
    rate = reading.tflops_per_device
    return Row(
        place,
        (
            number_cell(told.step),
            told.address,
            number_cell(
                reading.step_time_s, f"{reading.step_time_s:.6g}" if reading.step_time_s is not None else None
            ),
            number_cell(rate, rate_words(rate) if rate is not None else None),
            Cell(reading.set_aside or "yes", token="muted" if reading.set_aside else ""),
            number_cell(told.line + 1),
        ),
    )


def made_of(record: BenchRecord, workers: int) -> list[str]:
    """How the figures come from the readings."""
    figures = record.summary
    if figures.step_time_s is None:
        return ["no step counts yet"]
    aside = sum(figures.set_aside.values())
    told = "what the one worker told" if workers else "as the log tells it"
    each = f"the median of {count(workers, 'worker')}" if workers > 1 else told
    lines = [
        f"{figures.step_time_s:.4g} s a step: the median of {count(figures.steps, 'step')} that"
        f" {'counts' if figures.steps == 1 else 'count'}, each {each}"
    ]
    if figures.tflops_per_device is not None:
        lines.append(f"{rate_words(figures.tflops_per_device)} a device: likewise, of the rates that were told")
    if aside:
        lines.append(f"set aside and shown in no figure: {count(aside, 'step')}")
    return lines


class ReadingsScreen(TableScreen):
    """Follows a living benchmark; `enter` opens the log at the line of a reading."""

    SCOPE = READINGS
    BINDINGS: ClassVar = bindings(READINGS)
    CSS_PATH = "work.tcss"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    crumb = "readings"

    def __init__(self, bench: Bench | FileReadings) -> None:
        super().__init__()
        self._bench = bench
        self._told: Sequence[ToldReading] = ()
        self._seen = -1

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="meshes"):
            yield Static(id="meshes-head", markup=False)
            yield LiveTable(self.COLUMNS, id="table", empty="Nothing was read yet.")
            yield Static(id="sweep-point", markup=False)

    def tick(self) -> None:
        if self._bench.is_behind:
            self._bench.refresh()
        if self._bench.version == self._seen:
            return
        self._seen = self._bench.version
        self._told = self._bench.told(NEWEST)
        self.table.set_rows([row(place, each) for place, each in enumerate(self._told)])
        lines = made_of(self._bench.record, self.tellers())
        if len(self._told) == NEWEST:
            lines.append(f"the newest {NEWEST:,} readings are listed")
        self.query_one("#meshes-head", Static).update(plain_text("\n".join(lines)))
        self._tell()

    def tellers(self) -> int:
        """How many told the readings."""
        return len({each.address for each in self._told})

    def chosen(self) -> ToldReading | None:
        """The reading under the cursor."""
        found = self.table.cursor_row
        return self._told[int(str(found.key))] if found is not None else None

    @on(LiveTable.RowHighlighted)
    def _tell(self) -> None:
        told = self.chosen()
        if told is not None:
            raw = self._bench.line_of(told)
            text = f"{told.address}, line {told.line + 1}:\n{plain(raw) if raw else 'no longer kept'}"
            self.query_one("#sweep-point", Static).update(plain_text(text))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """The log at the line of the reading; of a file, the lines around it."""
        told = self.chosen()
        if told is None:
            raise OperatorError("There is no reading under the cursor.")
        self.open_line(told)

    def open_line(self, told: ToldReading) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        run = self.console.find_run(self._bench.id)
        self.console.push_screen(LogsScreen(RunLogs(run), start=told.address, line=told.line))


class FileReadingsScreen(ReadingsScreen):
    """The readings of a log file."""

    COLUMNS: ClassVar[tuple[Column, ...]] = tuple(
        replace(each, title="LOG") if each.id == "worker" else each for each in COLUMNS
    )

    def __init__(self, readings: FileReadings) -> None:
        super().__init__(readings)
        self._readings = readings

    def tellers(self) -> int:
        return 0

    def open_line(self, told: ToldReading) -> None:
        from tui.screens.same import PageDialog

        found = self._readings.around(told)
        if not found:
            raise OperatorError(
                f"{self._readings.record.target} can't be read any more.", "r in the plot reads it again."
            )
        width = len(f"{found[-1].number + 1:,}")
        cursor = self.console.glyphs["cursor"]
        lines = [
            f"{cursor if each.number == told.line else ' '} {each.number + 1:>{width},}  {plain(each.text)}"
            for each in found
        ]
        title = f"{self._readings.record.target}, line {told.line + 1:,}"
        self.console.push_screen(PageDialog(title, plain_text("\n".join(lines))))
