"""Scenarios: what a simulated world offers and what stands in it at the start, read from TOML.

Errors name the file and the key. Ages and delays are in seconds; `[delays]` are the service's own (speed shortens
them), ages are the clock's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from backend.model import NodeState, QueuedResourceState, Tier
from backend.outcomes import OperatorError
from jobs import accelerators

SCENARIO_PACKAGE = "backend.sim.scenarios"


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the real service takes, in its seconds (medians of field notes, section 2a, where they were seen)."""

    creating: float = 5
    accepted: float = 20
    waiting: float = 60
    """At least so long in WAITING_FOR_RESOURCES, even where capacity is free."""
    provisioning: float = 140
    """The slowest slice; the others come up to half of it earlier."""
    provisioning_failure: float = 270
    """PROVISIONING until FAILED 13 (3.5 to 5 minutes were seen)."""
    suspending: float = 60
    deleting: float = 90
    """A request with nodes (2 to 5 minutes are documented); one without takes a third."""
    restart: float = 90
    """Reset, stop, start and the restart of healthy slices (1 to 2 minutes)."""
    replacement: float = 180
    """A slice that is repaired."""
    preemption_notice: float = 100
    """READY with UNHEALTHY_MAINTENANCE until the capacity is taken (1 to 4 minutes)."""
    preempted_node: float = 400
    """So long a PREEMPTED node of a suspended request is still listed."""
    withdrawal: float = 120
    """From a delete with force that was refused in PROVISIONING until the capacity is withdrawn."""
    maintenance: float = 300
    update: float = 10
    """A patch of a node."""


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """What a zone offers: chips by type prefix (`v5litepod`)."""

    name: str
    capacity: Mapping[str, int] = field(default_factory=dict)
    flex: tuple[str, ...] = ()
    """Type prefixes that flex-start is offered for."""


@dataclass(frozen=True, slots=True)
class ReservationSpec:
    name: str
    zone: str
    type: str
    """Type prefix."""
    chips: int


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """A limit of chips for one zone, type prefix and kind (`on-demand`, `spot`, `reserved`)."""

    zone: str
    type: str
    kind: str
    chips: int


@dataclass(frozen=True, slots=True)
class StandingRequest:
    """A queued resource that exists at the start."""

    id: str
    zone: str
    accelerator_type: str
    state: QueuedResourceState
    slices: int = 1
    tier: Tier = Tier.ON_DEMAND
    runtime_version: str = ""
    age_s: float = 3600
    node_id: str = ""
    reservation: str = ""
    startup_script: str = ""
    ready_slices: int | None = None
    """Of a request in PROVISIONING or FAILED; all of an ACTIVE one."""
    hangs: bool = False
    """Stays in PROVISIONING until a fault or a delete moves it."""
    code: int = 13
    message: str = "an internal error has occurred"


@dataclass(frozen=True, slots=True)
class StandingNode:
    """A TPU VM that no queued resource owns."""

    id: str
    zone: str
    accelerator_type: str
    state: NodeState = NodeState.READY
    spot: bool = False
    runtime_version: str = ""
    age_s: float = 3600


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    project: str = "demo-project"
    project_number: str = "123456789012"
    zones: tuple[ZoneSpec, ...] = ()
    reservations: tuple[ReservationSpec, ...] = ()
    quotas: tuple[QuotaSpec, ...] = ()
    requests: tuple[StandingRequest, ...] = ()
    nodes: tuple[StandingNode, ...] = ()
    delays: Delays = Delays()
    creates_per_minute: int = 90
    """Project-wide (91 a minute was seen); 0: no limit. The clock's minutes."""
    spot_life_s: float = 0
    """Mean life of spot capacity in the service's seconds, drawn by chance; 0: taken only by a fault."""

    def zone(self, name: str) -> ZoneSpec | None:
        return next((zone for zone in self.zones if zone.name == name), None)


def packaged() -> tuple[str, ...]:
    """Names of the scenarios that come with the simulator."""
    folder = resources.files(SCENARIO_PACKAGE)
    return tuple(sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")))


def load(name_or_file: str) -> Scenario:
    """A packaged scenario by name, or a TOML file by its path.

    Raises:
        OperatorError: No such scenario, or something in it is wrong; file and key are named.
    """
    if name_or_file in packaged():
        text = (resources.files(SCENARIO_PACKAGE) / f"{name_or_file}.toml").read_text("utf-8")
        return parse(text, name_or_file, f"scenario {name_or_file}")
    path = Path(name_or_file)
    try:
        return parse(path.read_text("utf-8"), path.stem, str(path))
    except FileNotFoundError:
        raise OperatorError(
            f"There is no scenario '{name_or_file}'.", f"Use {', '.join(packaged())}, or the path of a TOML file."
        ) from None
    except OSError as error:
        raise OperatorError(f"The scenario file {path} cannot be read: {error.strerror}.") from error


def parse(text: str, name: str, source: str) -> Scenario:
    """Raises OperatorError with `source`, the key and the reason."""
    try:
        return _scenario(tomllib.loads(text), name)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError(f"{source} is not valid TOML: {error}.") from error
    except (TypeError, ValueError, KeyError) as error:
        reason = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise OperatorError(f"{source}: {reason}.") from error


def _scenario(data: Mapping[str, Any], name: str) -> Scenario:
    zones = tuple(_zone(item) for item in data.get("zones", ()))
    reservations = tuple(_made(ReservationSpec, item, "reservations") for item in data.get("reservations", ()))
    quotas = tuple(_made(QuotaSpec, item, "quotas") for item in data.get("quotas", ()))
    requests = tuple(_request(item) for item in data.get("requests", ()))
    nodes = tuple(_node(item) for item in data.get("nodes", ()))
    rest = {key: value for key, value in data.items() if key not in ("zones", "reservations", "quotas", "requests")}
    rest.pop("nodes", None)
    rest["delays"] = _made(Delays, data.get("delays", {}), "delays")
    rest.setdefault("name", name)
    parts = {"zones": zones, "reservations": reservations, "quotas": quotas, "requests": requests, "nodes": nodes}
    scenario: Scenario = _made(Scenario, {**rest, **parts}, "")
    _check_places(scenario)
    return scenario


def _made(kind: type[Any], item: Mapping[str, Any], where: str) -> Any:
    known = {each.name for each in fields(kind)}
    for key in item:
        if key not in known:
            raise ValueError(
                f"unknown key '{key}'{' in ' + where if where else ''} (known: {', '.join(sorted(known))})"
            )
    return kind(**item)


def _zone(item: Mapping[str, Any]) -> ZoneSpec:
    zone: ZoneSpec = _made(ZoneSpec, {**item, "flex": tuple(item.get("flex", ()))}, "zones")
    for prefix, chips in zone.capacity.items():
        generation = accelerators.generation(prefix)
        if generation is None or generation.type_prefix != prefix:
            raise ValueError(f"zone {zone.name}: '{prefix}' is not a type prefix")
        if not isinstance(chips, int) or chips < 0:
            raise ValueError(f"zone {zone.name}: {prefix} must be a number of chips, not {chips!r}")
    return zone


def _request(item: Mapping[str, Any]) -> StandingRequest:
    parsed = {**item, "state": QueuedResourceState(item["state"]), "tier": Tier(item.get("tier", "on-demand"))}
    request: StandingRequest = _made(StandingRequest, parsed, "requests")
    accelerators.parse(request.accelerator_type)
    return request


def _node(item: Mapping[str, Any]) -> StandingNode:
    node: StandingNode = _made(StandingNode, {**item, "state": NodeState(item.get("state", "READY"))}, "nodes")
    accelerators.parse(node.accelerator_type)
    return node


def _check_places(scenario: Scenario) -> None:
    used = {item.zone for item in scenario.requests} | {item.zone for item in scenario.nodes}
    used |= {item.zone for item in scenario.reservations} | {item.zone for item in scenario.quotas}
    for zone in sorted(used):
        if scenario.zone(zone) is None:
            raise ValueError(f"zone '{zone}' is used but not among [[zones]]")
