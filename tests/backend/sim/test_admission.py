"""What is refused, when and with which words: a client that has to tell quota from capacity reads these texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import explain
from backend.sim import faults
from backend.sim.refusals import Code, Refusal
from backend.sim.scenario import parse
from tests.backend.sim.sim_world import PARENT, Turned, request_body

FIXTURES = Path(__file__).parents[2] / "fixtures" / "api"


def create_refused(
    world: Turned, name: str, body: dict[str, Any], *, parent: str = PARENT, version: str = "v2alpha1"
) -> Any:
    return world.refused("CreateQueuedResource", version, parent=parent, queuedResourceId=name, queuedResource=body)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            request_body("a", accelerator="v5litepod-17"),
            "the accelerator v5litepod-17 was not found in zone us-west4-a",
        ),
        (request_body("a", accelerator="v5p-16", runtime="v2-alpha-tpuv5"), "not be found in the zonal accelerator"),
        (request_body("a", 257), "between 2 and 256"),
        (request_body("a", runtime="v2-alpha-tpuv6e"), "is not supported for accelerator type v5litepod-16"),
        (request_body("a", runtime="windows-11"), 'The runtime version "windows-11" was not found'),
        (request_body("Bad_Name"), 'The node id "Bad_Name-0" is not valid'),
        ({"tpu": {"nodeSpec": []}}, "at least one node spec"),
        (request_body("a", queueingPolicy={"validUntilTime": "2020-01-01T00:00:00Z"}), "in the future"),
    ],
)
def test_a_bad_request_is_refused_at_once_with_an_eid(body: dict[str, Any], part: str) -> None:
    world = Turned()
    refusal = create_refused(world, "a", body)
    assert refusal.code is Code.INVALID_ARGUMENT
    assert part in refusal.message
    assert "[EID: 0x" in refusal.message
    assert not world.world.requests
    assert not world.world.operations


def test_multislice_on_v2_is_refused_as_the_service_refuses_it() -> None:
    world = Turned()
    body = request_body("a", accelerator="v2-8", runtime="tpu-ubuntu2204-base")
    refusal = create_refused(world, "a", body, parent="projects/demo-project/locations/us-central1-a")
    assert refusal.message.startswith("Cloud TPU was unable to complete the operation.")


def test_an_unknown_zone_is_unsupported_for_a_create_and_denied_for_a_read() -> None:
    world = Turned()
    parent = "projects/demo-project/locations/asia-northeast1-a"
    refusal = create_refused(world, "a", request_body("a"), parent=parent)
    assert 'The requested zone "asia-northeast1-a" is not supported.' in refusal.message
    refusal = world.refused("ListQueuedResources", parent=parent)
    assert refusal.code is Code.PERMISSION_DENIED
    assert refusal.message == "Permission denied on 'locations/asia-northeast1-a' (or it may not exist)."
    refusal = world.refused("ListNodes", parent="projects/other/locations/us-west4-a")
    assert refusal.message.startswith("Read access to project 'other' was denied")


def test_a_taken_name_is_refused_also_while_it_is_being_deleted() -> None:
    world = Turned()
    world.active("a")
    world.call("DeleteQueuedResource", name=world.name("a"), force=True)
    refusal = create_refused(world, "a", request_body("a"))
    assert refusal.code is Code.ALREADY_EXISTS
    assert refusal.message == f"Resource '{world.name('a')}' already exists"


def test_the_same_request_id_makes_one_request_and_answers_twice() -> None:
    world = Turned()
    first = world.create("a", requestId="7f3c")
    again = world.create("a", requestId="7f3c")
    assert again["name"] == first["name"]
    assert len(world.world.requests) == 1
    assert create_refused(world, "a", request_body("a")).code is Code.ALREADY_EXISTS


def test_v2_and_v2alpha1_know_their_own_field_for_slices() -> None:
    world = Turned()
    body = request_body("a")
    spec = body["tpu"]["nodeSpec"][0]
    assert "must be specified" in create_refused(world, "a", body, version="v2").message
    spec["multisliceParams"] = spec.pop("multiNodeParams")
    world.call("CreateQueuedResource", "v2", parent=PARENT, queuedResourceId="a", queuedResource=body)
    assert len(world.get("a")["tpu"]["nodeSpec"]) == 2


QUOTA = """
[[zones]]
name = "us-west4-a"
capacity = { v5litepod = 1024 }
[[quotas]]
zone = "us-west4-a"
type = "v5litepod"
kind = "spot"
chips = 64
"""


def test_dead_requests_hold_quota_until_they_are_deleted() -> None:
    world = Turned(parse(QUOTA, "quota", "test"))
    for name in ("a", "b"):
        world.active(name, spot={})
        faults.apply(world.world, "preempt", {"target": name, "notice": 0.0})
        world.advance(100)
        assert world.state(name) == "SUSPENDED"
    refusal = create_refused(world, "c", request_body("c", spot={}))
    assert refusal.code is Code.RESOURCE_EXHAUSTED
    limit = "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"
    assert refusal.message == f"Quota limit '{limit}' has been exceeded. Limit: 64 in zone us-west4-a."
    world.create("guaranteed")
    world.call("DeleteQueuedResource", name=world.name("a"))
    world.advance(100)
    world.create("c", spot={})


def test_a_small_serving_slice_meets_the_quota_of_the_fixture() -> None:
    fixture = json.loads((FIXTURES / "err_429_quota_zone.json").read_text())
    fixture = json.loads(json.dumps(fixture).replace("us-east5-a", "us-west4-a"))
    world = Turned()
    faults.apply(world.world, "quota", {"zone": "us-west4-a", "type": "v5litepod", "kind": "on-demand", "chips": 4})
    refusal = create_refused(world, "a", request_body("a", 1, accelerator="v5litepod-8"))
    assert refusal.to_rest() == fixture


def test_each_of_the_four_meanings_of_429_can_be_met() -> None:
    """Chips that live, quota that was never granted, calls that come too fast, chips that the dead hold."""

    def met(world: Turned, name: str, **more: Any) -> tuple[Refusal, ErrorKind]:
        refusal = create_refused(world, name, request_body(name, **more))
        assert refusal.code is Code.RESOURCE_EXHAUSTED
        told = explain(refusal.code, refusal.message, action="create", subject=name, details=refusal.details)
        return refusal, told.kind

    world = Turned(parse(QUOTA, "quota", "test"))
    for name in ("a", "b"):
        world.active(name, spot={})
    living, kind = met(world, "c", spot={})
    assert kind is ErrorKind.QUOTA
    for name in ("a", "b"):
        faults.apply(world.world, "preempt", {"target": name, "notice": 0.0})
    world.advance(100)
    dead, kind = met(world, "c", spot={})
    assert (dead.message, kind) == (living.message, ErrorKind.QUOTA), "the service does not tell the two apart"
    faults.apply(world.world, "quota", {"zone": "us-west4-a", "type": "v5litepod", "kind": "on-demand", "chips": 0})
    never, kind = met(world, "d")
    assert kind is ErrorKind.NEVER_GRANTED
    assert "Limit: 0" in never.message
    faults.apply(world.world, "quota", {"zone": "us-west4-a", "type": "v5litepod", "kind": "on-demand", "chips": 512})
    faults.apply(world.world, "rate", {"per_minute": 1})
    world.advance(61)
    world.create("e")
    _, kind = met(world, "f")
    assert kind is ErrorKind.RATE


@pytest.mark.parametrize("state", ["active", "provisioning"])
def test_refused_deletes_read_as_the_fixtures(state: str) -> None:
    world = Turned()
    if state == "active":
        world.active("a")
        name = "err_400_delete_active_without_force.json"
    else:
        world.create("a")
        world.advance(120)
        name = "err_400_delete_provisioning.json"
    refusal = world.refused("DeleteQueuedResource", name=world.name("a"))
    assert refusal.to_rest() == json.loads((FIXTURES / name).read_text())


def test_creates_beyond_the_rate_are_refused_until_a_minute_has_passed() -> None:
    world = Turned()
    faults.apply(world.world, "rate", {"per_minute": 2})
    world.create("a")
    world.create("b")
    refusal = create_refused(world, "c", request_body("c"))
    assert refusal.code is Code.RESOURCE_EXHAUSTED
    assert "Maximum number of CreateNode requests per minute" in refusal.message
    world.advance(61)
    world.create("c")


def test_a_request_waits_while_the_zone_is_full_and_gets_what_a_delete_frees() -> None:
    world = Turned()
    faults.apply(world.world, "capacity", {"zone": "us-west4-a", "type": "v5litepod", "chips": 48})
    world.active("a")
    world.create("b")
    world.advance(5000)
    assert world.state("b") == "WAITING_FOR_RESOURCES"
    world.create("small", 1)
    world.advance(400)
    assert world.state("small") == "ACTIVE"
    world.call("DeleteQueuedResource", name=world.name("a"), force=True)
    world.advance(400)
    assert world.state("b") == "ACTIVE"


def test_reserved_capacity_comes_from_its_reservation_alone() -> None:
    world = Turned("default")
    name = "projects/demo-project/locations/us-east5-a/queuedResources/big-c"
    reservation = world.call("ListReservations", parent="projects/demo-project/locations/us-east5-a")["reservations"][
        0
    ]
    assert reservation["standard"] == {
        "size": 64,
        "capacityUnits": "CHIPS",
        "resourceType": "v5p",
        "usage": {"total": "0"},
    }
    faults.apply(world.world, "reservation", {"name": "team-v5p", "chips": 128})
    world.advance(400)
    assert world.call("GetQueuedResource", name=name)["state"]["state"] == "ACTIVE"


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"guaranteed": {"reserved": True}}, 5, "Reservation not found"),
        (
            {"provisioningModel": "FLEX_START"},
            3,
            'FLEX_START provisioning model is not supported for accelerator type "v5litepod-16" in location "us-west4-a"',
        ),
    ],
)
def test_a_late_refusal_ends_the_operation_and_leaves_nothing(more: dict[str, Any], code: int, message: str) -> None:
    world = Turned()
    operation = world.create("a", **more)
    world.advance(20)
    assert world.operation(operation)["error"] == {"code": code, "message": message}
    assert not world.world.requests


def test_a_tpu_vm_without_capacity_ends_its_operation_with_the_stockout() -> None:
    world = Turned()
    faults.apply(world.world, "capacity", {"zone": "us-west4-a", "type": "v5litepod", "chips": 4})
    node = request_body("a", 1)["tpu"]["nodeSpec"][0]["node"]
    operation = world.call("CreateNode", parent=PARENT, nodeId="vm", node=node)
    world.advance(20)
    error = world.operation(operation)["error"]
    assert error["code"] == 8
    assert error["message"].startswith(
        'There is no more capacity in the zone "us-west4-a"; you can try in another zone'
    )
