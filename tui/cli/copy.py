"""`slicetower copy SRC... TARGET:DST` and `slicetower copy TARGET:SRC... DST`: files to and from workers."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.sanitize import plain
from backend.ssh.connections import require_files
from backend.targets import WorkerRef, fold
from backend.tools.transfers import Transfer, download, require_sources, upload
from tui.cli.output import add_format, print_json
from tui.cli.session import context_of, open_tower, say, workers_for

CURE = "Write `copy FILE... TARGET:PATH` or `copy TARGET:PATH... FOLDER`; a local name with a colon begins with ./"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Copies files and folders to all workers of a target, or from them."
    parser.usage = "slicetower copy SRC... DST [--dry-run] [--format {table,json}]"
    parser.add_argument("places", nargs="+", metavar="SRC... DST", help="a local path, or TARGET:PATH")
    parser.add_argument("--dry-run", action="store_true", help="say what would be copied")
    add_format(parser)


def split_place(text: str) -> tuple[str, str]:
    """(target, path); the target is empty for a local path."""
    if text.startswith(("/", "./", "../", "~")) or ":" not in text:
        return "", text
    target, _, path = text.partition(":")
    return target, path


def main(arguments: argparse.Namespace) -> int:
    if len(arguments.places) < 2:
        raise OperatorError("A source and a destination are needed.", CURE)
    *sources, destination = [split_place(text) for text in arguments.places]
    targets = {target for target, _ in sources}
    uploads = destination[0] != ""
    if (uploads and targets != {""}) or (not uploads and (len(targets) != 1 or "" in targets)):
        raise OperatorError("Either all sources are local, or all are of one target.", CURE)
    context = context_of(arguments, changes="copy to workers" if uploads and not arguments.dry_run else "")
    paths = [path for _, path in sources]
    if uploads:
        require_sources([Path(path) for path in paths])
    target = destination[0] if uploads else next(iter(targets))
    return asyncio.run(_copy(arguments, context, target, paths, destination[1], uploads=uploads))


async def _copy(
    arguments: argparse.Namespace,
    context: Context,
    target: str,
    sources: list[str],
    destination: str,
    *,
    uploads: bool,
) -> int:
    async with open_tower(context) as tower:
        workers = await workers_for(tower, [target])
        if arguments.dry_run:
            _tell_plan(workers, sources, destination, uploads=uploads)
            return ExitCode.OK
        require_files(len(workers))
        await tower.pool.require_key()

        def told(done: Transfer) -> None:
            _tell(done, arguments.format)

        if uploads:
            done = await upload(tower.pool, workers, [Path(name) for name in sources], destination, told)
        else:
            done = await download(tower.pool, workers, sources, Path(destination), told)
    bad = [item for item in done if item.outcome is not Outcome.OK]
    if arguments.format != "json":
        say(f"{len(done) - len(bad)} of {len(done)} copied")
    if any(item.outcome in (Outcome.UNREACHABLE, Outcome.UNKNOWN) for item in bad):
        return ExitCode.UNREACHABLE
    return ExitCode.COMMAND_FAILED if bad else ExitCode.OK


def _tell_plan(workers: tuple[WorkerRef, ...], sources: list[str], destination: str, *, uploads: bool) -> None:
    names = " ".join(plain(name) for name in sources)
    where = fold(worker.address for worker in workers)
    there = f"{where}:{plain(destination)}" if uploads else plain(destination)
    print(f"would copy {names if uploads else f'{where}:{names}'} to {there}")


def _tell(done: Transfer, form: str) -> None:
    if form == "json":
        print_json(
            {"target": done.worker.address, "outcome": done.outcome, "error": done.error, "place": plain(done.place)}
        )
    elif done.outcome is not Outcome.OK:
        say(f"{done.worker.address}: {done.outcome}: {done.error}")
    else:
        print(f"{done.worker.address}: {plain(done.place)}")
