"""Faults by command: each brings about one thing that operators of the real service have met, and says what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.model import QueuedResourceState as State
from backend.outcomes import OperatorError
from backend.sim import admission, nodes, refusals, requests, targets
from backend.sim.entities import Fate
from backend.sim.refusals import Code
from backend.sim.trouble import Rule
from backend.sim.world import World

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a fault, as argparse takes it."""

    name: str
    help: str
    kind: type = str
    default: Any = None
    optional: bool = False
    """A positional one that may be missing; options may always be."""


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    help: str
    arguments: tuple[Argument, ...]
    apply: Callable[[World, Values], str]
    """Changes the world and returns a sentence."""


def apply(world: World, name: str, values: Values) -> str:
    """Brings a fault about and says what happened.

    Raises:
        OperatorError: No such fault or target, or it does not apply to the target's state. Nothing was changed.
    """
    fault = FAULTS.get(name)
    if fault is None:
        raise OperatorError(f"There is no fault '{name}'.", f"Use one of {', '.join(FAULTS)}.")
    known = {argument.name.lstrip("-").replace("-", "_"): argument.default for argument in fault.arguments}
    missing = [key for key, default in known.items() if default is None and values.get(key) is None]
    required = {argument.name for argument in fault.arguments if not argument.name.startswith("-")}
    optional = {argument.name for argument in fault.arguments if argument.optional}
    if lacking := [key for key in missing if key in required - optional]:
        raise OperatorError(f"The fault '{name}' needs {', '.join(lacking)}.")
    return fault.apply(world, {**known, **{key: value for key, value in values.items() if value is not None}})


def _preempt(world: World, values: Values) -> str:
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


def _fail(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    if request.state in (State.FAILED, State.SUSPENDED, State.DELETING):
        raise OperatorError(f"{request.name} is {request.state} already.")
    requests.fail(world, request, int(values["code"]), str(values["message"]), keep_nodes=bool(values["partial"]))
    up = len(world.nodes_of(request))
    return (
        f"{request.name} is FAILED with code {values['code']}; {up} of {len(request.node_ids)} slices are still up."
    )


def _spoil(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    if request.state == State.PROVISIONING:
        request.fate = Fate("fail", int(values["code"]), str(values["message"]))
        requests.spoil(world, request)
        return f"The capacity of {request.name} is withdrawn: SUSPENDING, then FAILED with code {values['code']}."
    if request.state not in (State.CREATING, State.ACCEPTED, State.WAITING_FOR_RESOURCES):
        raise OperatorError(f"{request.name} is {request.state}: provisioning is behind it.")
    request.fate = Fate(str(values["how"]), int(values["code"]), str(values["message"]))
    return f"{request.name} will not come up: its provisioning is bound to {values['how']}."


def _release(world: World, values: Values) -> str:
    request = targets.find_request(world, str(values["name"]))
    waiting = [node for node in world.nodes_of(request) if node.state == "CREATING"]
    if request.state != State.PROVISIONING or not waiting:
        raise OperatorError(f"{request.name} is {request.state}: nothing of it hangs.")
    request.fate = Fate()
    for node in waiting:
        delay = world.spread(world.delays.provisioning / 4)
        node.expect(world.agenda.after(delay, requests.coming_up(world, request, node.node_id)))
    return f"The {len(waiting)} slices of {request.name} that hung come up now."


def _repair(world: World, values: Values) -> str:
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


def _lose(world: World, values: Values) -> str:
    lost = targets.find_nodes(world, str(values["target"]))
    for node in lost:
        nodes.remove(world, node)
    return f"{', '.join(node.node_id for node in lost)}: gone, while the queued resource stays as it is."


def _maintenance(world: World, values: Values) -> str:
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


def _unhealthy(world: World, values: Values) -> str:
    chosen = targets.find_nodes(world, str(values["target"]))
    for node in chosen:
        node.health, node.health_description = str(values["health"]), str(values["description"])
        world.touch(node)
    return f"{', '.join(node.node_id for node in chosen)}: {values['health']}."


def _symptom(world: World, values: Values) -> str:
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


def _reimage(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        if values["unserved"]:
            world.served_keys.setdefault(address, world.machines.host_key(address))
        else:
            world.served_keys.pop(address, None)
        if not values["serve"]:
            world.machines.reimage(address)
    if values["serve"]:
        return f"The API serves the present host keys of {len(found)} workers."
    served = "the API still serves the old one" if values["unserved"] else "the API serves it"
    return f"{len(found)} workers have another host key; {served}."


def _cut(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.cut(address)
    return f"The connections of {len(found)} workers were cut; their processes live on."


def _freeze(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.freeze(address, float(values["for"]))
    return f"{len(found)} workers answer nothing for {values['for']:g} s."


def _refuse(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.refuse(address, not values["off"])
    return f"{len(found)} workers {'accept' if values['off'] else 'refuse'} new connections."


def _down(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.power_off(address, wipe=False)
    return f"{len(found)} workers are dead, and the service has not noticed."


def _reboot(world: World, values: Values) -> str:
    found = set(targets.find_addresses(world, str(values["target"])))
    for node in targets.find_nodes(world, str(values["target"])):
        for address in node.addresses:
            if address in found:
                world.machines.power_off(address, wipe=False)
                world.machines.boot(address, node.startup_script)
    return f"{len(found)} workers rebooted, and the service has not noticed."


def _slow(world: World, values: Values) -> str:
    method, delay = str(values["method"]), float(values["seconds"])
    until = world.now + values["for"] if values["for"] is not None else None
    if method == "operations":
        world.trouble.slow_operations(delay, until if until is not None else float("inf"))
        return f"Operations end {delay:g} s after their work."
    world.trouble.add(Rule(targets.find_method(method), delay_s=delay, left=values["count"], until=until))
    return f"{method} takes {delay:g} s longer{_bound(values)}."


def _error(world: World, values: Values) -> str:
    name = str(values["code"]).upper()
    try:
        code = Code(int(name)) if name.isdigit() else Code[name]
    except (ValueError, KeyError):
        raise OperatorError(
            f"'{values['code']}' is no status code.", f"Use {', '.join(item.name for item in Code)}."
        ) from None
    if code is Code.OK:
        raise OperatorError("OK is no error.")
    until = world.now + values["for"] if values["for"] is not None else None
    method = targets.find_method(str(values["method"]))
    world.trouble.add(Rule(method, code, str(values["text"]), left=values["count"], until=until))
    return f"{method} answers {code.name}{_bound(values)}."


def _bound(values: Values) -> str:
    if values["count"] is not None:
        return f" for {values['count']} calls"
    return f" for {values['for']:g} s" if values["for"] is not None else " until `clear`"


def _clear(world: World, values: Values) -> str:
    return f"{world.trouble.clear()} errors and delays were taken away."


def _capacity(world: World, values: Values) -> str:
    zone, prefix = targets.find_zone(world, str(values["zone"])), targets.find_prefix(str(values["type"]))
    world.capacity[(zone, prefix)] = int(values["chips"])
    requests.allot(world)
    return f"{zone} has {values['chips']} chips of {prefix}, {world.free_chips(zone, prefix, '')} of them free."


def _reservation(world: World, values: Values) -> str:
    item = world.reservations.get(str(values["name"]))
    if item is None:
        raise OperatorError(
            f"There is no reservation '{values['name']}'.", f"There are: {', '.join(world.reservations)}."
        )
    world.resize_reservation(item, int(values["chips"]))
    requests.allot(world)
    free = world.free_chips(item.zone, item.type, item.name)
    return f"The reservation {item.name} has {values['chips']} chips of {item.type}, {free} of them free."


def _quota(world: World, values: Values) -> str:
    zone, prefix, kind = (
        targets.find_zone(world, str(values["zone"])),
        targets.find_prefix(str(values["type"])),
        str(values["kind"]),
    )
    if kind not in ("on-demand", "spot", "reserved"):
        raise OperatorError(f"'{kind}' is no kind of quota.", "Use on-demand, spot or reserved.")
    world.quotas[(zone, prefix, kind)] = int(values["chips"])
    held = admission.chips_held(world, zone, prefix, kind)
    return f"The quota for {kind} {prefix} in {zone} is {values['chips']} chips; {held} are held."


def _rate(world: World, values: Values) -> str:
    world.creates_per_minute = int(values["per_minute"])
    return f"{values['per_minute']} creates a minute are allowed." if values["per_minute"] else "Any rate is allowed."


_TARGET = Argument("target", "NAME, NAME/SLICE or NAME/SLICE/WORKER")
_CODE = Argument("--code", "google.rpc code", int, 13)
_MESSAGE = Argument("--message", "its text", str, refusals.internal_error().message)
_COUNT = Argument("--count", "for so many calls", int)
_FOR = Argument("--for", "for so many seconds", float)
_NAME = Argument("name", "a queued resource")

_ALL = (
    Fault(
        "preempt",
        "take the capacity of a queued resource or TPU VM",
        (Argument("target", "its name"), Argument("--notice", "seconds of UNHEALTHY_MAINTENANCE before", float)),
        _preempt,
    ),
    Fault(
        "fail",
        "FAILED at once",
        (_NAME, _CODE, _MESSAGE, Argument("--partial", "slices that are up stay", bool, False)),
        _fail,
    ),
    Fault(
        "spoil",
        "a provisioning that fails after minutes, or hangs, or comes up in part",
        (_NAME, Argument("--how", "fail, hang or partial", str, "fail"), _CODE, _MESSAGE),
        _spoil,
    ),
    Fault("release", "let slices that hang come up", (_NAME,), _release),
    Fault("repair", "replace one slice, restart the others", (Argument("target", "NAME/SLICE"),), _repair),
    Fault("lose", "nodes vanish under a live queued resource", (Argument("target", "NAME or NAME/SLICE"),), _lose),
    Fault(
        "maintenance",
        "announce a maintenance, or start one",
        (Argument("target", "NAME or NAME/SLICE"), Argument("--start", "it begins now", bool, False)),
        _maintenance,
    ),
    Fault(
        "unhealthy",
        "a node's health",
        (
            Argument("target", "NAME or NAME/SLICE"),
            Argument("--health", "the API's word", str, "UNHEALTHY_MAINTENANCE"),
            Argument("--description", "its text", str, nodes.PREEMPTION_DESCRIPTION),
        ),
        _unhealthy,
    ),
    Fault(
        "symptom",
        "the service notices something on a worker",
        (
            _TARGET,
            Argument("kind", "OUT_OF_MEMORY, HBM_OUT_OF_MEMORY, MESH_BUILD_FAIL ..."),
            Argument("--details", "its text", str, ""),
        ),
        _symptom,
    ),
    Fault("cut", "drop the connections of workers", (_TARGET,), _cut),
    Fault("freeze", "workers that answer nothing", (_TARGET, Argument("--for", "seconds", float, 10.0)), _freeze),
    Fault(
        "refuse",
        "workers that refuse connections",
        (_TARGET, Argument("--off", "accept again", bool, False)),
        _refuse,
    ),
    Fault(
        "reimage",
        "workers with another host key, as after a new boot disk",
        (
            _TARGET,
            Argument("--unserved", "the API goes on to serve the old key", bool, False),
            Argument("--serve", "only: the API serves the present key", bool, False),
        ),
        _reimage,
    ),
    Fault("reboot", "workers that reboot under a READY node", (_TARGET,), _reboot),
    Fault("down", "kill workers under a READY node", (_TARGET,), _down),
    Fault(
        "slow",
        "calls that take longer; `operations` for operations that end later",
        (
            Argument("method", "an RPC, a pattern, or `operations`"),
            Argument("seconds", "how much longer", float),
            _COUNT,
            _FOR,
        ),
        _slow,
    ),
    Fault(
        "error",
        "calls that fail",
        (
            Argument("method", "an RPC or a pattern of one, such as List*"),
            Argument("code", "UNAVAILABLE, 8 ..."),
            Argument("text", "the message"),
            _COUNT,
            _FOR,
        ),
        _error,
    ),
    Fault("clear", "take errors and delays of calls away", (), _clear),
    Fault(
        "capacity",
        "chips that a zone has",
        (Argument("zone", "a zone"), Argument("type", "v5litepod ..."), Argument("chips", "how many", int)),
        _capacity,
    ),
    Fault(
        "reservation",
        "chips of a reservation",
        (Argument("name", "its name"), Argument("chips", "how many", int)),
        _reservation,
    ),
    Fault(
        "quota",
        "a limit of chips, which dead requests count against too",
        (
            Argument("zone", "a zone"),
            Argument("type", "v5litepod ..."),
            Argument("kind", "on-demand, spot or reserved"),
            Argument("chips", "how many", int),
        ),
        _quota,
    ),
    Fault("rate", "creates that a project may make", (Argument("per_minute", "0: any", int),), _rate),
)
FAULTS = {fault.name: fault for fault in _ALL}
"""By name; `slicetower sim inject NAME` takes the arguments."""
