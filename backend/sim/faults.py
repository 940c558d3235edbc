"""Faults by command: each brings about one thing that operators of the real service have met, and says what it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.outcomes import OperatorError
from backend.sim import nodes, refusals, request_faults, service_faults, worker_faults
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
    choices: tuple[str, ...] = ()
    """The words that it may be; empty: any."""
    least: float = 0
    """The least that a number may be."""

    def judge(self, value: Any) -> None:
        """Raises OperatorError for a word or a number that means nothing here."""
        if self.choices and value not in self.choices:
            raise OperatorError(f"{self.name}: '{value}' is none of its words.", f"Use {', '.join(self.choices)}.")
        if isinstance(value, int | float) and not (math.isfinite(value) and value >= self.least):
            raise OperatorError(f"{self.name}: {value:g} is too small or no number.", f"At least {self.least:g}.")


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
    for argument in fault.arguments:
        if (value := values.get(argument.name.lstrip("-").replace("-", "_"))) is not None:
            argument.judge(value)
    return fault.apply(world, {**known, **{key: value for key, value in values.items() if value is not None}})


_TARGET = Argument("target", "NAME, NAME/SLICE or NAME/SLICE/WORKER")
_CODE = Argument("--code", "google.rpc code", int, 13)
_MESSAGE = Argument("--message", "its text", str, refusals.internal_error().message)
_COUNT = Argument("--count", "for so many calls", int, least=1)
_FOR = Argument("--for", "for so many seconds", float)
_NAME = Argument("name", "a queued resource")
_HEALTH = ("HEALTHY", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE")
"""Node.Health of the API."""
_SYMPTOMS = (
    "LOW_MEMORY",
    "OUT_OF_MEMORY",
    "EXECUTE_TIMED_OUT",
    "MESH_BUILD_FAIL",
    "HBM_OUT_OF_MEMORY",
    "PROJECT_ABUSE",
)
"""Symptom.SymptomType of the API."""

_ALL = (
    Fault(
        "preempt",
        "take the capacity of a queued resource or TPU VM",
        (Argument("target", "its name"), Argument("--notice", "seconds of UNHEALTHY_MAINTENANCE before", float)),
        request_faults.preempt,
    ),
    Fault(
        "fail",
        "FAILED at once",
        (_NAME, _CODE, _MESSAGE, Argument("--partial", "slices that are up stay", bool, False)),
        request_faults.fail,
    ),
    Fault(
        "spoil",
        "a provisioning that fails after minutes, or hangs, or comes up in part",
        (
            _NAME,
            Argument("--how", "fail, hang or partial", str, "fail", choices=("fail", "hang", "partial")),
            _CODE,
            _MESSAGE,
        ),
        request_faults.spoil,
    ),
    Fault("release", "let slices that hang come up", (_NAME,), request_faults.release),
    Fault(
        "repair", "replace one slice, restart the others", (Argument("target", "NAME/SLICE"),), request_faults.repair
    ),
    Fault("orphan", "a queued resource vanishes, its nodes stay", (_NAME,), request_faults.orphan),
    Fault(
        "lose",
        "nodes vanish under a live queued resource",
        (Argument("target", "NAME or NAME/SLICE"),),
        request_faults.lose,
    ),
    Fault(
        "maintenance",
        "announce a maintenance, or start one",
        (Argument("target", "NAME or NAME/SLICE"), Argument("--start", "it begins now", bool, False)),
        request_faults.maintenance,
    ),
    Fault(
        "unhealthy",
        "a node's health",
        (
            Argument("target", "NAME or NAME/SLICE"),
            Argument("--health", "the API's word", str, "UNHEALTHY_MAINTENANCE", choices=_HEALTH),
            Argument("--description", "its text", str, nodes.PREEMPTION_DESCRIPTION),
        ),
        request_faults.unhealthy,
    ),
    Fault(
        "symptom",
        "the service notices something on a worker",
        (
            _TARGET,
            Argument("kind", "OUT_OF_MEMORY, HBM_OUT_OF_MEMORY, MESH_BUILD_FAIL ...", choices=_SYMPTOMS),
            Argument("--details", "its text", str, ""),
        ),
        request_faults.symptom,
    ),
    Fault("cut", "drop the connections of workers", (_TARGET,), worker_faults.cut),
    Fault(
        "freeze",
        "workers that answer nothing",
        (_TARGET, Argument("--for", "seconds", float, 10.0)),
        worker_faults.freeze,
    ),
    Fault(
        "refuse",
        "workers that refuse connections",
        (_TARGET, Argument("--off", "accept again", bool, False)),
        worker_faults.refuse,
    ),
    Fault(
        "reimage",
        "workers with another host key, as after a new boot disk",
        (
            _TARGET,
            Argument("--unserved", "the API goes on to serve the old key", bool, False),
            Argument("--serve", "only: the API serves the present key", bool, False),
        ),
        worker_faults.reimage,
    ),
    Fault("reboot", "workers that reboot under a READY node", (_TARGET,), worker_faults.reboot),
    Fault("down", "kill workers under a READY node", (_TARGET,), worker_faults.down),
    Fault(
        "slow",
        "calls that take longer; `operations` for operations that end later",
        (
            Argument("method", "an RPC, a pattern, or `operations`"),
            Argument("seconds", "how much longer", float),
            Argument("--queued", "operations: creates wait so long before they begin", bool, False),
            _COUNT,
            _FOR,
        ),
        service_faults.slow,
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
        service_faults.error,
    ),
    Fault("clear", "take errors and delays of calls away", (), service_faults.clear),
    Fault(
        "capacity",
        "chips that a zone has",
        (Argument("zone", "a zone"), Argument("type", "v5litepod ..."), Argument("chips", "how many", int)),
        service_faults.capacity,
    ),
    Fault(
        "reservation",
        "chips of a reservation",
        (Argument("name", "its name"), Argument("chips", "how many", int)),
        service_faults.reservation,
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
        service_faults.quota,
    ),
    Fault("rate", "creates that a project may make", (Argument("per_minute", "0: any", int),), service_faults.rate),
)
FAULTS = {fault.name: fault for fault in _ALL}
"""By name; `slicetower sim inject NAME` takes the arguments."""
