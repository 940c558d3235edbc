"""Ports of workers that are open on this machine: they outlive the screen that opened them, and end with the console."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from textual.worker import Worker

from backend.outcomes import OperatorError
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.ssh.connections import ConnectionPool
    from backend.targets import WorkerRef
    from backend.tools.forward import Forward, Ports

Begin = Callable[[Coroutine[Any, Any, None]], Worker[None]]
OPENING, OPEN, LOST, REFUSED, CLOSED = "opening", "open", "lost", "refused", "closed"
ASK_AGAIN_S = 3.0
"""Between two looks whether something listens there by now."""


@dataclass(slots=True)
class OpenForward:
    """One forward, from the wish on."""

    id: int
    worker: WorkerRef
    ports: Ports
    since: datetime = field(default_factory=utc_now)
    state: str = OPENING
    local: str = ""
    """127.0.0.1:PORT, once it is open."""
    error: str = ""
    work: Worker[None] | None = None

    @property
    def url(self) -> str:
        """What a browser is given; empty while it is not open."""
        return f"http://{self.local}" if self.state == OPEN else ""


class Forwards:
    """All of them, in the order of their opening.

    Args:
        begin: Runs a coroutine for as long as the context is open.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._numbers = count(1)
        self.items: list[OpenForward] = []
        self.version = 0

    @property
    def living(self) -> list[OpenForward]:
        return [each for each in self.items if each.state in (OPENING, OPEN)]

    def open(self, pool: ConnectionPool, worker: WorkerRef, ports: Ports) -> OpenForward:
        """Begins one; the same one that is open already is given back."""
        for each in self.living:
            if each.worker.address == worker.address and each.ports == ports:
                return each
        item = OpenForward(next(self._numbers), worker, ports)
        self.items.append(item)
        self.version += 1
        item.work = self._begin(self._hold(pool, item))
        return item

    def again(self, pool: ConnectionPool, item: OpenForward, worker: WorkerRef) -> OpenForward:
        """Opens one anew that was lost, closed or refused, in its place."""
        self.items.remove(item)
        return self.open(pool, worker, item.ports)

    async def _hold(self, pool: ConnectionPool, item: OpenForward) -> None:
        from backend.tools.forward import forward

        try:
            async with forward(pool, item.worker, item.ports) as opened:
                self._set(item, OPEN, local=opened.address)
                await self._watch(item, opened)
                self._set(item, LOST, error="The connection to the worker was lost.")
        except OperatorError as error:
            self._set(item, REFUSED, error=str(error))
        finally:
            if item.state in (OPENING, OPEN):
                self._set(item, CLOSED)

    async def _watch(self, item: OpenForward, opened: Forward) -> None:
        """Until its connection is lost; says meanwhile that nothing listens there, as long as nothing does."""
        lost = asyncio.ensure_future(opened.lost())
        try:
            while not lost.done() and not await opened.answers():
                if not item.error:
                    self._set(item, OPEN, error=f"Nothing listens on port {item.ports.remote} there yet.")
                await asyncio.wait([lost], timeout=ASK_AGAIN_S)
            if item.error:
                self._set(item, OPEN)
            await lost
        finally:
            lost.cancel()

    def _set(self, item: OpenForward, state: str, *, local: str = "", error: str = "") -> None:
        item.state, item.error = state, error
        item.local = local or item.local
        self.version += 1

    def close(self, item: OpenForward) -> None:
        """Closes one; one that is over already is forgotten."""
        if item in self.living and item.work is not None:
            item.work.cancel()
        else:
            self.items.remove(item)
            self.version += 1
