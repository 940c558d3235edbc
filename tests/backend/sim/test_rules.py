"""The rules of the world by property: whatever operators and faults do, in whatever order."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backend.outcomes import OperatorError
from backend.sim import faults
from backend.sim.refusals import Refusal
from backend.sim.scenario import parse
from tests.backend.sim.sim_world import PARENT, Turned

ZONE = """
[[zones]]
name = "us-west4-a"
capacity = { v5litepod = 96 }
[[quotas]]
zone = "us-west4-a"
type = "v5litepod"
kind = "spot"
chips = 160
"""
CHIPS = 96
NAMES = ("a", "b", "c")
DEAD = ("FAILED", "SUSPENDED")
LONG_S = 100_000.0
FAULTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("preempt", {}),
    ("preempt", {"notice": 0.0}),
    ("fail", {}),
    ("fail", {"partial": True}),
    ("spoil", {"how": "fail"}),
    ("spoil", {"how": "hang"}),
    ("spoil", {"how": "partial"}),
    ("release", {}),
    ("repair", {"slice": 0}),
    ("repair", {"slice": 1}),
    ("lose", {"slice": 0}),
    ("maintenance", {"start": True}),
)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = Turned(parse(ZONE, "any", "test"))
        self.dead: dict[str, int] = {}
        """Requests that reached a dead end, by name -> identity of the request."""

    @rule(name=st.sampled_from(NAMES), slices=st.integers(1, 4), spot=st.booleans())
    def create(self, name: str, slices: int, spot: bool) -> None:
        more: dict[str, Any] = {"spot": {}} if spot else {}
        with contextlib.suppress(Refusal):
            self.world.create(name, slices, **more)

    @rule(name=st.sampled_from(NAMES), force=st.booleans())
    def delete(self, name: str, force: bool) -> None:
        with contextlib.suppress(Refusal):
            self.world.call("DeleteQueuedResource", name=self.world.name(name), force=force)

    @rule(name=st.sampled_from(NAMES))
    def reset(self, name: str) -> None:
        with contextlib.suppress(Refusal):
            self.world.call("ResetQueuedResource", name=self.world.name(name))

    @rule(name=st.sampled_from(NAMES), index=st.integers(0, 3))
    def delete_node(self, name: str, index: int) -> None:
        with contextlib.suppress(Refusal):
            self.world.call("DeleteNode", name=f"{PARENT}/nodes/{name}-{index}")

    @rule(name=st.sampled_from(NAMES), fault=st.sampled_from(FAULTS))
    def inject(self, name: str, fault: tuple[str, dict[str, object]]) -> None:
        kind, more = fault
        values = {key: value for key, value in more.items() if key != "slice"}
        target = f"{name}/{more['slice']}" if "slice" in more else name
        with contextlib.suppress(OperatorError):
            faults.apply(self.world.world, kind, {"name": name, "target": target, **values})

    @rule(seconds=st.sampled_from([1.0, 20.0, 90.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @precondition(lambda self: self.world.world.requests)
    @rule()
    def everything_settles(self) -> None:
        """Given time, every operation ends and nothing is left on its way."""
        self.world.advance(LONG_S)
        assert all(operation.done for operation in self.world.world.operations.values())
        for request in self.world.world.requests.values():
            stays = request.state in ("ACTIVE", "WAITING_FOR_RESOURCES", *DEAD)
            hangs = request.state == "PROVISIONING" and request.fate.provisioning == "hang"
            assert stays or hangs or self.lacks_nodes(request.name), request.state
        states = {node.state for node in self.world.world.nodes.values()}
        assert states <= {"READY", "CREATING"}, states

    def lacks_nodes(self, name: str) -> bool:
        """Nodes were taken out from under it: it may wait for them for ever, as the service's do."""
        request = next(item for item in self.world.world.requests.values() if item.name == name)
        return len(self.world.world.nodes_of(request)) < len(request.node_ids)

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        live = [node for node in self.world.world.nodes.values() if not node.released]
        assert sum(node.accelerator.chips for node in live) <= CHIPS

    @invariant()
    def machines_run_exactly_where_nodes_are_ready(self) -> None:
        ready = {
            address for node in self.world.world.nodes.values() if node.state == "READY" for address in node.addresses
        }
        assert self.world.machines.running == ready

    @invariant()
    def no_machine_outlives_its_node(self) -> None:
        known = {address for node in self.world.world.nodes.values() for address in node.addresses}
        assert set(self.world.machines.machines) <= known

    @invariant()
    def an_active_request_was_never_short_of_slices_that_nobody_took(self) -> None:
        for request in self.world.world.requests.values():
            if request.state == "ACTIVE":
                assert all(node.state != "CREATING" for node in self.world.world.nodes_of(request))

    @invariant()
    def dead_ends_are_left_only_by_delete(self) -> None:
        now = {request.name: request for request in self.world.world.requests.values()}
        for name, identity in list(self.dead.items()):
            request = now.get(name)
            if request is None or id(request) != identity:
                del self.dead[name]
            else:
                assert request.state in (*DEAD, "DELETING"), request.state
        self.dead |= {name: id(request) for name, request in now.items() if request.state in DEAD}

    @invariant()
    def uids_are_never_shared(self) -> None:
        uids = [node.uid for node in self.world.world.nodes.values()]
        assert len(set(uids)) == len(uids)

    @invariant()
    def every_view_can_be_made_in_both_versions(self) -> None:
        for version in ("v2", "v2alpha1"):
            self.world.call("ListQueuedResources", version, parent=PARENT)
            self.world.call("ListNodes", version, parent=PARENT)


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
test_any_order = AnyOrder.TestCase
