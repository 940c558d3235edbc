"""Whether ssh answers, asked by logging in to every worker: the result by slice, in words, while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from textual import on

from backend.outcomes import OperatorError
from backend.targets import WorkerRef
from tui.actions import ANSWERS, BY_ID, bindings
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row
from tui.wording import count, utc_now

if TYPE_CHECKING:
    from backend.ssh.answers import Silent

ASK_S = 60.0
"""For the whole; and for each worker of thousands, which wait for their turn, the fraction below."""
ASK_EACH_S = 0.25
NAMED = 4
"""Workers of a slice that are told by number."""

COLUMNS = (
    Column("slice", "SLICE", min_width=10, max_width=40),
    Column("answer", "ANSWER", min_width=8, max_width=12),
    Column("ssh", "SSH", min_width=20, max_width=120, flex=1),
)


@dataclass(slots=True)
class SliceAnswers:
    """What the workers of one slice said so far."""

    name: str
    workers: list[WorkerRef] = field(default_factory=list)
    answered: int = 0
    silent: dict[int, Silent] = field(default_factory=dict)
    """By worker."""

    @property
    def words(self) -> str:
        """In a line: who is silent and why, or how far it is."""
        if not self.silent:
            return "ssh answers" if self.answered == len(self.workers) else "asking"
        by_reason: dict[str, list[int]] = {}
        for index, each in sorted(self.silent.items()):
            by_reason.setdefault(_reason(each), []).append(index)
        parts = []
        for reason, indices in by_reason.items():
            if len(indices) == len(self.workers) > 1:
                who = f"all {len(indices)} workers"
            else:
                more = f" and {len(indices) - NAMED} more" if len(indices) > NAMED else ""
                who = f"worker {', '.join(map(str, indices[:NAMED]))}{more}"
            parts.append(f"no ssh on {who}: {reason}")
        return "; ".join(parts)

    @property
    def detail(self) -> str:
        """What is wrong with the first silent one, and what to do about it."""
        for _, each in sorted(self.silent.items()):
            if each.error is not None:
                return "\n".join(part for part in (each.error.what, each.error.cure) if part)
            return f"{each.worker.address}: nobody got in within the time that there was ({each.reason})."
        return ""


def _reason(silent: Silent) -> str:
    """As everywhere on screen: `connection refused`, `key refused`."""
    from backend.ssh.handshake_errors import Unreachable, in_short

    return in_short(silent.error) if isinstance(silent.error, Unreachable) else silent.reason


def by_slice(workers: Iterable[WorkerRef]) -> dict[str, SliceAnswers]:
    """By `train-a/0`, in their order."""
    found: dict[str, SliceAnswers] = {}
    for worker in workers:
        name = f"{worker.queued_resource}/{worker.slice_index}"
        found.setdefault(name, SliceAnswers(name)).workers.append(worker)
    return found


def rows(slices: Mapping[str, SliceAnswers]) -> list[Row]:
    """A line a slice; those that lack something first."""
    ordered = sorted(slices.values(), key=lambda each: not each.silent)
    result = []
    for each in ordered:
        number = len(each.workers)
        token = "stale" if each.silent else "" if each.answered == number else "muted"
        result.append(
            Row(
                each.name,
                (
                    each.name,
                    Cell(f"{each.answered}/{number}", token=token, sort=each.answered),
                    Cell(each.words, token=token),
                ),
            )
        )
    return result


class AnswersScreen(WorkScreen):
    """Logs in once to each when it opens, and again on `r`; what was not connected before is let go at once."""

    SCOPE = ANSWERS
    BINDINGS: ClassVar = bindings(ANSWERS)
    COLUMNS = COLUMNS
    word = "ask ssh"

    _slices: Mapping[str, SliceAnswers] = {}
    _drawn: object = None

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        self._slices = {}
        self.detail("")
        self.begin(self._ask(), f"Logging in to {' '.join(self.targets)}")

    async def _ask(self) -> None:
        from backend.ssh.answers import Answers

        tower = self.console.require_tower()
        workers = self.chosen_workers()
        self._slices = by_slice(workers)

        def seen(worker: WorkerRef, silent: Silent | None) -> None:
            each = self._slices[f"{worker.queued_resource}/{worker.slice_index}"]
            self.told(worker, "")
            if silent is None:
                each.answered += 1
                return
            each.silent[worker.worker_index] = silent
            if silent.error is None:
                tower.tell_roll(worker, "no login in time")

        await Answers(tower.pool).ask(workers, ASK_S + ASK_EACH_S * len(workers), seen, self.told)
        self._draw()
        lacking = next((each.name for each in self._slices.values() if each.silent), None)
        if lacking is not None:
            self.table.move_to(lacking)
        self.head(f"{self._summary()} · {utc_now():%H:%M:%S} UTC")

    def _summary(self) -> str:
        answered = sum(each.answered for each in self._slices.values())
        number = sum(len(each.workers) for each in self._slices.values())
        return f"ssh answers on {answered:,} of {count(number, 'worker')}"

    def tick(self) -> None:
        if self._slices and self.is_working:
            self._draw()
            waiting = self.waiting_words()
            self.head(f"Logging in … {self._summary()}{f' · {waiting}' if waiting else ''}")

    def _draw(self) -> None:
        self.table.set_rows(rows(self._slices))
        self._show_detail()

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_detail()

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def _show_detail(self) -> None:
        row = self.table.cursor_row
        found = self._slices.get(str(row.key)) if row is not None else None
        text = found.detail if found is not None else ""
        if text != self._drawn:
            self._drawn = text
            self.detail(text)

    def targets_here(self) -> list[str]:
        """The marked slices; without marks all that were asked."""
        return [str(row.key) for row in self.table.selected_rows()] if self.table.marks else list(self.targets)

    def do_open(self) -> None:
        """The workers of this slice."""
        from tui.screens.workers import WorkersScreen

        row = self.table.cursor_row
        if row is None:
            raise OperatorError("There is no slice under the cursor.")
        self.console.push_screen(WorkersScreen([str(row.key)]))
