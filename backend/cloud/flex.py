"""Which requests are flex-start: gRPC does not tell, because the client library's messages lack `provisioningModel`.

Over gRPC a flex-start request looks like an on-demand one. So REST is asked, once for each request that could be either
(the model never changes in the life of a request); until it has answered, the tier is `on-demand?`, never a guess.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Any

from backend.cloud.encoding import parse_timestamp
from backend.model import QueuedResource, Tier
from backend.outcomes import OperatorError

ASK_TIMEOUT_S = 5.0
"""A list must not wait long for what only its tier column needs."""
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 30.0, 600.0
"""Between questions to a REST endpoint that does not answer."""
MAX_PAGES = 1000
FIELDS = "queuedResources(name,createTime,provisioningModel),nextPageToken"

Place = tuple[str, str]
Identity = tuple[str, datetime | None]
Get = Callable[[str, dict[str, str]], Awaitable[dict[str, Any]]]


class Models:
    """What REST told of the requests of each place. `get` sends one GET: path, parameters."""

    def __init__(self, get: Get, clock: Callable[[], float] = monotonic) -> None:
        self._get = get
        self._clock = clock
        self._flex: dict[Place, dict[Identity, bool]] = {}
        self._made: dict[Place, dict[str, tuple[QueuedResource, QueuedResource]]] = {}
        self._next_at = float("-inf")
        self._back_off_s = FIRST_BACK_OFF_S

    async def tell(self, place: Place, items: Sequence[QueuedResource]) -> list[QueuedResource]:
        """The items with their true tiers; those that are unchanged are the same objects as the last time."""
        doubtful = {_identity(item.name, item.created_at) for item in items if item.tier is Tier.ON_DEMAND}
        known = {each: flex for each, flex in self._flex.get(place, {}).items() if each in doubtful}
        if doubtful - known.keys() and self._clock() >= self._next_at:
            known.update(await self._ask(place, doubtful - known.keys()))
        self._flex[place] = known
        before, self._made[place] = self._made.get(place, {}), {}
        return [self._with_tier(item, place, known, before) for item in items]

    def _with_tier(
        self,
        item: QueuedResource,
        place: Place,
        known: dict[Identity, bool],
        before: dict[str, tuple[QueuedResource, QueuedResource]],
    ) -> QueuedResource:
        if item.tier is not Tier.ON_DEMAND:
            return item
        flex = known.get(_identity(item.name, item.created_at))
        if flex is False:
            return item
        tier = Tier.FLEX_START if flex else Tier.UNSURE
        source, made = before.get(item.name, (None, None))
        if made is None or source is not item or made.tier is not tier:
            made = replace(item, tier=tier)
        self._made[place][item.name] = (item, made)
        return made

    async def _ask(self, place: Place, wanted: set[Identity]) -> dict[Identity, bool]:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                told = [_told(body) for body in await self._bodies(place)]
        except (OperatorError, TimeoutError, ValueError):
            self._next_at = self._clock() + self._back_off_s
            self._back_off_s = min(self._back_off_s * 2, MOST_BACK_OFF_S)
            return {}
        self._back_off_s = FIRST_BACK_OFF_S
        found = {identity: flex for identity, flex in told if identity in wanted}
        if wanted - found.keys():
            # Made between the two lists, most likely: the next poll asks again, but not at once.
            self._next_at = self._clock() + ASK_TIMEOUT_S
        return found

    async def _bodies(self, place: Place) -> list[dict[str, Any]]:
        project, zone = place
        path = f"v2alpha1/projects/{project}/locations/{zone}/queuedResources"
        parameters = {"pageSize": "1000", "fields": FIELDS}
        bodies: list[dict[str, Any]] = []
        for _ in range(MAX_PAGES):
            answer = await self._get(path, parameters)
            bodies += answer.get("queuedResources", [])
            token = str(answer.get("nextPageToken", ""))
            if not token:
                break
            parameters = {**parameters, "pageToken": token}
        return bodies


def _told(body: dict[str, Any]) -> tuple[Identity, bool]:
    """Whose body it is, and whether it is flex-start.

    Raises:
        ValueError: its time is none.
    """
    created = parse_timestamp(str(body["createTime"])) if body.get("createTime") else None
    name = str(body.get("name", "")).rpartition("/")[2]
    return _identity(name, created), body.get("provisioningModel") == "FLEX_START"


def _identity(name: str, created: datetime | None) -> Identity:
    """To the second: the two ways may round differently."""
    return (name, None if created is None else created.replace(microsecond=0))
