"""Sets up what stands in a scenario at the start: back-dated, and from then on under the same rules as everything."""

from __future__ import annotations

from backend.model import QueuedResourceState as State
from backend.model import Tier
from backend.sim import nodes, requests
from backend.sim.entities import Fate, Node, Request
from backend.sim.refusals import Json
from backend.sim.scenario import StandingNode, StandingRequest
from backend.sim.world import World
from jobs import accelerators
from jobs.accelerators import Accelerator

API_VERSION = "v2alpha1"


def set_up(world: World) -> None:
    """Every standing request and node of the world's scenario."""
    for request in world.scenario.requests:
        _request(world, request)
    for node in world.scenario.nodes:
        _node(world, node)


def _node_template(accelerator: Accelerator, runtime: str, spot: bool, startup_script: str) -> Json:
    template: Json = {
        "acceleratorType": accelerator.name,
        "runtimeVersion": runtime or accelerator.generation.runtime_versions[0],
        "networkConfig": {"enableExternalIps": True},
    }
    if spot:
        template["schedulingConfig"] = {"spot": True}
    if startup_script:
        template["metadata"] = {"startup-script": startup_script}
    return template


def _request(world: World, item: StandingRequest) -> None:
    project = world.scenario.project
    accelerator = accelerators.parse(item.accelerator_type)
    spot = item.tier == Tier.SPOT
    template = _node_template(accelerator, item.runtime_version, spot, item.startup_script)
    spec: Json = {"parent": f"projects/{project}/locations/{item.zone}", "node": template}
    if item.slices > 1:
        prefix = item.node_id or item.id
        spec["multiNodeParams"] = {"nodeCount": item.slices, "nodeIdPrefix": prefix}
        node_ids = tuple(f"{prefix}-{index}" for index in range(item.slices))
    else:
        node_ids = (item.node_id or item.id,)
        spec["nodeId"] = node_ids[0]
    body: Json = {"tpu": {"nodeSpec": [spec]}}
    if spot:
        body["spot"] = {}
    elif item.tier == Tier.RESERVED:
        body["guaranteed"] = {"reserved": True}
        body["reservationName"] = f"projects/{project}/locations/{item.zone}/reservations/{item.reservation or '-'}"
    created = world.now - item.age_s
    request = Request(
        project, item.zone, item.id, accelerator, node_ids, item.tier, body, API_VERSION, created, item.state
    )
    request.reservation = item.reservation
    request.entered_at = created
    world.requests[request.key] = request
    if item.state in (State.SUSPENDED, State.SUSPENDING):
        request.initiator = "SERVICE"
    if item.state == State.FAILED:
        request.initiator, request.error = "SERVICE", {"code": item.code, "message": item.message}
    world.touch(request)
    _bring_to_state(world, request, item, template)


def _bring_to_state(world: World, request: Request, item: StandingRequest, template: Json) -> None:
    if item.state in (State.ACTIVE, State.PROVISIONING, State.FAILED):
        default = len(request.node_ids) if item.state == State.ACTIVE else 0
        ready = default if item.ready_slices is None else item.ready_slices
        _slices(world, request, item, ready, template)
    elif item.state in (State.CREATING, State.ACCEPTED):
        delay = world.spread(world.delays.accepted)
        request.expect(world.agenda.after(delay, lambda: requests.queue(world, request)))
    elif item.state == State.SUSPENDING:
        requests.suspend(world, request, "SERVICE")
    elif item.state == State.DELETING:
        request.expect(world.agenda.after(world.delays.deleting, lambda: requests.forget(world, request)))
    elif item.state == State.WAITING_FOR_RESOURCES:
        request.queued_from = world.now
        request.expect(world.agenda.at(world.now, lambda: requests.allot(world)))


def _slices(world: World, request: Request, item: StandingRequest, ready: int, template: Json) -> None:
    for index in range(len(request.node_ids) if item.state != State.FAILED else ready):
        node = nodes.of_request(world, request, index, template)
        node.created_at = request.created_at
        if index < ready:
            nodes.become_ready(world, node)
        elif not item.hangs:
            delay = world.spread(world.delays.provisioning)
            node.expect(world.agenda.after(delay, requests.coming_up(world, request, node.node_id)))
    if item.hangs:
        request.fate = Fate("hang")


def _node(world: World, item: StandingNode) -> None:
    accelerator = accelerators.parse(item.accelerator_type)
    node = Node(
        world.scenario.project,
        item.zone,
        item.id,
        world.new_uid(),
        accelerator,
        _node_template(accelerator, item.runtime_version, item.spot, ""),
        world.now - item.age_s,
        spot=item.spot,
    )
    nodes.register(world, node)
    if item.state == "READY":
        nodes.become_ready(world, node)
    else:
        world.enter_node(node, item.state)
