"""The rules of queued resources: from CREATING to ACTIVE, to the dead ends, and out of existence."""

from __future__ import annotations

from collections.abc import Callable

from backend.model import QueuedResourceState as State
from backend.model import Tier
from backend.sim import nodes, refusals
from backend.sim.admission import Admitted
from backend.sim.entities import Fate, Operation, Request
from backend.sim.refusals import Code, Json
from backend.sim.world import World

EXPIRED = "The queued resource could not be fulfilled before its valid until time."


def create(
    world: World, project: str, zone: str, name: str, body: Json, admitted: Admitted, version: str
) -> Operation:
    """A request that was admitted begins its way. The operation ends when it is queued, not when it is ACTIVE."""
    request = Request(
        project,
        zone,
        name,
        admitted.accelerator,
        admitted.node_ids,
        admitted.tier,
        body,
        version,
        world.now,
        entered_at=world.now,
        reservation=find_reservation(world, zone, admitted),
        valid_after=admitted.valid_after,
        valid_until=admitted.valid_until,
        run_limit_s=admitted.run_limit_s,
    )
    world.requests[request.key] = request
    world.touch(request)
    operation = world.start_operation("create", project, zone, request.full_name, version)
    world.end_when(operation, lambda: request.state != State.CREATING)
    hold = world.trouble.operation_hold()
    if hold > 0:
        operation.undo = lambda: forget(world, request)
    delay = hold + world.spread(world.delays.creating)
    request.expect(world.agenda.after(delay, lambda: _decide(world, request, admitted, operation)))
    return operation


def find_reservation(world: World, zone: str, admitted: Admitted) -> str:
    """The pool that reserved capacity comes from; empty for every other tier, and where there is none."""
    if admitted.tier != Tier.RESERVED:
        return ""
    wanted = admitted.reservation_path.rsplit("/", 1)[-1]
    for item in world.reservations.values():
        fits = item.zone == zone and item.type == admitted.accelerator.generation.type_prefix
        if fits and wanted in ("", "-", item.name):
            return item.name
    return ""


def _decide(world: World, request: Request, admitted: Admitted, operation: Operation) -> None:
    """Late refusals end the operation with an error and leave nothing behind; the rest is accepted."""
    refusal = None
    operation.undo = None
    zone = world.scenario.zone(request.zone)
    prefix = request.accelerator.generation.type_prefix
    if admitted.tier == Tier.FLEX_START and (zone is None or prefix not in zone.flex):
        refusal = refusals.flex_unsupported(request.accelerator.name, request.zone)
    elif admitted.tier == Tier.RESERVED and not request.reservation:
        refusal = refusals.Refusal(Code.NOT_FOUND, "Reservation not found")
    if refusal is not None:
        forget(world, request)
        world.end_operation(operation, refusal.to_status())
        return
    world.enter(request, State.ACCEPTED)
    request.expect(world.agenda.after(world.spread(world.delays.accepted), lambda: queue(world, request)))
    if request.valid_until is not None:
        world.agenda.at(request.valid_until, lambda: _expire(world, request))


def queue(world: World, request: Request) -> None:
    """WAITING_FOR_RESOURCES. Capacity is given from its time on, to whoever waits longest and fits."""
    world.enter(request, State.WAITING_FOR_RESOURCES)
    start = world.now + world.spread(world.delays.waiting) / world.agenda.speed
    request.queued_from = max(start, request.valid_after or 0.0)
    request.expect(world.agenda.at(request.queued_from, lambda: allot(world)))


def allot(world: World) -> None:
    """Gives free capacity to waiting requests, oldest first."""
    waiting = [
        request
        for request in world.requests.values()
        if request.state == State.WAITING_FOR_RESOURCES
        and request.queued_from is not None
        and request.queued_from <= world.now
    ]
    for request in sorted(waiting, key=lambda each: each.created_at):
        prefix = request.accelerator.generation.type_prefix
        if world.free_chips(request.zone, prefix, request.reservation) >= request.chips:
            provision(world, request)


def provision(world: World, request: Request) -> None:
    """Capacity was found: the nodes come up one after the other. The request's fate may spoil it."""
    request.queued_from = None
    request.expect(None)
    world.enter(request, State.PROVISIONING)
    template = request.template["tpu"]["nodeSpec"][0].get("node", {})
    fate = request.fate.provisioning
    up = len(request.node_ids) // 2 if fate in ("partial", "hang") else len(request.node_ids)
    for index in range(len(request.node_ids)):
        node = nodes.of_request(world, request, index, template)
        if index < up and fate != "fail":
            slowest = index == len(request.node_ids) - 1
            share = 1.0 if slowest else world.random.uniform(0.5, 0.95)
            node.expect(
                world.agenda.after(world.delays.provisioning * share, coming_up(world, request, node.node_id))
            )
    if fate in ("fail", "partial"):
        delay = world.spread(world.delays.provisioning_failure)
        request.expect(world.agenda.after(delay, lambda: spoil(world, request)))


def coming_up(world: World, request: Request, node_id: str) -> Callable[[], None]:
    """What happens when one slice of a request in PROVISIONING is there."""

    def up() -> None:
        node = world.nodes.get((request.project, request.zone, node_id))
        if node is not None:
            nodes.become_ready(world, node)
            activate_if_whole(world, request)

    return up


def activate_if_whole(world: World, request: Request) -> None:
    """ACTIVE as soon as every slice is READY."""
    own = world.nodes_of(request)
    whole = len(own) == len(request.node_ids) and all(node.state == "READY" for node in own)
    if request.state != State.PROVISIONING or not whole:
        return
    request.expect(None)
    world.enter(request, State.ACTIVE)
    if request.run_limit_s is not None:
        request.terminates_at = world.now + request.run_limit_s
        request.expect(world.agenda.at(request.terminates_at, lambda: suspend(world, request, "SERVICE")))
    elif request.tier == Tier.SPOT and world.scenario.spot_life_s > 0:
        life = world.random.expovariate(1 / world.scenario.spot_life_s)
        request.expect(world.agenda.after(life, lambda: preempt(world, request)))


def spoil(world: World, request: Request) -> None:
    """Capacity is withdrawn from a request in PROVISIONING: SUSPENDING, then FAILED with its fate's error."""
    if request.fate.provisioning == "partial":
        fail(world, request, request.fate.code, request.fate.message, keep_nodes=True)
        return
    world.enter(request, State.SUSPENDING, "SERVICE")
    request.expect(
        world.agenda.after(
            world.spread(world.delays.suspending),
            lambda: fail(world, request, request.fate.code, request.fate.message),
        )
    )


def fail(world: World, request: Request, code: int, message: str, *, keep_nodes: bool = False) -> None:
    """FAILED: a dead end that holds its quota. With `keep_nodes`, the slices that are READY stay up."""
    request.expect(None)
    request.queued_from = None
    for node in world.nodes_of(request):
        if not (keep_nodes and node.state == "READY"):
            nodes.remove(world, node)
    world.enter(request, State.FAILED, "SERVICE", {"code": code, "message": message})
    allot(world)


def _expire(world: World, request: Request) -> None:
    waiting = (State.CREATING, State.ACCEPTED, State.WAITING_FOR_RESOURCES)
    if world.requests.get(request.key) is request and request.state in waiting:
        fail(world, request, Code.DEADLINE_EXCEEDED, EXPIRED)


def preempt(world: World, request: Request, notice_s: float | None = None) -> None:
    """Spot capacity is taken: an alarm on every node, then SUSPENDING by SERVICE. `notice_s`: seconds of the clock."""
    own = world.nodes_of(request)
    wait = world.spread(world.delays.preemption_notice) / world.agenda.speed if notice_s is None else notice_s
    if wait > 0:
        for node in own:
            nodes.warn_of_preemption(world, node)
    request.expect(world.agenda.at(world.now + wait, lambda: suspend(world, request, "SERVICE")))
    if wait <= 0:
        world.agenda.run_due()


def suspend(world: World, request: Request, initiator: str) -> None:
    """Its workers die now; SUSPENDED follows and is final. The PREEMPTED nodes stay listed for a while."""
    request.terminates_at = None
    world.enter(request, State.SUSPENDING, initiator)
    for node in world.nodes_of(request):
        if node.leaving:
            continue
        nodes.preempt(world, node)
        lingers = _removal(world, request, node.node_id, node.uid)
        node.expect(world.agenda.after(world.spread(world.delays.preempted_node), lingers))

    def suspended() -> None:
        request.expect(None)
        world.enter(request, State.SUSPENDED, initiator)

    request.expect(world.agenda.after(world.spread(world.delays.suspending), suspended))
    allot(world)


def _removal(world: World, request: Request, node_id: str, uid: int) -> Callable[[], None]:
    def gone() -> None:
        node = world.nodes.get((request.project, request.zone, node_id))
        if node is not None and node.uid == uid:
            nodes.remove(world, node)

    return gone


def delete(world: World, request: Request, *, force: bool, version: str) -> Operation:
    """Deletes a request and what it still has.

    Raises:
        Refusal: The state forbids it: ACTIVE needs force, and PROVISIONING and the states that pass are refused even
            with it. A refusal with force in PROVISIONING has the capacity withdrawn a while later (field notes, 0.2).
    """
    allowed = request.state in refusals.DELETABLE or (force and request.state == State.ACTIVE)
    if not allowed:
        if force and request.state == State.PROVISIONING and request.fate.provisioning != "withdrawn":
            request.fate = Fate("withdrawn")
            delay = world.spread(world.delays.withdrawal)
            request.expect(world.agenda.after(delay, lambda: spoil(world, request)))
        raise refusals.wrong_state("DeleteQueuedResource", request.state, refusals.DELETABLE)
    operation = world.start_operation("delete", request.project, request.zone, request.full_name, version)
    own = world.nodes_of(request)
    request.queued_from = None
    world.enter(request, State.DELETING, "USER")
    for node in own:
        node.expect(None)
        nodes.power_off(world, node, wipe=True)
        world.enter_node(node, "DELETING")

    def gone() -> None:
        forget(world, request)
        world.end_operation(operation)
        allot(world)

    delay = world.delays.deleting if own else world.delays.deleting / 3
    request.expect(world.agenda.after(world.spread(delay), gone))
    return operation


def forget(world: World, request: Request) -> None:
    """The request and its nodes are no more."""
    request.expect(None)
    for node in world.nodes_of(request):
        nodes.remove(world, node)
    world.requests.pop(request.key, None)
    world.revision += 1


def reset(world: World, request: Request, version: str) -> Operation:
    """Restarts every worker of an ACTIVE request: memory erased, disks kept, startup scripts run again.

    Raises:
        Refusal: It is not ACTIVE.
    """
    if request.state != State.ACTIVE:
        raise refusals.wrong_state("ResetQueuedResource", request.state, [State.ACTIVE])
    operation = world.start_operation("reset", request.project, request.zone, request.full_name, version)
    for node in world.nodes_of(request):
        if not node.leaving:
            nodes.restart(world, node)
    world.end_when(operation, lambda: all(node.state != "RESTARTING" for node in world.nodes_of(request)))
    return operation


def repair(world: World, request: Request, index: int) -> None:
    """Auto-repair: one slice is replaced, all others restart; the request stays ACTIVE."""
    for node in world.nodes_of(request):
        if node.leaving:
            continue
        if node.slice_index == index:
            nodes.replace(world, node)
        else:
            nodes.restart(world, node)


def node_deleted(world: World, request: Request) -> None:
    """An operator deleted nodes one by one: with the last of them the request is SUSPENDED by USER."""
    if request.state == State.ACTIVE and not world.nodes_of(request):
        world.enter(request, State.SUSPENDED, "USER")
