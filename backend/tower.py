"""The composition root: what a console or a verb works with, made when it is first asked for, closed in one place."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, Self

from backend.context import Context
from backend.journal import Journal
from backend.model import Event, EventKind, Fleet, Operation, QueuedResource
from backend.paths import Paths, paths

if TYPE_CHECKING:
    from backend.bench.manager import BenchManager
    from backend.bench.sweeps import SweepManager
    from backend.cloud.client import CloudClient
    from backend.cloud.watch import FleetWatch
    from backend.costs import Cost
    from backend.notifications import Notice, NotificationSettings, Notifier, Source
    from backend.runs.live import Run
    from backend.runs.manager import RunManager
    from backend.ssh.connections import ConnectionPool
    from backend.ssh.handshake_errors import Unreachable
    from backend.ssh.keys import AskPassphrase
    from backend.ssh.rollcall import RollCall
    from backend.targets import WorkerRef

STOP_TIMEOUT_S = 5.0
"""For each part to end when the tower closes."""


LOOK_S = 2.0
"""Between polls for those who follow a production job without a watch."""


class Closing(Protocol):
    """A part that has to be closed."""

    async def close(self) -> None: ...


class Tower:
    """One context, opened. Use `Tower.open`; every part is imported and made at its first use."""

    def __init__(self, context: Context, own_paths: Paths | None = None) -> None:
        self.context = context
        self.paths = own_paths or paths()
        self._watching = False
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")

    @classmethod
    @asynccontextmanager
    async def open(cls, context: Context, *, watch: bool = True) -> AsyncIterator[Self]:
        """An open tower; all that it started has ended when the block is left.

        Args:
            watch: Polls the fleet from the start, in the background.

        Raises:
            OperatorError: the context is unusable, or the journal can't be opened.
        """
        tower = cls(context)
        tower._watching = watch
        watching = asyncio.create_task(tower.watch.run()) if watch else None
        try:
            yield tower
        finally:
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
            await tower.close()

    @cached_property
    def journal(self) -> Journal:
        return Journal.open(self.paths.journal)

    @cached_property
    def client(self) -> CloudClient:
        from backend.cloud.client import CloudClient

        return CloudClient(self.context)

    @cached_property
    def watch(self) -> FleetWatch:
        from backend.cloud.watch import FleetWatch

        return FleetWatch(self.client, self.context, self.journal)

    ask_passphrase: AskPassphrase | None = None
    """Asks the operator for the passphrase of an encrypted key; set before `pool` is first used."""

    interactive = False
    """Somebody types and looks on; set before `pool` is first used."""

    announce: Callable[[str], None] | None = None
    """Tells the operator at once what was done about keys; it is among the events in any case."""

    @cached_property
    def pool(self) -> ConnectionPool:
        from backend.ssh import lean
        from backend.ssh.boot import ReadySince
        from backend.ssh.connections import ConnectionPool
        from backend.ssh.enrolment import Enrolment
        from backend.ssh.hostkeys import SliceHostKeys

        lean.garbage(interactive=self.interactive)
        api = SliceHostKeys(self.client, lambda: self.watch.fleet, self.context.inventory)
        return ConnectionPool(
            self.context,
            api,
            self.journal,
            ask_passphrase=self.ask_passphrase,
            ready_since=ReadySince(self.journal, lambda: self.watch.fleet),
            instance_name=api.instance_name,
            enrolment=Enrolment(self.context, self.client, api.slice_of, self.journal, self._tell_of_keys),
            made_key=None if self.context.read_only else self._tell_of_keys,
            news=self._hear,
            lost=self._ask_after_loss,
        )

    @cached_property
    def roll_call(self) -> RollCall:
        """Who answers; somebody has to run it."""
        from backend.ssh.listener import Listener
        from backend.ssh.rollcall import RollCall

        listener = Listener(self.context, self._pool_made)
        return RollCall(self.context, listener.listen, self._is_connected)

    async def _pool_made(self) -> ConnectionPool:
        """The pool; the ssh library is imported where it blocks nobody."""
        await asyncio.to_thread(importlib.import_module, "backend.ssh.connections")
        return self.pool

    def _is_connected(self, worker: WorkerRef) -> bool:
        return "pool" in self.__dict__ and self.pool.is_connected(worker)

    def _ask_after_loss(self, worker: WorkerRef) -> None:
        """A connection broke: whether its server still answers is worth knowing now."""
        if "roll_call" in self.__dict__:
            self.roll_call.ask(worker)

    def tell_roll(self, worker: WorkerRef, why: str) -> None:
        """What somebody else found out of a worker's ssh server, who asked for it."""
        if "roll_call" in self.__dict__:
            self.roll_call.hear(worker, why)

    def _hear(self, worker: WorkerRef, error: Unreachable | None) -> None:
        """What the pool found out is told to who calls the roll."""
        if "roll_call" not in self.__dict__:
            return
        from backend.ssh.handshake_errors import LOGIN, OURS, in_short

        if error is None:
            self.roll_call.hear(worker, "")
        elif error.reason not in OURS:
            self.roll_call.hear(worker, in_short(error), login=error.reason in LOGIN)

    def _tell_of_keys(self, text: str, subject: str = "") -> None:
        self.record(text, subject=subject)
        if self.announce is not None:
            self.announce(text)

    @cached_property
    def runs(self) -> RunManager:
        from backend.runs.boots import View
        from backend.runs.manager import RunManager

        made = RunManager(
            self.pool, self.journal, self.paths, fleet=lambda: self.watch.fleet, context=self.context.name
        )
        made.view = View(self.look, self._is_wished_again)
        return made

    @cached_property
    def benches(self) -> BenchManager:
        from backend.bench.manager import BenchManager

        return BenchManager(self.runs, self.pool, self.journal, context=self.context.name)

    @cached_property
    def sweeps(self) -> SweepManager:
        from backend.bench.sweeps import SweepManager

        return SweepManager(self.benches, self.journal)

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Saved target groups, for `backend.targets.select`.

        Raises:
            OperatorError: a mistake in the configuration.
        """
        from backend.groups import load_groups

        return load_groups(self.paths.config)

    def notifier(self, show: Callable[[Notice], None]) -> Notifier:
        """Rules of the configuration over what is watched; run it as a task beside the watch.

        Raises:
            OperatorError: a mistake in the configuration.
        """
        from backend.cloud.watch import now_utc
        from backend.notifications import Notifier

        return Notifier(self.watch, self.notification_settings(), show, clock=now_utc, sources=self.alert_sources())

    def notification_settings(self) -> NotificationSettings:
        """[notifications], with what [alerts] say instead.

        Raises:
            OperatorError: a mistake in the configuration.
        """
        from backend.alerts import load_alerts
        from backend.notifications import load_notifications

        return load_alerts(self.paths.config).over(load_notifications(self.paths.config))

    def alert_sources(self) -> tuple[Source, ...]:
        """Rules over runs, for a Notifier.

        Raises:
            OperatorError: a mistake in the configuration.
        """
        from backend.alerts import SilenceRule, load_alerts

        silence_s = load_alerts(self.paths.config).silence_s
        if not silence_s:
            return ()
        rule = SilenceRule(silence_s)
        return (lambda now: rule.notices(self._open_runs(), now),)

    def _open_runs(self) -> list[Run]:
        """None are made only to look at them."""
        return list(self.runs.active.values()) if "runs" in self.__dict__ else []

    def costs(self, items: Iterable[QueuedResource]) -> dict[tuple[str, str, str], Cost]:
        """What requests have cost so far, by `QueuedResource.key`; see backend.costs for what is a lower bound."""
        from backend.cloud.watch import now_utc
        from backend.costs import costs

        return costs(items, self.journal.timeline, now_utc(), self.context.price)

    async def look(self) -> Fleet:
        """The fleet for somebody who waits for a change of it: polled here, at most every LOOK_S, if nothing watches it.

        Raises:
            OperatorError: every zone failed.
        """
        if self._watching:
            return self.watch.fleet
        async with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_S:
                await self.watch.refresh()
                self._looked_at = time.monotonic()
        return self.watch.fleet

    def _is_wished_again(self, key: tuple[str, str, str]) -> bool:
        from backend.cloud.intents import IntentKind, IntentStore
        from backend.cloud.policies import PolicyStore

        wishes = IntentStore(self.journal).open_intents()
        keeps = PolicyStore(self.journal).keeps()
        return any(each.kind is IntentKind.RECREATE and each.key == key for each in wishes) or any(
            each.running and each.key == key for each in keeps
        )

    async def operations(self) -> list[Operation]:
        """Of every place of the context, newest first; one place that fails fails it all: a gap would look like an end.

        Raises:
            OperatorError: a place does not answer.
        """
        lists = await asyncio.gather(*(self.client.operations(*place) for place in self.context.places))
        found = [item for each in lists for item in each]
        return sorted(found, key=lambda item: (item.created_at is not None, item.created_at, item.name), reverse=True)

    async def refresh(self) -> Fleet:
        """One poll of every zone.

        Raises:
            OperatorError: every zone failed.
        """
        return await self.watch.refresh()

    def record(self, text: str, *, subject: str = "", kind: EventKind = EventKind.ACTION) -> None:
        """Notes an action of the operator in the journal and among the events on screen.

        Args:
            text: One sentence, already safe to show.
            subject: `train-a`, `train-a/0`, a run id, or empty for the console itself.
        """
        from backend.cloud.watch import now_utc

        event = Event(now_utc(), kind, project=self.context.project, subject=subject, text=text)
        self.journal.record([event])
        self.watch.note(event)

    async def close(self) -> None:
        """Closes what was made, the journal last, whatever fails on the way."""
        made = self.__dict__
        async with AsyncExitStack() as stack:
            if "journal" in made:
                stack.callback(self.journal.close)
            for name in ("client", "pool", "runs", "benches", "sweeps"):
                if name in made:
                    stack.push_async_callback(_closed, made[name])


async def _closed(part: Closing) -> None:
    """A part that does not close in time is left to the end of the process."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await part.close()
