"""Faults of queued resources and their nodes: capacity that goes, hangs or comes in part, health, maintenance.

Each changes the world and returns a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.model import QueuedResourceState as State
from backend.outcomes import OperatorError
from backend.sim import nodes, requests, targets
from backend.sim.entities import Fate
from backend.sim.world import World

Values = Mapping[str, Any]


def preempt(world: World, values: Values) -> str:
    target, notice = str(values["target"]), values["notice"]
    node = next((item for item in world.nodes.values() if item.node_id == target and not item.owner), None)
    if node is not None:
        nodes.preempt(world, node)
        return f"{target} was preempted: its worker is gone."
    request = targets.find_request(world, target)
    if request.state not in (State.ACTIVE, State.PROVISIONING):
        raise OperatorError(f"{target} is {request.state}: there is no capacity to take.")
    requests.preempt(world, request, notice)
    if notice is not None and notice <= 0:
        return f"{target} was preempted: its workers are gone, it is SUSPENDING."
    return f"{target} is being preempted: its nodes are UNHEALTHY_MAINTENANCE, SUSPENDING follows."


def fail(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    if request.state in (State.FAILED, State.SUSPENDED, State.DELETING):
        raise OperatorError(f"{request.name} is {request.state} already.")
    requests.fail(world, request, int(values["code"]), str(values["message"]), keep_nodes=bool(values["partial"]))
    up = len(world.nodes_of(request))
    return (
        f"{request.name} is FAILED with code {values['code']}; {up} of {len(request.node_ids)} slices are still up."
    )


def spoil(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    if request.state == State.PROVISIONING:
        request.fate = Fate("fail", int(values["code"]), str(values["message"]))
        requests.spoil(world, request)
        return f"The capacity of {request.name} is withdrawn: SUSPENDING, then FAILED with code {values['code']}."
    if request.state not in (State.CREATING, State.ACCEPTED, State.WAITING_FOR_RESOURCES):
        raise OperatorError(f"{request.name} is {request.state}: provisioning is behind it.")
    request.fate = Fate(str(values["how"]), int(values["code"]), str(values["message"]))
    return f"{request.name} will not come up: its provisioning is bound to {values['how']}."


def release(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    waiting = [node for node in world.nodes_of(request) if node.state == "CREATING"]
    if request.state != State.PROVISIONING or not waiting:
        raise OperatorError(f"{request.name} is {request.state}: nothing of it hangs.")
    request.fate = Fate()
    for node in waiting:
        delay = world.spread(world.delays.provisioning / 4)
        node.expect(world.agenda.after(delay, requests.coming_up(world, request, node.node_id)))
    return f"The {len(waiting)} slices of {request.name} that hung come up now."


def repair(world: World, values: Values) -> str:
    name, _, index = str(values["target"]).partition("/")
    request = targets.find_request(world, name)
    if request.state != State.ACTIVE:
        raise OperatorError(f"{name} is {request.state}: only an ACTIVE one is repaired.")
    if not index.isdigit() or int(index) not in {node.slice_index for node in world.nodes_of(request)}:
        raise OperatorError(
            f"{values['target']} is not a slice.", f"Write {name}/0 to {name}/{len(request.node_ids) - 1}."
        )
    requests.repair(world, request, int(index))
    return f"Slice {index} of {name} is replaced, the other {len(request.node_ids) - 1} restart."


def lose(world: World, values: Values) -> str:
    lost = targets.find_nodes(world, str(values["target"]))
    for node in lost:
        nodes.remove(world, node)
    return f"{', '.join(node.node_id for node in lost)}: gone, while the queued resource stays as it is."


def orphan(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    left = world.nodes_of(request)
    if not left:
        raise OperatorError(f"{request.name} is {request.state} and has no nodes.")
    request.expect(None)
    world.requests.pop(request.key)
    world.revision += 1
    return f"{request.name} is gone, and {', '.join(node.node_id for node in left)} stayed."


def maintenance(world: World, values: Values) -> str:
    chosen = targets.find_nodes(world, str(values["target"]))
    if values["start"] and any(node.state != "READY" for node in chosen):
        raise OperatorError(f"Not all nodes of {values['target']} are READY.")
    for node in chosen:
        if values["start"]:
            nodes.perform_maintenance(world, node)
        else:
            nodes.announce_maintenance(world, node)
    what = "is under way on" if values["start"] else "is announced, and may be started by hand, for"
    return f"Maintenance {what} {', '.join(node.node_id for node in chosen)}."


def unhealthy(world: World, values: Values) -> str:
    chosen = targets.find_nodes(world, str(values["target"]))
    for node in chosen:
        node.health, node.health_description = str(values["health"]), str(values["description"])
        world.touch(node)
    return f"{', '.join(node.node_id for node in chosen)}: {values['health']}."


def symptom(world: World, values: Values) -> str:
    parts = str(values["target"]).split("/")
    worker = parts[2] if len(parts) > 2 else "0"
    chosen = targets.find_nodes(world, str(values["target"]))
    for node in chosen:
        node.symptoms.append(
            {
                "createTime": nodes.stamp(world.now),
                "symptomType": str(values["kind"]),
                "details": str(values["details"]),
                "workerId": worker,
            }
        )
        world.touch(node)
    return f"{values['kind']} was noticed on worker {worker} of {', '.join(node.node_id for node in chosen)}."
