"""Faults of workers themselves: connections, reboots, host keys. The service notices none of them.

Each changes the world and returns a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.sim import targets
from backend.sim.world import World

Values = Mapping[str, Any]


def cut(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.cut(address)
    return f"The connections of {len(found)} workers were cut; their processes live on."


def freeze(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.freeze(address, float(values["for"]))
    return f"{len(found)} workers answer nothing for {values['for']:g} s."


def refuse(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.refuse(address, not values["off"])
    return f"{len(found)} workers {'accept' if values['off'] else 'refuse'} new connections."


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
        return f"The API serves the present host keys of {len(found)} workers."
    served = "the API still serves the old one" if values["unserved"] else "the API serves it"
    return f"{len(found)} workers have another host key; {served}."


def down(world: World, values: Values) -> str:
    found = targets.find_addresses(world, str(values["target"]))
    for address in found:
        world.machines.power_off(address, wipe=False)
    return f"{len(found)} workers are dead, and the service has not noticed."


def reboot(world: World, values: Values) -> str:
    found = set(targets.find_addresses(world, str(values["target"])))
    for node in targets.find_nodes(world, str(values["target"])):
        for address in node.addresses:
            if address in found:
                world.machines.power_off(address, wipe=False)
                world.machines.boot(address, node.startup_script)
    return f"{len(found)} workers rebooted, and the service has not noticed."
