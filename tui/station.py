"""The application's connection to the backend: the tower opened after the first paint, and what is known through it."""

from __future__ import annotations

import asyncio
import gc
import importlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.worker import Worker

from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID
from tui.console import Console
from tui.widgets.status_header import HeaderFacts
from tui.wording import count, poll_age_s, poll_error, totals, utc_now

if TYPE_CHECKING:
    from backend.cloud.intents import Intent
    from backend.cloud.policies import Keep
    from backend.cloud.recover import Recovery
    from backend.cloud.requests import CreateRequest
    from backend.context import Context
    from backend.model import Fleet, QueuedResource, Slice, SshWord
    from backend.notifications import Notice, NotificationSettings
    from backend.ssh.roll import Place
    from backend.ssh.rollcall import RollCall
    from backend.tower import Tower

READ_BYTES_PER_S = 60_000_000
"""What all workers together may send while the screen is up: what is beyond it waits in their channels."""
READ_TICK_S = 0.01
"""A key waits at least for what is read in one turn: short turns, each of a hundredth of the above."""
KEY_FIRST_S = 0.05
"""Nothing is read from workers for so long after a key: it passes through a dozen turns of the loop until it is painted."""
KEYS_LONGEST_S = 0.3
"""A log that is looked at waits no longer for keys: one that is held down repeats more often than `KEY_FIRST_S`."""
WISHES_EVERY_S = 2.0
CLOSE_TIMEOUT_S = 10.0
"""How long leaving waits for connections and the journal to be closed."""


NEWCOMERS_EVERY_S = 3.0
"""Between looks into the journal for runs that other processes began."""


class Station(Console):
    """A part of the application."""

    def init_station(self) -> None:
        """Nothing is open yet."""
        self.tower: Tower | None = None
        self.recovery: Recovery | None = None
        self.trouble: OperatorError | None = None
        self._leave = asyncio.Event()
        self._keeper: Worker[None] | None = None
        self._notification: NotificationSettings | None = None
        self._wishes_at = 0.0
        self._pressed_at = self._held_from = -KEY_FIRST_S
        self._counted: tuple[Fleet | None, tuple[int, int, int]] = (None, (0, 0, 0))
        """A fleet with its chips (`totals`): counting thousands at every tick is dear."""
        self._open_wishes: tuple[Intent, ...] = ()
        self._keeps: tuple[Keep, ...] = ()
        self._lost_races = 0

    def open_tower(self) -> None:
        """Opens the tower in the background; also the cure when that failed before."""
        self.trouble = None
        self._leave = asyncio.Event()
        self._keeper = self.run_worker(
            self._keep_tower(), group="tower", name="open the context", exclusive=True, exit_on_error=False
        )

    async def _keep_tower(self) -> None:
        module = await asyncio.to_thread(importlib.import_module, "backend.tower")
        tower_class: type[Tower] = module.Tower
        async with tower_class.open(self.context) as tower:
            self.tower = tower
            # What was noted before there was a journal.
            while self.notices:
                event = self.notices.popleft()
                tower.record(event.text, subject=event.subject, kind=event.kind)
            tower.ask_passphrase = self._ask_passphrase
            tower.interactive = True
            self._begin_recovery(tower)
            self._begin_notices(tower)
            self.run_worker(self._take_up_runs(tower), group="reattach", name="find runs again", exit_on_error=False)
            self.run_worker(
                self._call_the_roll(tower), group="roll", name="ask whether ssh answers", exit_on_error=False
            )
            try:
                await self._leave.wait()
            finally:
                self.drop_forwards()
                await self.drop_policies()
                self.tower = self.recovery = None
                for group in ("recovery", "reattach", "notices", "roll"):
                    self.workers.cancel_group(self, group)

    def _begin_recovery(self, tower: Tower) -> None:
        """Carries out what was wished here or by a console that ended: deletes go on until the request is gone."""
        if self.read_only:
            return
        from backend.cloud.intents import IntentStore
        from backend.cloud.recover import Recovery
        from backend.cloud.usage import LimitStore

        self.recovery = Recovery(
            tower.client,
            IntentStore(tower.journal),
            say=self.say,
            limits=LimitStore(tower.journal),
            tell_refused=self._tell_refused,
            made_again=self._job_made_again,
        )
        self.run_worker(self.recovery.run(), group="recovery", name="carry out wishes", exit_on_error=False)

    def _tell_refused(self, request: CreateRequest, reason: str) -> None:
        """What a recreate deleted and may not make again is among the events, from which its create form opens."""
        from backend.model import EventKind

        text = f"deleted, and not made again: {reason} enter here opens the create form with what it was"
        self.note(EventKind.ERROR, text, subject=request.name)

    def _job_made_again(self, request: CreateRequest) -> None:
        """The job of a request that a recreate or a keep has made again goes on as the run that it was."""
        from backend.cloud.requests import RUN_KEY

        tower, run_id = self.tower, dict(request.metadata).get(RUN_KEY, "")
        if tower is None or not run_id or not tower.runs.knows(run_id):
            return
        try:
            tower.runs.reopen(run_id)
            tower.runs.attach(run_id)
        except OperatorError as error:
            self.tell(error, doing=f"follow run {run_id} again")

    def _begin_notices(self, tower: Tower) -> None:
        """Tells by toast, bell, OSC 9 and the operator's command what is worth telling."""
        from backend.notifications import NotificationSettings, Notifier, Source

        sources: tuple[Source, ...] = ()
        try:
            settings, sources = tower.notification_settings(), tower.alert_sources()
        except OperatorError as error:
            self.tell(error, doing="read [notifications] and [alerts]")
            settings = NotificationSettings()
        self._notification = settings
        notifier = Notifier(tower.watch, settings, self._show_notice, clock=utc_now, sources=sources)
        self.run_worker(notifier.run(), group="notices", name="tell notices", exit_on_error=False)

    def _show_notice(self, notice: Notice) -> None:
        self.say(notice.text, severity="warning" if notice.urgent else "information")
        if self._notification is not None and self._notification.bell:
            self.bell()
        if self._notification is not None and self._notification.osc9:
            self.tell_terminal(notice.text)

    async def _ask_passphrase(self, path: Path) -> str | None:
        return await self.ask_secret(f"Passphrase of {path}")

    async def _take_up_runs(self, tower: Tower) -> None:
        """Finds again, once the fleet is known, every run that was not seen to end."""
        while not tower.watch.fleet.loaded:
            await tower.watch.next_snapshot()
        await asyncio.to_thread(importlib.import_module, "backend.runs.manager")
        # Modules and the fleet stay: a collection that looks at all of them again blocks the loop for 30 ms and more.
        gc.collect()
        gc.freeze()
        budget = tower.runs.budget
        budget.tick_s = READ_TICK_S
        budget.bytes_per_tick = int(READ_BYTES_PER_S * READ_TICK_S)
        found = await tower.runs.reattach(tower.watch.fleet)
        tower.benches.reattach(found)
        if found:
            names = ", ".join(run.request.title or run.id for run in found)
            self.say(f"Found again: {names}.", title=f"{len(found)} of your runs still live")
        await self._take_up_newcomers(tower)

    async def _take_up_newcomers(self, tower: Tower) -> None:
        """Shows what another process of this operator begins, such as `qr create --job`, without being told."""
        from backend.runs.adoption import newcomers

        while True:
            await asyncio.sleep(NEWCOMERS_EVERY_S)
            try:
                found = newcomers(tower.runs, tower.context.name, tower.watch.fleet)
            except OperatorError as error:
                self.tell(error, doing="look for new runs")
                return
            tower.benches.reattach(found)
            lasting = [run.request.title or run.id for run in found if run.request.supervised]
            if lasting:
                self.say(f"Begun elsewhere: {', '.join(lasting)}.")

    async def close_tower(self) -> None:
        """Closes connections and the journal, within a bound."""
        self._leave.set()
        if self._keeper is not None and not self._keeper.is_finished:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._keeper.wait()
            except TimeoutError:
                self._keeper.cancel()

    async def change_context(self, context: Context, arguments: Sequence[str]) -> None:
        """Closes this context and opens another; screens begin anew from the fleet.

        Args:
            context: To open.
            arguments: The options that name it, for processes of our own: a shell is of the context that is open.
        """
        from tui.screens.leaving import left_words

        self.go()
        left = left_words(*self.carried_out(), [])
        await self.close_tower()
        if left:
            self.say(left)
        self.context = context
        self.context_arguments = tuple(arguments)
        self.read_only = context.read_only
        self.open_tower()

    @property
    def fleet(self) -> Fleet:
        """What is known now; an unloaded fleet while the tower is not open."""
        if self.tower is not None:
            return self.tower.watch.fleet
        from backend.model import Fleet

        return Fleet()

    def hold_reading(self) -> None:
        """A key was pressed: what workers send, and what their logs show, waits until it is painted."""
        self._pressed_at = time.monotonic()
        # Asking for the runs would make them, and import the ssh library, before anything was run.
        runs = vars(self.tower).get("runs") if self.tower is not None else None
        if runs is not None:
            runs.budget.hold(KEY_FIRST_S)

    def key_comes_first(self) -> bool:
        """Whether a key is being painted: a log is not drawn in its frame, but in the next."""
        now = time.monotonic()
        if now - self._pressed_at >= KEY_FIRST_S:
            self._held_from = now
            return False
        if now - self._held_from < KEYS_LONGEST_S:
            return True
        self._held_from = now
        return False

    def require_tower(self) -> Tower:
        """The tower.

        Raises:
            OperatorError: It is not open yet, or could not be opened.
        """
        if self.tower is not None:
            return self.tower
        if self.trouble is not None:
            raise self.trouble
        raise OperatorError("The connection to the cloud is still being opened.", "Try again in a second.")

    def require_recovery(self) -> Recovery:
        """Who carries out deletes, recreates and creates, and keeps the wishes.

        Raises:
            OperatorError: The tower is not open.
        """
        self.require_tower()
        assert self.recovery is not None
        return self.recovery

    def target_names(self) -> tuple[str, ...]:
        """Names of requests and addresses of workers, for completion."""
        names = [item.name for item in self.fleet.queued_resources]
        for item in self.fleet.queued_resources:
            for one in item.slices:
                names.append(f"{item.name}/{one.index}")
                names.extend(f"{item.name}/{one.index}/{worker.index}" for worker in one.workers)
        return tuple(names)

    def header_facts(self) -> HeaderFacts:
        """What the header says now."""
        context, tower = self.context, self.tower
        notes = [*(["paused"] if self.paused else []), *self._wishes()]
        facts = HeaderFacts(
            context=context.name,
            project=context.project,
            zones=context.zones,
            label=context.label,
            read_only=self.read_only,
            api_error=plain(self.trouble.what) if self.trouble is not None else "",
            notes=tuple(notes),
        )
        if tower is None:
            return facts
        fleet, now = self.fleet, utc_now()
        if fleet is not self._counted[0]:
            self._counted = (fleet, totals(fleet))
        _, (active, waiting, dead) = self._counted
        roll = self._roll
        answering, asked = roll.counts() if roll is not None else (0, 0)
        # Asking for the pool would make it, and import the ssh library, before anything was connected.
        pool = vars(tower).get("pool")
        return replace(
            facts,
            api_age_s=poll_age_s(fleet, now),
            api_error=facts.api_error or poll_error(fleet),
            ssh_answering=answering,
            ssh_asked=asked,
            ssh_open=pool.connected if pool is not None else 0,
            active_chips=active,
            waiting_chips=waiting,
            dead_chips=dead,
        )

    def _look_up_wishes(self) -> None:
        """Looks into the journal once in a while; not before the fleet is known: that way leads the first paint."""
        now = time.monotonic()
        if self.tower is None or not self.fleet.loaded or now - self._wishes_at < WISHES_EVERY_S:
            return
        from backend.cloud.intents import IntentStore
        from backend.cloud.policies import PolicyStore

        self._wishes_at = now
        places = set(self.context.places)
        try:
            intents = IntentStore(self.tower.journal).open_intents()
            policies = PolicyStore(self.tower.journal)
            keeps, races = policies.keeps(), policies.races(ended=0)
        except OperatorError:
            # The watch tells of a journal that fails; what was known last stays.
            return
        self._open_wishes = tuple(each for each in intents if (each.project, each.zone) in places)
        self._keeps = tuple(each for each in keeps if (each.project, each.zone) in places)
        self._lost_races = sum(each.lost and any(one.key[:2] in places for one in each.entries) for each in races)

    def wishes(self) -> tuple[Intent, ...]:
        """What was wished here or by another process and is not done."""
        self._look_up_wishes()
        return self._open_wishes

    def keeps(self) -> tuple[Keep, ...]:
        """Policies that make requests again and were not ended."""
        self._look_up_wishes()
        return self._keeps

    def _wishes(self) -> list[str]:
        counts = Counter(intent.kind.value for intent in self.wishes())
        words = [f"{count(number, kind)} pending" for kind, number in counts.items()]
        idle = sum(not each.running for each in self._keeps)
        without = [count(number, kind) for number, kind in ((idle, "keep"), (self._lost_races, "race")) if number]
        return [*words, *([f"{', '.join(without)} without a process"] if without else [])]

    def notes_about(self, key: tuple[str, str, str]) -> list[str]:
        """What this program is to do about a request: wishes, and whether it is kept."""
        lines = []
        for intent in self.wishes():
            if intent.key == key:
                said = f": {intent.last_text}" if intent.last_text else ""
                lines.append(f"{intent.kind.value} wished, {count(intent.attempts, 'attempt')}{said}")
        for keep in self.keeps():
            if keep.key == key:
                left = (keep.preemption_budget - keep.preemptions, keep.failure_budget - keep.failures)
                screen = self.settings.keymap.shown(BY_ID["go.policies"])
                idle = f"no process keeps it now: {screen} takes it up, as does slicetower qr keep {keep.name}"
                runs = "a keeper runs" if keep.running else idle
                lines.append(f"kept: {left[0]} preemptions and {left[1]} failures left; {runs}")
        return [plain(line) for line in lines]

    def ssh_word(self, item: QueuedResource | Slice) -> SshWord | None:
        if self.tower is None:
            return None
        from backend.model import SshWord, Standing
        from backend.ssh.roll import number_to_call

        number = number_to_call(item)
        if not number:
            return None
        roll = self._roll
        return roll.word(item) if roll is not None else SshWord(Standing.ASKING, f"asking ssh 0/{number}", 0, number)

    def ssh_unanswered(self) -> tuple[int, Mapping[Place, str]]:
        roll = self._roll
        return (roll.version, roll.unanswered) if roll is not None else (0, {})

    def ask_ssh_first(self, item: QueuedResource | Slice | None) -> None:
        if (roll := self._roll) is not None and item is not None:
            from backend.ssh.roll import key_of

            roll.look_first(key_of(item))

    def ask_ssh_again(self) -> None:
        if (roll := self._roll) is not None:
            roll.again()

    @property
    def _roll(self) -> RollCall | None:
        """None while nobody calls it: it begins when the fleet is known."""
        return vars(self.tower).get("roll_call") if self.tower is not None else None

    async def _call_the_roll(self, tower: Tower) -> None:
        """Asks, as long as the tower is open, whether ssh answers on what the cloud calls ready."""
        while not tower.watch.fleet.loaded:
            await tower.watch.next_snapshot()
        await asyncio.to_thread(importlib.import_module, "backend.ssh.rollcall")
        await tower.roll_call.run(lambda: tower.watch.fleet)
