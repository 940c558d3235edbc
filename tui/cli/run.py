"""`slicetower run TARGET... -- COMMAND...`: a command on workers, with the truth about each."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.runs import bundles
from backend.runs.bundles import Bundle
from backend.runs.fanout import exit_code
from backend.runs.live import Run
from backend.runs.model import RunPlan, RunRequest
from backend.sanitize import plain
from backend.targets import fold
from backend.tower import Tower
from tui.cli.interrupts import Interrupts
from tui.cli.output import add_format, print_json
from tui.cli.places import seconds_argument
from tui.cli.run_report import (
    LiveLines,
    print_ending,
    print_groups,
    print_unrecorded,
    print_worker_json,
    summary_json,
)
from tui.cli.session import context_of, on_interrupt, open_tower, say, workers_for
from tui.cli.symptoms import Warner
from tui.wording import count

TAKES_COMMAND = True

TICK_S = 0.1
"""How often new output is printed and ended workers are told."""
PROGRESS_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs a command on every worker of the targets. Its words go over literally."
    parser.usage = "slicetower run TARGET... [options] -- COMMAND..."
    parser.add_argument(
        "targets", nargs="+", metavar="TARGET", help="train-a, train-a/0, train-a/*/0, train-a/0-3/0,2"
    )
    parser.add_argument("--batch-size", default="all", metavar="N|all|LIST", help="4, all, or a canary list 1,5,25%%")
    parser.add_argument("--on-failure", default="stop", choices=("stop", "continue"), help="whether batches go on")
    parser.add_argument(
        "--max-failures", metavar="N", help="failures that are allowed before batches stop: 3 or 10%%"
    )
    parser.add_argument(
        "--timeout", type=seconds_argument, metavar="S", help="for the command on each worker: 90, 45m, 1h30m"
    )
    parser.add_argument("--detach", action="store_true", help="start it, and leave it to its supervisor")
    parser.add_argument("--gang", action="store_true", help="its workers wait for each other: refuse smaller batches")
    parser.add_argument("--force", action="store_true", help="run what would be refused as a gang in batches")
    parser.add_argument("--sync", type=Path, metavar="DIR", help="ship DIR first, and run in its copy")
    parser.add_argument("--setup", default="", metavar="CMD", help="once per content and boot, before the command")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="K[=V]",
        help="a variable; without a value it is taken from your environment and never stored",
    )
    parser.add_argument("--shell", action="store_true", help="the command is one text for the worker's shell")
    parser.add_argument(
        "--stream", action="store_true", help="print lines as they come instead of grouped at the end"
    )
    parser.add_argument("--raw", action="store_true", help="with --stream: bytes as they are, controls and all")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and send nothing")
    parser.add_argument("--title", default="", help="a name for the run")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    if not arguments.command:
        raise OperatorError("The command is empty.", "Write it after `--`: slicetower run TARGET -- hostname")
    if arguments.raw and (not arguments.stream or arguments.format == "json"):
        raise OperatorError(
            "--raw is for --stream as text alone: grouped output and JSON go through the gate.",
            "Add --stream and leave --format out; `slicetower logs ID TARGET --raw` has the bytes of one worker later.",
        )
    context = context_of(arguments, changes="" if arguments.dry_run else "run")
    return asyncio.run(_main(arguments, context))


async def _main(arguments: argparse.Namespace, context: Context) -> int:
    bundle = await asyncio.to_thread(bundles.from_directory, arguments.sync) if arguments.sync else None
    request = _request(arguments, bundle)
    async with open_tower(context) as tower:
        workers = await workers_for(tower, arguments.targets)
        plan = tower.runs.plan(request, workers)
        for warning in plan.warnings:
            say(f"warning: {warning}")
        if arguments.dry_run:
            return _tell_plan(plan, arguments.format)
        run = await tower.runs.launch(plan, follow=not request.detach)
        say(f"run {run.id} on {count(len(workers), 'worker')}: {fold(worker.address for worker in workers)}")
        if bundle is not None:
            say(f"ships {bundle.report}")
        return await follow(tower, run, arguments)


def _request(arguments: argparse.Namespace, bundle: Bundle | None) -> RunRequest:
    given: list[tuple[str, str]] = []
    secret: list[str] = []
    for text in arguments.env:
        name, equals, value = text.partition("=")
        if equals:
            given.append((name, value))
        else:
            secret.append(name)
    return RunRequest(
        argv=tuple(arguments.command),
        shell=arguments.shell,
        batch=arguments.batch_size,
        on_failure=arguments.on_failure,
        max_failures=arguments.max_failures,
        timeout_s=arguments.timeout,
        detach=arguments.detach,
        gang=arguments.gang,
        force=arguments.force,
        environment=tuple(given),
        secret_environment=tuple(secret),
        bundle=bundle,
        setup=arguments.setup,
        title=arguments.title,
    )


def _tell_plan(plan: RunPlan, form: str) -> int:
    sizes = [len(batch) for batch in plan.batches]
    bundle = plan.request.bundle
    if form == "json":
        print_json(
            {
                "dry_run": True,
                "targets": [worker.address for worker in plan.workers],
                "batches": sizes,
                "remote_text": plan.remote_text,
                "sync": None if bundle is None else {"digest": bundle.digest, "files": len(bundle.files)},
                "refusals": list(plan.refusals),
                "warnings": list(plan.warnings),
            }
        )
    else:
        print(f"workers   {len(plan.workers)}: {fold(worker.address for worker in plan.workers)}")
        print(f"batches   {len(sizes)}, of {', '.join(map(str, sizes))} workers")
        if bundle is not None:
            print(f"ships     {bundle.report}, digest {bundle.digest[:12]}")
        if plan.request.setup:
            print(f"setup     {plain(plan.request.setup)}")
        print(f"executes  {plain(plan.remote_text)}")
        for refusal in plan.refusals:
            print(f"refused   {plain(refusal)}")
    return ExitCode.USAGE if plan.refusals else ExitCode.OK


async def follow(tower: Tower, run: Run, arguments: argparse.Namespace) -> int:
    """Tells a run until it has ended, is detached, or the operator stops it."""
    live = LiveLines(run, raw=arguments.raw) if arguments.stream and arguments.format != "json" else None
    told: set[int] = set()
    interrupts = Interrupts(run)
    with on_interrupt(interrupts.interrupt, interrupts.stop, interrupts.hang_up):
        ending = asyncio.ensure_future(run.until_started() if arguments.detach else run.wait())
        giving_up = asyncio.ensure_future(interrupts.given_up.wait())
        try:
            await _tell(run, ending, giving_up, live, told, arguments, interrupts)
            if interrupts.stopping is not None and not interrupts.given_up.is_set():
                await asyncio.wait({interrupts.stopping, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving_up.cancel()
            await interrupts.close()
            with suppress(asyncio.CancelledError):
                if not ending.done():
                    ending.cancel()
                await ending
    interrupted = interrupts.stopping is not None or interrupts.cut_short
    left = (arguments.detach or interrupts.detached) and not interrupted
    if left:
        run.detach()
        await run.wait()
    return _tell_end(run, live, told, arguments, interrupted=interrupted, left=left)


async def _tell(
    run: Run,
    ending: asyncio.Task[Any],
    giving_up: asyncio.Task[Any],
    live: LiveLines | None,
    told: set[int],
    arguments: argparse.Namespace,
    interrupts: Interrupts,
) -> None:
    loop = asyncio.get_running_loop()
    next_progress = loop.time() + PROGRESS_S
    alarmed = ""
    warner = Warner(run)
    while not ending.done() and not giving_up.done():
        await asyncio.wait({ending, giving_up}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        if interrupts.asking:
            continue
        if live is not None:
            live.pump()
        if arguments.format == "json":
            _tell_ended(run, told)
        warner.pump()
        if run.deadlock != alarmed:
            alarmed = run.deadlock
            if alarmed:
                say(f"{alarmed} Start it detached, or with --batch-size all.")
        if sys.stderr.isatty() and loop.time() >= next_progress:
            next_progress = loop.time() + PROGRESS_S
            _progress(run)


def _tell_ended(run: Run, told: set[int]) -> None:
    for index, result in enumerate(run.results):
        if result.ended and index not in told:
            told.add(index)
            print_worker_json(run, index)


def _progress(run: Run) -> None:
    phases: dict[str, int] = {}
    for result in run.results:
        word = str(result.outcome if result.ended else result.phase)
        phases[word] = phases.get(word, 0) + 1
    text = "  ".join(f"{word} {count}" for word, count in phases.items())
    print(f"\r\x1b[K{text}\r", end="", file=sys.stderr, flush=True)


def _tell_end(
    run: Run, live: LiveLines | None, told: set[int], arguments: argparse.Namespace, *, interrupted: bool, left: bool
) -> int:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if arguments.format == "json":
        _tell_ended(run, told)
        print_json(summary_json(run, run.first_failure))
    elif live is not None:
        live.finish()
    elif not left and not arguments.detach:
        print_groups(run)
    if arguments.format != "json":
        print_ending(run)
    else:
        print_unrecorded(run)
    if left:
        say(f"run {run.id} goes on without us: `slicetower logs {run.id} --follow`, `slicetower runs stop {run.id}`")
    return exit_code(run.results, interrupted=interrupted)
