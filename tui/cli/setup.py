"""`slicetower setup TARGET`: a venv with jax on every worker, verified equal."""

from __future__ import annotations

import argparse
import asyncio

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.runs.fanout import exit_code
from backend.runs.live import Run
from backend.sanitize import plain, plain_text
from backend.targets import fold
from backend.tools.setup import (
    APT_WAIT_S,
    MAXTEXT_SOURCE,
    PROGRESS,
    PYTHON_PLACE,
    SetupRequest,
    Verification,
    plan,
    script,
    verify,
)
from tui.cli.output import add_format, print_json
from tui.cli.run_report import LiveLines, print_ending, print_stop, summary_json
from tui.cli.session import context_of, on_interrupt, open_tower, say, workers_for
from tui.wording import count

TICK_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Makes a venv on every worker ({PYTHON_PLACE}) with jax[tpu], waits for apt's locks, and verifies that all have "
        "the same. Asked for again, it only looks. It goes on when this console ends: `slicetower runs list`."
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="train-a, train-a/0, @group")
    parser.add_argument(
        "--python", default="python3", metavar="V", help="a version such as 3.12, a program or a path"
    )
    parser.add_argument("--jax", default="", metavar="V", help="this version of jax, such as 0.10.2")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="P",
        help="for pip, instead of jax; may be repeated",
    )
    parser.add_argument(
        "--pip-option", action="append", default=[], metavar="OPTION", help="such as --pip-option=--find-links=DIR"
    )
    parser.add_argument("--maxtext", default="", metavar="REF", help="also MaxText at a branch, tag or commit")
    parser.add_argument("--maxtext-source", default=MAXTEXT_SOURCE, metavar="URL", help="where it is cloned from")
    parser.add_argument("--apt-wait", type=int, default=APT_WAIT_S, metavar="S", help="for apt's locks at first boot")
    parser.add_argument("--root", default="", metavar="DIR", help="where /var is looked for there")
    parser.add_argument("--dry-run", action="store_true", help="print the exact text, and send nothing")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    context = context_of(arguments, changes="" if arguments.dry_run else "setup")
    if arguments.jax and arguments.package:
        raise OperatorError("--jax and --package exclude each other.", "Write --package 'jax[tpu]==0.10.2'.")
    return asyncio.run(_main(arguments, context))


def _request(arguments: argparse.Namespace) -> SetupRequest:
    return SetupRequest(
        python=arguments.python,
        packages=tuple(arguments.package),
        jax=arguments.jax,
        pip_options=tuple(arguments.pip_option),
        maxtext=arguments.maxtext,
        maxtext_source=arguments.maxtext_source,
        apt_wait_s=arguments.apt_wait,
        root=arguments.root,
    )


async def _main(arguments: argparse.Namespace, context: Context) -> int:
    request = _request(arguments)
    async with open_tower(context) as tower:
        workers = await workers_for(tower, arguments.targets)
        planned = plan(tower, request, workers)
        if arguments.dry_run:
            where = fold(worker.address for worker in workers)
            if arguments.format == "json":
                print_json(
                    {"dry_run": True, "targets": [each.address for each in workers], "script": script(request)}
                )
            else:
                print(f"# on {where}, as a detached run: /bin/sh -c")
                print(plain_text(script(request)), end="")
            return ExitCode.OK
        run = await tower.runs.launch(planned)
        say(f"run {run.id} sets up {fold(worker.address for worker in workers)}")
        stopped = await _follow(run, quiet=arguments.format == "json")
        found = verify(run)
        _tell(run, found, arguments.format)
        code = exit_code(run.results, interrupted=stopped)
        return ExitCode.COMMAND_FAILED if code is ExitCode.OK and not found.equal else code


async def _follow(run: Run, *, quiet: bool) -> bool:
    """Prints progress until the run has ended; True when the operator stopped it."""
    live = None if quiet else LiveLines(run, pattern=PROGRESS)
    stopping: list[asyncio.Task[None]] = []

    async def stop() -> None:
        print_stop(await run.stop())

    def interrupt() -> None:
        if not stopping:
            say("interrupted: stops the setup, and confirms it")
            stopping.append(asyncio.ensure_future(stop()))

    with on_interrupt(interrupt):
        ending = asyncio.ensure_future(run.wait())
        while not ending.done():
            await asyncio.wait({ending}, timeout=TICK_S)
            if live is not None:
                live.pump()
        await ending
        for task in stopping:
            await task
    if live is not None:
        live.finish()
    return bool(stopping)


def _tell(run: Run, found: Verification, form: str) -> None:
    if form == "json":
        for address in (result.worker.address for result in run.results):
            packages = sorted(found.packages.get(address, ()))
            print_json({"target": address, "ready": address in found.packages, "packages": packages})
        summary = summary_json(run, run.first_failure)
        print_json({**summary, "equal": found.equal, "differences": list(found.differences), "python": PYTHON_PLACE})
        return
    print_ending(run)
    for each in found.differences:
        say(f"NOT equal: {each}")
    if found.missing:
        say(f"not ready: {fold(found.missing)}; `slicetower logs {run.id}` has pip's words")
    if found.equal:
        told = [each for each in found.common if each.partition("==")[0] in ("python", "jax", "jaxlib", "libtpu")]
        say(
            f"equal on {count(len(found.packages), 'worker')}: {plain(', '.join(told)) or f'{len(found.common)} packages'}"
        )
        say(f"its Python: {PYTHON_PLACE} (bench takes it by itself; for others: run --shell -- {PYTHON_PLACE} ...)")
