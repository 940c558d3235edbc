"""The state of the simulated Cloud TPU and the look-ups in it. One place of truth for every transport.

What moves it: `requests` and `nodes` (rules in time), `admission` (what may be asked for), `faults` (what breaks).
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from backend.model import QueuedResourceState
from backend.sim import logins, refusals
from backend.sim.clock import Agenda
from backend.sim.entities import Key, Node, Operation, Request
from backend.sim.machines import Machine, Machines
from backend.sim.refusals import Json
from backend.sim.scenario import ReservationSpec, Scenario
from backend.sim.trouble import Trouble

OPERATIONS_KEPT = 5_000
"""Older ended operations are forgotten."""
SETTLING_S = 2.0
"""How often an operation looks whether its work is done, in the service's seconds."""
ADDRESSES_IN_BLOCK = 254
"""127.x.y.1 to 127.x.y.254."""


class World:
    """Everything that exists, and the clock that it lives by.

    Args:
        scenario: What zones offer; its standing requests are set up by `standing.set_up`.
        agenda: When things happen.
        machines: Who carries the workers.
        seed: Of all chance in the world.
    """

    def __init__(self, scenario: Scenario, agenda: Agenda, machines: Machines, *, seed: int = 0) -> None:
        self.scenario = scenario
        self.agenda = agenda
        self.machines = machines
        self.seed = seed
        self.random = random.Random(seed)
        self.delays = scenario.delays
        self.requests: dict[Key, Request] = {}
        self.nodes: dict[Key, Node] = {}
        self.operations: dict[str, Operation] = {}
        self.served_keys: dict[str, str] = {}
        """Address -> the host key that the API goes on to serve though the worker has another."""
        self.answered: dict[tuple[str, str], Operation] = {}
        """(verb with its target, request id) -> the operation that it started: a retry starts no second one."""
        self.capacity = {
            (zone.name, prefix): chips for zone in scenario.zones for prefix, chips in zone.capacity.items()
        }
        self.quotas = {(item.zone, item.type, item.kind): item.chips for item in scenario.quotas}
        self.reservations = {item.name: item for item in scenario.reservations}
        self.creates: deque[float] = deque()
        """Moments of the creates of the last minute."""
        self.creates_per_minute = scenario.creates_per_minute
        self.trouble = Trouble(agenda.clock)
        self.project_metadata: dict[str, str] = {}
        self.profiles: dict[str, list[str]] = {}
        """OS Login: account -> its public keys."""
        self.revision = 0
        self._addresses = itertools.count()

    @property
    def now(self) -> float:
        return self.agenda.clock.now()

    def spread(self, delay_s: float, share: float = 0.15) -> float:
        """A delay with some chance in it."""
        return delay_s * (1 + share * (2 * self.random.random() - 1))

    def touch(self, item: Request | Node) -> None:
        """Its views are out of date."""
        self.revision += 1
        item.revision = self.revision

    def request(self, project: str, zone: str, name: str) -> Request:
        """Raises Refusal (NOT_FOUND)."""
        found = self.requests.get((project, zone, name))
        if found is None:
            raise refusals.not_found(f"projects/{project}/locations/{zone}/queuedResources/{name}")
        return found

    def node(self, project: str, zone: str, node_id: str) -> Node:
        """Raises Refusal (NOT_FOUND)."""
        found = self.nodes.get((project, zone, node_id))
        if found is None:
            raise refusals.not_found(f"projects/{project}/locations/{zone}/nodes/{node_id}")
        return found

    def nodes_of(self, request: Request) -> list[Node]:
        """Its nodes that exist, in the order of its slices."""
        found = (self.nodes.get((request.project, request.zone, node_id)) for node_id in request.node_ids)
        return [node for node in found if node is not None and node.owner == request.name]

    def owner_of(self, node: Node) -> Request | None:
        return self.requests.get((node.project, node.zone, node.owner)) if node.owner else None

    def enter(
        self, request: Request, state: QueuedResourceState, initiator: str = "", error: Json | None = None
    ) -> None:
        """Changes the state of a request."""
        request.state = state
        request.initiator = initiator
        request.error = error
        request.entered_at = self.now
        self.touch(request)

    def enter_node(self, node: Node, state: str, health: str = "") -> None:
        """Changes the state of a node."""
        node.state = state
        node.health = health
        node.health_description = ""
        self.touch(node)

    def new_uid(self) -> int:
        return self.random.randrange(10**18, 9 * 10**18)

    def new_addresses(self, count: int) -> tuple[str, ...]:
        """Addresses of 127.0.0.0/8 that no worker has or had; 127.0.x.y are left to others."""
        made = []
        for number in itertools.islice(self._addresses, count):
            block, last = divmod(number, ADDRESSES_IN_BLOCK)
            second, third = divmod(block, 256)
            made.append(f"127.{1 + second}.{third}.{1 + last}")
        return tuple(made)

    def machines_of(self, node: Node) -> tuple[Machine, ...]:
        """What its workers are to be."""
        chips = node.accelerator.chips_per_worker
        environment = (("JAX_PLATFORMS", "cpu"), ("JAX_NUM_CPU_DEVICES", str(chips)))
        return tuple(
            Machine(
                address=address,
                node_uid=str(node.uid),
                node_id=node.node_id,
                slice_index=node.slice_index,
                worker_index=index,
                hostname=hostname(node, index),
                chips=chips,
                environment=environment,
                authorized_keys=self.keys_of(node),
            )
            for index, address in enumerate(node.addresses)
        )

    def keys_of(self, node: Node) -> tuple[str, ...]:
        """The `user:KEY` lines that its workers let in: its own and the project's, or with OS Login those of the profiles."""
        if logins.is_on(node.metadata.get("enable-oslogin", self.project_metadata.get("enable-oslogin", ""))):
            return logins.lines(self.profiles)
        texts = [node.metadata.get("ssh-keys", "")]
        if not logins.is_on(node.metadata.get("block-project-ssh-keys", "")):
            texts.append(self.project_metadata.get("ssh-keys", ""))
        return tuple(line.strip() for text in texts for line in text.splitlines() if ":" in line)

    def authorize_all(self) -> None:
        """Who may log in has changed for the whole project."""
        for node in self.nodes.values():
            for address in node.addresses:
                self.machines.authorize(address, self.keys_of(node))

    def free_chips(self, zone: str, prefix: str, reservation: str) -> int:
        """Chips that nothing lives on, in a reservation or (with an empty name) in the zone's common pool."""
        if reservation:
            pool = self.reservations.get(reservation)
            total = pool.chips if pool is not None else 0
        else:
            total = self.capacity.get((zone, prefix), 0)
        used = sum(
            node.accelerator.chips
            for node in self.nodes.values()
            if node.zone == zone
            and node.accelerator.generation.type_prefix == prefix
            and node.reservation == reservation
            and not node.released
        )
        return total - used

    def resize_reservation(self, item: ReservationSpec, chips: int) -> None:
        """Gives a reservation more or fewer chips; what lives on it stays."""
        self.reservations[item.name] = replace(item, chips=chips)

    def start_operation(self, verb: str, project: str, zone: str, target: str, api_version: str) -> Operation:
        """A new operation that is not done."""
        stamp = int(self.now * 1000)
        parts = (self.random.getrandbits(52), self.random.getrandbits(32), self.random.getrandbits(32))
        operation_id = f"operation-{stamp}-{parts[0]:013x}-{parts[1]:08x}-{parts[2]:08x}"
        operation = Operation(project, zone, operation_id, verb, target, api_version, self.now)
        operation.empty_response = verb == "delete" and "/nodes/" in target
        self.operations[operation.name] = operation
        if len(self.operations) > OPERATIONS_KEPT:
            ended = [name for name, item in self.operations.items() if item.done]
            for name in ended[: len(self.operations) - OPERATIONS_KEPT]:
                del self.operations[name]
        return operation

    def end_operation(self, operation: Operation, error: Json | None = None) -> None:
        """Marks it done, once; slow operations (a fault) end later."""
        extra = self.trouble.operation_delay()
        if extra > 0:
            self.agenda.at(self.now + extra, lambda: self._end(operation, error))
        else:
            self._end(operation, error)

    def cancel(self, operation: Operation) -> None:
        """Ends it as CANCELLED if its work has not begun."""
        if operation.undo is not None:
            operation.undo()
            operation.undo = None
            self._end(operation, refusals.cancelled().to_status())

    def end_when(self, operation: Operation, reached: Callable[[], bool]) -> None:
        """Ends it as soon as `reached` says so, looked at every other second of the service's."""

        def look() -> None:
            if reached():
                self.end_operation(operation)
            elif not operation.done:
                self.agenda.after(SETTLING_S, look)

        self.agenda.after(SETTLING_S, look)

    def _end(self, operation: Operation, error: Json | None) -> None:
        if operation.ended_at is None:
            operation.ended_at = self.now
            operation.error = error


def hostname(node: Node, index: int) -> str:
    """The instance's name, as the service forms it."""
    return f"t1v-n-{node.uid % 2**32:08x}-w-{index}"
