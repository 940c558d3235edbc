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
from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.model import QueuedResource, Tier
from backend.outcomes import OperatorError

ASK_TIMEOUT_S = 5.0
"""A list must not wait long for what only its tier column needs."""
FIRST_BACK_OFF_S, MOST_BACK_OFF_S = 30.0, 600.0
"""Between questions to a REST endpoint that does not answer."""
GAP_S = 10.0
"""Least time between two questions about one place, however many requests come: a list of 1,000 is not asked for each of them."""
FEW = 8
"""Up to so many are asked about one by one: a list costs as much as all that exists."""
MAX_PAGES = 1000
FIELD = "name,createTime,provisioningModel"
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
        """For all places: they share the endpoint that failed."""
        self._place_next_at: dict[Place, float] = {}
        self._back_off_s = FIRST_BACK_OFF_S

    async def tell(self, place: Place, items: Sequence[QueuedResource]) -> list[QueuedResource]:
        """The items with their true tiers; those that are unchanged are the same objects as the last time."""
        doubtful = {_identity(item.name, item.created_at) for item in items if item.tier is Tier.ON_DEMAND}
        known = {each: flex for each, flex in self._flex.get(place, {}).items() if each in doubtful}
        due = max(self._next_at, self._place_next_at.get(place, float("-inf")))
        if doubtful - known.keys() and self._clock() >= due:
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
        self._place_next_at[place] = self._clock() + GAP_S
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                names = sorted(name for name, _ in wanted)
                bodies = await (self._each(place, names) if len(names) <= FEW else self._bodies(place))
                told = [_told(body) for body in bodies]
        except (OperatorError, TimeoutError, ValueError):
            self._next_at = self._clock() + self._back_off_s
            self._back_off_s = min(self._back_off_s * 2, MOST_BACK_OFF_S)
            return {}
        self._back_off_s = FIRST_BACK_OFF_S
        # What is missing was made between the two answers, most likely: asked about again after the gap.
        return {identity: flex for identity, flex in told if identity in wanted}

    async def _each(self, place: Place, names: Sequence[str]) -> list[dict[str, Any]]:
        return await asyncio.gather(*(self._body(place, name) for name in names))

    async def _body(self, place: Place, name: str) -> dict[str, Any]:
        """One request; an empty body where it is gone already.

        Raises:
            OperatorError: the endpoint does not tell.
        """
        project, zone = place
        try:
            return await self._get(
                f"v2alpha1/projects/{project}/locations/{zone}/queuedResources/{name}", {"fields": FIELD}
            )
        except CloudError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return {}
            raise

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
