"""Simulated worlds for tests: one with a clock that the test turns, one that serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from backend.sim import standing
from backend.sim.api import Api
from backend.sim.clock import Agenda, ManualClock
from backend.sim.machines import Machine
from backend.sim.refusals import Json, Refusal
from backend.sim.scenario import Scenario, load
from backend.sim.world import World

PROJECT = "demo-project"
ZONE = "us-west4-a"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
SPEED = 1000.0
"""Of served simulators in tests: a request is ACTIVE after a quarter of a second."""
LIMIT_S = 90.0


@dataclass
class RememberedMachines:
    """Machines without processes: they remember what was asked of them. For rules that need no real worker."""

    machines: dict[str, Machine] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(what, address), in order."""
    scripts: list[tuple[str, str]] = field(default_factory=list)
    """(address, startup script), one entry for each boot that had one."""
    refused: set[str] = field(default_factory=set)

    def add(self, machine: Machine) -> None:
        self.machines[machine.address] = machine
        self.calls.append(("add", machine.address))

    def boot(self, address: str, startup_script: str | None) -> None:
        self.running.add(address)
        self.calls.append(("boot", address))
        if startup_script:
            self.scripts.append((address, startup_script))

    def power_off(self, address: str, *, wipe: bool) -> None:
        self.running.discard(address)
        if wipe:
            self.machines.pop(address, None)
        self.calls.append(("wipe" if wipe else "power_off", address))

    def authorize(self, address: str, keys: tuple[str, ...]) -> None:
        self.calls.append(("authorize", address))

    def host_key(self, address: str) -> str:
        image = self.calls.count(("reimage", address)) or ""
        return f"ssh-ed25519 key-of-{self.machines[address].node_uid}-{self.machines[address].worker_index}{image}"

    def reimage(self, address: str) -> None:
        self.calls.append(("reimage", address))

    def cut(self, address: str) -> None:
        self.calls.append(("cut", address))

    def freeze(self, address: str, seconds: float) -> None:
        self.calls.append(("freeze", address))

    def refuse(self, address: str, refused: bool) -> None:
        (self.refused.add if refused else self.refused.discard)(address)
        self.calls.append(("refuse" if refused else "accept", address))


class Turned:
    """A world whose clock is turned by `advance`, in the service's own seconds."""

    def __init__(self, scenario: Scenario | str = "empty", *, seed: int = 1) -> None:
        self.machines = RememberedMachines()
        loaded = load(scenario) if isinstance(scenario, str) else scenario
        self.world = World(loaded, Agenda(ManualClock(), 1.0), self.machines, seed=seed)
        standing.set_up(self.world)
        self.api = Api(self.world)
        self.advance(0)

    def advance(self, seconds: float) -> None:
        self.world.agenda.advance(seconds)

    def call(self, method: str, version: str = "v2alpha1", **request: Any) -> Json:
        return self.api.answer(method, version, request, rest=True)

    def refused(self, method: str, version: str = "v2alpha1", **request: Any) -> Refusal:
        """The refusal of a call that has to be refused."""
        try:
            answer = self.call(method, version, **request)
        except Refusal as refusal:
            return refusal
        raise AssertionError(f"{method} was not refused: {answer}")

    def create(self, name: str, slices: int = 2, *, accelerator: str = "v5litepod-16", **more: Any) -> Json:
        zone = more.pop("zone", ZONE)
        request_id = more.pop("requestId", "")
        body = request_body(name, slices, accelerator=accelerator, **more)
        parent = f"projects/{PROJECT}/locations/{zone}"
        return self.call(
            "CreateQueuedResource", parent=parent, queuedResourceId=name, queuedResource=body, requestId=request_id
        )

    def active(self, name: str, slices: int = 2, **more: Any) -> None:
        self.create(name, slices, **more)
        self.advance(400)
        assert self.state(name) == "ACTIVE"

    def name(self, name: str) -> str:
        return f"{PARENT}/queuedResources/{name}"

    def get(self, name: str) -> Json:
        return self.call("GetQueuedResource", name=self.name(name))

    def state(self, name: str) -> str:
        return str(self.get(name)["state"]["state"])

    def node(self, node_id: str) -> Json:
        return self.call("GetNode", name=f"{PARENT}/nodes/{node_id}")

    def operation(self, started: Json) -> Json:
        """As it is now."""
        return self.call("GetOperation", name=started["name"])


def request_body(name: str, slices: int = 2, *, accelerator: str = "v5litepod-16", **more: Any) -> Json:
    """A queued resource as v2alpha1 takes it."""
    node: Json = {"acceleratorType": accelerator, "runtimeVersion": more.pop("runtime", "v2-alpha-tpuv5-lite")}
    if script := more.pop("startup_script", ""):
        node["metadata"] = {"startup-script": script}
    spec: Json = {"parent": PARENT, "node": node}
    if slices > 1:
        spec["multiNodeParams"] = {"nodeCount": slices, "nodeIdPrefix": name}
    else:
        spec["nodeId"] = name
    return {"tpu": {"nodeSpec": [spec]}, **more}


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Waits until a state is reached, with a bound."""
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {LIMIT_S} s: {what}"
        await asyncio.sleep(0.02)
