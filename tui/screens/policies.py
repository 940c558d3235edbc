"""What this program does by itself: requests that are kept, races, and wishes that are not done; who carries each out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static

from backend.cloud.kept_races import EntryState, KeptRace
from backend.cloud.policies import Keep
from backend.model import EventKind, Fleet
from backend.outcomes import OperatorError
from backend.sanitize import plain, plain_text
from tui.actions import BY_ID, POLICIES, Action, bindings
from tui.durations import format_duration
from tui.race_words import resume_lines
from tui.screens.base import TableScreen
from tui.screens.confirm import Choice, Question
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell, Column, Row, state_cell
from tui.wording import count

if TYPE_CHECKING:
    from backend.cloud.intents import Intent
    from tui.policies import Policies

READ_S = 1.0
"""Between looks into the journal: other processes write there too."""
COLUMNS = (
    Column("what", "WHAT", min_width=8, max_width=11),
    Column("name", "NAME", min_width=10, max_width=26),
    Column("zone", "ZONE", min_width=8, max_width=16, priority=1),
    Column("state", "STATE", min_width=12, max_width=24),
    Column("left", "LEFT", min_width=4, max_width=28, priority=2),
    Column("last", "LAST", min_width=10, max_width=300, flex=1),
)
HERE = Cell("this console", token="outcome-ok", glyph="outcome-ok")
ELSEWHERE = Cell("another process", token="outcome-ok", glyph="outcome-ok")
NOBODY = Cell("NO PROCESS", token="outcome-failed", glyph="outcome-failed")


def keep_row(keep: Keep, *, here: bool, said: str) -> Row:
    """A policy: who carries it out, and what is left of its budgets."""
    left = (keep.preemption_budget - keep.preemptions, keep.failure_budget - keep.failures)
    return Row(
        ("keep", keep.key),
        (
            "keep",
            keep.name,
            Cell(keep.zone, token="muted"),
            HERE if here else ELSEWHERE if keep.running else NOBODY,
            f"{count(left[0], 'preemption')}, {count(left[1], 'failure')}",
            plain(said or keep.last_text),
        ),
    )


def race_rows(race: KeptRace, fleet: Fleet, *, here: bool, said: dict[tuple[str, str, str], str]) -> list[Row]:
    """A race, and below it each that was asked for with its state."""
    winner = race.winner_key
    settled = race.settling or race.ended
    if winner is not None:
        last, who = f"won by {winner[2]} in {winner[1]}", Cell("won", token="outcome-ok", glyph="outcome-ok")
    elif settled:
        last, who = "given up, or nobody could win", Cell("over", token="muted")
    else:
        who = HERE if here else ELSEWHERE if race.running else NOBODY
        last = "the first that is ACTIVE wins" if race.running or here else "what it asked for may wait for nobody"
    if settled and (here or race.running):
        who = Cell("cancelling", token="stale")
    elif race.settling and race.lost:
        who, last = NOBODY, f"{last}; what lost may not be cancelled"
    rows = [Row(("race", race.id), ("race", f"race {race.id}", "", who, f"{len(race.entries)} asked for", last))]
    if race.ended and not here:
        return rows
    present = {item.key: item for item in fleet.queued_resources}
    for part in race.parts:
        entry = part.request
        item = present.get(entry.key)
        if part.state in (EntryState.REFUSED, EntryState.GONE):
            state: Cell | str = Cell(part.state.value, token="outcome-failed")
        elif item is not None:
            state = state_cell(item.state)
        else:
            state = Cell("not asked for" if part.state is EntryState.NOT_ASKED else "not there", token="muted")
        text = said.get(entry.key, "") or part.text
        cells = (
            Cell("  entry", token="muted"),
            entry.name,
            Cell(entry.zone, token="muted"),
            state,
            plain(entry.accelerator_type),
            plain(text.partition(": ")[2] or text),
        )
        rows.append(Row(("entry", race.id, entry.key), cells))
    return rows


def wish_row(intent: Intent) -> Row:
    """A delete or recreate that is not done."""
    return Row(
        ("wish", intent.id),
        (
            intent.kind.value,
            intent.name,
            Cell(intent.zone, token="muted"),
            Cell("pending", token="outcome-pending", glyph="outcome-pending"),
            count(intent.attempts, "attempt"),
            plain(intent.last_text),
        ),
    )


class PoliciesScreen(TableScreen):
    """Looks at the journal, so that policies of other processes are seen too."""

    SCOPE = POLICIES
    BINDINGS: ClassVar = bindings(POLICIES)
    CSS_PATH = "tools.tcss"
    crumb = "policies"

    def __init__(self) -> None:
        super().__init__()
        self._keeps: Sequence[Keep] = ()
        self._races: Sequence[KeptRace] = ()
        self._wishes: Sequence[Intent] = ()
        self._read_at = float("-inf")

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield LiveTable(COLUMNS, id="table")
            yield Static(classes="work-detail", markup=False)

    def tick(self) -> None:
        if self.console.tower is None:
            self.table.set_message("The context is being opened …", kind="loading")
        elif time.monotonic() - self._read_at >= READ_S:
            self.read(self.console.policies)

    def read(self, policies: Policies) -> None:
        """Takes what the journal says now."""
        from backend.cloud.intents import IntentStore

        self._read_at = time.monotonic()
        places = set(self.console.context.places)
        journal = self.console.require_tower().journal
        self._keeps = [each for each in policies.store.keeps() if each.key[:2] in places]
        self._races = [each for each in policies.store.races() if any(one.key[:2] in places for one in each.entries)]
        self._wishes = [each for each in IntentStore(journal).open_intents() if each.key[:2] in places]
        found = [
            keep_row(each, here=policies.keeps_here(each.key), said=policies.said.get(each.key, ""))
            for each in self._keeps
        ]
        for race in self._races:
            here = policies.races_here(race.id)
            found += race_rows(race, self.console.fleet, here=here, said=policies.said)
        found += [wish_row(each) for each in self._wishes]
        self.table.set_rows(found)
        keymap = self.console.settings.keymap
        keys = [keymap.shown(BY_ID[name]) for name in ("keep", "race", "create")]
        self.table.set_message(
            "Nothing is kept, raced for or waiting to be deleted.\n"
            f"{keys[0]} on a request keeps it; {keys[1]} in the create form ({keys[2]}) races for it."
        )
        self._show()

    # What the cursor is on

    def keep_here(self) -> Keep | None:
        row = self.table.cursor_row
        return next((each for each in self._keeps if row is not None and row.key == ("keep", each.key)), None)

    def race_here(self) -> KeptRace | None:
        row = self.table.cursor_row
        if row is None or not isinstance(row.key, tuple) or row.key[0] not in ("race", "entry"):
            return None
        return next((each for each in self._races if each.id == row.key[1]), None)

    def wish_here(self) -> Intent | None:
        row = self.table.cursor_row
        return next((each for each in self._wishes if row is not None and row.key == ("wish", each.id)), None)

    def applies(self, action: Action) -> bool:
        match action.id:
            case "take-up":
                keep, race = self.keep_here(), self.race_here()
                return (keep is not None and not keep.running) or (race is not None and race.lost)
            case "give-up":
                race = self.race_here()
                return self.table.cursor_row is not None and (race is None or not race.ended)
            case "open":
                return self.table.cursor_row is not None
            case _:
                return True

    @on(LiveTable.RowHighlighted)
    def _show(self) -> None:
        place = self.query_one(".work-detail", Static)
        text = self._words()
        place.display = bool(text)
        place.update(plain_text(text))

    def _words(self) -> str:
        keymap = self.console.settings.keymap
        take, give = keymap.shown(BY_ID["take-up"]), keymap.shown(BY_ID["give-up"])
        if (keep := self.keep_here()) is not None:
            here = self.console.policies.keeps_here(keep.key)
            who = "This console keeps it while it is open." if here else "Another process keeps it."
            if not here and not keep.running:
                who = f"Nobody keeps it now: {take} takes it up here; so does `slicetower qr keep {keep.name}`."
            job = f"On ready it runs: {' '.join(keep.on_ready)}" if keep.on_ready else ""
            spent = (
                f"spent {keep.preemptions} of {keep.preemption_budget} preemptions,"
                f" {keep.failures} of {keep.failure_budget} failures"
            )
            return "\n".join(
                part for part in (f"{keep.name} in {keep.zone}: {spent}.", who, job, keep.last_text) if part
            )
        if (race := self.race_here()) is not None and not race.ended:
            if race.lost:
                left = "" if race.settling else f" It has {format_duration(race.left_s)} left until it is given up."
                return (
                    f"Nobody runs race {race.id} now: {take} takes it up here; so does `slicetower qr race --resume"
                    f" {race.id}`.{left}\n{give} deletes what it asked for and is not ACTIVE."
                )
            here = self.console.policies.races_here(race.id)
            who = "This console runs it while it is open." if here else "Another process runs it."
            return f"{who} {give} gives it up: everything that it asked for is deleted." if here else who
        if (wish := self.wish_here()) is not None:
            doing = "deleted until it is gone" if wish.kind.value == "delete" else "deleted, and then asked for again"
            words = f"{wish.name} in {wish.zone} is to be {doing}; this goes on while a console is open."
            return f"{words} {give} takes the wish back.\n{wish.last_text}".strip()
        return ""

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """The request in the fleet."""
        row = self.table.cursor_row
        if row is None or not isinstance(row.key, tuple) or row.key[0] == "race":
            raise OperatorError("A race is no request; its entries below it are.")
        name = row.cells[1]
        self.console.show_request(name.text if isinstance(name, Cell) else name)

    async def do_take_up(self) -> None:
        keep, race = self.keep_here(), self.race_here()
        if race is not None:
            await self._take_up_race(race)
            return
        if keep is None:
            raise OperatorError("Only a keep or a race can be taken up.", "The cursor is on neither.")
        if keep.running:
            raise OperatorError(f"{keep.name} is being kept already.")
        lines = [
            f"{keep.name} will be deleted and made again after up to"
            f" {count(keep.preemption_budget - keep.preemptions, 'more preemption')} and"
            f" {count(keep.failure_budget - keep.failures, 'more failure')}, while this console is open."
        ]
        if keep.on_ready:
            lines.append(f"Each time it is ready this machine runs: {' '.join(keep.on_ready)}")
        choices = (Choice("yes", "Keep it", "primary"), Choice("no", "Leave it"))
        if await self.console.push_screen_wait(Question(f"Keep {keep.name} here?", lines, choices)) == "yes":
            self.console.policies.keep(keep)
            self._read_at = float("-inf")

    async def _take_up_race(self, race: KeptRace) -> None:
        if race.ended:
            raise OperatorError(f"Race {race.id} is over.")
        if race.running:
            raise OperatorError(f"Race {race.id} is being run already.")
        places = set(self.console.context.places)
        strange = next((each.zone for each in race.entries if each.key[:2] not in places), "")
        if strange:
            raise OperatorError(
                f"Race {race.id} asks in {strange} too, which this console does not watch.",
                f"`slicetower qr race --resume {race.id}` takes it up without a console.",
            )
        lines = resume_lines(race, self.console.fleet)
        choices = (Choice("yes", "Take it up", "primary"), Choice("no", "Leave it"))
        if await self.console.push_screen_wait(Question(f"Run race {race.id} here?", lines, choices)) == "yes":
            await self.console.policies.take_up(race)
            self._read_at = float("-inf")

    async def do_give_up(self) -> None:
        keep, race, wish = self.keep_here(), self.race_here(), self.wish_here()
        policies = self.console.policies
        if keep is not None:
            if keep.running and not policies.keeps_here(keep.key):
                raise OperatorError(f"Another process keeps {keep.name}.", "End that one: it holds the lease.")
            lines = [f"{keep.name} stays as it is; nobody makes it again when it is preempted."]
            if await self._sure(f"Keep {keep.name} no more?", lines, "End it"):
                await policies.end_keep(keep)
        elif race is not None:
            if race.ended:
                raise OperatorError(f"Race {race.id} is over.")
            if race.running and not policies.races_here(race.id):
                raise OperatorError(f"Another process runs race {race.id}.", "End that one: it cancels its entries.")
            lines = [f"{entry.name} in {entry.zone}" for entry in race.entries]
            lines.append("What is ACTIVE stays." if race.lost else "All of them are deleted.")
            if await self._sure(f"Give race {race.id} up?", lines, "Give it up"):
                await policies.end_race(race)
                self.console.note(EventKind.ACTION, f"race {race.id} is given up")
        elif wish is not None:
            lines = ["A delete that the service has accepted cannot be taken back; only trying again ends."]
            if await self._sure(f"Take back the wish to {wish.kind.value} {wish.name}?", lines, "Take it back"):
                self._withdraw(wish)
        else:
            raise OperatorError("There is nothing under the cursor.")
        self._read_at = float("-inf")

    async def _sure(self, title: str, lines: Sequence[str], deed: str) -> bool:
        choices = (Choice("yes", deed, "error"), Choice("no", "No"))
        return await self.console.push_screen_wait(Question(title, lines, choices, chosen=1)) == "yes"

    def _withdraw(self, wish: Intent) -> None:
        from backend.cloud.intents import IntentOutcome, IntentStore

        store = IntentStore(self.console.require_tower().journal)
        if not store.end(wish, IntentOutcome.WITHDRAWN, "taken back"):
            raise OperatorError(f"It is done already: {wish.kind.value} {wish.name}.")
        self.console.note(EventKind.ACTION, f"the wish to {wish.kind.value} it is taken back", subject=wish.name)
