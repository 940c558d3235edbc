"""Keeps and races that this console carries out: they go on behind every screen, and end with the context."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain

if TYPE_CHECKING:
    from backend.cloud.kept_races import KeptRace
    from backend.cloud.policies import Keep
    from backend.cloud.race import Race
    from backend.cloud.recover import Recovery
    from backend.cloud.requests import CreateRequest
    from backend.model import QueuedResource, Slice, SshWord
    from backend.tower import Tower

CLOSE_S = 3.0
"""For what is carried out to write down that nobody does now."""
GIVE_UP_S = 20.0
"""For what a race asked for to be gone, before the console is left all the same."""

Key = tuple[str, str, str]


class Teller(Protocol):
    """Where is said what becomes of them, and who carries out wishes."""

    def say(self, text: str) -> None: ...
    def note(self, kind: EventKind, text: str, *, subject: str = "") -> None: ...
    def tell(self, error: BaseException, *, doing: str = "") -> None: ...
    def require_recovery(self) -> Recovery: ...
    def ssh_word(self, item: QueuedResource | Slice) -> SshWord | None: ...


class Policies:
    """Tasks by what they are about; the journal holds what must outlive them."""

    def __init__(self, console: Teller, tower: Tower) -> None:
        from backend.cloud.policies import PolicyStore

        self._console = console
        self._tower = tower
        self.store = PolicyStore(tower.journal)
        self._keepers: dict[Key, asyncio.Task[None]] = {}
        self._races: dict[int, asyncio.Task[None]] = {}
        self._runners: dict[int, Race] = {}
        self.said: dict[Key, str] = {}
        """The last sentence about a request."""

    def keeps_here(self, key: Key) -> bool:
        """Whether this console keeps it."""
        task = self._keepers.get(key)
        return task is not None and not task.done()

    def races_here(self, race: int) -> bool:
        """Whether this console runs that race, or is cancelling it."""
        task = self._races.get(race)
        return task is not None and not task.done()

    @property
    def kept_here(self) -> list[str]:
        """Names of what this console keeps."""
        return [key[2] for key, task in self._keepers.items() if not task.done()]

    @property
    def raced_here(self) -> list[int]:
        """Races that this console runs, or is cancelling."""
        return [race for race, task in self._races.items() if not task.done()]

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._console.tell(error, doing=task.get_name())

    def _told(self, text: str, name: str) -> None:
        self._console.say(text)
        self._console.note(EventKind.ACTION, plain(text), subject=name)

    # Keeping

    def keep(self, wanted: Keep) -> None:
        """Keeps a request from now on.

        Raises:
            OperatorError: It is kept here already.
        """
        if self.keeps_here(wanted.key):
            raise OperatorError(f"{wanted.name} is kept by this console already.")
        self._keepers[wanted.key] = self._begin(self._keep(wanted), f"keep {wanted.name}")

    async def _keep(self, wanted: Keep) -> None:
        from backend.cloud.keep import Keeper

        def say(text: str) -> None:
            self.said[wanted.key] = text
            self._told(text, wanted.name)

        keeper = Keeper(
            self._console.require_recovery(), self.store, self._tower.watch, say=say, ssh=self._console.ssh_word
        )
        self._console.note(EventKind.ACTION, "kept from now on, by this console", subject=wanted.name)
        text = await keeper.run(wanted)
        self._console.note(EventKind.ALARM, f"not kept any more: {text}", subject=wanted.name)

    async def end_keep(self, keep: Keep) -> None:
        """Ends a policy; the request stays as it is.

        Raises:
            OperatorError: Another process carries it out.
        """
        task = self._keepers.get(keep.key)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not self.store.end_keep(keep.key, "given up"):
            raise OperatorError(f"Another process keeps {keep.name}.", "End that one: it holds the lease.")
        self._console.note(EventKind.ACTION, "not kept any more: given up", subject=keep.name)

    # Racing

    def _runner(self, requests: Sequence[CreateRequest]) -> Race:
        from backend.cloud.race import Race

        names = {f"{each.name} in {each.zone}:": each.key for each in requests}

        def say(text: str) -> None:
            key = next((key for head, key in names.items() if text.startswith(head)), requests[0].key)
            self.said[key] = text
            self._console.note(EventKind.ACTION, plain(text), subject=key[2])

        from backend.runs.production import given_up

        over = partial(given_up, manager=self._tower.runs)
        return Race(self._console.require_recovery(), self.store, self._tower.watch, say=say, given_up=over)

    async def race(self, requests: Sequence[CreateRequest], timeout_s: float) -> None:
        """Asks for all; returns when the race is kept in the journal."""
        runner = self._runner(requests)
        task = self._begin(self._race(runner.run(requests, timeout_s)), f"race of {len(requests)}")
        await self._known(runner, task)

    async def take_up(self, race: KeptRace) -> None:
        """Goes on with a race that no process runs; returns when its lease is taken, or refused.

        Raises:
            OperatorError: This console runs it already.
        """
        if self.races_here(race.id):
            raise OperatorError(f"Race {race.id} is run by this console already.")
        runner = self._runner(race.entries)
        task = self._begin(self._race(runner.resume(race.id)), f"race {race.id}")
        await self._known(runner, task)
        if runner.id is not None:
            self._console.note(EventKind.ACTION, f"race {race.id} is taken up by this console")

    async def _known(self, runner: Race, task: asyncio.Task[None]) -> None:
        # Its first step, before it waits for anything, is to keep itself in the journal.
        await asyncio.sleep(0)
        if runner.id is not None:
            self._races[runner.id] = task
            self._runners[runner.id] = runner

    async def _race(self, run: Coroutine[Any, Any, QueuedResource | None]) -> None:
        winner = await run
        if winner is not None:
            self._told(f"{winner.name} won the race in {winner.zone}.", winner.name)

    async def end_race(self, race: KeptRace) -> None:
        """Cancels what was asked for; what is ACTIVE of a race that nobody runs stays.

        Raises:
            OperatorError: Another process runs it.
        """
        task = self._races.get(race.id)
        if task is not None and not task.done():
            task.cancel()
            return
        from backend.cloud.intents import IntentKind, IntentStore
        from backend.model import QueuedResourceState

        taken = self.store.take_race(race.id)
        self.store.settle_race(race.id, taken.winner)
        wishes = IntentStore(self._tower.journal)
        present = {item.key: item for item in self._tower.watch.fleet.queued_resources}
        for part in taken.parts:
            item = present.get(part.request.key)
            if part.may_exist and (item is None or item.state != QueuedResourceState.ACTIVE):
                wishes.wish(IntentKind.DELETE, part.request.key, force=True, target_created_at=part.made_at)
        self.store.end_race(race.id)

    async def give_up_all(self) -> list[str]:
        """Ends what is kept here, and cancels the races of this console with all that they asked for.

        Returns:
            What was asked for and is not gone within `GIVE_UP_S`; its wishes to be deleted are in the journal.
        """
        for keep in self.store.keeps():
            if self.keeps_here(keep.key):
                await self.end_keep(keep)
        here = set(self.raced_here)
        tasks = [self._races[race] for race in here]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=GIVE_UP_S)
        from backend.cloud.intents import IntentStore

        raced = {entry.key for race in self.store.races() if race.id in here for entry in race.entries}
        return [each.name for each in IntentStore(self._tower.journal).open_intents() if each.key in raced]

    async def close(self) -> None:
        """Lets go of everything: keeps and races stay as they are, for a process that takes them up."""
        for runner in self._runners.values():
            runner.leave = True
        tasks = [task for task in (*self._keepers.values(), *self._races.values()) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_S)
