"""TPU VMs by themselves, and what the service does to nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.sim import faults
from backend.sim.refusals import Code
from tests.backend.sim.sim_world import PARENT, Turned

FIXTURES = Path(__file__).parents[2] / "fixtures" / "api"
BODY: dict[str, Any] = {"acceleratorType": "v5litepod-8", "runtimeVersion": "v2-alpha-tpuv5-lite"}


def made(world: Turned, **more: Any) -> dict[str, Any]:
    operation = world.call("CreateNode", parent=PARENT, nodeId="vm", node={**BODY, **more})
    assert world.node("vm")["state"] == "CREATING"
    world.advance(200)
    ended = world.operation(operation)
    assert ended["done"]
    assert ended["response"]["state"] == "READY"
    return operation


def test_a_tpu_vm_is_created_stopped_started_and_deleted() -> None:
    world = Turned()
    made(world)
    address = world.node("vm")["networkEndpoints"][0]["ipAddress"]
    assert world.machines.machines[address].chips == 8
    stop = world.call("StopNode", name=f"{PARENT}/nodes/vm")
    assert world.refused("StopNode", name=f"{PARENT}/nodes/vm").code is Code.FAILED_PRECONDITION
    world.advance(100)
    assert world.node("vm")["state"] == "STOPPED"
    assert world.operation(stop)["done"]
    assert not world.machines.running
    world.call("StartNode", name=f"{PARENT}/nodes/vm")
    world.advance(200)
    assert world.node("vm")["state"] == "READY"
    assert world.machines.running == {address}
    gone = world.call("DeleteNode", name=f"{PARENT}/nodes/vm")
    world.advance(200)
    assert world.operation(gone)["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert world.refused("GetNode", name=f"{PARENT}/nodes/vm").code is Code.NOT_FOUND
    assert not world.machines.machines


def test_a_missing_and_a_taken_node_read_as_the_fixtures() -> None:
    world = Turned()
    texts = {}
    for name in ("err_404_node.json", "err_409_already_exists.json"):
        text = (FIXTURES / name).read_text().replace("example-project", "demo-project")
        texts[name] = json.loads(text.replace("us-east5-a", "us-west4-a").replace("nodes/demo", "nodes/vm"))
    assert world.refused("GetNode", name=f"{PARENT}/nodes/vm").to_rest() == texts["err_404_node.json"]
    made(world)
    refusal = world.refused("CreateNode", parent=PARENT, nodeId="vm", node=BODY)
    assert refusal.to_rest() == texts["err_409_already_exists.json"]


def test_an_update_changes_what_its_mask_names_and_nothing_else() -> None:
    world = Turned()
    made(world, labels={"team": "a"}, metadata={"startup-script": "true"})
    node = {"labels": {"team": "b"}, "description": "x", "metadata": {"ssh-keys": "me:ssh-ed25519 AAAA me"}}
    world.call("UpdateNode", node={"name": f"{PARENT}/nodes/vm", **node}, updateMask="labels")
    assert world.node("vm")["labels"] == {"team": "b"}
    assert world.node("vm")["metadata"] == {"startup-script": "true"}
    assert "description" not in world.node("vm")
    world.call("UpdateNode", node={"name": f"{PARENT}/nodes/vm", **node}, updateMask="metadata,description")
    assert world.node("vm")["metadata"] == node["metadata"]
    assert world.node("vm")["description"] == "x"
    refusal = world.refused("UpdateNode", node={"name": f"{PARENT}/nodes/vm"}, updateMask="acceleratorType")
    assert 'The field "acceleratorType" cannot be updated.' in refusal.message


def test_keys_that_are_put_into_the_metadata_reach_the_workers_with_the_operation() -> None:
    world = Turned()
    made(world)
    node = {"name": f"{PARENT}/nodes/vm", "metadata": {"ssh-keys": "me:ssh-ed25519 AAAA me"}}
    operation = world.call("UpdateNode", node=node, updateMask="metadata")
    assert "authorize" not in [what for what, _ in world.machines.calls]
    assert not world.operation(operation)["done"]
    world.advance(20)
    assert world.operation(operation)["done"]
    assert world.machines.calls[-1][0] == "authorize"


def test_announced_maintenance_is_shown_and_may_be_started_by_hand_once() -> None:
    world = Turned()
    world.active("a")
    name = f"{PARENT}/nodes/a-1"
    assert world.refused("PerformMaintenance", name=name).code is Code.FAILED_PRECONDITION
    faults.apply(world.world, "maintenance", {"target": "a/1"})
    shown = world.node("a-1")["upcomingMaintenance"]
    assert (shown["maintenanceStatus"], shown["canReschedule"], shown["type"]) == ("PENDING", True, "SCHEDULED")
    infos = world.call("GetMaintenanceInfo", name=world.name("a"))["nodeUpcomingMaintenances"]
    assert [info["nodeName"] for info in infos] == [name]
    operation = world.call("PerformMaintenanceQueuedResource", name=world.name("a"), nodeNames=["a-1"])
    assert world.node("a-1")["upcomingMaintenance"]["maintenanceStatus"] == "ONGOING"
    assert world.node("a-1")["health"] == "UNHEALTHY_MAINTENANCE"
    assert len(world.machines.running) == 4
    assert world.refused("PerformMaintenance", name=name).code is Code.FAILED_PRECONDITION
    world.advance(400)
    assert world.operation(operation)["done"]
    assert world.node("a-1")["state"] == "READY"
    assert "upcomingMaintenance" not in world.node("a-1")
    assert len(world.machines.running) == 8


def test_a_simulated_maintenance_event_passes() -> None:
    world = Turned()
    world.active("a")
    operation = world.call("SimulateMaintenanceEvent", name=f"{PARENT}/nodes/a-0", workerIds=["0"])
    assert world.node("a-0")["health"] == "UNHEALTHY_MAINTENANCE"
    world.advance(200)
    assert world.node("a-0")["health"] == "HEALTHY"
    assert world.operation(operation)["done"]


def test_a_node_of_a_queued_resource_cannot_be_stopped() -> None:
    world = Turned()
    world.active("a")
    assert world.refused("StopNode", name=f"{PARENT}/nodes/a-0").code is Code.FAILED_PRECONDITION


def test_guest_attributes_have_one_entry_for_each_worker_in_order_or_for_those_asked_for() -> None:
    world = Turned()
    world.active("a")
    name = f"{PARENT}/nodes/a-0"
    everything = world.call("GetGuestAttributes", name=name)["guestAttributes"]
    uid = world.node("a-0")["id"]
    keys = [[(item["key"], item["value"]) for item in entry["queryValue"]["items"]] for entry in everything]
    assert [row[0] for row in keys] == [("ssh-ed25519", f"key-of-{uid}-{index}") for index in range(4)]
    assert [row[1][1][-4:] for row in keys] == ["-w-0", "-w-1", "-w-2", "-w-3"]
    one = world.call("GetGuestAttributes", name=name, queryPath="hostkeys/", workerIds=["2"])["guestAttributes"]
    assert [item["value"] for entry in one for item in entry["queryValue"]["items"]] == [f"key-of-{uid}-2"]
    whole = world.call("GetGuestAttributes", name=name, workerIds=[""])["guestAttributes"]
    assert len(whole) == 4


@pytest.mark.parametrize("external", [True, False])
def test_only_workers_with_external_addresses_show_them(external: bool) -> None:
    world = Turned()
    made(world, networkConfig={"enableExternalIps": external})
    assert ("accessConfig" in world.node("vm")["networkEndpoints"][0]) is external
