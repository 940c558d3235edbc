"""Whether ssh answers on workers: the last piece of readiness, which the cloud can't tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.outcomes import OperatorError
from backend.ssh.connections import ConnectionPool
from backend.ssh.handshake_errors import Reason, Unreachable
from backend.targets import WorkerRef

AT_ONCE = 256
"""Workers that are asked at a time; each is let go when it has answered, so open files are bounded too."""
LASTING = frozenset({Reason.PERMISSION, Reason.HOST_KEY})
"""After the boot grace of the pool, waiting mends neither a refused key nor a wrong host key."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A worker that could not be logged in to, and why."""

    worker: WorkerRef
    reason: str
    """In a few words: of the failure, or what is still being tried."""
    error: OperatorError | None = None
    """None: it did not answer in the time that there was."""

    @property
    def is_lasting(self) -> bool:
        """True when asking again will not help."""
        return isinstance(self.error, Unreachable) and self.error.reason in LASTING


Seen = Callable[[WorkerRef, Silent | None], None]
"""Told of each worker as soon as it has answered (None), or did not."""


class Answers:
    """Logs in to each worker once; who has answered is not asked again, as long as it is the same node."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._answered: set[tuple[str, str, int]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(
        self,
        workers: Sequence[WorkerRef],
        timeout_s: float,
        seen: Seen = lambda _worker, _silent: None,
        waits: Callable[[WorkerRef, str], None] = lambda _worker, _text: None,
    ) -> list[Silent]:
        """Those of the workers that do not let the operator in, in their order.

        Args:
            workers: All workers of a request.
            timeout_s: For all of it; who was not reached by then counts as silent.
            seen: Told of each as it goes on.
            waits: Told what a worker is waited for; the empty text when it is not any more.

        Raises:
            OperatorError: There is no usable key.
        """
        wanted = [worker for worker in workers if _identity(worker) not in self._answered]
        if not wanted:
            return []
        await self._pool.require_key()
        ends_at = asyncio.get_running_loop().time() + timeout_s

        async def one(worker: WorkerRef) -> Silent | None:
            silent = await self._one(worker, ends_at, waits)
            seen(worker, silent)
            return silent

        told = await asyncio.gather(*map(one, wanted))
        return [each for each in told if each is not None]

    async def _one(self, worker: WorkerRef, ends_at: float, waits: Callable[[WorkerRef, str], None]) -> Silent | None:
        was_open = self._pool.is_connected(worker)
        waiting = ""

        def keep(text: str) -> None:
            nonlocal waiting
            waiting = text or waiting
            waits(worker, text)

        try:
            async with asyncio.timeout_at(ends_at), self._turns:
                await self._pool.connection(worker, keep)
        except Unreachable as error:
            return Silent(worker, str(error.reason), error)
        except OperatorError as error:
            return Silent(worker, error.what, error)
        except TimeoutError:
            return Silent(worker, waiting or "no answer yet")
        self._answered.add(_identity(worker))
        if not was_open:
            await self._pool.disconnect(worker)
        return None


def _identity(worker: WorkerRef) -> tuple[str, str, int]:
    return (worker.node_id, worker.uid, worker.worker_index)


def told(silent: Sequence[Silent]) -> str:
    """`no ssh yet: slice 0: worker 2: network; slice 1: 5 workers: timeout`, by slice."""
    by_slice: dict[int, list[Silent]] = {}
    for each in silent:
        by_slice.setdefault(each.worker.slice_index, []).append(each)
    parts = []
    for index, items in sorted(by_slice.items())[:_NAMED_SLICES]:
        reasons = ", ".join(dict.fromkeys(item.reason for item in items))
        numbers = ",".join(str(item.worker.worker_index) for item in items[:_NAMED_WORKERS])
        who = f"worker {numbers}" if len(items) <= _NAMED_WORKERS else f"{len(items)} workers"
        parts.append(f"slice {index}: {who}: {reasons}")
    if len(by_slice) > _NAMED_SLICES:
        parts.append(f"and {len(by_slice) - _NAMED_SLICES} slices more")
    return f"no ssh yet: {'; '.join(parts)}"


_NAMED_SLICES = 4
_NAMED_WORKERS = 4
