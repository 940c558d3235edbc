"""Throughput of any run, out of what its workers printed, live or afterwards; and of any log file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain, plain_text
from tui.actions import RUN_PLOT, Action, bindings
from tui.command_line import in_console
from tui.console import SIMULATED
from tui.screens.bench import BenchScreen
from tui.screens.bench_figures import CPU

if TYPE_CHECKING:
    from backend.bench.afterwards import FileReadings
    from backend.bench.live import Bench
    from backend.bench.model import BenchRecord
    from backend.runs.manager import Run
    from tui.console import Console


def peak_of(console: Console, name: str) -> float | None:
    """The peak of a request's chips, TFLOP/s a device; None where it is not known or they are none."""
    from backend.bench.plan import accelerator_of

    found = console.fleet.find(name)
    accelerator = accelerator_of(found[0]) if found and console.context.label != SIMULATED else None
    return accelerator.generation.peak_bf16_tflops_per_device if accelerator is not None else None


class RunPlotScreen(BenchScreen):
    """What `P` on a run shows."""

    SCOPE = RUN_PLOT
    BINDINGS: ClassVar = bindings(RUN_PLOT)

    def __init__(self, run: Run | None, pattern: str = "", peak: float | None = None) -> None:
        """
        Args:
            run: None for a file.
            pattern: A regular expression with named groups; empty: the known kinds of lines.
            peak: TFLOP/s of a device; None: that of the request's chips, where it is known.
        """
        super().__init__(None)
        self._run = run
        self._pattern = pattern
        self._peak = peak
        self.crumb = f"plot {run.id}" if run is not None else "plot"

    def on_mount(self) -> None:
        self._read()

    def _read(self) -> None:
        from backend.bench.afterwards import read_run

        run = self._run
        if run is None:
            return
        name = run.workers[0].queued_resource
        try:
            self.bench = read_run(
                run,
                pattern=self._pattern or None,
                peak_tflops_per_device=self._peak or peak_of(self.console, name),
                platform=CPU if self.console.context.label == SIMULATED else "",
            )
        except ValueError as error:
            self.console.say(f"The pattern cannot be used: {error}.", severity="error")
            self._pattern = ""
            self.bench = read_run(run)
        self._seen = -1

    def use_pattern(self, pattern: str, peak: float | None = None) -> None:
        """Reads everything again by a regular expression; empty: by the known kinds of lines."""
        self._pattern = pattern
        self._peak = peak or self._peak
        self._read()
        self.tick()

    def tick(self) -> None:
        bench: Bench | None = self.bench
        if bench is not None:
            # Nobody else follows it: a refresh reads what is new, and a bounded part of a long log.
            bench.refresh()
        super().tick()

    def applies(self, action: Action) -> bool:
        return action.id != "plot"

    def do_plot(self) -> None:
        self.console.say("This is the plot; `:plot -- PATTERN` reads it by a pattern of your own.")

    def head(self, record: BenchRecord) -> list[str]:
        run = self._run
        assert run is not None
        command = run.request.title or " ".join(run.request.argv)
        if not record.points:
            return [plain(command), "no step was told yet; `:plot -- PATTERN` reads lines of another form"]
        return [plain(command), super().head(record)[-1]]

    def title_of(self, record: BenchRecord) -> str:
        return record.target

    def repeat_lines(self, record: BenchRecord) -> list[str]:
        return [f"read by the pattern {plain(self._pattern)}"] if self._pattern else []


class FilePlotScreen(RunPlotScreen):
    """What `:plot FILE` shows."""

    def __init__(self, path: Path, pattern: str | None = None, peak: float | None = None) -> None:
        super().__init__(None, pattern or "", peak)
        self._path = path
        self._readings: FileReadings | None = None
        self._said = "reading …"
        """What stands below the path until the file is read: that it is being read, or why it was not."""
        self.crumb = f"plot {path.name}"

    def on_mount(self) -> None:
        self.background(self._load(), group="read", title=f"read {self._path.name}")

    async def _load(self) -> None:
        from backend.bench.afterwards import read_log

        try:
            self._readings = await asyncio.to_thread(
                read_log, self._path, pattern=self._pattern or None, peak_tflops_per_device=self._peak
            )
        except ValueError as error:
            self._said = f"The pattern cannot be used: {error}."
            raise OperatorError(self._said) from error
        except OperatorError as error:
            self._said = in_console(f"{error.what} {error.cure}".strip())
            raise
        self._record = self._readings.record
        self._seen = -1
        self.tick()

    def tick(self) -> None:
        if self._record is None:
            self.query_one("#bench-head", Static).update(plain_text(f"{self._path}\n{self._said}"))
            return
        super().tick()

    def use_pattern(self, pattern: str, peak: float | None = None) -> None:
        self._pattern = pattern
        self._peak = peak or self._peak
        self.background(self._load(), group="read", title=f"read {self._path.name}")

    def head(self, record: BenchRecord) -> list[str]:
        return [record.target, BenchScreen.head(self, record)[-1]]

    def do_readings(self) -> None:
        from tui.screens.readings import FileReadingsScreen

        if self._readings is None:
            raise OperatorError(f"{self._path.name} is not read yet.")
        self.console.push_screen(FileReadingsScreen(self._readings))

    def do_refresh(self) -> None:
        """Reads the file again: another program may have written on."""
        self.background(self._load(), group="read", title=f"read {self._path.name}")

    def do_logs(self) -> None:
        raise OperatorError("This is a file, not a run: it has no logs of its own.")
