"""The rules of nodes: how a slice comes up, restarts, is replaced, preempted, maintained and goes."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.sim.entities import Node, Request
from backend.sim.refusals import Json
from backend.sim.world import World

SCHEDULED_NOTICE_S = 7 * 86_400
"""Scheduled maintenance is announced so long before (documentation: 7 days)."""
PREEMPTION_DESCRIPTION = "The TPU had a maintenance event."


def register(world: World, node: Node) -> Node:
    """A node begins to exist: CREATING, without workers."""
    world.nodes[node.key] = node
    world.touch(node)
    return node


def of_request(world: World, request: Request, index: int, template: Json) -> Node:
    """The node of one slice of a request."""
    node = Node(
        request.project,
        request.zone,
        request.node_ids[index],
        world.new_uid(),
        request.accelerator,
        template,
        world.now,
        owner=request.name,
        slice_index=index,
        slice_count=len(request.node_ids),
        spot=request.tier == "spot",
        reservation=request.reservation,
        metadata=dict(template.get("metadata", {})),
    )
    request.uids[node.node_id] = node.uid
    return register(world, node)


def become_ready(world: World, node: Node) -> None:
    """Its workers are there and booted."""
    node.expect(None)
    if not node.addresses:
        node.addresses = world.new_addresses(node.accelerator.workers)
        for machine in world.machines_of(node):
            world.machines.add(machine)
    for address in node.addresses:
        world.machines.boot(address, node.startup_script)
    world.enter_node(node, "READY", "HEALTHY")


def power_off(world: World, node: Node, *, wipe: bool) -> None:
    """Every process of its workers dies. With `wipe` its workers are no more."""
    for address in node.addresses:
        world.machines.power_off(address, wipe=wipe)
        if wipe:
            world.served_keys.pop(address, None)


def remove(world: World, node: Node) -> None:
    """The node is gone."""
    node.expect(None)
    if world.nodes.get(node.key) is node:
        power_off(world, node, wipe=True)
        del world.nodes[node.key]
        world.revision += 1


def restart(world: World, node: Node, *, state: str = "RESTARTING") -> None:
    """Memory is erased, the disk stays; the startup script runs again."""
    world.enter_node(node, state)
    power_off(world, node, wipe=False)

    node.expect(world.agenda.after(world.spread(world.delays.restart), lambda: become_ready(world, node)))


def replace(world: World, node: Node) -> None:
    """Other hardware takes its place under its name: a new uid, new addresses, empty disks."""
    power_off(world, node, wipe=True)
    node.addresses = ()
    node.uid = world.new_uid()
    owner = world.owner_of(node)
    if owner is not None:
        owner.uids[node.node_id] = node.uid
    node.maintenance = None
    node.symptoms.clear()
    world.enter_node(node, "REPAIRING")

    node.expect(world.agenda.after(world.spread(world.delays.replacement), lambda: become_ready(world, node)))


def preempt(world: World, node: Node) -> None:
    """The capacity is taken: its workers and their disks are gone at once, the node stays listed."""
    node.expect(None)
    power_off(world, node, wipe=True)
    node.released = True
    world.enter_node(node, "PREEMPTED")


def warn_of_preemption(world: World, node: Node) -> None:
    """READY with UNHEALTHY_MAINTENANCE: the alarm before a preemption."""
    if node.state == "READY":
        node.health = "UNHEALTHY_MAINTENANCE"
        node.health_description = PREEMPTION_DESCRIPTION
        world.touch(node)


def stop(world: World, node: Node) -> None:
    """STOPPING, then STOPPED; the disks stay."""
    world.enter_node(node, "STOPPING")
    power_off(world, node, wipe=False)

    def stopped() -> None:
        node.expect(None)
        world.enter_node(node, "STOPPED")

    node.expect(world.agenda.after(world.spread(world.delays.restart / 2), stopped))


def announce_maintenance(world: World, node: Node) -> None:
    """Scheduled maintenance that may be started by hand."""
    start = world.now + SCHEDULED_NOTICE_S
    node.maintenance = {
        "type": "SCHEDULED",
        "canReschedule": True,
        "windowStartTime": stamp(start),
        "windowEndTime": stamp(start + 4 * 3600),
        "latestWindowStartTime": stamp(start + 2 * 86_400),
        "maintenanceStatus": "PENDING",
    }
    world.touch(node)


def perform_maintenance(world: World, node: Node) -> None:
    """Takes the node down for its maintenance and brings it up again, with its disks."""
    now = world.now
    node.maintenance = {
        "type": node.maintenance["type"] if node.maintenance else "UNSCHEDULED",
        "canReschedule": False,
        "windowStartTime": stamp(now),
        "windowEndTime": stamp(now + world.delays.maintenance / world.agenda.speed),
        "latestWindowStartTime": stamp(now),
        "maintenanceStatus": "ONGOING",
    }
    world.enter_node(node, "REPAIRING", "UNHEALTHY_MAINTENANCE")
    power_off(world, node, wipe=False)

    def up() -> None:
        node.maintenance = None
        become_ready(world, node)

    node.expect(world.agenda.after(world.spread(world.delays.maintenance), up))


def simulate_event(world: World, node: Node) -> None:
    """A maintenance event that passes: unhealthy for a while, the workers stay."""
    warn_of_preemption(world, node)

    def passed() -> None:
        if node.state == "READY" and node.health == "UNHEALTHY_MAINTENANCE":
            node.health, node.health_description = "HEALTHY", ""
            world.touch(node)

    world.agenda.after(world.spread(world.delays.preemption_notice), passed)


def stamp(moment: float) -> str:
    """RFC 3339 with nanoseconds, as the service writes it."""
    whole = datetime.fromtimestamp(int(moment), UTC)
    nanos = int((moment - int(moment)) * 1e9)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"
