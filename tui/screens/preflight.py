"""The preflight on screen: compiles for the real chips in a child process, with its progress; leaving it ends the child."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from backend.outcomes import OperatorError
from backend.sanitize import plain, plain_text
from jobs.compiler import PreflightError
from jobs.meshes import advice
from jobs.preflight import PreflightRequest, preflight
from jobs.roofline import problems
from tui.actions import PREFLIGHT, bindings
from tui.preflight_words import facts, refusal
from tui.screens.base import ConsoleScreen

if TYPE_CHECKING:
    from textual.worker import Worker

    from backend.bench.model import BenchRequest
    from jobs.accelerators import Accelerator
    from jobs.preflight import PreflightReport

PYTHON_VARIABLE = "SLICETOWER_PREFLIGHT_PYTHON"
"""Names an interpreter with jax and libtpu, where the console's own has none."""
PROGRESS_LINES = 200


def preflight_request(accelerator: Accelerator, slices: int, request: BenchRequest) -> PreflightRequest:
    """What to compile for a benchmark.

    Raises:
        OperatorError: The mesh or the sizes are none for this type.
    """
    said = problems(accelerator, slices, request.mesh, request.model)
    if said:
        raise OperatorError(said[0])
    return PreflightRequest(accelerator, slices, request.mesh, request.model)


def report_lines(request: PreflightRequest, report: PreflightReport) -> list[str]:
    """Everything that was found, in words."""
    lines = [f"{name:<14} {value}" for name, value in facts(request, report)]
    why = refusal(report)
    if why:
        lines = [why, "", *lines]
    if report.compilation.sent:
        lines += ["", f"{'network':<8} {'operation':<20} {'ways':>5} {'times':>6} {'MB a device':>12}"]
        lines += [
            f"{each.network:<8} {each.kind:<20} {each.ways:>5} {each.count:>6} {each.bytes / 1e6:>12.3f}"
            for each in report.compilation.sent
        ]
    lines += [f"not counted, its groups could not be read: {text}" for text in report.compilation.unread]
    return [*lines, *advice(request.mesh)]


class PreflightScreen(ConsoleScreen):
    """`esc` cancels it; the answer is kept, so that asking again takes nothing."""

    SCOPE = PREFLIGHT
    BINDINGS: ClassVar = bindings(PREFLIGHT)
    CSS_PATH = "work.tcss"
    crumb = "preflight"

    def __init__(self, request: PreflightRequest, python: str = "") -> None:
        """
        Args:
            request: What to compile.
            python: An interpreter with jax and libtpu; empty: that of the environment, else the console's own.
        """
        super().__init__()
        self._request = request
        self._python = python
        self._said: list[str] = []
        self._begun = 0.0
        self._compiling: Worker[None] | None = None
        self.report: PreflightReport | None = None

    def compose_body(self) -> Iterable[Widget]:
        with VerticalScroll(id="preflight"):
            yield Static(id="preflight-words", markup=False)

    def main_widget(self) -> Widget:
        return self.query_one("#preflight")

    def on_mount(self) -> None:
        self._begin(kept=True)

    def _begin(self, *, kept: bool) -> None:
        self._begun, self._said = time.monotonic(), []
        self._show(self._compiling_words())
        self._compiling = self.background(self._compile(kept=kept), group="preflight", title="preflight")

    def do_refresh(self) -> None:
        """Compiles again, whatever is kept."""
        if self.running:
            raise OperatorError("It is still being compiled.", "esc cancels it.")
        self._begin(kept=False)

    @property
    def running(self) -> bool:
        return self._compiling is not None and self._compiling.is_running

    async def _compile(self, *, kept: bool) -> None:
        cache = self.console.require_tower().paths.state_dir / "preflight" if kept else None
        python = self._python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        try:
            self.report = await preflight(
                self._request, search=True, python=python, cache=cache, progress=self._progress
            )
        except PreflightError as error:
            self._show(
                plain(error.what), plain(error.cure), f"{PYTHON_VARIABLE} names such a Python for the console."
            )
            return
        self._show(*report_lines(self._request, self.report))

    def _progress(self, text: str) -> None:
        self._said = [*self._said, plain(text)][-PROGRESS_LINES:]
        self._show(self._compiling_words())

    def _compiling_words(self) -> str:
        return f"compiling since {time.monotonic() - self._begun:.0f} s, often a minute a size; esc cancels it"

    def tick(self) -> None:
        if self.running:
            self._show(self._compiling_words())

    def _show(self, *lines: str) -> None:
        request, model = self._request, self._request.model
        head = (
            f"{request.slices} x {request.accelerator.name}, {request.mesh.words()}, dimension"
            f" {model.embedding_dimension}, {model.batch_per_device} rows a device"
        )
        text = "\n".join([head, "", *self._said, *([""] if self._said else []), *lines])
        self.query_one("#preflight-words", Static).update(plain_text(text))

    def page_text(self) -> str:
        return str(self.query_one("#preflight-words", Static).content)

    def do_back(self) -> None:
        if self.running and not self.prompt.is_open:
            assert self._compiling is not None
            self._compiling.cancel()
            self.console.say("The preflight was cancelled; its process is ended.")
        super().do_back()
