"""`forward`: a port of one worker as a port of this machine, for TensorBoard and the profiler. Bound to 127.0.0.1 alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncssh

from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.ssh.connections import ConnectionPool, Lease
from backend.targets import WorkerRef

LOCAL_HOST = "127.0.0.1"
ANSWER_TIMEOUT_S = 10.0
"""Of the question whether something listens there."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What is forwarded."""

    remote: int
    local: int
    """0: any free one."""

    @classmethod
    def parse(cls, text: str) -> Ports:
        """`6006` or `6006:7000` (the worker's, then ours; 0 is any free one).

        Raises:
            OperatorError: It is no port.
        """
        remote, colon, local = text.partition(":")
        numbers = [remote, local if colon else remote]
        if not all(each.isascii() and each.isdigit() and len(each) < 6 for each in numbers):
            raise OperatorError(f"'{plain(text)}' is no port.", "Write 6006, or 6006:7000 for another one here.")
        there, here = int(numbers[0]), int(numbers[1])
        if not 0 < there < 65_536 or here > 65_535:
            raise OperatorError(f"'{plain(text)}' is no port.", "Ports run from 1 to 65535.")
        return cls(there, here)


class Forward:
    """An open forward."""

    def __init__(self, worker: WorkerRef, ports: Ports, lease: Lease, listener: asyncssh.SSHListener) -> None:
        self.worker = worker
        self.ports = ports
        self._lease = lease
        self._listener = listener

    @property
    def local_port(self) -> int:
        return int(self._listener.get_port())

    @property
    def address(self) -> str:
        """127.0.0.1:PORT."""
        return f"{LOCAL_HOST}:{self.local_port}"

    async def answers(self) -> bool:
        """Whether something listens on the worker's port now: asked by a connection that is closed at once.

        Without that, a forward to nothing looks open, and whoever comes by it gets an empty reply.
        """
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                _, writer = await self._lease.connection.open_connection(LOCAL_HOST, self.ports.remote)
        except (OSError, asyncssh.Error):
            return False
        writer.close()
        return True

    async def lost(self) -> None:
        """Returns when the connection to the worker has ended."""
        await self._lease.connection.wait_closed()

    async def close(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()
        self._lease.release()


@asynccontextmanager
async def forward(pool: ConnectionPool, worker: WorkerRef, ports: Ports) -> AsyncIterator[Forward]:
    """A forward for as long as the block lasts.

    Raises:
        OperatorError: The worker can't be reached, or the local port is taken.
    """
    lease = await pool.lease(worker)
    try:
        listener = await lease.connection.forward_local_port(LOCAL_HOST, ports.local, LOCAL_HOST, ports.remote)
    except OSError as error:
        lease.release()
        raise OperatorError(
            f"Port {ports.local} of this machine can't be used: {error.strerror}.",
            f"Write {ports.remote}:0 for any free one, or {ports.remote}:PORT.",
        ) from error
    except asyncssh.Error as error:
        lease.release()
        raise OperatorError(
            f"{worker.address} does not forward ports.", exit_code=ExitCode.UNREACHABLE, raw=plain(str(error))
        ) from error
    opened = Forward(worker, ports, lease, listener)
    try:
        yield opened
    finally:
        await asyncio.shield(opened.close())
