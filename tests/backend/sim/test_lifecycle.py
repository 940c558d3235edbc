"""The rules of queued resources, by example: each test names what an operator would be misled about."""

from __future__ import annotations

import pytest

from backend.sim import requests
from backend.sim.entities import Fate
from backend.sim.refusals import Code
from backend.sim.scenario import parse
from tests.backend.sim.sim_world import PARENT, Turned

GATED = (
    "DeleteQueuedResource is not supported when state is {}"
    " (must be one of [ACCEPTED WAITING_FOR_RESOURCES SUSPENDED FAILED])"
)


def delete(world: Turned, name: str, *, force: bool = False) -> dict[str, object]:
    return world.call("DeleteQueuedResource", name=world.name(name), force=force)


def test_a_request_passes_every_state_on_its_way_to_active() -> None:
    world = Turned()
    world.create("a")
    seen: list[str] = []
    for _ in range(400):
        state = world.state("a")
        if not seen or seen[-1] != state:
            seen.append(state)
        world.advance(1)
    assert seen == ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]


def test_the_operation_of_a_create_ends_when_it_is_queued_not_when_it_is_active() -> None:
    world = Turned()
    operation = world.create("a")
    assert operation["done"] is False
    world.advance(10)
    ended = world.operation(operation)
    assert ended["done"] is True
    assert ended["response"]["@type"].endswith("v2alpha1.QueuedResource")
    assert world.state("a") == "ACCEPTED"


def test_multi_node_params_become_one_node_spec_for_each_slice() -> None:
    world = Turned()
    world.create("a", 3)
    specs = world.get("a")["tpu"]["nodeSpec"]
    assert [spec["nodeId"] for spec in specs] == ["a-0", "a-1", "a-2"]
    assert all("multiNodeParams" not in spec for spec in specs)
    assert specs[0]["parent"] == "projects/123456789012/locations/us-west4-a"


def test_nodes_of_an_active_request_have_an_endpoint_for_each_worker_and_booted_machines() -> None:
    world = Turned()
    world.active("a")
    node = world.node("a-1")
    assert node["state"] == "READY"
    assert node["health"] == "HEALTHY"
    assert node["multisliceNode"] is True
    assert len(node["networkEndpoints"]) == 4
    addresses = {
        endpoint["ipAddress"] for index in (0, 1) for endpoint in world.node(f"a-{index}")["networkEndpoints"]
    }
    assert len(addresses) == 8
    assert addresses == world.machines.running


def test_delete_of_an_active_request_needs_force() -> None:
    world = Turned()
    world.active("a")
    refusal = world.refused("DeleteQueuedResource", name=world.name("a"))
    assert refusal.code is Code.FAILED_PRECONDITION
    assert refusal.message == GATED.format("ACTIVE")
    operation = delete(world, "a", force=True)
    assert world.state("a") == "DELETING"
    assert not world.machines.running
    world.advance(200)
    assert world.refused("GetQueuedResource", name=world.name("a")).code is Code.NOT_FOUND
    assert world.operation(operation)["done"] is True
    assert world.call("ListNodes", parent=PARENT)["nodes"] == []


def test_delete_in_provisioning_is_refused_even_with_force_and_the_capacity_is_withdrawn_later() -> None:
    world = Turned()
    world.create("a")
    request = next(iter(world.world.requests.values()))
    request.fate = Fate("hang")
    world.advance(120)
    for force in (False, True):
        refusal = world.refused("DeleteQueuedResource", name=world.name("a"), force=force)
        assert refusal.message == GATED.format("PROVISIONING")
    world.advance(150)
    assert world.get("a")["state"] == {"state": "SUSPENDING", "stateInitiator": "SERVICE", "suspendingData": {}}
    world.advance(100)
    assert world.get("a")["state"]["failedData"]["error"]["code"] == 13
    delete(world, "a")
    world.advance(200)
    assert world.refused("GetQueuedResource", name=world.name("a")).code is Code.NOT_FOUND


@pytest.mark.parametrize("seconds", [10, 60])
def test_a_waiting_request_is_deleted_without_force(seconds: float) -> None:
    world = Turned()
    world.create("a")
    world.advance(seconds)
    delete(world, "a")
    world.advance(60)
    assert world.refused("GetQueuedResource", name=world.name("a")).code is Code.NOT_FOUND


def test_a_preempted_spot_request_is_announced_then_suspended_for_good() -> None:
    world = Turned()
    world.active("a", spot={})
    requests.preempt(world.world, world.world.request("demo-project", "us-west4-a", "a"))
    assert world.node("a-0")["health"] == "UNHEALTHY_MAINTENANCE"
    assert world.state("a") == "ACTIVE"
    assert len(world.machines.running) == 8
    world.advance(120)
    assert world.get("a")["state"] == {"state": "SUSPENDING", "stateInitiator": "SERVICE", "suspendingData": {}}
    assert world.node("a-0")["state"] == "PREEMPTED"
    assert not world.machines.running
    world.advance(100)
    assert world.state("a") == "SUSPENDED"
    refusal = world.refused("ResetQueuedResource", name=world.name("a"))
    assert refusal.message == "ResetQueuedResource is not supported when state is SUSPENDED (must be one of [ACTIVE])"
    world.advance(10_000)
    assert world.state("a") == "SUSPENDED"
    assert world.refused("GetNode", name=f"{PARENT}/nodes/a-0").code is Code.NOT_FOUND


def test_repair_replaces_one_slice_restarts_the_others_and_runs_every_startup_script_again() -> None:
    world = Turned()
    world.active("a", 3, startup_script="echo up")
    before = {index: world.node(f"a-{index}") for index in range(3)}
    assert len(world.machines.scripts) == 12
    requests.repair(world.world, world.world.request("demo-project", "us-west4-a", "a"), 1)
    assert [world.node(f"a-{index}")["state"] for index in range(3)] == ["RESTARTING", "REPAIRING", "RESTARTING"]
    assert world.state("a") == "ACTIVE"
    assert not world.machines.running
    world.advance(300)
    after = {index: world.node(f"a-{index}") for index in range(3)}
    assert [after[index]["id"] == before[index]["id"] for index in range(3)] == [True, False, True]
    assert after[1]["networkEndpoints"] != before[1]["networkEndpoints"]
    assert after[0]["networkEndpoints"] == before[0]["networkEndpoints"]
    assert len(world.machines.scripts) == 24
    assert ("wipe", before[1]["networkEndpoints"][0]["ipAddress"]) in world.machines.calls
    assert ("wipe", before[0]["networkEndpoints"][0]["ipAddress"]) not in world.machines.calls


def test_reset_restarts_every_worker_and_keeps_its_disk() -> None:
    world = Turned()
    world.active("a")
    operation = world.call("ResetQueuedResource", name=world.name("a"))
    assert world.node("a-0")["state"] == "RESTARTING"
    assert not world.machines.running
    assert world.operation(operation)["done"] is False
    world.advance(150)
    assert world.operation(operation)["done"] is True
    assert len(world.machines.running) == 8
    assert not [call for call in world.machines.calls if call[0] == "wipe"]


def test_provisioning_that_fails_after_minutes_passes_suspending_and_ends_with_code_13() -> None:
    world = Turned()
    world.create("a")
    next(iter(world.world.requests.values())).fate = Fate("fail")
    world.advance(120)
    assert world.state("a") == "PROVISIONING"
    world.advance(280)
    assert world.state("a") == "SUSPENDING"
    world.advance(100)
    state = world.get("a")["state"]
    assert state["failedData"]["error"] == {"code": 13, "message": "an internal error has occurred"}
    assert state["stateInitiator"] == "SERVICE"


def test_a_request_may_be_failed_while_some_of_its_slices_are_up() -> None:
    world = Turned()
    world.create("a", 4)
    next(iter(world.world.requests.values())).fate = Fate("partial")
    world.advance(500)
    assert world.state("a") == "FAILED"
    left = world.call("ListNodes", parent=PARENT)["nodes"]
    assert [(node["name"].rsplit("/", 1)[-1], node["state"]) for node in left] == [("a-0", "READY"), ("a-1", "READY")]
    delete(world, "a")
    world.advance(200)
    assert not world.machines.running


def test_a_request_whose_time_ran_out_fails() -> None:
    world = Turned("default")
    body_time = {"queueingPolicy": {"validUntilDuration": "600s"}, "guaranteed": {"reserved": True}}
    world.create("late", 2, accelerator="v5p-128", runtime="v2-alpha-tpuv5", zone="us-east5-a", **body_time)
    world.advance(590)
    name = "projects/demo-project/locations/us-east5-a/queuedResources/late"
    assert world.call("GetQueuedResource", name=name)["state"] == {"state": "WAITING_FOR_RESOURCES"}
    world.advance(20)
    state = world.call("GetQueuedResource", name=name)["state"]
    assert state["state"] == "FAILED"
    assert state["failedData"]["error"]["code"] == Code.DEADLINE_EXCEEDED


def test_a_request_with_a_start_in_the_future_waits_for_it() -> None:
    world = Turned()
    world.create("a", queueingPolicy={"validAfterDuration": "3600s"})
    world.advance(3500)
    assert world.state("a") == "WAITING_FOR_RESOURCES"
    world.advance(300)
    assert world.state("a") == "ACTIVE"


def test_flex_start_ends_when_its_run_duration_is_over() -> None:
    world = Turned()
    more = {"provisioningModel": "FLEX_START", "runDuration": {"maxRunDuration": "3600s"}}
    world.create("a", 2, accelerator="v6e-16", runtime="v2-alpha-tpuv6e", zone="us-east5-a", **more)
    world.advance(400)
    name = "projects/demo-project/locations/us-east5-a/queuedResources/a"
    shown = world.call("GetQueuedResource", name=name)
    assert shown["state"]["state"] == "ACTIVE"
    assert shown["runDuration"]["terminationTime"]
    world.advance(3700)
    assert world.call("GetQueuedResource", name=name)["state"]["state"] == "SUSPENDED"


def test_spot_capacity_is_taken_by_chance_where_the_scenario_says_so() -> None:
    text = "spot_life_s = 3600\n[[zones]]\nname = 'us-west4-a'\ncapacity = { v5litepod = 64 }\n"
    world = Turned(parse(text, "chance", "test"))
    world.active("spot", spot={})
    world.active("guaranteed")
    world.advance(50_000)
    assert world.state("spot") == "SUSPENDED"
    assert world.state("guaranteed") == "ACTIVE"


def test_deleting_the_last_node_of_a_request_suspends_it_by_the_user() -> None:
    world = Turned()
    world.active("a")
    for index in (0, 1):
        assert world.state("a") == "ACTIVE"
        world.call("DeleteNode", name=f"{PARENT}/nodes/a-{index}")
        world.advance(200)
    assert world.get("a")["state"]["stateInitiator"] == "USER"
    assert world.state("a") == "SUSPENDED"


def test_what_stands_in_the_default_world_keeps_to_the_rules() -> None:
    world = Turned("default")
    states = {name: world.state(name) for name in ("train-a", "sweep-b", "old-d")}
    assert states == {"train-a": "ACTIVE", "sweep-b": "PROVISIONING", "old-d": "FAILED"}
    assert [world.node(f"sweep-b-{index}")["state"] for index in range(4)] == [
        "READY",
        "READY",
        "CREATING",
        "CREATING",
    ]
    far = "projects/demo-project/locations/us-east5-a/queuedResources/"
    assert world.call("GetQueuedResource", name=f"{far}big-c")["state"] == {"state": "WAITING_FOR_RESOURCES"}
    assert world.call("GetQueuedResource", name=f"{far}taken-e")["state"]["stateInitiator"] == "SERVICE"
    assert world.node("notebook")["acceleratorType"] == "v5litepod-8"
    assert len(world.machines.running) == 8 + 8 + 1
    world.advance(50_000)
    assert {name: world.state(name) for name in states} == states
    assert world.call("GetQueuedResource", name=f"{far}big-c")["state"] == {"state": "WAITING_FOR_RESOURCES"}
