"""Whether an ssh server answers on workers, without logging in: the last piece of readiness, for screens.

A server greets (`SSH-2.0-...`) before any key is shown, so nothing of the operator's is used and nothing is left on the worker.
Asked only where workers are reached directly; who has greeted is not asked again as long as it is the same node.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from time import monotonic

from backend.context import Context
from backend.model import QueuedResource
from backend.targets import WorkerRef, workers_of

AT_ONCE = 16
MOST_WORKERS = 256
"""Of one request: for more, a look would be a storm, and `qr wait` asks them all."""
GREETING_S = 5.0
AGAIN_S = 15.0
"""Between two looks at a worker that did not greet: servers that are asked too often refuse for a while."""
DIRECT = frozenset({"external", "internal"})
NAMED = 3

Identity = tuple[str, str, int]


class Greetings:
    """What is known of the ssh servers of workers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._greeted: set[Identity] = set()
        self._silent: dict[Identity, tuple[float, str]] = {}
        """When it was last asked, and what was wrong."""
        self._asking: set[Identity] = set()

    def due(self, item: QueuedResource) -> bool:
        """Whether there is somebody to ask now."""
        return bool(self._wanted(item))

    def _wanted(self, item: QueuedResource) -> list[WorkerRef]:
        if self._context.ssh.route not in DIRECT or not item.ready:
            return []
        workers = workers_of(item)
        if len(workers) > MOST_WORKERS:
            return []
        now = monotonic()
        return [
            worker
            for worker in workers
            if (identity := _identity(worker)) not in self._greeted
            and identity not in self._asking
            and now - self._silent.get(identity, (float("-inf"), ""))[0] >= AGAIN_S
        ]

    async def ask(self, item: QueuedResource) -> None:
        """Asks those that are due, some at a time."""
        turns = asyncio.Semaphore(AT_ONCE)
        wanted = self._wanted(item)
        self._asking.update(map(_identity, wanted))
        try:
            await asyncio.gather(*(self._one(worker, turns) for worker in wanted))
        finally:
            self._asking.difference_update(map(_identity, wanted))

    async def _one(self, worker: WorkerRef, turns: asyncio.Semaphore) -> None:
        async with turns:
            why = await self._listen(worker)
        if why:
            self._silent[_identity(worker)] = (monotonic(), why)
        else:
            self._silent.pop(_identity(worker), None)
            self._greeted.add(_identity(worker))

    async def _listen(self, worker: WorkerRef) -> str:
        """Why it does not greet, in a few words; empty when it does."""
        host = worker.external_ip if self._context.ssh.route == "external" else worker.internal_ip
        if not host:
            return f"no {self._context.ssh.route} address"
        try:
            async with asyncio.timeout(GREETING_S):
                reader, writer = await asyncio.open_connection(host, self._context.ssh.port)
                try:
                    greeting = await reader.read(4)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return os.strerror(error.errno).lower() if error.errno else "not reachable"
        return "" if greeting == b"SSH-" else "connection closed" if not greeting else "no ssh server"

    def said(self, item: QueuedResource) -> str:
        """`ssh answers on 8 of 8 workers`, or which slice lacks it; empty where nobody is asked."""
        if self._context.ssh.route not in DIRECT or not item.ready:
            return ""
        workers = workers_of(item)
        if len(workers) > MOST_WORKERS:
            return f"whether ssh answers on {len(workers)} workers: `slicetower qr wait {item.name}` asks"
        lacking = self.lacking(item)
        if lacking:
            return lacking
        greeted = sum(_identity(worker) in self._greeted for worker in workers)
        return f"ssh answers on {greeted} of {len(workers)} workers"

    def lacking(self, item: QueuedResource) -> str:
        """Which slice of a ready request lacks ssh, as far as anybody asked; empty while nobody found one."""
        if not self._silent or not item.ready:
            return ""
        lacking: dict[int, list[WorkerRef]] = {}
        for worker in workers_of(item):
            if _identity(worker) in self._silent:
                lacking.setdefault(worker.slice_index, []).append(worker)
        return "; ".join(self._lacks(index, found) for index, found in sorted(lacking.items())[:NAMED])

    def _lacks(self, index: int, found: list[WorkerRef]) -> str:
        why = self._silent[_identity(found[0])][1]
        numbers = ", ".join(str(worker.worker_index) for worker in found[:NAMED])
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return f"slice {index}: no ssh on worker {numbers}{more} ({why})"


def _identity(worker: WorkerRef) -> Identity:
    return (worker.node_id, worker.uid, worker.worker_index)
