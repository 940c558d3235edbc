"""`slicetower logs ID [TARGET]`: what the workers of a run printed, also while it runs."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from backend.context import Context
from backend.logs.merged import by_arrival, mergeable
from backend.logs.worker_log import WorkerLog
from backend.outcomes import ExitCode, OperatorError
from backend.runs.live import Run
from backend.runs.model import RunState
from backend.sanitize import plain, strip_colour
from backend.targets import fold, select_among
from backend.tower import Tower
from tui.cli.run_report import LiveLines
from tui.cli.session import context_of, on_interrupt, open_tower, say

TICK_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "The logs of a run, worker after worker, or merged by arrival."
    parser.add_argument("run", metavar="ID", help="an id, its beginning or end, or `last`")
    parser.add_argument(
        "target", nargs="?", default="", metavar="TARGET", help="train-a/0/3, train-a/1, train-a/*/0, @group, or all"
    )
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--grep", metavar="RE", help="only lines that match this regular expression")
    parser.add_argument(
        "--merge", action="store_true", help="in the order of arrival, with the worker before each line"
    )
    parser.add_argument("--raw", action="store_true", help="bytes as they came, controls and all; one worker only")


def main(arguments: argparse.Namespace) -> int:
    return asyncio.run(_main(arguments, context_of(arguments)))


async def _main(arguments: argparse.Namespace, context: Context) -> int:
    pattern = _pattern(arguments.grep) if arguments.grep else None
    async with open_tower(context) as tower:
        record = tower.runs.store.get(arguments.run)
        if record.state is not RunState.ENDED:
            await tower.refresh()
        run = tower.runs.attach(record.id)
        places = _places(run, arguments.target, tower.groups)
        if (arguments.merge or arguments.follow) and mergeable(len(places)) < len(places):
            raise OperatorError(
                f"{len(places)} logs can't be open at once here.",
                "Raise `ulimit -n`, name fewer workers, or leave out --merge.",
            )
        if arguments.raw and len(places) > 1:
            raise OperatorError("--raw shows one worker.", f"Name it: slicetower logs {run.id} TARGET --raw")
        if arguments.follow:
            await _follow(tower, run, places, pattern, arguments)
        else:
            if not await tower.runs.catch_up(run):
                say("some workers did not answer in time: their newest lines are missing")
            _print(tower, run, places, pattern, arguments)
        await _leave(run)
    return ExitCode.OK


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise OperatorError(f"--grep: '{plain(text)}' is no regular expression: {error}.", "Escape it.") from error


def _places(run: Run, target: str, groups: Mapping[str, tuple[str, ...]]) -> list[int]:
    """The places of the run's workers that a target names; a run's workers may be gone from the fleet."""
    if target in ("", "all"):
        return list(range(len(run.workers)))
    try:
        chosen = set(select_among(run.workers, [target], groups))
    except OperatorError as error:
        there = fold(worker.address for worker in run.workers)
        raise OperatorError(
            f"Run {run.id} has no worker '{plain(target)}'. {error.what}", f"It ran on {there}."
        ) from error
    return [place for place, worker in enumerate(run.workers) if worker in chosen]


async def _leave(run: Run) -> None:
    """Stops following without ending what runs."""
    if run.task is not None and not run.task.done() and not run.observed and run.request.supervised:
        run.detach()
        await run.wait()


def _print(
    tower: Tower, run: Run, places: list[int], pattern: re.Pattern[bytes] | None, arguments: argparse.Namespace
) -> None:
    if arguments.raw:
        path = run.log_path(places[0])
        if path.exists():
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    sys.stdout.buffer.write(block)
        sys.stdout.flush()
        return
    there = [place for place in places if run.log_path(place).exists()]
    if arguments.merge:
        _print_merged({run.workers[place].address: run.log(place) for place in there}, pattern)
    else:
        paths = {run.workers[place].address: run.log_path(place) for place in there}
        _print_each(paths, pattern, prefixes=len(places) > 1)
    sys.stdout.flush()


def _print_merged(logs: dict[str, WorkerLog], pattern: re.Pattern[bytes] | None) -> None:
    """By arrival, as the index beside each log tells it; every line, however long the logs. Unfinished lines come last."""
    unfinished = ((source, log.ended) for source, log in logs.items() if log.total > log.ended)
    for source, number in chain(by_arrival(logs), unfinished):
        text = strip_colour(logs[source].line(number).text)
        if pattern is None or pattern.search(text.encode()):
            sys.stdout.write(f"{source}: {text}\n")


def _print_each(paths: dict[str, Path], pattern: re.Pattern[bytes] | None, *, prefixes: bool) -> None:
    for address, path in paths.items():
        before = f"{address}: " if prefixes else ""
        with path.open("rb") as stream:
            for raw in stream:
                line = raw.rstrip(b"\n")
                if pattern is None or pattern.search(line):
                    sys.stdout.write(f"{before}{plain(line)}\n")


async def _follow(
    tower: Tower, run: Run, places: list[int], pattern: re.Pattern[bytes] | None, arguments: argparse.Namespace
) -> None:
    left = asyncio.Event()
    live = LiveLines(run, raw=arguments.raw, prefixes=len(places) > 1, places=places, pattern=pattern)
    with on_interrupt(left.set):
        while not left.is_set():
            over = run.task is None or run.task.done()
            live.pump()
            if over:
                successor = tower.runs.active.get(run.id, run)
                if successor is run or successor.state is not RunState.RUNNING:
                    break
                run = successor
            await asyncio.sleep(TICK_S)
    live.finish()
