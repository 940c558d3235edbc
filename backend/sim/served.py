"""A simulator that serves: the world, its clock, its workers, both transports and the way for faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from backend.outcomes import OperatorError
from backend.sim import control, grpc_server, rest_server, standing
from backend.sim.api import Api
from backend.sim.clock import DEFAULT_SPEED, Agenda, WallClock
from backend.sim.hosting import HostedMachines
from backend.sim.scenario import Scenario
from backend.sim.workers import WorkerHost
from backend.sim.world import World

CONTEXT_FILE = "context.toml"
KEY_FILE = "id_ed25519"
DISKS = "workers"
"""The folder in which a WorkerHost keeps the disks of its workers."""
OPERATOR = "operator"
LABEL = "simulated"
LONGEST_SLEEP_S = 5.0
"""The wall clock may be set: look at it that often."""
STOP_LIMIT_S = 1.0
PARENT_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Simulator:
    """A simulator that is ready."""

    world: World
    host: WorkerHost
    directory: Path
    context_file: Path
    grpc: str
    """host:port"""
    rest: str
    """URL without a path."""
    ssh_port: int
    background: tuple[asyncio.Task[None], ...]
    """What keeps the world going: none of them may end while it is served."""

    def ready_line(self) -> str:
        """The one JSON line of `sim serve` (design, section 6)."""
        facts = {"ready": True, "context_file": str(self.context_file), "grpc": self.grpc, "rest": self.rest}
        return json.dumps({**facts, "pid": os.getpid(), "seed": self.world.seed})


@asynccontextmanager
async def running(
    directory: Path, scenario: Scenario, *, speed: float = DEFAULT_SPEED, seed: int = 0
) -> AsyncIterator[Simulator]:
    """Serves for as long as the context is open; at its end every process and connection of its workers is gone.

    Raises:
        OperatorError: Another simulator serves in the folder, the workers' socket could not be had, or (at the end) a
            process would not die.
    """
    directory = _prepared(directory)
    host = WorkerHost(directory, operator_public_key=_operator_key(directory / KEY_FILE))
    ssh_port = await host.start()
    machines = HostedMachines(host)
    world = World(scenario, Agenda(WallClock(), speed), machines, seed=seed)
    standing.set_up(world)
    api = Api(world)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(host.close)
        group = await stack.enter_async_context(_background())
        group.append(asyncio.create_task(machines.run()))
        group.append(asyncio.create_task(keep_time(world.agenda)))
        server, grpc_port = await grpc_server.serve(api)
        stack.push_async_callback(server.stop, STOP_LIMIT_S)
        token = secrets.token_urlsafe(24)
        application = rest_server.RestService(api).application(lambda app: control.add_routes(app, world, token))
        runner, rest_port = await rest_server.serve(application)
        stack.push_async_callback(runner.cleanup)
        simulator = Simulator(
            world,
            host,
            directory,
            directory / CONTEXT_FILE,
            f"127.0.0.1:{grpc_port}",
            f"http://127.0.0.1:{rest_port}",
            ssh_port,
            tuple(group),
        )
        written = {
            simulator.context_file: _context(simulator, scenario),
            directory / control.CONTROL_FILE: json.dumps({"port": rest_port, "token": token}) + "\n",
        }
        for path, text in written.items():
            write_private(path, text)
            stack.callback(path.unlink, missing_ok=True)
        yield simulator


@asynccontextmanager
async def _background() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep_time(agenda: Agenda) -> None:
    """Runs what is due, when it is due, until it is cancelled."""
    wake = asyncio.Event()
    agenda.changed = wake.set
    while True:
        wake.clear()
        agenda.run_due()
        due = agenda.next_due()
        wait = LONGEST_SLEEP_S if due is None else min(max(due - agenda.clock.now(), 0.0), LONGEST_SLEEP_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await wake.wait()


async def serve(
    directory: Path,
    scenario: Scenario,
    *,
    speed: float,
    seed: int,
    announce: Callable[[str], None],
    parent: int | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, or (with `parent`) until that process is gone.

    Args:
        announce: Gets the ready line.
        parent: Pid of the process that this one must not outlive.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with running(directory, scenario, speed=speed, seed=seed) as simulator:
        announce(simulator.ready_line())
        stopped = asyncio.create_task(stop.wait())
        poll_s = PARENT_POLL_S if parent is not None else None
        while parent is None or os.getppid() == parent:
            await asyncio.wait({stopped, *simulator.background}, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                break
            for task in simulator.background:
                if task.done():
                    task.result()
        stopped.cancel()


def _prepared(directory: Path) -> Path:
    """The folder, without the disks of an earlier world."""
    whole = directory.resolve()
    whole.mkdir(parents=True, exist_ok=True, mode=0o700)
    if control.is_served(whole):
        raise OperatorError(f"A simulator serves in {whole} already.", "Stop it, or give another folder.")
    shutil.rmtree(whole / DISKS, ignore_errors=True)
    return whole


def _operator_key(path: Path) -> str:
    """The operator's public key; the pair is made when there is none yet."""
    if path.exists():
        key = asyncssh.read_private_key(path)
    else:
        key = asyncssh.generate_private_key("ssh-ed25519", comment=OPERATOR)
        write_private(path, key.export_private_key().decode())
        write_private(path.with_suffix(".pub"), key.export_public_key().decode())
    return key.export_public_key().decode()


def _context(simulator: Simulator, scenario: Scenario) -> str:
    zones = ", ".join(json.dumps(zone.name) for zone in scenario.zones)
    lines = [
        'name = "demo"',
        f'label = "{LABEL}"',
        f"project = {json.dumps(scenario.project)}",
        f"zones = [{zones}]",
        f'endpoint = "{simulator.grpc}"',
        f'rest_endpoint = "{simulator.rest}"',
        f'compute_endpoint = "{simulator.rest}"',
        f'oslogin_endpoint = "{simulator.rest}"',
        'transport = "insecure"',
        'credentials = "none"',
        "",
        "[ssh]",
        f"port = {simulator.ssh_port}",
        f'user = "{OPERATOR}"',
        f'key = "{KEY_FILE}"',
    ]
    return "\n".join(lines) + "\n"


def write_private(path: Path, text: str) -> None:
    """Writes a file of mode 0600 in one step: readers see the old or the new one, whole."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
