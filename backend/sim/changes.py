"""The calls that change something: each checks, acts on the world and answers with its operation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from backend.model import Tier
from backend.sim import admission, nodes, refusals, requests
from backend.sim.entities import Node, Operation
from backend.sim.refusals import Code, Json, Refusal
from backend.sim.world import World

UPDATABLE = ("description", "tags", "labels", "metadata", "networkConfig.enableExternalIps", "dataDisks")
"""What a node's update mask may name (documentation of UpdateNode; disks as gcloud attaches them)."""
SCHEDULED = "The node has no upcoming maintenance that can be started."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call goes. `name` is the last part of the resource's name, empty for a call on a whole location."""

    project: str
    zone: str
    name: str = ""


def create_queued_resource(world: World, place: Place, request: Json, version: str) -> Operation:
    """By id; the same request id again answers with the first operation."""
    name = str(request.get("queuedResourceId", ""))
    body: Json = request.get("queuedResource", {})

    def act() -> Operation:
        admitted = admission.admit_request(world, place.project, place.zone, name, body, version)
        return requests.create(world, place.project, place.zone, name, body, admitted, version)

    return _once(world, f"create {place.project}/{place.zone}/queuedResources/{name}", request, act)


def delete_queued_resource(world: World, place: Place, request: Json, version: str) -> Operation:
    def act() -> Operation:
        found = world.request(place.project, place.zone, place.name)
        return requests.delete(world, found, force=bool(request.get("force")), version=version)

    return _once(world, f"delete {place.project}/{place.zone}/queuedResources/{place.name}", request, act)


def reset_queued_resource(world: World, place: Place, request: Json, version: str) -> Operation:
    return requests.reset(world, world.request(place.project, place.zone, place.name), version)


def perform_maintenance_queued_resource(world: World, place: Place, request: Json, version: str) -> Operation:
    """Of the nodes that are named, or of all."""
    found = world.request(place.project, place.zone, place.name)
    wanted = {str(name).rsplit("/", 1)[-1] for name in request.get("nodeNames", ())}
    for name in wanted - set(found.node_ids):
        raise refusals.not_found(f"projects/{place.project}/locations/{place.zone}/nodes/{name}")
    chosen = [node for node in world.nodes_of(found) if not node.leaving and (not wanted or node.node_id in wanted)]
    for node in chosen:
        _startable(node)
    for node in chosen:
        nodes.perform_maintenance(world, node)
    operation = world.start_operation("performMaintenance", place.project, place.zone, found.full_name, version)
    world.end_when(operation, lambda: all(node.state != "REPAIRING" for node in chosen))
    return operation


def create_node(world: World, place: Place, request: Json, version: str) -> Operation:
    """A TPU VM by itself. Without capacity, the operation ends with that error and nothing is left."""
    node_id = str(request.get("nodeId", ""))
    body: Json = request.get("node", {})

    def act() -> Operation:
        if not admission.NODE_ID.fullmatch(node_id):
            raise refusals.bad_request(f'The node id "{node_id}" is not valid.')
        if (place.project, place.zone, node_id) in world.nodes:
            raise refusals.already_exists(f"projects/{place.project}/locations/{place.zone}/nodes/{node_id}")
        accelerator = admission.accelerator_of(world, place.zone, body)
        admission.check_runtime(body, accelerator)
        scheduling = body.get("schedulingConfig", {})
        spot = bool(scheduling.get("spot") or scheduling.get("preemptible"))
        admission.check_quota(world, place.zone, accelerator, Tier.SPOT if spot else Tier.ON_DEMAND, 1)
        admission.take_rate(world, 1)
        node = Node(place.project, place.zone, node_id, world.new_uid(), accelerator, body, world.now, spot=spot)
        node.metadata = dict(body.get("metadata", {}))
        operation = world.start_operation("create", place.project, place.zone, node.name, version)
        if world.free_chips(place.zone, accelerator.generation.type_prefix, "") < accelerator.chips:
            refusal = refusals.no_capacity(place.zone)
            world.agenda.after(world.delays.creating, lambda: world.end_operation(operation, refusal.to_status()))
            return operation
        nodes.register(world, node)
        delay = world.spread(world.delays.provisioning)
        node.expect(world.agenda.after(delay, lambda: nodes.become_ready(world, node)))
        world.end_when(operation, lambda: node.state != "CREATING" or world.nodes.get(node.key) is not node)
        return operation

    return _once(world, f"create {place.project}/{place.zone}/nodes/{node_id}", request, act)


def delete_node(world: World, place: Place, request: Json, version: str) -> Operation:
    """Also of a queued resource: with its last node the request is SUSPENDED."""

    def act() -> Operation:
        node = world.node(place.project, place.zone, place.name)
        operation = world.start_operation("delete", place.project, place.zone, node.name, version)
        owner = world.owner_of(node)
        world.end_when(operation, lambda: world.nodes.get(node.key) is not node)
        if node.state == "DELETING":
            return operation
        nodes.power_off(world, node, wipe=True)
        world.enter_node(node, "DELETING")

        def gone() -> None:
            nodes.remove(world, node)
            if owner is not None:
                requests.node_deleted(world, owner)
            requests.allot(world)

        node.expect(world.agenda.after(world.spread(world.delays.deleting), gone))
        return operation

    return _once(world, f"delete {place.project}/{place.zone}/nodes/{place.name}", request, act)


def stop_node(world: World, place: Place, request: Json, version: str) -> Operation:
    node = _alone(world, place, "StopNode", ["READY"])
    nodes.stop(world, node)
    operation = world.start_operation("stop", place.project, place.zone, node.name, version)
    world.end_when(operation, lambda: node.state != "STOPPING")
    return operation


def start_node(world: World, place: Place, request: Json, version: str) -> Operation:
    node = _alone(world, place, "StartNode", ["STOPPED"])
    nodes.restart(world, node, state="STARTING")
    operation = world.start_operation("start", place.project, place.zone, node.name, version)
    world.end_when(operation, lambda: node.state != "STARTING")
    return operation


def _alone(world: World, place: Place, method: str, allowed: list[str]) -> Node:
    node = world.node(place.project, place.zone, place.name)
    if node.owner or node.accelerator.workers > 1:
        what = "a queued resource" if node.owner else "more than one worker"
        raise Refusal(Code.FAILED_PRECONDITION, f"{method} is not supported for a node with {what}.")
    if node.state not in allowed:
        raise refusals.wrong_state(method, node.state, allowed)
    return node


def update_node(world: World, place: Place, request: Json, version: str) -> Operation:
    """Replaces what the mask names. New ssh keys in the metadata reach the workers with the operation's end."""
    node = world.node(place.project, place.zone, place.name)
    body: Json = request.get("node", {})
    paths = [path for path in str(request.get("updateMask", "")).split(",") if path]
    if not paths:
        raise refusals.bad_request("The update mask must be specified.")
    for path in paths:
        if path not in UPDATABLE:
            raise refusals.bad_request(f'The field "{path}" cannot be updated.')
    template = copy.deepcopy(node.template)
    for path in paths:
        if path == "networkConfig.enableExternalIps":
            enabled = body.get("networkConfig", {}).get("enableExternalIps", False)
            template.setdefault("networkConfig", {})["enableExternalIps"] = enabled
        elif path == "metadata":
            node.metadata = dict(body.get("metadata", {}))
        else:
            template[path] = body.get(path, {} if path == "labels" else "" if path == "description" else [])
    node.template = template
    world.touch(node)
    operation = world.start_operation("update", place.project, place.zone, node.name, version)

    def applied() -> None:
        for address in node.addresses:
            world.machines.authorize(address, world.keys_of(node))
        world.end_operation(operation)

    world.agenda.after(world.delays.update, applied)
    return operation


def perform_maintenance(world: World, place: Place, request: Json, version: str) -> Operation:
    node = world.node(place.project, place.zone, place.name)
    _startable(node)
    nodes.perform_maintenance(world, node)
    operation = world.start_operation("performMaintenance", place.project, place.zone, node.name, version)
    world.end_when(operation, lambda: node.state != "REPAIRING")
    return operation


def _startable(node: Node) -> None:
    maintenance = node.maintenance
    if node.state != "READY":
        raise refusals.wrong_state("PerformMaintenance", node.state, ["READY"])
    if maintenance is None or maintenance["maintenanceStatus"] != "PENDING" or not maintenance["canReschedule"]:
        raise Refusal(Code.FAILED_PRECONDITION, SCHEDULED)


def simulate_maintenance_event(world: World, place: Place, request: Json, version: str) -> Operation:
    node = world.node(place.project, place.zone, place.name)
    if node.state != "READY":
        raise refusals.wrong_state("SimulateMaintenanceEvent", node.state, ["READY"])
    nodes.simulate_event(world, node)
    operation = world.start_operation("simulateMaintenanceEvent", place.project, place.zone, node.name, version)
    world.end_when(operation, lambda: node.health != "UNHEALTHY_MAINTENANCE")
    return operation


def _once(world: World, what: str, request: Json, act: Callable[[], Operation]) -> Operation:
    request_id = str(request.get("requestId", ""))
    if request_id and (what, request_id) in world.answered:
        return world.answered[(what, request_id)]
    operation = act()
    if request_id:
        world.answered[(what, request_id)] = operation
    return operation
