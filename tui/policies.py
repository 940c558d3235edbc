"""Keeps and races that this console carries out: they go on behind every screen, and end with the context."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain

if TYPE_CHECKING:
    from backend.cloud.policies import Keep, KeptRace
    from backend.cloud.recover import Recovery
    from backend.cloud.requests import CreateRequest
    from backend.tower import Tower

CLOSE_S = 3.0
"""For what is carried out to write down that nobody does now."""

Key = tuple[str, str, str]


class Teller(Protocol):
    """Where is said what becomes of them, and who carries out wishes."""

    def say(self, text: str) -> None: ...
    def note(self, kind: EventKind, text: str, *, subject: str = "") -> None: ...
    def tell(self, error: BaseException, *, doing: str = "") -> None: ...
    def require_recovery(self) -> Recovery: ...


class Policies:
    """Tasks by what they are about; the journal holds what must outlive them."""

    def __init__(self, console: Teller, tower: Tower) -> None:
        from backend.cloud.policies import PolicyStore

        self._console = console
        self._tower = tower
        self.store = PolicyStore(tower.journal)
        self._keepers: dict[Key, asyncio.Task[None]] = {}
        self._races: dict[int, asyncio.Task[None]] = {}
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
    def living(self) -> list[str]:
        """Names of what is kept and raced for here."""
        kept = [key[2] for key, task in self._keepers.items() if not task.done()]
        return kept + [f"race {race}" for race, task in self._races.items() if not task.done()]

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

        keeper = Keeper(self._console.require_recovery(), self.store, self._tower.watch, say=say)
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

    async def race(self, requests: Sequence[CreateRequest], timeout_s: float) -> None:
        """Asks for all; returns when the race is kept in the journal."""
        from backend.cloud.race import Race

        names = {f"{each.name} in {each.zone}:": each.key for each in requests}

        def say(text: str) -> None:
            key = next((key for head, key in names.items() if text.startswith(head)), requests[0].key)
            self.said[key] = text
            self._console.note(EventKind.ACTION, plain(text), subject=key[2])

        runner = Race(self._console.require_recovery(), self.store, self._tower.watch, say=say)
        task = self._begin(self._race(runner.run(requests, timeout_s)), f"race of {len(requests)}")
        # Its first step, before it waits for anything, is to keep itself in the journal.
        await asyncio.sleep(0)
        if runner.id is not None:
            self._races[runner.id] = task

    async def _race(self, run: Coroutine[Any, Any, Any]) -> None:
        winner = await run
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
        if race.running:
            raise OperatorError(f"Another process runs race {race.id}.", "End that one: it cancels its entries.")
        from backend.cloud.intents import IntentKind, IntentStore
        from backend.model import QueuedResourceState

        wishes = IntentStore(self._tower.journal)
        present = {item.key: item for item in self._tower.watch.fleet.queued_resources}
        for entry in race.entries:
            item = present.get(entry.key)
            if item is not None and item.state != QueuedResourceState.ACTIVE:
                wishes.wish(IntentKind.DELETE, entry.key, force=True, target_created_at=None)
        self.store.end_race(race.id, "")

    async def close(self) -> None:
        """Lets go of everything; a race that is broken off has its wishes to delete in the journal."""
        tasks = [task for task in (*self._keepers.values(), *self._races.values()) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_S)
