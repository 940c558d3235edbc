"""The client, the watch and the journal against the simulated service: real RPCs, real state machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.cloud.requests import CreateRequest
from backend.model import EventKind, Fleet, QueuedResource, Tier
from backend.tower import Tower
from tests.simulator import Simulator, SimulatorFactory

BOUND_S = 120.0


@pytest.fixture
def simulator(simulators: SimulatorFactory) -> Simulator:
    return simulators()


@pytest.fixture
async def tower(simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tower]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with Tower.open(simulator.context) as made:
        yield made


def wanted(tower: Tower, name: str) -> CreateRequest:
    return CreateRequest(
        name=name,
        project=tower.context.project,
        zone=tower.context.zones[0],
        accelerator_type="v5litepod-16",
        runtime_version="v2-alpha-tpuv5-lite",
        node_count=2,
        tier=Tier.SPOT,
    )


async def ready(tower: Tower, name: str) -> QueuedResource:
    def found(fleet: Fleet) -> QueuedResource | None:
        return next((item for item in fleet.find(name) if item.ready), None)

    return await tower.watch.wait_for(found, BOUND_S)


async def gone(tower: Tower, request: CreateRequest) -> None:
    await tower.client.delete_queued_resource(request.project, request.zone, request.name, force=True)
    tower.watch.poke()
    await tower.watch.wait_for(lambda fleet: not fleet.find(request.name), BOUND_S)


async def test_the_life_of_a_request_is_watched_and_kept(tower: Tower) -> None:
    request = wanted(tower, "life")
    await tower.watch.wait_for(lambda fleet: fleet.loaded, BOUND_S)
    operation = await tower.client.create_queued_resource(request, request_id=str(uuid4()))
    await tower.client.wait_operation(operation, BOUND_S)
    item = await ready(tower, "life")
    assert [each.node_id for each in item.slices] == ["life-0", "life-1"]
    assert (item.workers_ready, item.chips, item.tier) == (8, 32, Tier.SPOT)
    keys = await tower.client.host_keys(item.slices[1])
    assert sorted(keys) == [0, 1, 2, 3]
    assert all(lines[0].startswith("ssh-ed25519 AAAA") for lines in keys.values())
    assert sorted(await tower.client.hostnames(item.slices[1])) == [0, 1, 2, 3]
    described = await tower.client.describe(*item.key)
    assert described["state"]["state"] == "ACTIVE"
    with pytest.raises(CloudError) as refused:
        await tower.client.delete_queued_resource(*item.key, force=False)
    assert refused.value.kind is ErrorKind.STATE_GATE
    await gone(tower, request)
    spans = tower.journal.timeline(item.key)
    assert spans[0].entered_at == item.created_at
    assert "ACTIVE" in [span.state for span in spans]
    assert all(span.left_at is not None for span in spans)
    kinds = [event.kind for event in tower.journal.events(subject="life")]
    assert kinds[0] is EventKind.APPEARED
    assert kinds[-1] is EventKind.GONE


async def test_one_request_id_makes_one_request(tower: Tower) -> None:
    request, request_id = wanted(tower, "once"), str(uuid4())
    first = await tower.client.create_queued_resource(request, request_id=request_id)
    second = await tower.client.create_queued_resource(request, request_id=request_id)
    assert first.name == second.name
    with pytest.raises(CloudError) as refused:
        await tower.client.create_queued_resource(request, request_id=str(uuid4()))
    assert refused.value.kind is ErrorKind.ALREADY_EXISTS
    await ready(tower, "once")
    await gone(tower, request)


async def test_a_preemption_is_seen_with_its_reason(tower: Tower, simulator: Simulator) -> None:
    request = wanted(tower, "taken")
    await tower.client.create_queued_resource(request, request_id=str(uuid4()))
    await ready(tower, "taken")
    await asyncio.to_thread(simulator.inject, "preempt", "taken")

    def suspended(fleet: Fleet) -> bool:
        return any(item.state == "SUSPENDED" for item in fleet.find("taken"))

    await tower.watch.wait_for(suspended, BOUND_S)
    events = [event for event in tower.watch.events if event.subject == "taken" and event.kind is EventKind.STATE]
    assert events[-1].after == "SUSPENDED"
    assert "by the service" in events[-1].text
    await gone(tower, request)


async def test_an_option_that_only_rest_carries_arrives(tower: Tower) -> None:
    request = CreateRequest(
        name="flex",
        project=tower.context.project,
        zone="us-east5-a",
        accelerator_type="v6e-8",
        runtime_version="v2-alpha-tpuv6e",
        tier=Tier.FLEX_START,
        max_run_duration_s=7200,
    )
    await tower.client.create_queued_resource(request, request_id=str(uuid4()))
    described = await tower.client.describe(*request.key)
    assert described["provisioningModel"] == "FLEX_START"
    assert described["runDuration"]["maxRunDuration"] == "7200s"
    await ready(tower, "flex")
    await gone(tower, request)


async def test_an_ssh_key_reaches_the_metadata_beside_others(tower: Tower) -> None:
    fleet = await tower.watch.wait_for(lambda fleet: fleet if fleet.loaded else None, BOUND_S)
    item = fleet.find("train-a")[0].slices[0]
    for user in ("alice", "bob"):
        assert await tower.client.add_ssh_key(item, user, f"ssh-ed25519 AAAA{user} {user}")
    described = await tower.client.describe_node(item.project, item.zone, item.node_id)
    lines = described["metadata"]["ssh-keys"].splitlines()
    assert {"alice:ssh-ed25519 AAAAalice alice", "bob:ssh-ed25519 AAAAbob bob"} <= set(lines)


async def test_small_lists_answer(tower: Tower) -> None:
    project, zone = tower.context.project, tower.context.zones[0]
    assert "v5litepod-16" in await tower.client.accelerator_types(project, zone)
    assert "v2-alpha-tpuv5-lite" in await tower.client.runtime_versions(project, zone)
    assert set(tower.context.zones) <= set(await tower.client.locations(project))
    request = wanted(tower, "listed")
    operation = await tower.client.create_queued_resource(request, request_id=str(uuid4()))
    assert operation.name in [each.name for each in await tower.client.operations(project, zone)]
    assert (await tower.client.get_operation(operation.path)).verb == "create"
    await ready(tower, "listed")
    await gone(tower, request)


def test_the_plain_view_shows_the_simulated_fleet(simulator: Simulator) -> None:
    done = simulator.cli("fleet", "--once", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines()) if "name" in row}
    assert rows["train-a"]["workers_ready"] == 8
    assert rows["old-d"]["note"]
