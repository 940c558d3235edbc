"""A race for capacity across zones or types: the first ACTIVE wins, the others are cancelled, no zombie stays behind.

Everything that is needed to cancel an entry is in the journal before its create is sent, so that a race whose process
was killed is found again (`qr cleanup`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.cloud.intents import IntentKind, IntentOutcome
from backend.cloud.keep import Watch
from backend.cloud.policies import PolicyStore
from backend.cloud.recover import Recovery
from backend.cloud.requests import CreateRequest
from backend.model import DEAD_STATES, QueuedResource, QueuedResourceState
from backend.outcomes import ExitCode, OperatorError
from jobs import accelerators

BEAT_S = 10.0
CANCEL_TIMEOUT_S = 900.0
"""For the losers to be gone; what is not by then stays wished for."""

RACE_TIMEOUT_S = 3600.0

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


class Race:
    """One race. `say` gets a sentence at each turn."""

    def __init__(
        self,
        recovery: Recovery,
        policies: PolicyStore,
        watch: Watch,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._recovery = recovery
        self._policies = policies
        self._watch = watch
        self._say = say
        self.id: int | None = None
        """Of the race in the journal, once it is kept there."""

    async def run(self, requests: Sequence[CreateRequest], timeout_s: float) -> QueuedResource:
        """Asks for all of them and waits for the first that is ACTIVE.

        However it ends, every other entry is deleted, or at least wished to be.

        Raises:
            OperatorError: none was accepted, or all failed (exit code CLOUD); none is ACTIVE after `timeout_s`
                (exit code TIMED_OUT).
        """
        race = self.id = self._policies.start_race(requests)
        sends = [asyncio.create_task(self._send(each)) for each in requests]
        winner: QueuedResource | None = None
        try:
            async with asyncio.timeout(timeout_s):
                winner = await self._first(race, requests, sends)
                return winner
        except TimeoutError:
            raise OperatorError(
                f"None of {len(requests)} requests is ACTIVE after {timeout_s:.0f} s; they are cancelled.",
                "Try more zones, a smaller type, or wait longer with --timeout.",
                exit_code=ExitCode.TIMED_OUT,
            ) from None
        finally:
            await self._settle(race, requests, sends, winner)

    async def _send(self, request: CreateRequest) -> None:
        operation = await self._recovery.create(request)
        await self._recovery.cloud.wait_operation(operation, CANCEL_TIMEOUT_S)

    async def _first(
        self, race: int, requests: Sequence[CreateRequest], sends: Sequence[asyncio.Task[None]]
    ) -> QueuedResource:
        told: dict[Key, str] = {}
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._watch.next_snapshot()
            self._policies.beat_race(race)
            by_key = {item.key: item for item in self._watch.fleet.queued_resources}
            lost = 0
            for request, send in zip(requests, sends, strict=True):
                refusal = _refusal(send)
                item = by_key.get(request.key)
                state = item.state if item is not None else "asked for"
                state = f"refused: {refusal.what}" if refusal is not None else state
                if told.get(request.key) != state:
                    told[request.key] = state
                    self._say(f"{request.name} in {request.zone}: {state}")
                if item is not None and refusal is None and item.state == QueuedResourceState.ACTIVE:
                    return item
                lost += refusal is not None or (item is not None and item.state in DEAD_STATES)
            if lost == len(requests):
                raise _nobody(requests, told, sends)

    async def _settle(
        self,
        race: int,
        requests: Sequence[CreateRequest],
        sends: Sequence[asyncio.Task[None]],
        winner: QueuedResource | None,
    ) -> None:
        """Cancels everything but the winner; a create that is under way is waited for, since its answer may come late."""
        losers = [
            (request, send)
            for request, send in zip(requests, sends, strict=True)
            if winner is None or request.key != winner.key
        ]
        for request, send in losers:
            if not isinstance(_refusal(send), CloudError):
                self._recovery.store.wish(IntentKind.DELETE, request.key, force=True, target_created_at=None)
        self._policies.end_race(race, "" if winner is None else "/".join(winner.key))
        results = await asyncio.gather(*(self._cancel(*each) for each in losers), return_exceptions=True)
        for result in results:
            if isinstance(result, OperatorError):
                self._say(f"{result.what} {result.cure}".strip())
            elif isinstance(result, BaseException):
                raise result

    async def _cancel(self, request: CreateRequest, send: asyncio.Task[None]) -> None:
        with suppress(TimeoutError, OperatorError):
            async with asyncio.timeout(CANCEL_TIMEOUT_S):
                await send
        if isinstance(_refusal(send), CloudError) and not _may_exist(send):
            for kept in self._recovery.store.open_intents():
                if kept.kind is IntentKind.DELETE and kept.key == request.key and kept.target_created_at is None:
                    self._recovery.store.end(kept, IntentOutcome.WITHDRAWN, "it was never made")
            return
        intent = self._recovery.store.wish(IntentKind.DELETE, request.key, force=True, target_created_at=None)
        await self._recovery.finish(intent, CANCEL_TIMEOUT_S)
        self._say(f"{request.name} in {request.zone}: cancelled")


def _refusal(send: asyncio.Task[None]) -> OperatorError | None:
    """Why a create did not succeed; None while it runs or when it did."""
    if not send.done() or send.cancelled():
        return None
    error = send.exception()
    if error is not None and not isinstance(error, OperatorError):
        raise error
    return error


def _may_exist(send: asyncio.Task[None]) -> bool:
    """The create failed in a way that does not prove that nothing was made."""
    error = _refusal(send)
    return isinstance(error, CloudError) and (error.transient or error.kind is ErrorKind.INTERNAL)


def _nobody(
    requests: Sequence[CreateRequest], told: dict[Key, str], sends: Sequence[asyncio.Task[None]]
) -> OperatorError:
    reasons = [f"{request.zone} {request.shape}: {told.get(request.key, '')}" for request in requests]
    first = next((error for send in sends if (error := _refusal(send)) is not None), None)
    return OperatorError(
        f"None of {len(requests)} requests can become ACTIVE. {' | '.join(reasons)}",
        first.cure if first is not None else "Try other zones or a smaller type.",
        exit_code=ExitCode.CLOUD,
    )
