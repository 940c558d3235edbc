"""Each fault brings about what its name says, and refuses what it cannot."""

from __future__ import annotations

import pytest

from backend.outcomes import OperatorError
from backend.sim import faults
from backend.sim.refusals import Code
from tests.backend.sim.sim_world import PARENT, Turned


def inject(world: Turned, fault: str, **values: object) -> str:
    return faults.apply(world.world, fault, {key.rstrip("_"): value for key, value in values.items()})


def test_preempt_kills_at_once_without_notice_and_warns_with_it() -> None:
    world = Turned("default")
    inject(world, "preempt", target="train-a", notice=5.0)
    assert world.node("train-a-0")["health"] == "UNHEALTHY_MAINTENANCE"
    world.advance(6)
    assert world.state("train-a") == "SUSPENDING"
    with pytest.raises(OperatorError, match="SUSPENDING"):
        inject(world, "preempt", target="train-a")
    inject(world, "preempt", target="notebook")
    assert world.node("notebook")["state"] == "PREEMPTED"


def test_fail_takes_everything_or_leaves_slices_up() -> None:
    world = Turned()
    world.active("a")
    world.active("b")
    assert "0 of 2 slices" in inject(world, "fail", name="a", code=8, message="no")
    assert "2 of 2 slices" in inject(world, "fail", name="b", partial=True)
    assert world.get("a")["state"]["failedData"]["error"] == {"code": 8, "message": "no"}
    assert len(world.machines.running) == 8
    with pytest.raises(OperatorError, match="FAILED already"):
        inject(world, "fail", name="a")


def test_a_spoiled_request_hangs_until_it_is_released() -> None:
    world = Turned()
    world.create("a", 4)
    inject(world, "spoil", name="a", how="hang")
    world.advance(20_000)
    assert world.state("a") == "PROVISIONING"
    assert len(world.machines.running) == 8
    assert "2 slices" in inject(world, "release", name="a")
    world.advance(100)
    assert world.state("a") == "ACTIVE"
    with pytest.raises(OperatorError, match="nothing of it hangs"):
        inject(world, "release", name="a")


def test_a_node_is_lost_under_a_request_that_stays_active() -> None:
    world = Turned()
    world.active("a")
    inject(world, "lose", target="a/1")
    assert world.refused("GetNode", name=f"{PARENT}/nodes/a-1").code is Code.NOT_FOUND
    assert world.state("a") == "ACTIVE"
    assert len(world.machines.running) == 4


def test_health_and_symptoms_are_shown_on_their_node_alone() -> None:
    world = Turned()
    world.active("a")
    inject(world, "unhealthy", target="a/1", health="TIMEOUT", description="no answer")
    inject(world, "symptom", target="a/1/3", kind="HBM_OUT_OF_MEMORY", details="17 GiB")
    node = world.node("a-1")
    assert (node["health"], node["healthDescription"]) == ("TIMEOUT", "no answer")
    assert node["symptoms"][0]["workerId"] == "3"
    assert node["symptoms"][0]["symptomType"] == "HBM_OUT_OF_MEMORY"
    assert world.node("a-0")["health"] == "HEALTHY"
    assert "symptoms" not in world.node("a-0")


@pytest.mark.parametrize(
    ("fault", "done"), [("cut", "cut"), ("freeze", "freeze"), ("refuse", "refuse"), ("down", "power_off")]
)
def test_a_fault_of_workers_reaches_exactly_those_that_are_named(fault: str, done: str) -> None:
    world = Turned()
    world.active("a")
    endpoints = world.node("a-1")["networkEndpoints"]
    world.machines.calls.clear()
    inject(world, fault, target="a/1/2")
    assert world.machines.calls == [(done, endpoints[2]["ipAddress"])]
    inject(world, fault, target="a/1")
    assert len(world.machines.calls) == 5
    inject(world, fault, target="a")
    assert len(world.machines.calls) == 13
    if fault == "refuse":
        inject(world, "refuse", target="a", off=True)
        assert not world.machines.refused
    if fault == "down":
        assert world.node("a-1")["state"] == "READY"


def test_a_reboot_runs_the_startup_script_of_its_worker_again() -> None:
    world = Turned()
    world.active("a", startup_script="echo up")
    address = world.node("a-1")["networkEndpoints"][3]["ipAddress"]
    world.machines.scripts.clear()
    inject(world, "reboot", target="a/1/3")
    assert world.machines.scripts == [(address, "echo up")]
    assert len(world.machines.running) == 8


async def test_errors_and_delays_hold_for_their_calls_and_no_longer() -> None:
    world = Turned()
    inject(world, "error", method="List*", code="UNAVAILABLE", text="Internal error. Please try again", count=2)
    inject(world, "slow", method="GetNode", seconds=0.0, for_=60.0)
    for _ in range(2):
        delay, refusal = world.world.trouble.meet("ListNodes")
        assert (delay, refusal and refusal.code) == (0, Code.UNAVAILABLE)
    assert world.world.trouble.meet("ListNodes") == (0, None)
    inject(world, "error", method="GetNode", code="8", text="busy", for_=60.0)
    assert world.world.trouble.meet("ListQueuedResources") == (0, None)
    assert world.world.trouble.meet("GetNode")[1] is not None
    world.advance(61)
    assert world.world.trouble.meet("GetNode") == (0, None)
    inject(world, "slow", method="*", seconds=2.5)
    assert world.world.trouble.meet("CreateNode") == (2.5, None)
    assert "1 errors" in inject(world, "clear")
    assert world.world.trouble.meet("CreateNode") == (0, None)


def test_slow_operations_end_after_their_work() -> None:
    world = Turned()
    inject(world, "slow", method="operations", seconds=600.0, for_=3600.0)
    operation = world.create("a")
    world.advance(300)
    assert world.state("a") == "ACTIVE"
    assert world.operation(operation)["done"] is False
    world.advance(400)
    assert world.operation(operation)["done"] is True


def test_a_create_that_has_not_begun_is_cancelled_with_code_1_and_one_that_has_goes_on() -> None:
    world = Turned()
    inject(world, "slow", method="operations", seconds=600.0, queued=True, for_=3600.0)
    waiting, begun = world.create("a"), world.create("b")
    world.advance(300)
    assert world.state("a") == world.state("b") == "CREATING"
    world.call("CancelOperation", name=waiting["name"])
    ended = world.operation(waiting)
    assert (ended["done"], ended["error"]["code"]) == (True, Code.CANCELLED)
    assert ended["metadata"]["cancelRequested"] is True
    assert world.refused("GetQueuedResource", name=world.name("a")).code is Code.NOT_FOUND
    world.create("a")
    world.advance(330)
    assert world.state("b") != "CREATING"
    world.call("CancelOperation", name=begun["name"])
    world.advance(400)
    assert "error" not in world.operation(begun)
    assert world.state("b") == "ACTIVE"
    assert world.operation(waiting)["error"]["code"] == Code.CANCELLED, "its time to begin has passed"


@pytest.mark.parametrize(
    ("fault", "values", "text"),
    [
        ("explode", {}, "no fault 'explode'"),
        ("preempt", {}, "needs target"),
        ("preempt", {"target": "trian-a"}, "Did you mean train-a"),
        ("repair", {"target": "train-a/7"}, "train-a/0 to train-a/1"),
        ("repair", {"target": "big-c/0"}, "WAITING_FOR_RESOURCES"),
        ("cut", {"target": "old-d"}, "has no nodes"),
        ("cut", {"target": "train-a/0/9"}, "no worker"),
        ("error", {"method": "ListNode", "code": "8", "text": "x"}, "Did you mean ListNodes"),
        ("error", {"method": "ListNodes", "code": "OOPS", "text": "x"}, "no status code"),
        ("capacity", {"zone": "mars", "type": "v5p", "chips": 1}, "no zone 'mars'"),
        ("quota", {"zone": "us-west4-a", "type": "v5litepod", "kind": "cheap", "chips": 1}, "no kind of quota"),
        ("reservation", {"name": "x", "chips": 1}, "team-v5p"),
    ],
)
def test_what_cannot_be_injected_is_said_with_its_cure(fault: str, values: dict[str, object], text: str) -> None:
    world = Turned("default")
    with pytest.raises(OperatorError) as raised:
        faults.apply(world.world, fault, values)
    assert text in str(raised.value)


def test_a_reimaged_worker_has_another_host_key_which_the_api_may_serve_later() -> None:
    world = Turned()
    world.active("a")

    def served() -> list[str]:
        found = world.call("GetGuestAttributes", name=f"{PARENT}/nodes/a-0", queryPath="hostkeys/")
        return [each["queryValue"]["items"][0]["value"] for each in found["guestAttributes"]]

    before = served()
    assert "still serves the old one" in inject(world, "reimage", target="a/0/1", unserved=True)
    assert served() == before
    inject(world, "reimage", target="a/0/1", serve=True)
    assert [one == two for one, two in zip(served(), before, strict=True)] == [True, False, True, True]


@pytest.mark.parametrize(
    ("fault", "values", "why"),
    [
        ("spoil", {"name": "sweep-b", "how": "fancy"}, "fail, hang, partial"),
        ("freeze", {"target": "train-a", "for_": -5.0}, "--for"),
        ("freeze", {"target": "train-a", "for_": float("nan")}, "--for"),
        ("preempt", {"target": "train-a", "notice": -5.0}, "--notice"),
        ("symptom", {"target": "train-a/0/0", "kind": "NONSENSE"}, "MESH_BUILD_FAIL"),
        ("unhealthy", {"target": "train-a", "health": "GRUMPY"}, "UNHEALTHY_MAINTENANCE"),
        ("error", {"method": "List*", "code": "UNAVAILABLE", "text": "x", "count": 0}, "--count"),
        ("slow", {"method": "List*", "seconds": -1.0}, "seconds"),
        ("capacity", {"zone": "us-west4-a", "type": "v5litepod", "chips": -1}, "chips"),
        ("rate", {"per_minute": -1}, "per_minute"),
    ],
)
def test_a_word_or_number_that_means_nothing_changes_nothing(fault: str, values: dict[str, object], why: str) -> None:
    world = Turned("default")
    before = world.world.revision
    with pytest.raises(OperatorError) as refused:
        inject(world, fault, **values)
    assert why in f"{refused.value} {refused.value.cure}"
    assert world.world.revision == before
    assert world.state("train-a") == "ACTIVE"
