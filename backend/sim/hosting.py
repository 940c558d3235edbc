"""The world's machines as real workers: what the world asks for at once is carried out by the WorkerHost, in order."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from backend.outcomes import OperatorError
from backend.sim.machines import Machine
from backend.sim.workers import SimWorker, WorkerHost

ORDER_LIMIT_S = 60.0
"""One order to one machine; killing what will not die gives up long before."""
ORDERS_AT_ONCE = 256

Order = Callable[[], Coroutine[Any, Any, None]]


class HostedMachines:
    """Machines of a WorkerHost. `run` has to run for as long as the world lives."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host
        self._specs: dict[str, SimWorker] = {}
        self._orders: dict[str, deque[Order]] = {}
        """Orders that are left, by address; an address stands here for as long as somebody carries them out."""
        self._new: list[str] = []
        """Addresses that nobody works for yet."""
        self._wake = asyncio.Event()
        self._at_once = asyncio.Semaphore(ORDERS_AT_ONCE)

    async def run(self) -> None:
        """Carries out orders until it is cancelled: those to one address one after the other, others side by side."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                addresses, self._new = self._new, []
                for address in addresses:
                    group.create_task(self._work_for(address))

    async def _work_for(self, address: str) -> None:
        orders = self._orders[address]
        async with self._at_once:
            while orders:
                order = orders.popleft()
                try:
                    async with asyncio.timeout(ORDER_LIMIT_S):
                        await order()
                except (OperatorError, TimeoutError, OSError) as error:
                    print(f"simulated worker {address}: {error}", file=sys.stderr, flush=True)
        del self._orders[address]

    def _order(self, address: str, order: Order) -> None:
        if address in self._orders:
            self._orders[address].append(order)
            return
        self._orders[address] = deque([order])
        self._new.append(address)
        self._wake.set()

    def add(self, machine: Machine) -> None:
        spec = SimWorker(
            address=machine.address,
            node_uid=machine.node_uid,
            node_id=machine.node_id,
            slice_index=machine.slice_index,
            worker_index=machine.worker_index,
            hostname=machine.hostname,
            chips=machine.chips,
            environment=dict(machine.environment),
            authorized_keys=machine.authorized_keys,
        )
        self._specs[machine.address] = spec
        self._host.add(spec)

    def boot(self, address: str, startup_script: str | None) -> None:
        async def order() -> None:
            if address in self._specs:
                await self._host.boot(address, startup_script)

        self._order(address, order)

    def power_off(self, address: str, *, wipe: bool) -> None:
        if wipe and self._specs.pop(address, None) is None:
            return

        async def order() -> None:
            if wipe:
                await self._host.remove(address)
            else:
                await self._host.power_off(address, wipe=False)

        self._order(address, order)

    def authorize(self, address: str, keys: tuple[str, ...]) -> None:
        spec = self._specs.get(address)
        if spec is not None:
            self._specs[address] = replace(spec, authorized_keys=keys)
            self._host.add(self._specs[address])

    def host_key(self, address: str) -> str:
        return self._host.host_key(address)

    def reimage(self, address: str) -> None:
        self._order(address, lambda: self._host.reimage(address))

    def cut(self, address: str) -> None:
        self._order(address, lambda: self._host.cut(address))

    def freeze(self, address: str, seconds: float) -> None:
        self._host.freeze(address, seconds)

    def refuse(self, address: str, refused: bool) -> None:
        self._host.refuse(address, refused)
