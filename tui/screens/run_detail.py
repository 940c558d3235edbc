"""The run under the cursor of a list: where, how, what went wrong first, and the last lines of one of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from backend.outcomes import Outcome
from backend.runs.fanout import first_failure
from backend.sanitize import plain
from tui.durations import format_duration
from tui.screens.run_rows import detail, fold_targets, heat, tail
from tui.widgets.heat_strip import HeatStrip
from tui.wording import count

if TYPE_CHECKING:
    from backend.runs.fanout import WorkerResult
    from backend.runs.model import RunRequest

TAIL_BYTES = 16 * 1024
"""Of the end of a log: more than its last lines that are shown."""
TAIL_LINES = 12
LINE_LIMIT = 300
"""Characters of a line: it is cut at the edge of the screen all the same."""


def speaker(results: Sequence[WorkerResult]) -> WorkerResult:
    """Whose output is shown: of the worker that failed first, else of the first one."""
    return first_failure(results) or results[0]


def last_lines(path: Path) -> list[str]:
    """The last lines of a log, safe to draw; none where there is no log. Reads from disk: call it in a thread."""
    end = tail(path, TAIL_BYTES).removesuffix(b"\n")
    return [plain(line, limit=LINE_LIMIT) for line in end.split(b"\n")[-TAIL_LINES:]] if end else []


def how_words(request: RunRequest) -> list[str]:
    """What was asked for beyond the command; what is as ever is left out."""
    words = []
    if request.batch != "all":
        words.append(f"batches of {request.batch}")
    if request.timeout_s is not None:
        words.append(f"time-out {format_duration(request.timeout_s)}")
    if request.bundle is not None:
        words.append("in shipped code")
    if request.setup:
        words.append(f"after {request.setup}")
    if request.at_boot:
        words.append("at every boot")
    elif request.supervised:
        words.append("detached")
    return words


def words_of(request: RunRequest, results: Sequence[WorkerResult], note: str = "") -> list[str]:
    """Where it ran and how, the operator's words on it, and its first failure."""
    command = " ".join(request.argv)
    where = f"{count(len(results), 'worker')}: {' '.join(fold_targets(result.worker for result in results))}"
    lines = [" · ".join([where, *how_words(request)])]
    if request.title and request.title != command:
        lines.append(command)
    if note:
        lines.append(note)
    first = first_failure(results)
    if first is not None:
        told = first.error or detail(first) or first.note
        lines.append(f"first failure: {first.worker.address} {first.outcome.value.replace('_', ' ')} {told}".rstrip())
    return [plain(line) for line in lines]


def output_lines(result: WorkerResult, lines: Sequence[str], *, reading: bool) -> list[str]:
    """The last lines of a worker under a line that says whose they are, or why there is none."""
    address = result.worker.address
    if lines:
        return [f"the last lines of {address}", *(f"  {line}" for line in lines)]
    if reading:
        return [f"reading the log of {address} …"]
    if result.outcome in (Outcome.PENDING, Outcome.NOT_STARTED):
        return []
    # The journal counts what was printed: without a log that was removed, or nothing was.
    return [f"the log of {address} is not here any more" if result.output_bytes else f"{address} printed nothing"]


class RunDetail(Vertical):
    """A strip below the list."""

    SCOPED_CSS = False
    DEFAULT_CSS = """
    #run-detail { height: auto; max-height: 60%; border-top: solid $rule; padding: 0 1; }
    #run-detail-heat { height: auto; max-height: 3; }
    #run-detail-words { height: auto; max-height: 6; }
    #run-detail-output { height: auto; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
    .-low #run-detail { max-height: 7; }
    .-low #run-detail-output { display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._heat = HeatStrip(id="run-detail-heat")
        self._words = Static(id="run-detail-words", markup=False)
        self._output = Static(id="run-detail-output", markup=False)

    def compose(self) -> ComposeResult:
        yield self._heat
        yield self._words
        yield self._output

    def show(
        self, request: RunRequest, results: Sequence[WorkerResult], note: str = "", lines: Sequence[str] | None = None
    ) -> None:
        """Draws one run.

        Args:
            results: Of all its workers; at least one.
            lines: The last lines of its `speaker`; None while they are read.
        """
        self._heat.set_slices(heat(results))
        self._words.update("\n".join(words_of(request, results, note)))
        self._output.update("\n".join(output_lines(speaker(results), lines or (), reading=lines is None)))
