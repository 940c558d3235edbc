"""A race for capacity across zones or types: the first ACTIVE wins, the others are cancelled, no zombie stays behind.

How far each entry came is in the journal before and after its create is sent, with the id of its request, so that a
race whose process was killed in any state is taken up (`qr race --resume`) without making anything twice, or cleaned up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.cloud.intents import Intent, IntentKind
from backend.cloud.keep import UNSEEN_POLLS, Watch
from backend.cloud.kept_races import EntryState, KeptRace, RaceEntry
from backend.cloud.policies import PolicyStore
from backend.cloud.recover import Recovery
from backend.cloud.requests import CreateRequest
from backend.model import DEAD_STATES, QueuedResource, QueuedResourceState
from backend.outcomes import ExitCode, OperatorError
from jobs import accelerators

BEAT_S = 10.0
CANCEL_TIMEOUT_S = 900.0
"""For the losers to be gone; what is not by then stays wished for."""

OURS_WITHIN_S = (60.0, 900.0)
"""A request was made by a create that was about to be sent at a moment when its creation time, by the service's clock, is no
more than the first before it, and no more than the second after it: the name was free before."""

Key = tuple[str, str, str]


def candidates(request: CreateRequest, zones: Sequence[str], types: Sequence[str]) -> list[CreateRequest]:
    """One request for each zone and type; several types get names of their own, and the runtime that fits each."""
    found: list[CreateRequest] = []
    for zone in zones:
        for kind in types or [request.accelerator_type]:
            known = accelerators.find(kind)
            runtime = request.runtime_version
            if not runtime and known is not None:
                runtime = known.generation.runtime_versions[0]
            tail = f"-{kind}" if len(types) > 1 else ""
            found.append(
                replace(
                    request,
                    name=f"{request.name}{tail}",
                    zone=zone,
                    accelerator_type=kind,
                    runtime_version=runtime,
                    node_id=f"{request.node_id}{tail}" if request.node_id else "",
                    node_prefix=f"{request.node_prefix}{tail}" if request.node_prefix else "",
                )
            )
    return found


class _TakenUp(Exception):
    """Another process runs the race now: this one cancels nothing."""


@dataclass(slots=True)
class _Lane:
    """One entry as this process knows it."""

    entry: RaceEntry
    state: EntryState
    made_at: float | None
    refused: OperatorError | None = None
    """Why it cannot win."""
    send: asyncio.Task[None] | None = None
    told: str = ""
    unseen: set[object] = field(default_factory=set)
    """Good polls since it was made that did not show it."""
    intent: Intent | None = None
    """The wish to delete it."""
    resolved: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether it was made is known, and if so it is wished to be deleted."""

    @property
    def request(self) -> CreateRequest:
        return self.entry.request

    @property
    def may_exist(self) -> bool:
        return self.state in (EntryState.ASKED, EntryState.MADE)


UNTOUCHED = frozenset(
    {QueuedResourceState.CREATING, QueuedResourceState.ACCEPTED, QueuedResourceState.WAITING_FOR_RESOURCES}
)
"""States in which a request has no worker yet."""


class Race:
    """One race. `say` gets a sentence at each turn, `given_up` each request that is not wanted and has had no worker."""

    def __init__(
        self,
        recovery: Recovery,
        policies: PolicyStore,
        watch: Watch,
        *,
        say: Callable[[str], None] = lambda text: None,
        given_up: Callable[[CreateRequest], None] = lambda request: None,
    ) -> None:
        self._recovery = recovery
        self._policies = policies
        self._watch = watch
        self._say = say
        self._given_up = given_up
        self._lanes: list[_Lane] = []
        self.id: int | None = None
        """Of the race in the journal, once it is kept there."""
        self.leave = False
        """When it is cancelled, what it asked for stays and waits for a process that takes the race up."""

    async def run(self, requests: Sequence[CreateRequest], timeout_s: float) -> QueuedResource:
        """Asks for all of them and waits for the first that is ACTIVE.

        However it ends, every other entry is deleted, or at least wished to be, unless it is cancelled with `leave`.

        Raises:
            OperatorError: none was accepted, or all failed (exit code CLOUD); none is ACTIVE after `timeout_s`
                (exit code TIMED_OUT); another process runs it now.
        """
        self.id = self._policies.start_race(requests, timeout_s)
        kept = self._policies.race(self.id)
        assert kept is not None
        winner = await self._run(kept)
        assert winner is not None
        return winner

    async def resume(self, race: int, timeout_s: float | None = None) -> QueuedResource | None:
        """Takes up a race that nobody runs, in whatever state it was left.

        Returns:
            The winner; None where it was decided before: that it was given up, or its winner is gone.

        Raises:
            OperatorError: as `run`; also when it is over or another process runs it.
        """
        kept = self._policies.take_race(race, timeout_s)
        self.id = race
        return await self._run(kept)

    async def _run(self, kept: KeptRace) -> QueuedResource | None:
        self._lanes = [_Lane(each, each.state, each.made_at) for each in kept.parts]
        for lane in self._lanes:
            if lane.state in (EntryState.REFUSED, EntryState.GONE):
                lane.refused = OperatorError(lane.entry.text or lane.state.value)
        if kept.settling:
            return await self._go_on_settling(kept)
        for lane in self._lanes:
            if lane.refused is None:
                lane.send = asyncio.create_task(self._send(kept.id, lane))
        winner: QueuedResource | None = None
        settles = True
        try:
            async with asyncio.timeout(kept.left_s):
                winner = await self._first(kept.id)
                return winner
        except TimeoutError:
            raise OperatorError(
                f"None of {len(self._lanes)} requests is ACTIVE after {kept.left_s:.0f} s; they are cancelled.",
                "Try more zones, a smaller type, or wait longer with --timeout.",
                exit_code=ExitCode.TIMED_OUT,
            ) from None
        except asyncio.CancelledError:
            settles = not self.leave
            raise
        except _TakenUp:
            settles = False
            raise OperatorError(f"Race {kept.id} is run by another process now; nothing is cancelled here.") from None
        finally:
            if settles:
                await self._settle(kept.id, None if winner is None else winner.key)
            else:
                await self._break_off(kept.id)

    async def _go_on_settling(self, kept: KeptRace) -> QueuedResource | None:
        """It was decided already: what is left of the others goes."""
        key = kept.winner_key
        found = await self._recovery.look(key) if key is not None else None
        for lane in self._lanes:
            if lane.state is EntryState.ASKED and lane.request.key != key and not await self._is_ours(lane):
                lane.state = EntryState.REFUSED
        await self._settle(kept.id, key)
        return found

    async def _send(self, race: int, lane: _Lane) -> None:
        """Asks for an entry, unless it was made already; the same request id makes one create of two."""
        request = lane.request
        if lane.state is EntryState.MADE:
            return
        earlier = lane.state is EntryState.ASKED
        if not self._policies.ask_entry(race, lane.entry):
            raise _TakenUp
        lane.state = EntryState.ASKED
        try:
            operation = await self._recovery.create(request, request_id=lane.entry.request_id)
            self._note(lane, EntryState.MADE)
            await self._recovery.cloud.wait_operation(operation, CANCEL_TIMEOUT_S)
        except CloudError as error:
            if error.kind is ErrorKind.ALREADY_EXISTS:
                if earlier and await self._is_ours(lane):
                    self._note(lane, EntryState.MADE)
                    return
                self._note(lane, EntryState.REFUSED, error.what)
            elif lane.state is EntryState.ASKED and not (error.transient or error.kind is ErrorKind.INTERNAL):
                self._note(lane, EntryState.REFUSED, error.what)
            raise

    def _note(self, lane: _Lane, state: EntryState, text: str = "") -> None:
        lane.state = state
        self._policies.note_entry(lane.entry, state, made_at=lane.made_at, text=text)
        if state is EntryState.REFUSED:
            self._given_up(lane.request)

    async def _is_ours(self, lane: _Lane) -> bool:
        """Whether what bears the name was made when this race asked for it."""
        found = await self._recovery.look(lane.request.key)
        if found is None:
            return False
        made, asked = _made_at(found), lane.entry.asked_at
        if made is None or asked is None:
            return True
        before_s, after_s = OURS_WITHIN_S
        return -before_s <= made - asked <= after_s

    async def _first(self, race: int) -> QueuedResource:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._watch.next_snapshot()
            if not self._policies.beat_race(race):
                raise _TakenUp
            by_key = {item.key: item for item in self._watch.fleet.queued_resources}
            for lane in self._lanes:
                item = by_key.get(lane.request.key)
                await self._look(lane, item)
                if lane.refused is not None:
                    self._tell(lane, f"refused: {lane.refused.what}" if lane.state is not EntryState.GONE else "gone")
                    continue
                self._tell(lane, item.state if item is not None else "asked for")
                if item is not None and lane.state is EntryState.MADE and item.state == QueuedResourceState.ACTIVE:
                    return item
            if all(
                lane.refused is not None
                or ((item := by_key.get(lane.request.key)) is not None and item.state in DEAD_STATES)
                for lane in self._lanes
            ):
                raise self._nobody()

    async def _look(self, lane: _Lane, item: QueuedResource | None) -> None:
        """Takes in how its create ended, and what the newest snapshot shows of it."""
        send = lane.send
        if send is not None and send.done() and not send.cancelled() and (error := send.exception()) is not None:
            if not isinstance(error, OperatorError):
                raise error
            lane.refused = lane.refused or error
        if lane.state is not EntryState.MADE:
            return
        if item is not None:
            lane.unseen.clear()
            made = _made_at(item)
            if lane.made_at is None and made is not None:
                lane.made_at = made
                self._note(lane, EntryState.MADE)
            elif made is not None and lane.made_at is not None and abs(made - lane.made_at) > 1e-3:
                self._lose(lane, f"Another request is called {lane.request.name} now; it is left alone.")
            return
        for poll in self._watch.fleet.polls:
            if (poll.project, poll.zone) == lane.request.key[:2] and poll.last_good_at is not None and not poll.error:
                lane.unseen.add(poll.last_good_at)
        if len(lane.unseen) > (UNSEEN_POLLS if lane.made_at is None else 0):
            lane.unseen.clear()
            if await self._is_gone(lane.request.key):
                self._lose(lane, f"{lane.request.name} is gone: somebody deleted it.")

    def _lose(self, lane: _Lane, why: str) -> None:
        lane.refused = OperatorError(why)
        self._note(lane, EntryState.GONE, why)

    async def _is_gone(self, key: Key) -> bool:
        """GET's own word: a list may be older than the request."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S):
                return await self._recovery.look(key) is None
        return False

    def _tell(self, lane: _Lane, state: str) -> None:
        if lane.told != state:
            lane.told = state
            self._say(f"{lane.request.name} in {lane.request.zone}: {state}")

    async def _settle(self, race: int, winner: Key | None) -> None:
        """Cancels everything but the winner; a create that is under way is waited for, since its answer may come late."""
        if not self._policies.settle_race(race, "" if winner is None else "/".join(winner)):
            await self._break_off(race)
            return
        losers = [lane for lane in self._lanes if lane.request.key != winner]
        for lane in losers:
            if lane.send is None or lane.send.done():
                self._resolve(lane)
        cancels: list[asyncio.Task[Any]] = [asyncio.create_task(self._cancel(lane)) for lane in losers]
        knowing: list[asyncio.Task[Any]] = [asyncio.create_task(lane.resolved.wait()) for lane in losers]
        try:
            while pending := [
                task
                for pair in zip(knowing, cancels, strict=True)
                if not any(each.done() for each in pair)
                for task in pair
            ]:
                await asyncio.wait(pending, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                self._policies.beat_race(race)
            self._policies.end_race(race)
            results = await asyncio.gather(*cancels, return_exceptions=True)
        finally:
            self._policies.release_race(race)
            await _end([*cancels, *knowing])
        for result in results:
            if isinstance(result, OperatorError):
                self._say(f"{result.what} {result.cure}".strip())
            elif isinstance(result, BaseException):
                raise result

    def _resolve(self, lane: _Lane) -> None:
        """Keeps the wish to delete what was made, or may have been."""
        if lane.may_exist:
            store = self._recovery.store
            lane.intent = store.wish(IntentKind.DELETE, lane.request.key, force=True, target_created_at=lane.made_at)
        item = next((each for each in self._watch.fleet.queued_resources if each.key == lane.request.key), None)
        if item is None or item.state in UNTOUCHED:
            self._given_up(lane.request)
        lane.resolved.set()

    async def _cancel(self, lane: _Lane) -> None:
        if not lane.resolved.is_set():
            assert lane.send is not None
            with suppress(TimeoutError, OperatorError, _TakenUp):
                async with asyncio.timeout(CANCEL_TIMEOUT_S):
                    await lane.send
            self._resolve(lane)
        if lane.intent is not None:
            await self._recovery.finish(lane.intent, CANCEL_TIMEOUT_S)
            self._say(f"{lane.request.name} in {lane.request.zone}: cancelled")

    async def _break_off(self, race: int) -> None:
        """Stops, and lets be what was asked for; a create whose answer is not known is asked for again by its id."""
        await _end([lane.send for lane in self._lanes if lane.send is not None])
        self._policies.release_race(race)

    def _nobody(self) -> OperatorError:
        reasons = [f"{lane.request.zone} {lane.request.shape}: {lane.told}" for lane in self._lanes]
        cures = [lane.refused.cure for lane in self._lanes if lane.refused is not None and lane.refused.cure]
        return OperatorError(
            f"None of {len(self._lanes)} requests can become ACTIVE. {' | '.join(reasons)}",
            cures[0] if cures else "Try other zones or a smaller type.",
            exit_code=ExitCode.CLOUD,
        )


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancels what is not done, and waits for it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _made_at(item: QueuedResource) -> float | None:
    return item.created_at.timestamp() if item.created_at is not None else None
