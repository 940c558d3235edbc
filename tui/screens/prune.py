"""Old runs go, with their logs: the form of which, the list of what would go, and the removing with its progress."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on

from backend.cloud.gcloud_flags import parse_duration
from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.runs.model import RunHead, RunRecord
from backend.runs.retention import OldRun, PrunePlan, choose, forget, is_old_still, plan_prune, remove_logs
from backend.sanitize import plain
from tui.actions import BY_ID, PRUNE, PRUNE_FORM, Action, bindings
from tui.durations import format_duration
from tui.numbers import whole_number
from tui.screens.confirm import TypedConfirmation
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, PlanForm
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, number_cell
from tui.wording import count, fold, size, utc_now

if TYPE_CHECKING:
    from backend.tower import Tower

DEFAULT_AGE = "30d"
ASK_LINES = 40
"""Runs that are listed in the question; more are counted."""
NO, YES = "stay", "go too"
COLUMNS = (
    Column("run", "RUN", min_width=10, max_width=24),
    Column("ended", "ENDED (UTC)", width=14, priority=2),
    Column("age", "AGE", width=7, align="right", priority=1),
    Column("size", "ON DISK", width=9, align="right"),
    Column("fate", "WHAT BECOMES OF IT", min_width=12, max_width=40),
    Column("command", "COMMAND", min_width=10, max_width=200, flex=1),
)
GOES, STAYS = Cell("goes", token="stale"), Cell("stays: it may still run", token="muted")


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """Which runs may go."""

    older_than_s: float | None
    keep: int | None
    unknown: bool

    @property
    def words(self) -> str:
        """`ended more than 30d ago, beyond the newest 100`."""
        parts = []
        if self.older_than_s is not None:
            parts.append(f"ended more than {format_duration(self.older_than_s)} ago")
        if self.keep is not None:
            parts.append(f"beyond the newest {self.keep:,}")
        return ", ".join(parts)


def read_form(texts: Mapping[str, str]) -> tuple[PruneRequest, dict[str, str]]:
    """What the form asks for, and each mistake by field."""
    wrong: dict[str, str] = {}
    age, number = texts.get("older", "").strip(), texts.get("keep", "").strip()
    older_than_s: float | None = None
    if age:
        try:
            older_than_s = parse_duration(age)
        except ValueError:
            wrong["older"] = f"'{age}' is no age. Write 30d or 12h."
    keep = whole_number(number)
    if number and keep is None:
        wrong["keep"] = f"'{plain(number)}' is no number of runs. Write 100."
    if not age and not number:
        wrong["older"] = "Which runs may go was not said: write an age, a number that stays, or both."
    return PruneRequest(older_than_s, keep, texts.get("unknown") == YES), wrong


def words_of(record: RunHead | RunRecord) -> str:
    """What was run."""
    return plain(record.request.title or shlex.join(record.request.argv))


class PruneFormScreen(PlanForm):
    """Counts what would go while it is typed; removes nothing."""

    SCOPE = PRUNE_FORM
    BINDINGS: ClassVar = bindings(PRUNE_FORM)
    crumb = "clean up runs"
    draft_name = "prune"

    def __init__(self) -> None:
        super().__init__()
        self._records: list[RunHead] | None = None
        self._request: PruneRequest | None = None

    def fields(self) -> Iterable[FormLine]:
        kept = self.draft()
        yield FormLine(
            "older", "older than", value=kept.get("older", DEFAULT_AGE), hint="any age; or 30d since they ended"
        )
        yield FormLine("keep", "keep newest", value=kept.get("keep", ""), hint="none by number; or 100")
        yield FormLine("unknown", "unknown ones", value=kept.get("unknown", NO), choices=(NO, YES))

    def on_mount(self) -> None:
        self.background(self._read(), group="work", title="read which runs are kept")

    async def _read(self) -> None:
        self._records = await self.console.require_tower().runs.all_heads()
        self.check()

    def judge(self, texts: Mapping[str, str]) -> Judged:
        request, wrong = read_form(texts)
        self._request = None if wrong else request
        if wrong:
            return Judged([next(iter(wrong.values()))], wrong)
        if self._records is None:
            return Judged(["Reading which runs are kept …"])
        old, may_run = choose(
            self._records,
            older_than_s=request.older_than_s,
            keep=request.keep,
            unknown=request.unknown,
            now=utc_now(),
        )
        lines = [f"{len(old):,} of {count(len(self._records), 'run')} would go: {request.words}."]
        if may_run:
            lines.append(
                f"{count(len(may_run), 'run')} as old may still run, and would stay: {fold(each.id for each in may_run)}."
            )
        lines += [
            "Their logs go with them; benchmarks keep their figures.",
            "",
            "ctrl+r lists them, and removes nothing",
        ]
        return Judged(lines)

    def do_submit(self) -> None:
        self.require_right("Nothing was removed.")
        assert self._request is not None
        self.give_way(PruneScreen(self._request))


class PruneScreen(WorkScreen):
    """Lists what would go; removes it, run by run, after its number was typed."""

    SCOPE = PRUNE
    BINDINGS: ClassVar = bindings(PRUNE)
    COLUMNS = COLUMNS
    word = "clean up"

    def __init__(self, request: PruneRequest) -> None:
        super().__init__(())
        self.crumb = "clean up"
        self._request = request
        self._plan = PrunePlan((), ())
        self._records: dict[str, RunHead] = {}
        self._fates: dict[str, Cell] = {}
        self._removing = False

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        if self._removing and self.is_working:
            raise OperatorError("Runs are being removed.", "It says so when that is done.")
        self._removing = False
        self._plan, self._fates = PrunePlan((), ()), {}
        self.detail("")
        self.table.clear_marks()
        self.begin(self._look(), f"Looking which runs {self._request.words}")

    async def _look(self) -> None:
        tower, request, now = self.console.require_tower(), self._request, utc_now()
        records = await tower.runs.all_heads()
        self._records = {record.id: record for record in records}

        def plan() -> PrunePlan:
            return plan_prune(
                records,
                tower.paths,
                older_than_s=request.older_than_s,
                keep=request.keep,
                unknown=request.unknown,
                now=now,
            )

        # Every file of every old run is looked at.
        self._plan = await asyncio.to_thread(plan)
        self.table.set_message(f"No run {request.words}.", kind="empty")
        self._draw(now)
        self.head(self._found_words())
        self.refresh_frame()

    def _found_words(self) -> str:
        plan = self._plan
        key = self.console.settings.keymap.shown(BY_ID["remove-old"])
        parts = [f"{count(len(plan.old), 'run')} with {size(plan.bytes)} would go: {self._request.words}"]
        if plan.may_run:
            parts.append(f"{count(len(plan.may_run), 'run')} as old may still run and will stay")
        if plan.old and not self.console.read_only:
            parts.append(f"{key} removes them")
        return " · ".join(parts)

    def _draw(self, now: datetime) -> None:
        rows = [self._row(each.record, now, each.bytes, GOES) for each in self._plan.old]
        rows += [self._row(self._records[run_id], now, None, STAYS) for run_id in self._plan.may_run]
        self.table.set_rows(rows)

    def _row(self, record: RunHead | RunRecord, now: datetime, size_bytes: int | None, fate: Cell) -> Row:
        ended = record.ended_at
        since = (now - (ended or record.started_at)).total_seconds()
        cells = (
            record.id,
            Cell(f"{ended:%m-%d %H:%M:%S}" if ended else "not ended", token="muted", sort=since),
            number_cell(since, format_duration(since)),
            number_cell(size_bytes, size(size_bytes) if size_bytes is not None else None),
            self._fates.get(record.id, fate),
            words_of(record),
        )
        return Row(record.id, cells)

    def chosen(self) -> list[OldRun]:
        """The marked ones of those that go, or all of them."""
        left = [each for each in self._plan.old if each.record.id not in self._fates]
        marks = self.table.marks
        return [each for each in left if each.record.id in marks] if marks else left

    def applies(self, action: Action) -> bool:
        if action.id == "remove-old":
            return not self.is_working and bool(self.chosen())
        return super().applies(action)

    def loss(self) -> str:
        return "Runs are being removed: those that were not reached yet would stay." if self._removing else ""

    async def do_remove_old(self) -> None:
        if self.is_working:
            raise OperatorError("It still looks." if not self._removing else "Runs are being removed already.")
        chosen = self.chosen()
        if not chosen:
            raise OperatorError(
                "Nothing here may go.", "Marks on runs that stay choose nothing." if self.table.marks else ""
            )
        number = len(chosen)
        lines = [f"{each.record.id}  {size(each.bytes):>8}  {words_of(each.record)}" for each in chosen[:ASK_LINES]]
        if number > ASK_LINES:
            lines.append(f"and {number - ASK_LINES:,} more")
        lines.append("Their logs and records are gone then; nothing on workers is touched.")
        freed = size(sum(each.bytes for each in chosen))
        question = TypedConfirmation(
            f"Remove {count(number, 'run')} with {freed} of logs?", lines, str(number), deed="remove them"
        )
        if await self.console.push_screen_wait(question):
            self._removing = True
            self.working = self.background(self._remove(chosen), group="work", title=self.word)
            self.refresh_frame()

    async def _remove(self, chosen: list[OldRun]) -> None:
        tower = self.console.require_tower()
        gone: list[OldRun] = []
        stayed = 0
        try:
            for place, each in enumerate(chosen, 1):
                self.head(f"removing {place:,} of {len(chosen):,} … {size(sum(one.bytes for one in gone))} freed")
                await self._remove_one(tower, each, gone)
                if each not in gone:
                    stayed += 1
                    self._fates[each.record.id] = Cell("stays: another console has it open", token="muted")
                self._draw(utc_now())
        finally:
            self._removing = False
            freed = sum(each.bytes for each in gone)
            if gone:
                self.console.note(EventKind.ACTION, f"Removed {len(gone)} old runs with {freed} bytes of logs")
            if self.is_attached:
                self._tell_end(len(gone), freed, stayed, len(chosen) - len(gone) - stayed)

    def _tell_end(self, gone: int, freed: int, stayed: int, left: int) -> None:
        self.table.clear_marks()
        self._draw(utc_now())
        parts = [f"{count(gone, 'run')} removed, {size(freed)} freed"]
        if stayed:
            parts.append(f"{count(stayed, 'run')} stayed: another console has them open, or they live again")
        if left:
            parts.append(f"{count(left, 'run')} not reached")
        self.head(" · ".join(parts))

    async def _remove_one(self, tower: Tower, each: OldRun, gone: list[OldRun]) -> None:
        """Logs in a thread, then the record: what was begun is done to its end, also when the rest is cancelled."""
        if not is_old_still(each, tower.runs.store):
            return
        work = asyncio.ensure_future(asyncio.to_thread(remove_logs, each, tower.paths))
        cancelled = False
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                cancelled = True
        if work.result():
            self._forget(tower, each)
            gone.append(each)
        if cancelled:
            raise asyncio.CancelledError

    def _forget(self, tower: Tower, each: OldRun) -> None:
        run = tower.runs.active.get(each.record.id)
        if run is not None:
            tower.runs.forget(run)
        tower.runs.logs.release(each.record.id)
        forget(each, tower.runs.store, tower.runs.audit)
        self._fates[each.record.id] = Cell("removed", token="outcome-ok", glyph="outcome-ok")

    def do_break_off(self) -> None:
        """What is being removed is removed to its end; no other is begun."""
        if not self._removing:
            super().do_break_off()
            return
        assert self.working is not None
        self.working.cancel()

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        row = self.table.cursor_row
        record = self._records.get(str(row.key)) if row is not None else None
        self.detail(f"{record.id}: {plain(shlex.join(record.request.argv), limit=300)}" if record is not None else "")

    def do_open(self) -> None:
        row = self.table.cursor_row
        if row is None:
            raise OperatorError("There is no run under the cursor.")
        self.console.open_run(self.console.find_run(str(row.key)))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])
