"""`slicetower forward TARGET PORT[:LOCAL]`: a worker's port on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.targets import WorkerRef
from backend.tools.forward import Ports, forward
from backend.tower import Tower
from tui.cli.output import add_format, print_json
from tui.cli.session import context_of, on_interrupt, open_tower, say, workers_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Forwards a port of one worker to 127.0.0.1 of this machine, as for TensorBoard or the profiler. "
        "Ctrl-C ends it, with 130; exits with 3 when the connection is lost."
    )
    parser.add_argument("target", metavar="TARGET", help="one worker, such as train-a/0/0")
    parser.add_argument("ports", metavar="PORT[:LOCAL]", help="the worker's port, then ours: 6006, 6006:7000, 6006:0")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    ports = Ports.parse(arguments.ports)
    return asyncio.run(_main(arguments, context_of(arguments), ports))


async def _main(arguments: argparse.Namespace, context: Context, ports: Ports) -> int:
    async with open_tower(context) as tower:
        workers = await workers_for(tower, [arguments.target])
        if len(workers) > 1:
            raise OperatorError(
                f"'{arguments.target}' is {len(workers)} workers, and a port is of one.",
                f"Name one, such as {workers[0].address}.",
            )
        return await _hold(tower, workers[0], ports, arguments.format)


async def _hold(tower: Tower, worker: WorkerRef, ports: Ports, form: str) -> int:
    interrupted = asyncio.Event()
    with on_interrupt(interrupted.set):
        async with forward(tower.pool, worker, ports) as opened:
            if form == "json":
                told = {"target": worker.address, "remote_port": ports.remote, "local": opened.address}
                print_json({"ready": True, **told})
            else:
                print(f"{opened.address} is port {ports.remote} of {worker.address}", flush=True)
                say("Ctrl-C ends it")
            waits = [asyncio.ensure_future(interrupted.wait()), asyncio.ensure_future(opened.lost())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
    if not interrupted.is_set():
        say(f"the connection to {worker.address} was lost")
        return ExitCode.UNREACHABLE
    return ExitCode.INTERRUPTED
