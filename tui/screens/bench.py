"""One benchmark: throughput drawn while it runs, every figure in words, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

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

PLOT_EVERY = 2
"""Ticks between two looks at the readings: the plot is drawn once a second at most."""


def series(record: BenchRecord, points: Sequence[StepPoint], *, title: str = "", label: str = "") -> PlotSeries:
    """What the plot draws: TFLOP/s where the program tells it, else steps a second."""
    rated = [point for point in points if point.tflops_per_device is not None]
    warmup = 0
    for point in points:
        if not point.set_aside:
            break
        warmup += 1
    if rated:
        return PlotSeries(
            title=title or record.request.mesh.words(),
            unit="TFLOP/s a device",
            steps=[point.step for point in rated],
            median=[point.tflops_per_device or 0.0 for point in rated],
            low=[point.tflops_low or 0.0 for point in rated],
            high=[point.tflops_high or 0.0 for point in rated],
            warmup=warmup,
            peak=record.peak_tflops_per_device,
            prediction=record.predicted_tflops_per_device,
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

    def tell(label: str, value: float | None, form: str, extra: str = "") -> None:
        if value is not None:
            lines.append(f"{label:<20} {value:{form}}{extra}")

    spread = ""
    if summary.step_time_p10_s is not None and summary.step_time_p90_s is not None:
        spread = f"   p10 {summary.step_time_p10_s:.4g}, p90 {summary.step_time_p90_s:.4g}"
    tell("step time (s)", summary.step_time_s, ".4g", spread)
    rates = ""
    if summary.tflops_p10 is not None and summary.tflops_p90 is not None:
        rates = f"   p10 {summary.tflops_p10:.4g}, p90 {summary.tflops_p90:.4g}"
    tell("TFLOP/s a device", summary.tflops_per_device, ".4g", rates)
    tell("  by upstream's count", summary.claimed_tflops_per_device, ".4g")
    tell("TFLOP/s in all", summary.tflops_total, ".4g")
    tell("of peak (MFU)", summary.mfu, ".1%")
    tell("exposed comms", summary.exposed_communication, ".0%")
    tell("compile (s)", summary.compile_s, ".3g")
    if summary.slowest_worker and summary.slowest_ratio is not None:
        lines.append(f"{'slowest worker':<20} {summary.slowest_worker}, {summary.slowest_ratio:.3g} × the median")
    if summary.hbm_peak_bytes:
        limit = f" of {summary.hbm_limit_bytes / 2**30:.1f}" if summary.hbm_limit_bytes else ""
        lines.append(f"{'HBM in use':<20} {summary.hbm_peak_bytes / 2**30:.1f}{limit} GiB")
    if summary.set_aside:
        aside = ", ".join(f"{number} {why}" for why, number in summary.set_aside.items())
        lines.append(f"{'set aside':<20} {aside}")
    if summary.error:
        lines.append(summary.error)
    return lines


class BenchScreen(ConsoleScreen):
    """Live, or read from the journal."""

    SCOPE = BENCH
    BINDINGS: ClassVar = bindings(BENCH)

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

    def tick(self) -> None:
        self._ticks += 1
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
        lines = [f"{error.address}: {error.what} {error.cure}".strip() for error in record.errors[:3]]
        lines += figures(record.summary)
        lines += ["", record.command]
        if record.versions:
            lines.append(", ".join(f"{name} {text}" for name, text in record.versions.items()))
        self.query_one("#figures", Static).update(plain_text("\n".join(lines)))

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
