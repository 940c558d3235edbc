"""Who holds the chips of workers, shown first; stopped after the targets were typed; and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on

from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID, FREE, Action, bindings
from tui.screens.confirm import TypedConfirmation
from tui.screens.tool_options import FreeFormScreen, FreeOptions
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row
from tui.wording import count

if TYPE_CHECKING:
    from backend.tools.ship import Answer

COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=26),
    Column("state", "CHIPS", min_width=10, max_width=16),
    Column("pid", "PID", min_width=5, max_width=9, align="right"),
    Column("user", "USER", min_width=5, max_width=14, priority=1),
    Column("what", "WHAT", min_width=20, max_width=300, flex=1),
)
ASK_LINES = 40
"""Holders that are listed in the question; more are counted."""


def fates(facts: dict[str, Any]) -> dict[int, str]:
    """What became of each holder, or would."""
    return (
        dict.fromkeys(facts["terminated"], "ended")
        | dict.fromkeys(facts["killed"], "killed")
        | dict.fromkeys(facts["refused"], "another user's: not touched")
        | dict.fromkeys(facts.get("would_stop", ()), "would be stopped")
    )


def _state(facts: dict[str, Any]) -> Cell:
    if facts["free"]:
        return Cell("free", token="outcome-ok", glyph="outcome-ok")
    word = "held" if facts["holders"] else "locked"
    return Cell(word, token="outcome-failed", glyph="outcome-failed")


def rows(answers: Sequence[Answer]) -> list[Row]:
    """One row a holder, and one for a worker without any: those that are held or silent first, each kind in its order."""
    odd_first = sorted(answers, key=lambda answer: answer.facts is not None and bool(answer.facts["free"]))
    return [row for answer in odd_first for row in _rows(answer)]


def _rows(answer: Answer) -> Iterator[Row]:
    where = answer.worker.address
    facts = answer.facts
    if facts is None:
        state = Cell("no answer", token="outcome-unreachable", glyph="outcome-unreachable")
        yield Row((where, 0), (where, state, "", "", plain(answer.error.removeprefix(f"{where}: "))))
        return
    fate = fates(facts)
    for holder in facts["holders"]:
        pid = int(holder["pid"])
        words = f"{fate.get(pid, 'is still there')}: {holder['command']}"
        yield Row((where, pid), (where, _state(facts), str(pid), plain(str(holder["user"])), plain(words)))
    lock = facts["lockfile"]
    notes = [f"removed {lock['path']}"] if lock["removed"] else []
    notes += [f"{lock['path']} would be removed"] if facts.get("would_remove_lockfile") else []
    notes += [facts["error"]] if facts.get("error") else []
    stopped = {int(holder["pid"]) for holder in facts["holders"]}
    owners = [owner for owner in lock.get("owners", ()) if int(owner["pid"]) not in stopped]
    if not facts["free"]:
        for owner in owners:
            words = (
                f"has {lock['path']} open, but no chip; only its owner can tell whether it may go: {owner['command']}"
            )
            user = plain(str(owner["user"]))
            yield Row((where, int(owner["pid"])), (where, _state(facts), str(owner["pid"]), user, plain(words)))
        if lock.get("exists") and not owners and not stopped and not notes:
            notes.append(f"{lock['path']} is there, and whose it is cannot be seen from this user")
    if notes or not (facts["holders"] or owners):
        yield Row((where, 0), (where, _state(facts), "", "", plain("; ".join(notes) or "nobody holds them")))


class FreeScreen(WorkScreen):
    """Looks when it opens; stops nobody before it was asked for by the exact targets."""

    SCOPE = FREE
    BINDINGS: ClassVar = bindings(FREE)
    COLUMNS = COLUMNS
    word = "free"

    options: FreeOptions = FreeOptions()
    holds: Sequence[Answer] = ()
    _stopping = False

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        if self._stopping and self.is_working:
            raise OperatorError("The holders are being stopped.", "It says so when that is done.")
        self.holds, self._stopping = (), False
        self.detail("")
        self.begin(self._work(dry_run=True), f"Looking who holds the chips of {' '.join(self.targets)}")

    async def _work(self, *, dry_run: bool) -> None:
        from backend.tools.free import free

        tower = self.console.require_tower()
        self.holds = await free(
            tower, self.chosen_workers(), dry_run=dry_run, told=self.told, **self.options.arguments
        )
        self.table.set_rows(rows(self.holds))
        self.head(self._words(dry_run=dry_run))
        self.refresh_frame()

    def _words(self, *, dry_run: bool) -> str:
        from backend.tools.free import is_free

        left = [each for each in self.holds if not is_free(each)]
        silent = sum(each.facts is None for each in self.holds)
        free_ones = len(self.holds) - len(left)
        parts = [f"{free_ones} of {count(len(self.holds), 'worker')} free"]
        if silent:
            parts.append(f"{count(silent, 'worker')} did not answer")
        holders = sum(len(each.facts["holders"]) for each in left if each.facts is not None)
        if dry_run and holders:
            key = self.console.settings.keymap.shown(BY_ID["free-now"])
            parts.append(f"held by {holders} process{'' if holders == 1 else 'es'}; {key} stops them")
        elif left and not dry_run:
            parts.append("NOT free: see below")
        return " · ".join(parts)

    def tick(self) -> None:
        if self.is_working and (waiting := self.waiting_words()):
            self.head(f"{self.word} {' '.join(self.targets)} … {waiting}")

    def applies(self, action: Action) -> bool:
        if action.id == "free-now":
            return not self.is_working and bool(self._targeted())
        return super().applies(action)

    def _targeted(self) -> list[tuple[str, dict[str, Any]]]:
        """(worker, holder) of everything that would be stopped, and lockfiles that would go."""
        return [
            (answer.worker.address, holder)
            for answer in self.holds
            if answer.facts is not None and not answer.facts["free"]
            for holder in (answer.facts["holders"] or [{"pid": 0, "command": answer.facts["lockfile"]["path"]}])
        ]

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        row = self.table.cursor_row
        words = [cell.text if isinstance(cell, Cell) else cell for cell in row.cells] if row is not None else []
        self.detail(f"{words[0]}: {words[-1]}" if words else "")

    def do_tool_options(self) -> None:
        """Asks how long holders get, and looks again."""
        if self._stopping and self.is_working:
            raise OperatorError("The holders are being stopped.", "It says so when that is done.")
        self.console.push_screen(FreeFormScreen(self.targets, self.options, self._take))

    def _take(self, targets: tuple[str, ...], options: FreeOptions) -> None:
        self.targets, self.options = targets, options
        self.crumb = f"{self.word} {' '.join(targets)}"
        self.do_refresh()

    def do_open(self) -> None:
        from tui.screens.workers import WorkersScreen

        row = self.table.cursor_row
        if row is not None and isinstance(row.key, tuple):
            self.console.push_screen(WorkersScreen([str(row.key[0])]))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def loss(self) -> str:
        return "Holders are being stopped: whether they are gone would not be known." if self._stopping else ""

    async def do_free_now(self) -> None:
        if self.is_working:
            raise OperatorError("It still looks.", "Wait for what it finds.")
        found = self._targeted()
        if not found:
            raise OperatorError("Nobody holds the chips of these workers; there is nothing to stop.")
        lines = [
            plain(
                f"{where}  pid {holder['pid']}  {holder['command']}"
                if holder["pid"]
                else f"{where}  {holder['command']}"
            )
            for where, holder in found[:ASK_LINES]
        ]
        if len(found) > ASK_LINES:
            lines.append(f"and {len(found) - ASK_LINES} more")
        lines.append(f"TERM first, KILL {self.options.grace_s:g} s later; nothing else there is signalled.")
        where = " ".join(self.targets)
        question = TypedConfirmation(f"Stop what holds the chips of {where}?", lines, where, deed="stop them")
        if await self.console.push_screen_wait(question):
            self._stopping = True
            self.begin(self._work(dry_run=False), f"Stopping the holders on {where}, and looking again")
