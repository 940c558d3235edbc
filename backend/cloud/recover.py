"""Deleting until it is gone, and making the same again: wishes that are kept, and looked at before each step.

The API refuses a delete in some states, and even a refused one may move the request on (research: field notes, section
0), so a delete is never reported as failed while it can still come true: it is retried until GET answers 404. Nothing
is destroyed on a guess: each round looks first, and a request that has taken the same name since is left alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from backend.cloud import equivalents
from backend.cloud.encoding import from_json, parse_timestamp
from backend.cloud.error_texts import Code, ErrorKind
from backend.cloud.errors import CloudError, explain
from backend.cloud.intents import Intent, IntentKind, IntentOutcome, IntentStore
from backend.cloud.leftovers import leftovers
from backend.cloud.requests import CreateRequest
from backend.cloud.usage import LimitStore
from backend.model import Operation, QueuedResource, QueuedResourceState
from backend.outcomes import ExitCode, OperatorError

FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 10.0
"""Between looks at a request that is on its way out; it grows while nothing moves."""
FIRST_REFUSED_S, REFUSED_PAUSE_S = 2.0, 10.0
"""After deletes that the state forbids, doubled each time: two operators saw it move within minutes of a refusal."""
JITTER = 0.2
CREATE_ATTEMPTS = 5
"""Sends of one create; the same requestId makes them one create."""
CREATES_IN_FLIGHT = 8
"""Bursts of creates end in code 13 (field notes, 1a, row 3)."""
OPERATION_TIMEOUT_S = 600.0
MAKING = "asks for the same again"
"""Kept before the create is sent: a request of that name that is there afterwards may be the one that was wished for."""
IDLE_S = 5.0
"""Between looks for wishes that were kept elsewhere."""

T = TypeVar("T")
Key = tuple[str, str, str]

UNFIT = frozenset(
    {ErrorKind.PERMISSION, ErrorKind.CREDENTIALS, ErrorKind.BILLING, ErrorKind.API_DISABLED, ErrorKind.UNIMPLEMENTED}
)
"""Nothing that waiting mends: the operator is told at once, and the wish stays."""


class Cloud(Protocol):
    """What is needed of `backend.cloud.client.CloudClient`."""

    async def get_queued_resource(self, project: str, zone: str, name: str) -> QueuedResource: ...
    async def describe(self, project: str, zone: str, name: str) -> dict[str, Any]: ...
    async def create_queued_resource(self, request: CreateRequest, *, request_id: str) -> Operation: ...
    async def delete_queued_resource(
        self, project: str, zone: str, name: str, *, force: bool, request_id: str = ""
    ) -> Operation: ...
    async def wait_operation(self, operation: Operation, timeout_s: float) -> Operation: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between attempts; a test or a compressed world shortens them."""

    first_s: float = FIRST_PAUSE_S
    most_s: float = MOST_PAUSE_S
    first_refused_s: float = FIRST_REFUSED_S
    refused_s: float = REFUSED_PAUSE_S


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recreate will ask for, and what of the old request it cannot repeat."""

    request: CreateRequest
    notes: tuple[str, ...] = ()


def _created_at(qr: QueuedResource) -> float | None:
    return qr.created_at.timestamp() if qr.created_at is not None else None


def plan_recreate(body: Mapping[str, Any], now: datetime, *, key: Key) -> Plan:
    """The same request again, out of what the API describes.

    A time that has passed is left out, and what the options cannot say is named.

    Raises:
        OperatorError: one create call cannot make these slices.
    """
    project, zone, name = key
    request = from_json(body, name=name, project=project, zone=zone)
    notes = [f"Not repeated: {path}." for path in leftovers(body)]
    if request.valid_until_time is not None and request.valid_until_time <= now:
        notes.append(f"Not repeated: valid until {request.valid_until_time:%Y-%m-%d %H:%M}Z, which has passed.")
        request = replace(request, valid_until_time=None, valid_after_time=None, valid_after_duration_s=None)
    if request.valid_after_time is not None and request.valid_after_time <= now:
        request = replace(request, valid_after_time=None)
    return Plan(request, tuple(notes))


class Recovery:
    """Carries wishes out.

    Attributes:
        say: Gets a sentence whenever something changes.
        limits: Keeps what quota errors tell.
        tell_refused: Gets a request that is deleted and may not be made again, and why; without it, `say` gets the
            gcloud command that asks for it.
        made_again: Gets a request that a recreate has asked for again.
    """

    def __init__(
        self,
        cloud: Cloud,
        store: IntentStore,
        *,
        say: Callable[[str], None] = lambda text: None,
        pace: Pace | None = None,
        limits: LimitStore | None = None,
        tell_refused: Callable[[CreateRequest, str], None] | None = None,
        made_again: Callable[[CreateRequest], None] = lambda request: None,
    ) -> None:
        self.made_again = made_again
        self.tell_refused = tell_refused or self._say_command
        self.cloud = cloud
        self.limits = limits
        self.store = store
        self.say = say
        self.pace = pace or Pace()
        self._in_flight = asyncio.Semaphore(CREATES_IN_FLIGHT)

    async def delete(self, key: Key, *, force: bool, timeout_s: float, wait: bool = True) -> Intent:
        """Deletes a request and waits until it is gone; the wish is kept from before the first call.

        Args:
            key: (project, zone, name).
            force: Also delete its running slices.
            timeout_s: How long this call waits; the wish outlives it.
            wait: False: return as soon as the service has accepted the delete.

        Raises:
            CloudError: it is not there, or the service refuses for good.
            OperatorError: not gone after `timeout_s` (exit code TIMED_OUT).
        """
        withdrawn = self._withdraw_recreate(key)
        found = await self.look(key)
        if found is None and not withdrawn:
            raise explain(Code.NOT_FOUND, "", action="delete", subject=key[2])
        created = None if found is None else _created_at(found)
        intent = self.store.wish(IntentKind.DELETE, key, force=force, target_created_at=created)
        return await self._bounded(intent, timeout_s, wait)

    def _withdraw_recreate(self, key: Key) -> bool:
        """A delete takes back an earlier wish to make the same again."""
        found = [each for each in self.store.open_intents() if each.kind is IntentKind.RECREATE and each.key == key]
        for each in found:
            self.store.end(each, IntentOutcome.WITHDRAWN, "deleted instead")
            self.say(f"The wish to make {key[2]} again is taken back.")
        return bool(found)

    async def recreate(self, key: Key, *, timeout_s: float) -> tuple[Intent, Plan]:
        """Deletes a request, waits until it is gone, and asks for the same; also while it is already DELETING.

        Raises:
            CloudError: it is not there, or the delete or the create is refused for good.
            OperatorError: it cannot be made again, or is not done after `timeout_s`; the wish is kept.
        """
        plan, intent = await self.wish_recreate(key)
        return await self._bounded(intent, timeout_s, wait=True), plan

    async def plan(self, key: Key) -> Plan:
        """What a recreate of this request would ask for."""
        body = await self._patiently(lambda: self.cloud.describe(*key))
        return plan_recreate(body, datetime.now(UTC), key=key)

    async def wish_recreate(self, key: Key) -> tuple[Plan, Intent]:
        """Keeps the wish, with everything that the create will need, before anything is destroyed."""
        body = await self._patiently(lambda: self.cloud.describe(*key))
        plan = plan_recreate(body, datetime.now(UTC), key=key)
        created = parse_timestamp(str(body["createTime"])).timestamp() if body.get("createTime") else None
        intent = self.store.wish(
            IntentKind.RECREATE,
            key,
            force=True,
            target_created_at=created,
            request=plan.request,
            request_id=str(uuid4()),
        )
        return plan, intent

    async def create(self, request: CreateRequest, *, request_id: str = "") -> Operation:
        """Sends one create within the project's create rate; a lost answer is asked for again, never made twice.

        Raises:
            CloudError: the service refuses.
        """
        identity = request_id or str(uuid4())
        async with self._in_flight:
            for attempt in range(1, CREATE_ATTEMPTS + 1):
                while (wait_s := self.store.reserve_create(request.project)) > 0:
                    self.say(f"{request.name} waits {wait_s:.0f} s for the project's create rate.")
                    await asyncio.sleep(wait_s)
                try:
                    return await self.cloud.create_queued_resource(request, request_id=identity)
                except CloudError as error:
                    if self.limits is not None:
                        self.limits.learn(request.project, error.message)
                    if not error.transient or attempt == CREATE_ATTEMPTS:
                        raise
                    self.say(f"{error.what} Asked again with the same request id.")
                    await self._pause(error.retry_after_s or self.pace.first_s * 2**attempt)
        raise AssertionError("the loop returns or raises")

    async def pursue(self, intent: Intent) -> Intent:
        """Carries one wish out to its end, without a bound; looks before each step.

        Raises:
            CloudError: the service refuses for good; the wish is closed, or kept where waiting would not mend it.
        """
        await self._until_gone(intent, wait=True)
        if intent.kind is IntentKind.RECREATE:
            await self._create_again(intent)
        return self.store.get(intent.id) or intent

    async def finish(self, intent: Intent, timeout_s: float) -> Intent:
        """`pursue` with a bound.

        Raises:
            CloudError: as `pursue`.
            OperatorError: not done after `timeout_s` (exit code TIMED_OUT); the wish stays.
        """
        return await self._bounded(intent, timeout_s, wait=True)

    async def run(self) -> None:
        """Carries out every open wish, also those of other processes that ended, until cancelled."""
        busy: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for intent in self.store.open_intents():
                    if intent.id not in busy or busy[intent.id].done():
                        busy[intent.id] = group.create_task(self._quietly(intent))
                await asyncio.sleep(IDLE_S)

    async def _quietly(self, intent: Intent) -> None:
        try:
            await self.pursue(intent)
        except OperatorError as error:
            self.say(f"{error.what} {error.cure}".strip())
            await self._pause(self.pace.most_s)

    async def _bounded(self, intent: Intent, timeout_s: float, wait: bool) -> Intent:
        try:
            async with asyncio.timeout(timeout_s):
                if wait:
                    return await self.pursue(intent)
                await self._until_gone(intent, wait=False)
                return self.store.get(intent.id) or intent
        except TimeoutError:
            last = self.store.get(intent.id) or intent
            raise OperatorError(
                f"{intent.name} is not gone after {timeout_s:.0f} s. {last.last_text}".strip(),
                "The wish is kept: an open console goes on with it, and so does `slicetower qr cleanup`.",
                exit_code=ExitCode.TIMED_OUT,
            ) from None

    async def _until_gone(self, intent: Intent, *, wait: bool) -> None:
        pause_s, refused_s, state = self.pace.first_s, self.pace.first_refused_s, ""
        while True:
            current = self.store.get(intent.id) or intent
            if not current.open:
                return
            found = await self.look(intent.key)
            if found is None:
                self._gone(intent)
                return
            if _is_another(found, intent):
                newest = self.store.get(intent.id) or intent
                if intent.kind is IntentKind.RECREATE and (not newest.open or newest.last_text == MAKING):
                    # Two may pursue one wish, as a keep and its console do. The same request id makes one create of both.
                    return
                text = f"Another request is called {intent.name} now; it is left alone."
                if intent.kind is IntentKind.RECREATE:
                    text = f"{intent.name} exists again already; nothing is made."
                self.store.end(intent, IntentOutcome.REPLACED, text)
                self.say(text)
                return
            if found.state != state:
                state, pause_s = found.state, self.pace.first_s
            if found.state != QueuedResourceState.DELETING:
                accepted = await self._try_delete(current, found)
                if not accepted and not wait:
                    raise OperatorError(
                        f"{intent.name} is {found.state}: the API does not delete it yet.",
                        "The wish is kept: an open console goes on with it, and so does `slicetower qr cleanup`.",
                        exit_code=ExitCode.CLOUD,
                    )
                if not accepted:
                    await self._pause(min(refused_s, self.pace.refused_s))
                    refused_s *= 2
                    continue
            if not wait:
                return
            await self._pause(pause_s)
            pause_s = min(pause_s * 1.5, self.pace.most_s)

    def _gone(self, intent: Intent) -> None:
        if intent.kind is IntentKind.DELETE and self.store.end(intent, IntentOutcome.DONE, "gone"):
            self.say(f"{intent.name} is gone.")

    async def _try_delete(self, intent: Intent, found: QueuedResource) -> bool:
        """Sends the delete; False when the state forbids it now and the next look may find another."""
        try:
            operation = await self.cloud.delete_queued_resource(*intent.key, force=intent.force)
        except CloudError as error:
            self.store.attempt(intent, error.what)
            if error.kind is ErrorKind.NOT_FOUND:
                return True
            if error.kind is ErrorKind.STATE_GATE:
                if error.state == QueuedResourceState.ACTIVE and not intent.force:
                    self.store.end(intent, IntentOutcome.REFUSED, error.what)
                    raise
                self.say(f"{intent.name} is {error.state or found.state}: the API does not delete it yet; trying on.")
                return error.state == QueuedResourceState.DELETING
            if error.transient or error.kind not in UNFIT:
                self.say(f"{error.what} Trying on.")
                return False
            raise
        self.store.attempt(intent, f"delete accepted in state {found.state}")
        if operation.error is not None:
            self.say(f"The delete of {intent.name} ended with: {operation.error.message}. Trying on.")
            return False
        return True

    async def _create_again(self, intent: Intent) -> None:
        current = self.store.get(intent.id) or intent
        if not current.open or current.request is None:
            return
        self.store.attempt(intent, MAKING)
        try:
            operation = await self.create(current.request, request_id=current.request_id)
            await self.cloud.wait_operation(operation, OPERATION_TIMEOUT_S)
        except CloudError as error:
            if error.kind is ErrorKind.ALREADY_EXISTS:
                self.store.end(intent, IntentOutcome.REPLACED, f"{intent.name} exists again already.")
                return
            if error.transient or error.kind in UNFIT:
                self.store.attempt(intent, error.what)
                raise
            self.store.end(intent, IntentOutcome.REFUSED, error.what)
            self.tell_refused(current.request, error.what)
            raise CloudError(
                f"{intent.name} is deleted, but making it again was refused. {error.what}",
                f"{error.cure} What it was is kept: `slicetower qr create --from-recreate {intent.name}` asks for it.".strip(),
                code=error.code,
                kind=error.kind,
                message=error.message,
                eid=error.eid,
            ) from error
        if self.store.end(intent, IntentOutcome.DONE, "made again"):
            self.say(f"{intent.name} is asked for again.")
            self.made_again(current.request)

    def _say_command(self, request: CreateRequest, reason: str) -> None:
        same = equivalents.create(request)
        self.say(f"{request.name} is gone and was not made again: {reason}")
        self.say(f"By hand: {same.gcloud_ga or same.gcloud_alpha}")

    async def look(self, key: Key) -> QueuedResource | None:
        """The request as it is now; None when it is gone. A service that does not answer is asked again."""
        try:
            return await self._patiently(lambda: self.cloud.get_queued_resource(*key))
        except CloudError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            raise

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of a read; transient errors are waited out (the caller holds the bound)."""
        pause_s = self.pace.first_s
        while True:
            try:
                return await call()
            except CloudError as error:
                if not error.transient:
                    raise
                self.say(f"{error.what} Asking again.")
                await self._pause(error.retry_after_s or pause_s)
                pause_s = min(pause_s * 2, self.pace.most_s)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * random.uniform(1 - JITTER, 1 + JITTER))


def _is_another(found: QueuedResource, intent: Intent) -> bool:
    created = _created_at(found)
    if created is None or intent.target_created_at is None:
        return False
    return abs(created - intent.target_created_at) > 1e-3
