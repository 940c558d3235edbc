"""A run manager over a real sshd or over simulated workers, as a console would have it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.paths import Paths
from backend.runs.manager import Run, RunManager, RunRequest
from backend.ssh.connections import ConnectionPool
from backend.ssh.hostkeys import HostKeySource
from backend.targets import WorkerRef
from tests.backend.openssh import FixedKeys, Sshd
from tests.backend.sim.worker_world import World


@dataclass
class Desk:
    """One console's worth of backend."""

    journal: Journal
    pool: ConnectionPool
    manager: RunManager
    workers: tuple[WorkerRef, ...]

    async def launch(self, *argv: str, workers: Sequence[WorkerRef] | None = None, **options: Any) -> Run:
        environment = options.pop("operator_environment", None)
        request = RunRequest(argv=argv, **options)
        plan = self.manager.plan(request, self.workers if workers is None else workers)
        return await self.manager.launch(plan, environment=environment)

    async def run(self, *argv: str, workers: Sequence[WorkerRef] | None = None, **options: Any) -> Run:
        """Launches, and waits for the end."""
        run = await self.launch(*argv, workers=workers, **options)
        await run.wait()
        return run

    async def close(self) -> None:
        await self.manager.close()
        await self.pool.close()
        self.journal.close()


def output(run: Run, index: int = 0) -> bytes:
    """Everything in one worker's log file."""
    path = run.log_path(index)
    return path.read_bytes() if path.exists() else b""


def make_desk(
    directory: Path, context: Context, keys: HostKeySource, workers: Sequence[WorkerRef], **pool_options: Any
) -> Desk:
    paths = Paths(directory / "config", directory / "state")
    journal = Journal.open(paths.journal)
    pool = ConnectionPool(context, keys, journal, **pool_options)
    return Desk(journal, pool, RunManager(pool, journal, paths, context=context.name), tuple(workers))


@asynccontextmanager
async def sshd_desk(directory: Path, server: Sshd, workers: Sequence[WorkerRef]) -> AsyncIterator[Desk]:
    """On a real sshd; its workers share one home."""
    desk = make_desk(directory / "desk", server.context(), FixedKeys([server.host_key]), workers)
    try:
        yield desk
    finally:
        await desk.close()


class WorldKeys:
    """The host keys of simulated workers, as the API would serve them."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> Sequence[str]:
        return [self._world.host.host_key(worker.external_ip)]


def refs(world: World) -> tuple[WorkerRef, ...]:
    return tuple(
        WorkerRef("p", "z", "train-a", 0, number, "train-a-0", "7001", address, address)
        for number, address in enumerate(world.addresses)
    )


def world_context(world: World) -> Context:
    return Context("sim", "p", ("z",), ssh=SSHSettings(port=world.port, user="operator", key=world.key_file))


@asynccontextmanager
async def world_desk(world: World, name: str = "desk", **pool_options: Any) -> AsyncIterator[Desk]:
    """On simulated workers: each has its own home, key and processes."""
    desk = make_desk(world.directory / name, world_context(world), WorldKeys(world), refs(world), **pool_options)
    try:
        yield desk
    finally:
        await desk.close()
