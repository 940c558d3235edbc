"""The tier that gRPC cannot tell is asked for over REST, once, and never guessed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from backend.cloud import flex
from backend.cloud.client import CloudClient
from backend.cloud.flex import Models
from backend.cloud.requests import CreateRequest
from backend.model import QueuedResource, Tier
from backend.outcomes import OperatorError
from tests.simulator import SimulatorFactory

AT = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
PLACE = ("p", "z")


def item(name: str, tier: Tier = Tier.ON_DEMAND) -> QueuedResource:
    return QueuedResource("p", "z", name, "ACTIVE", tier=tier, created_at=AT)


@dataclass
class Rest:
    """Answers with pages of one, or fails."""

    models: dict[str, str]
    down: bool = False
    now: float = 0.0
    asked: list[str] = field(default_factory=list)

    async def get(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        listed, _, single = path.partition("/queuedResources")
        assert listed == "v2alpha1/projects/p/locations/z"
        self.asked.append(path)
        if self.down:
            raise OperatorError("down")
        if single:
            return self.body(single[1:])
        names = list(self.models)
        place = int(parameters.get("pageToken", 0))
        answer: dict[str, Any] = {"queuedResources": [self.body(names[place])]}
        if place + 1 < len(names):
            answer["nextPageToken"] = str(place + 1)
        return answer

    def body(self, name: str) -> dict[str, Any]:
        body = {"name": f"projects/1/locations/z/queuedResources/{name}", "createTime": "2026-07-01T12:00:00.123Z"}
        if self.models[name]:
            body["provisioningModel"] = self.models[name]
        return body


def tiers(items: list[QueuedResource]) -> dict[str, str]:
    return {each.name: each.tier.value for each in items}


async def test_each_request_is_asked_about_once_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "FEW", 0)
    rest = Rest({"a": "", "b": "FLEX_START"})
    models = Models(rest.get, clock=lambda: rest.now)
    items = [item("a"), item("b"), item("c", Tier.SPOT)]
    first = await models.tell(PLACE, items)
    assert tiers(first) == {"a": "on-demand", "b": "flex-start", "c": "spot"}
    assert len(rest.asked) == 2
    again = await models.tell(PLACE, items)
    assert len(rest.asked) == 2
    assert all(one is two for one, two in zip(first, again, strict=True))


async def test_few_are_asked_about_by_name_and_many_by_one_list_a_while() -> None:
    rest = Rest({"a": "", "b": "FLEX_START"})
    models = Models(rest.get, clock=lambda: rest.now)
    assert tiers(await models.tell(PLACE, [item("a"), item("b")])) == {"a": "on-demand", "b": "flex-start"}
    assert [path.rpartition("/")[2] for path in rest.asked] == ["a", "b"], "no list for two"

    names = [f"r{number}" for number in range(120)]
    rest = Rest(dict.fromkeys(names, ""))
    models = Models(rest.get, clock=lambda: rest.now)
    for second in range(60):
        rest.now = float(second)
        await models.tell(PLACE, [item(name) for name in names[: 2 * second + 2]])
    rest.now += flex.GAP_S
    assert set(tiers(await models.tell(PLACE, [item(name) for name in names])).values()) == {"on-demand"}
    questions = [path for path in rest.asked if path.endswith("Resources")]
    lists = len(questions) / len(names)
    assert lists <= 60 / flex.GAP_S + 1, "two new requests a second for a minute: a list each ten seconds at most"


async def test_what_rest_does_not_tell_is_a_question_and_rest_is_not_hammered() -> None:
    rest = Rest({"a": "FLEX_START"}, down=True)
    models = Models(rest.get, clock=lambda: rest.now)
    for rest.now in range(60):
        assert tiers(await models.tell(PLACE, [item("a")])) == {"a": "on-demand?"}
    assert len(rest.asked) == 2
    rest.down, rest.now = False, rest.now + flex.MOST_BACK_OFF_S
    assert tiers(await models.tell(PLACE, [item("a")])) == {"a": "flex-start"}


async def test_a_name_that_is_used_again_is_asked_about_again() -> None:
    rest = Rest({"a": "FLEX_START"})
    models = Models(rest.get, clock=lambda: rest.now)
    later = QueuedResource("p", "z", "a", "ACTIVE", created_at=AT.replace(hour=13))
    assert tiers(await models.tell(PLACE, [item("a")])) == {"a": "flex-start"}
    rest.now += flex.GAP_S
    assert tiers(await models.tell(PLACE, [later])) == {"a": "on-demand?"}
    assert len(rest.asked) == 2


async def test_a_flex_start_request_is_listed_as_such(simulators: SimulatorFactory) -> None:
    client = CloudClient(simulators(fresh=True).context)
    request = CreateRequest("flexible", "demo-project", "us-east5-a", "v6e-8", tier=Tier.FLEX_START)
    request = replace(request, runtime_version="v2-alpha-tpuv6e", max_run_duration_s=7200.0)
    try:
        await client.create_queued_resource(request, request_id=str(uuid4()))
        listed = await client.list_queued_resources("demo-project", "us-east5-a")
        assert tiers(listed)["flexible"] == "flex-start"
        assert tiers(listed)["big-c"] != "flex-start"
    finally:
        with suppress(OperatorError):
            await client.delete_queued_resource(*request.key, force=True)
        await client.close()
