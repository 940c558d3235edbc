"""`slicetower free TARGET`: stops what holds the chips, and confirms that it is gone."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.sanitize import plain
from backend.targets import WorkerRef, fold
from backend.tools.free import GRACE_S, free, is_free
from backend.tools.ship import Answer
from tui.cli.output import add_format, print_json
from tui.cli.session import Waiting, context_of, open_tower, say, workers_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Ends the processes that hold the chips of the workers (TERM, then KILL), confirms that they are gone, and "
        "removes libtpu's lockfile when nobody owns it. Nothing is found by name."
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="train-a, train-a/0, train-a/*/0, @group")
    parser.add_argument("--grace", type=float, default=GRACE_S, metavar="S", help="seconds between TERM and KILL")
    parser.add_argument("--root", default="/", metavar="DIR", help="where /dev and /tmp are looked for there")
    parser.add_argument("--python", default="", metavar="PATH", help="what runs the program there")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--dry-run", action="store_true", help="tell what would be stopped, and stop nothing")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.grace <= 3600:
        raise OperatorError(f"A grace of {arguments.grace:g} s is no grace.", "Give 0 to 3600 seconds.")
    return asyncio.run(_main(arguments, context_of(arguments, changes="" if arguments.dry_run else "free")))


async def _main(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        workers = await workers_for(tower, arguments.targets)
        options: dict[str, Any] = {"grace_s": arguments.grace, "root": arguments.root, "python": arguments.python}
        options["told"] = Waiting()
        if arguments.dry_run or not arguments.yes:
            answers = await free(tower, workers, dry_run=True, **options)
            if arguments.dry_run:
                _tell(answers, arguments.format)
                return _exit_code(answers, all_free=True)
            if not any(each.facts is None or each.facts["holders"] or not is_free(each) for each in answers):
                _tell(answers, arguments.format)
                return ExitCode.OK
            for each in answers:
                for line in _lines(each):
                    say(line)
            _confirm(arguments.targets, workers)
        answers = await free(tower, workers, **options)
    _tell(answers, arguments.format)
    return _exit_code(answers, all_free=all(is_free(each) for each in answers))


def _confirm(targets: list[str], workers: tuple[WorkerRef, ...]) -> None:
    """Asks for the target to be typed.

    Raises:
        OperatorError: There is no terminal, or something else was typed.
    """
    where = fold(worker.address for worker in workers)
    if not sys.stdin.isatty():
        raise OperatorError(f"Freeing {where} stops processes.", "Say --yes; --dry-run shows which.")
    wanted = " ".join(targets)
    print(f"Type {wanted} to stop them: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != wanted:
        raise OperatorError("Not confirmed: nothing was stopped.")


def _tell(answers: list[Answer], form: str) -> None:
    for each in answers:
        if form == "json":
            print_json({"target": each.worker.address, "error": each.error, **(each.facts or {})})
        else:
            for line in _lines(each):
                print(line)


def _lines(answer: Answer) -> Iterator[str]:
    where = answer.worker.address
    if answer.facts is None:
        yield f"{where}: {answer.error.removeprefix(f'{where}: ')}"
        return
    facts: dict[str, Any] = answer.facts
    fate = dict.fromkeys(facts["terminated"], "ended")
    fate |= dict.fromkeys(facts["killed"], "killed")
    fate |= dict.fromkeys(facts["refused"], "is another user's and was not touched")
    fate |= dict.fromkeys(facts.get("would_stop", ()), "would be stopped")
    for holder in facts["holders"]:
        what = fate.get(holder["pid"], "is still there")
        yield plain(f"{where}: pid {holder['pid']} of {holder['user']} {what}: {holder['command']}")
    lock = facts["lockfile"]
    if lock["removed"]:
        yield plain(f"{where}: removed {lock['path']}")
    elif facts.get("would_remove_lockfile"):
        yield plain(f"{where}: {lock['path']} would be removed")
    if facts.get("error"):
        yield plain(f"{where}: {facts['error']}")
    if not facts["dry_run"] or facts["free"]:
        yield f"{where}: {'free' if facts['free'] else 'NOT free'}"


def _exit_code(answers: list[Answer], *, all_free: bool) -> ExitCode:
    if any(each.outcome in (Outcome.UNREACHABLE, Outcome.UNKNOWN) for each in answers):
        return ExitCode.UNREACHABLE
    if any(each.outcome is Outcome.FAILED for each in answers) or not all_free:
        return ExitCode.COMMAND_FAILED
    return ExitCode.OK
