"""Faults of workers themselves: connections, reboots, host keys. The service notices none of them.

Each changes the world and returns a sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from backend.sim import targets
from backend.sim.world import World

Values = Mapping[str, Any]


def _workers(found: Collection[str]) -> str:
    return f"{len(found)} worker{'' if len(found) == 1 else 's'}"


def cut(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.cut(address)
    return f"Cut the connections of {_workers(found)}; the processes live on."


def freeze(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.freeze(address, float(values["for"]))
    return f"No answer from {_workers(found)} for {values['for']:g} s."


def refuse(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.refuse(address, not values["off"])
    return f"New connections are {'accepted' if values['off'] else 'refused'} by {_workers(found)}."


def reimage(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        if values["unserved"]:
            world.served_keys.setdefault(address, world.machines.host_key(address))
        else:
            world.served_keys.pop(address, None)
        if not values["serve"]:
            world.machines.reimage(address)
    if values["serve"]:
        return f"The API serves the present host key of {_workers(found)}."
    served = "the API still serves the old one" if values["unserved"] else "the API serves it"
    return f"Another host key on {_workers(found)}; {served}."


def down(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.power_off(address, wipe=False)
    return f"Dead, and not noticed by the service: {_workers(found)}."


def reboot(world: World, values: Values) -> str:
    found = set(targets.find_addresses(world, str(values["target"])))
    for node in targets.find_nodes(world, str(values["target"])):
        for address in node.addresses:
            if address in found:
                world.machines.power_off(address, wipe=False)
                world.machines.boot(address, node.startup_script)
    return f"Rebooted, and not noticed by the service: {_workers(found)}."
