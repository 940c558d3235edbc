"""Watching the fleet: polls, their pace, and the one snapshot that everybody reads.

The service has no watch call, so each (project, zone) is polled by itself: two list calls, quickly while something moves, slowly
while nothing does, ever more slowly while it fails. A failed poll changes nothing but the zone's `ZonePoll`: its last rows
stay, and no error is ever read as an empty list.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol, TypeVar

from backend import outages
from backend.cloud.changes import Look, changes, changes_while_away
from backend.cloud.convert import in_order, natural, owners, with_slices
from backend.cloud.pace import JITTER, LIVELY_S, Zone
from backend.context import Context
from backend.journal import Journal
from backend.model import (
    Event,
    EventKind,
    Fleet,
    QueuedResource,
    Slice,
    StateSince,
    ZonePoll,
)
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain

T = TypeVar("T")
Key = tuple[str, str, str]

JOINED_AT_ONCE = 100
"""Requests that are given their slices at a stretch: keys are painted between."""
LEAST_GAP_S = 0.5
"""Between two polls of a zone, whatever is poked."""
POLL_TIMEOUT_S = 60.0
"""Of one whole poll; large lists have many pages."""
POLL_ATTEMPTS = 2
"""Tries of each list call within a poll: the back-off does the rest."""
EVENTS_KEPT = 2000


class Lister(Protocol):
    """What a watch needs of a client."""

    async def list_queued_resources(
        self, project: str, zone: str, *, attempts: int | None = None
    ) -> list[QueuedResource]: ...

    async def list_nodes(self, project: str, zone: str, *, attempts: int | None = None) -> list[Slice]: ...

    def prepare(self) -> None: ...


def now_utc() -> datetime:
    return datetime.now(UTC)


class FleetWatch:
    """Watches all places of a context. Read `fleet` and `events` at any time; nothing here touches a screen."""

    def __init__(
        self,
        client: Lister,
        context: Context,
        journal: Journal | None,
        *,
        clock: Callable[[], datetime] = now_utc,
    ) -> None:
        self._client = client
        self._journal = journal
        self._clock = clock
        self._zones = [Zone(project, zone) for project, zone in context.places]
        self._listed = context.inventory.facts(context.project)
        self._fleet = Fleet(
            standalone=self._listed, polls=tuple(zone.poll for zone in self._zones), loaded=not self._zones
        )
        self._running = False
        self._news = asyncio.Event()
        self._journal_failed = False
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        """The newest events of this console, oldest first."""
        self.events_version = 0

    @property
    def fleet(self) -> Fleet:
        """The newest snapshot. Its tuples are the same objects as before where nothing in them changed."""
        return self._fleet

    async def run(self) -> None:
        """Polls until it is cancelled."""
        self._running = True
        try:
            if self._zones:
                await asyncio.to_thread(self._client.prepare)
            async with asyncio.TaskGroup() as group:
                for zone in self._zones:
                    group.create_task(self._watch(zone))
        finally:
            self._running = False

    def poke(self) -> None:
        """Something was done: look again soon, and often for a while. An asked-for pause is kept."""
        until = monotonic() + LIVELY_S
        for zone in self._zones:
            zone.fast_until = until
            zone.wake.set()

    async def refresh(self) -> Fleet:
        """Polls every zone once.

        Raises:
            OperatorError: every zone failed; the first one's error. Where only some fail, `Fleet.polls` says so.
        """
        await asyncio.gather(*(self._poll(zone, attempts=None) for zone in self._zones))
        errors = [zone.error for zone in self._zones if zone.error is not None]
        if errors and len(errors) == len(self._zones):
            raise errors[0]
        return self._fleet

    async def wait_for(self, predicate: Callable[[Fleet], T | None], timeout_s: float) -> T:
        """The first value that is neither None nor False, over snapshots in which every zone was seen.

        Polls by itself when nobody runs the watch.

        Raises:
            OperatorError: a zone fails for a reason that waiting does not mend, or nothing came within
                `timeout_s` (exit code TIMED_OUT).
        """
        self.poke()
        # A `run` that was only just made a task gets its turn to say that it runs.
        await asyncio.sleep(0)
        runner = None if self._running else asyncio.create_task(self.run())
        try:
            async with asyncio.timeout(timeout_s):
                return await self._first(predicate)
        except TimeoutError as error:
            failing = [zone.poll.error for zone in self._zones if zone.error is not None]
            raise OperatorError(
                f"Waited {timeout_s:g} s without success.",
                "Wait longer with a higher --timeout; what was asked for goes on at the service.",
                exit_code=ExitCode.TIMED_OUT,
                raw="; ".join(failing),
            ) from error
        finally:
            if runner is not None:
                runner.cancel()
                with suppress(asyncio.CancelledError):
                    await runner

    async def _first(self, predicate: Callable[[Fleet], T | None]) -> T:
        while True:
            news = self._news
            for zone in self._zones:
                if zone.error is not None and zone.will_not_mend:
                    raise zone.error
            if all(zone.poll.last_good_at is not None for zone in self._zones):
                value = predicate(self._fleet)
                if value is not None and value is not False:
                    return value
            await news.wait()

    async def next_snapshot(self) -> Fleet:
        """Waits, without a bound of its own, until a poll has ended, well or badly."""
        await self._news.wait()
        return self._fleet

    def note(self, event: Event) -> None:
        """Shows an event that was made elsewhere (an action of the operator); the journal is the caller's."""
        self._add([event])

    async def _watch(self, zone: Zone) -> None:
        while True:
            await self._poll(zone, attempts=POLL_ATTEMPTS)
            started = monotonic()
            pause = zone.pause_s(started) * random.uniform(1 - JITTER, 1 + JITTER)
            zone.wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await zone.wake.wait()
            least = max(LEAST_GAP_S, zone.asked_to_wait_s) - (monotonic() - started)
            if least > 0:
                await asyncio.sleep(least)

    async def _poll(self, zone: Zone, *, attempts: int | None) -> None:
        """One poll of one zone; an error becomes the zone's, and leaves its rows as they were."""
        async with zone.lock:
            try:
                async with asyncio.timeout(POLL_TIMEOUT_S):
                    queued, nodes = await self._list(zone, attempts)
            except OperatorError as error:
                await self._failed(zone, error)
            except TimeoutError:
                text = f"Could not list {zone.place[0]}, {zone.place[1]}: no answer within {POLL_TIMEOUT_S:.0f} s."
                await self._failed(zone, OperatorError(text, "Check the network.", exit_code=ExitCode.CLOUD))
            else:
                await self._succeeded(zone, queued, nodes)

    async def _list(self, zone: Zone, attempts: int | None) -> tuple[list[QueuedResource], list[Slice]]:
        queued, nodes = await asyncio.gather(
            self._client.list_queued_resources(*zone.place, attempts=attempts),
            self._client.list_nodes(*zone.place, attempts=attempts),
            return_exceptions=True,
        )
        if isinstance(queued, BaseException):
            raise queued
        if isinstance(nodes, BaseException):
            raise nodes
        return queued, nodes

    async def _failed(self, zone: Zone, error: OperatorError) -> None:
        first = zone.poll.failures == 0
        at = self._clock()
        zone.error = error
        zone.polled = True
        zone.poll = replace(
            zone.poll, failures=zone.poll.failures + 1, error=plain(error.what), cure=plain(error.cure)
        )
        self._publish()
        if not first:
            return
        if self._journal is not None:
            try:
                await asyncio.to_thread(self._journal.begin_outage, zone.place, at, zone.poll.error)
            except OperatorError as trouble:
                self._journal_is_bad(trouble)
        self._add([outages.begun(zone.place, at, zone.poll.error)])

    async def _succeeded(self, zone: Zone, queued: list[QueuedResource], nodes: list[Slice]) -> None:
        at = self._clock()
        look = await self._joined(zone, queued, nodes)
        if zone.poll.last_good_at is not None:
            events = changes(zone.look, look, at)
        elif self._journal is not None:
            events = await self._away(zone, look, at)
        else:
            events = []
        healed = await self._healed(zone, at)
        since = await self._since(zone, look, events, at)
        if events:
            zone.changed_at = monotonic()
        zone.look, zone.since, zone.error, zone.polled = look, since, None, True
        zone.poll = ZonePoll(*zone.place, last_good_at=at)
        self._add([*events, *healed])
        self._publish()

    async def _healed(self, zone: Zone, at: datetime) -> list[Event]:
        """The end of an outage that this console, or one before it, saw begin."""
        failed, first = zone.poll.failures > 0, zone.poll.last_good_at is None
        event = outages.ended(zone.place, at, None) if failed else None
        if self._journal is not None and (failed or first):
            try:
                event = await asyncio.to_thread(self._journal.end_outage, zone.place, at) or event
            except OperatorError as error:
                self._journal_is_bad(error)
        return [event] if event is not None else []

    async def _joined(self, zone: Zone, queued: list[QueuedResource], nodes: list[Slice]) -> Look:
        """The join, with the objects of the last look where nothing changed."""
        owned, standalone = owners(queued, nodes)
        old = {item.name: item for item in zone.look.queued_resources}
        joined: list[QueuedResource] = []
        for place, request in enumerate(in_order(queued)):
            if place % JOINED_AT_ONCE == 0:
                await asyncio.sleep(0)
            item = with_slices(request, owned.get(request.name, []))
            known = old.get(item.name)
            joined.append(known if known is not None and known == item else item)
        kept = tuple(joined)
        if len(kept) == len(old) and all(
            one is two for one, two in zip(kept, zone.look.queued_resources, strict=True)
        ):
            kept = zone.look.queued_resources
        if standalone == zone.look.standalone:
            standalone = zone.look.standalone
        return Look(*zone.place, kept, standalone)

    async def _away(self, zone: Zone, look: Look, at: datetime) -> list[Event]:
        """What happened since anybody looked, at the first poll of this console."""
        if self._journal is None:
            return []
        try:
            states = await asyncio.to_thread(self._journal.last_states, zone.place)
        except OperatorError as error:
            self._journal_is_bad(error)
            return []
        return changes_while_away(states, look, at)

    async def _since(self, zone: Zone, look: Look, events: list[Event], at: datetime) -> dict[Key, StateSince]:
        if self._journal is None:
            return _remembered(zone, look, at)
        try:
            since = await asyncio.to_thread(self._journal.observe, zone.place, look.queued_resources, events, at)
        except OperatorError as error:
            self._journal_is_bad(error)
            return _remembered(zone, look, at)
        self._journal_failed = False
        return since

    def _journal_is_bad(self, error: OperatorError) -> None:
        """A journal that can't be written must not stop the watching: it is said once, and memory serves."""
        if not self._journal_failed:
            self._add([Event(self._clock(), EventKind.ERROR, text=plain(error.what))])
        self._journal_failed = True

    def _add(self, events: list[Event]) -> None:
        if events:
            self.events.extend(events)
            self.events_version += 1

    def _publish(self) -> None:
        old = self._fleet
        queued = _merged(old.queued_resources, [zone.look.queued_resources for zone in self._zones], _request_order)
        parts = [zone.look.standalone for zone in self._zones]
        standalone = _merged(old.standalone, [*parts, self._listed] if self._listed else parts, _slice_order)
        self._fleet = Fleet(
            version=old.version + 1,
            queued_resources=queued,
            standalone=standalone,
            polls=tuple(zone.poll for zone in self._zones),
            since={key: value for zone in self._zones for key, value in zone.since.items()},
            loaded=all(zone.polled for zone in self._zones)
            and any(zone.poll.last_good_at is not None for zone in self._zones),
        )
        self._news.set()
        self._news = asyncio.Event()


def _remembered(zone: Zone, look: Look, at: datetime) -> dict[Key, StateSince]:
    """Since when, without a journal: what this console saw change, else a lower bound."""
    old = {item.key: item for item in zone.look.queued_resources}
    since = {}
    for item in look.queued_resources:
        known, before = zone.since.get(item.key), old.get(item.key)
        if known is not None and before is not None and before.state == item.state:
            since[item.key] = known if before.created_at == item.created_at else StateSince(at, False)
        else:
            since[item.key] = StateSince(at, zone.poll.last_good_at is None)
    return since


def _request_order(item: QueuedResource) -> tuple[object, ...]:
    return (natural(item.name), item.project, item.zone)


def _slice_order(item: Slice) -> tuple[object, ...]:
    return (natural(item.node_id), item.project, item.zone)


def _merged(
    old: tuple[T, ...], parts: list[tuple[T, ...]], order: Callable[[T], tuple[object, ...]]
) -> tuple[T, ...]:
    """All zones' items in one order; the old tuple itself when they are the same objects."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) == len(old):
        known = {id(item) for item in old}
        if all(id(item) in known for part in parts for item in part):
            return old
    return tuple(sorted((item for part in parts for item in part), key=order))
