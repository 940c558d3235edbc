"""`slicetower sim`: serve a simulated Cloud TPU, and inject faults into one that runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
from pathlib import Path

from backend.outcomes import ExitCode, OperatorError

FASTEST = 10_000.0
SEEDS = 2**31
"""Of chance that nobody asked for: node ids differ from run to run then, as the service's do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from backend.sim import fault_words
    from backend.sim.clock import DEFAULT_SPEED
    from backend.sim.faults import FAULTS
    from backend.sim.scenario import packaged

    verbs = parser.add_subparsers(dest="sim_verb", required=True, metavar="VERB")
    serve = verbs.add_parser("serve", help="serve until stopped; prints one JSON line when ready")
    serve.add_argument("--dir", required=True, type=Path, metavar="DIR", help="its folder: context.toml, keys, homes")
    serve.add_argument(
        "--seed", type=int, help="of all chance in it (default: another one each time; the line names it)"
    )
    serve.add_argument("--speed", type=float, default=DEFAULT_SPEED, metavar="X", help="delays are shortened so much")
    serve.add_argument(
        "--scenario",
        default="default",
        metavar="S",
        help=f"{', '.join(packaged())}, or a TOML file (default: default)",
    )
    serve.add_argument(
        "--exit-with-parent",
        type=int,
        nargs="?",
        const=0,
        metavar="PID",
        help="end when the process that started it is gone (PID: its own, if it may die before this one is up)",
    )
    inject = verbs.add_parser("inject", help="bring a fault about")
    inject.add_argument("--dir", required=True, type=Path, metavar="DIR", help="the folder of the simulator")
    kinds = inject.add_subparsers(dest="fault", required=True, metavar="FAULT")
    for fault in FAULTS.values():
        own = kinds.add_parser(fault.name, help=fault.help, description=fault.help)
        fault_words.add_arguments(own, fault)


def main(arguments: argparse.Namespace) -> int:
    if arguments.sim_verb == "inject":
        return _inject(arguments)
    return _serve(arguments)


def _inject(arguments: argparse.Namespace) -> int:
    from backend.sim import control, fault_words

    fault = fault_words.find(arguments.fault)
    print(control.inject(arguments.dir, fault.name, fault_words.values_of(fault, arguments)))
    return ExitCode.OK


def _serve(arguments: argparse.Namespace) -> int:
    from backend.sim import scenario, served

    if not 0 < arguments.speed <= FASTEST:
        raise OperatorError(f"The speed must be above 0 and at most {FASTEST:g}, and is {arguments.speed:g}.")
    loaded = scenario.load(arguments.scenario)
    parent = None if arguments.exit_with_parent is None else arguments.exit_with_parent or os.getppid()
    work = served.serve(
        arguments.dir,
        loaded,
        speed=arguments.speed,
        seed=secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed,
        announce=lambda line: print(line, flush=True),
        parent=parent,
    )
    asyncio.run(work)
    return ExitCode.OK
