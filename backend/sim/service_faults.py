"""Faults of the service: calls that fail or take long, and what zones and projects are given.

Each changes the world and returns a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.outcomes import OperatorError
from backend.sim import admission, requests, targets
from backend.sim.refusals import Code
from backend.sim.trouble import Rule
from backend.sim.world import World

Values = Mapping[str, Any]


def slow(world: World, values: Values) -> str:
    method, delay = str(values["method"]), float(values["seconds"])
    until = world.now + values["for"] if values["for"] is not None else None
    if method == "operations" and values["queued"]:
        world.trouble.hold_operations(delay, until if until is not None else float("inf"))
        return f"Creates begin {delay:g} s later; until then a cancel ends them."
    if method == "operations":
        world.trouble.slow_operations(delay, until if until is not None else float("inf"))
        return f"Operations end {delay:g} s after their work."
    world.trouble.add(Rule(targets.find_method(method), delay_s=delay, left=values["count"], until=until))
    return f"{method} takes {delay:g} s longer{_bound(values)}."


def error(world: World, values: Values) -> str:
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


def clear(world: World, values: Values) -> str:
    return f"{world.trouble.clear()} errors and delays were taken away."


def capacity(world: World, values: Values) -> str:
    zone, prefix = targets.find_zone(world, str(values["zone"])), targets.find_prefix(str(values["type"]))
    world.capacity[(zone, prefix)] = int(values["chips"])
    requests.allot(world)
    return f"{zone} has {values['chips']} chips of {prefix}, {world.free_chips(zone, prefix, '')} of them free."


def reservation(world: World, values: Values) -> str:
    item = world.reservations.get(str(values["name"]))
    if item is None:
        raise OperatorError(
            f"There is no reservation '{values['name']}'.", f"There are: {', '.join(world.reservations)}."
        )
    world.resize_reservation(item, int(values["chips"]))
    requests.allot(world)
    free = world.free_chips(item.zone, item.type, item.name)
    return f"The reservation {item.name} has {values['chips']} chips of {item.type}, {free} of them free."


def quota(world: World, values: Values) -> str:
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


def rate(world: World, values: Values) -> str:
    world.creates_per_minute = int(values["per_minute"])
    return f"{values['per_minute']} creates a minute are allowed." if values["per_minute"] else "Any rate is allowed."
