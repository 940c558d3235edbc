"""One benchmark: throughput drawn while it runs, every figure in words, and what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from backend.attribution import of_run
from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from tui.actions import BENCH, Action, bindings
from tui.screens.base import ConsoleScreen
from tui.screens.confirm import Choice, Question
from tui.widgets.throughput_plot import PlotSeries, ThroughputPlot

if TYPE_CHECKING:
    from backend.bench import Bench
    from backend.bench_model import BenchRecord, BenchSummary, StepPoint

LABEL_WIDTH = 17
PLOT_EVERY = 2
"""Ticks between two looks at the readings: the plot is drawn once a second at most."""


def rate_unit(tflops: float) -> tuple[str, float]:
    """(unit, factor from TFLOP/s) in which a rate is a readable number: a CPU's is thousandths of a TFLOP/s."""
    if tflops >= 0.1:
        return "TFLOP/s", 1.0
    return ("GFLOP/s", 1e3) if tflops >= 1e-4 else ("MFLOP/s", 1e6)


def rate_words(tflops: float) -> str:
    """`151.2 TFLOP/s`, `0.33 GFLOP/s`."""
    unit, scale = rate_unit(tflops)
    return f"{tflops * scale:.4g} {unit}"


def series(record: BenchRecord, points: Sequence[StepPoint], *, title: str = "", label: str = "") -> PlotSeries:
    """What the plot draws: TFLOP/s where the program tells it, else steps a second."""
    rated = [point for point in points if point.tflops_per_device is not None]
    warmup = 0
    for point in points:
        if not point.set_aside:
            break
        warmup += 1
    if rated:
        peak, prediction = record.peak_tflops_per_device, record.predicted_tflops_per_device
        unit, scale = rate_unit(max(point.tflops_per_device or 0.0 for point in rated))
        return PlotSeries(
            title=title or record.request.mesh.words(),
            unit=f"{unit} a device",
            steps=[point.step for point in rated],
            median=[(point.tflops_per_device or 0.0) * scale for point in rated],
            low=[(point.tflops_low or 0.0) * scale for point in rated],
            high=[(point.tflops_high or 0.0) * scale for point in rated],
            warmup=warmup,
            peak=peak * scale if peak is not None else None,
            prediction=prediction * scale if prediction is not None else None,
            label=label,
        )
    timed = [point for point in points if point.step_time_s > 0]
    return PlotSeries(
        title=title or record.request.title or record.target,
        unit="steps a second",
        steps=[point.step for point in timed],
        median=[1 / point.step_time_s for point in timed],
        low=[1 / point.step_time_high_s for point in timed],
        high=[1 / point.step_time_low_s for point in timed],
        warmup=warmup,
        label=label,
    )


def figures(summary: BenchSummary) -> list[str]:
    """Every figure of a summary on its own line; what was not measured is left out."""
    lines: list[str] = []

    def tell(label: str, text: str | None) -> None:
        if text is not None:
            lines.append(f"{label:<{LABEL_WIDTH}} {text}")

    def between(low: float | None, high: float | None, unit: str, scale: float = 1.0) -> str | None:
        return f"{low * scale:.4g} to {high * scale:.4g} {unit}" if low is not None and high is not None else None

    def seconds(value: float) -> str:
        return f"{value:.4g} s"

    def told(value: float | None, word: Callable[[float], str]) -> str | None:
        return word(value) if value is not None else None

    tell("step time", told(summary.step_time_s, seconds))
    tell("  p10 to p90", between(summary.step_time_p10_s, summary.step_time_p90_s, "s"))
    tell("a device", told(summary.tflops_per_device, rate_words))
    tell("  p10 to p90", between(summary.tflops_p10, summary.tflops_p90, *rate_unit(summary.tflops_p90 or 0.0)))
    tell("  upstream counts", told(summary.claimed_tflops_per_device, rate_words))
    tell("all devices", told(summary.tflops_total, rate_words))
    tell("of peak (MFU)", told(summary.mfu, lambda value: f"{value:.1%}"))
    tell("exposed comms", told(summary.exposed_communication, lambda value: f"{value:.0%}"))
    tell("compile", told(summary.compile_s, seconds))
    if summary.slowest_worker and summary.slowest_ratio is not None:
        tell("slowest worker", f"{summary.slowest_worker}, {summary.slowest_ratio:.3g} × median")
    if summary.hbm_peak_bytes:
        limit = f" of {summary.hbm_limit_bytes / 2**30:.1f}" if summary.hbm_limit_bytes else ""
        tell("HBM in use", f"{summary.hbm_peak_bytes / 2**30:.1f}{limit} GiB")
    if summary.set_aside:
        aside = ", ".join(f"{number} {why}" for why, number in summary.set_aside.items())
        tell("set aside", aside)
    if summary.error:
        lines.append(summary.error)
    return lines


class BenchScreen(ConsoleScreen):
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
        head = self.bench.words() if self.bench is not None else f"{record.state.value}: {record.summary.steps} steps"
        self.query_one("#bench-head", Static).update(
            plain_text(f"{record.target} · {record.request.mesh.words()}\n{head}")
        )
        plot = self.query_one(ThroughputPlot)
        plot.set_series([series(record, record.points, label=self.console.context.label)])
        if record.state.value == "failed" and not self._judged:
            self._judged = True
            self.background(self._judge(), group="verdict", title="look why it failed")
        lines = [*self._why, *(f"{error.address}: {error.what} {error.cure}".strip() for error in record.errors[:3])]
        lines += figures(record.summary)
        lines += ["", record.command]
        if record.versions:
            lines.append(", ".join(f"{name} {text}" for name, text in record.versions.items()))
        self.query_one("#figures", Static).update(plain_text("\n".join(lines)))

    async def _judge(self) -> None:
        """Whom the survivors name, and why: read from the ends of the logs, in a thread."""
        verdict = await asyncio.to_thread(of_run, self.console.find_run(self.record().id))
        if verdict is not None:
            self._why = [verdict.text, *([verdict.cure] if verdict.cure else []), *verdict.last_lines, ""]
            self._seen = -1

    def page_text(self) -> str:
        record = self.record()
        return plain_text(
            "\n".join([record.target, record.request.mesh.words(), *figures(record.summary), record.command])
        )

    # Actions

    def do_logs(self) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        run = self.console.find_run(self.record().id)
        self.console.push_screen(LogsScreen(RunLogs(run), start=run.workers[0].address))

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


async def ask_stop_bench(console: Any, bench: Bench) -> None:
    """Asks, then ends its processes everywhere, verified."""
    choices = (Choice("stop", "Stop it there", "error"), Choice("no", "Let it run"))
    question = Question(f"Stop benchmark {bench.id}?", [bench.words()], choices, chosen=1)
    if await console.push_screen_wait(question) == "stop":
        await console.require_tower().benches.stop(bench)
        console.note(EventKind.ACTION, f"benchmark {bench.id} was stopped", subject=bench.id)
        console.say("Stopped; nothing of it is left on its workers.")
