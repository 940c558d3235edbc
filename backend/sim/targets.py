"""What a fault's words mean: queued resources, nodes, workers, zones, types and methods of the simulated world."""

from __future__ import annotations

import difflib

from backend.outcomes import OperatorError
from backend.sim.entities import Node, Request
from backend.sim.trouble import METHODS
from backend.sim.world import World
from jobs import accelerators


def find_request(world: World, name: str) -> Request:
    found = [request for request in world.requests.values() if request.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        zones = ", ".join(request.zone for request in found)
        raise OperatorError(f"Several queued resources are called '{name}' (in {zones}).", "Delete one first.")
    near = difflib.get_close_matches(name, [request.name for request in world.requests.values()], n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else ""
    raise OperatorError(f"There is no queued resource '{name}' in the simulator.", hint)


def find_nodes(world: World, target: str) -> list[Node]:
    """Of `NAME`, `NAME/SLICE`, or of a TPU VM made by itself."""
    name, _, rest = target.partition("/")
    alone = [node for node in world.nodes.values() if node.node_id == name and not node.owner]
    if alone:
        return alone
    request = find_request(world, name)
    own = world.nodes_of(request)
    index = rest.partition("/")[0]
    if index:
        own = [node for node in own if str(node.slice_index) == index]
    if not own:
        raise OperatorError(f"{target} has no nodes: {request.name} is {request.state}.")
    return own


def find_addresses(world: World, target: str) -> list[str]:
    """Of `NAME`, `NAME/SLICE` or `NAME/SLICE/WORKER`."""
    parts = target.split("/")
    found = []
    for node in find_nodes(world, target):
        if node.state != "READY":
            continue
        for index, address in enumerate(node.addresses):
            if len(parts) < 3 or parts[2] == str(index):
                found.append(address)
    if not found:
        raise OperatorError(f"{target} names no worker that is up.", "Write NAME/SLICE/WORKER, such as train-a/0/3.")
    return found


def find_prefix(text: str) -> str:
    found = accelerators.generation(text.split("-")[0])
    if found is None:
        raise OperatorError(f"'{text}' is not a TPU type.", "Use v5litepod, v5p, v6e ...")
    return found.type_prefix


def find_zone(world: World, name: str) -> str:
    if world.scenario.zone(name) is None:
        known = ", ".join(zone.name for zone in world.scenario.zones)
        raise OperatorError(f"There is no zone '{name}' in the simulator.", f"It has {known}.")
    return name


def find_method(text: str) -> str:
    if any(mark in text for mark in "*?[") or text in METHODS:
        return text
    near = difflib.get_close_matches(text, METHODS, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "Use an RPC's name, or a pattern such as List*."
    raise OperatorError(f"There is no RPC '{text}'.", hint)
