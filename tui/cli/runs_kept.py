"""`slicetower runs note|tag|export|prune`: what is kept of runs, and for how long."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import UTC, datetime, timedelta

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.runs.audit import audit_csv, checked_tag
from backend.runs.model import RunRecord
from backend.runs.retention import PrunePlan, plan_prune, prune
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, print_json, print_table, timestamp
from tui.cli.places import seconds_argument
from tui.cli.session import open_tower, say

EVERY = 2**62
"""As a limit: no limit."""


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verbs to those of `runs`."""
    note = verbs.add_parser("note", help="your own words on a run; an empty text removes them")
    note.add_argument("run", metavar="ID", help="an id, its beginning or end, or `last`")
    note.add_argument("text", metavar="TEXT")
    tag = verbs.add_parser("tag", help="words to find runs by: `runs list --tag baseline`")
    tag.add_argument("run", metavar="ID")
    tag.add_argument("tags", nargs="*", metavar="TAG")
    tag.add_argument("--remove", action="append", default=[], metavar="TAG")
    export = verbs.add_parser("export", help="who ran what, where, when, and how it ended: a line for each worker")
    export.add_argument("--format", choices=("json", "csv"), default="json", help="JSON lines, or CSV with a header")
    export.add_argument("--since", type=seconds_argument, metavar="AGE", help="started within, such as 30d")
    export.add_argument("--tag", default="", metavar="TAG", help="only runs with this tag")
    old = verbs.add_parser("prune", help="remove old runs and their logs, never one that may still run")
    old.add_argument("--older-than", type=seconds_argument, metavar="AGE", help="ended longer ago, such as 30d")
    old.add_argument("--keep", type=int, metavar="N", help="never one of the newest N")
    old.add_argument("--unknown", action="store_true", help="also ended runs whose outcome is unknown")
    old.add_argument("--yes", action="store_true", help="don't ask")
    old.add_argument("--dry-run", action="store_true", help="say which would go")
    add_format(old)


async def note(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        record = tower.runs.store.get(arguments.run)
        tower.runs.store.set_note(record.id, plain(arguments.text.strip()))
        say(f"noted on {record.id}")
    return ExitCode.OK


async def tag(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        record = tower.runs.store.get(arguments.run)
        tower.runs.audit.tag(record.id, arguments.tags, arguments.remove)
        print(" ".join(tower.runs.audit.tags(record.id)))
    return ExitCode.OK


def chosen(tower: Tower, *, limit: int = EVERY, tag: str = "") -> list[RunRecord]:
    """The newest runs first, those with a tag if one is given."""
    if not tag:
        return tower.runs.history(limit=limit)
    tagged = tower.runs.audit.tagged(checked_tag(tag))
    return [record for record in tower.runs.history(limit=EVERY) if record.id in tagged][:limit]


async def export(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        records = chosen(tower, tag=arguments.tag)
        if arguments.since is not None:
            first = datetime.now(UTC) - timedelta(seconds=arguments.since)
            records = [record for record in records if record.started_at >= first]
        rows = tower.runs.audit.rows(reversed(records))
        if arguments.format == "json":
            for row in rows:
                print_json(row)
            return ExitCode.OK
        for line in audit_csv(rows):
            print(line, end="\r\n")
    return ExitCode.OK


async def remove_old(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        planned = plan_prune(
            tower.runs.history(limit=EVERY),
            tower.paths,
            older_than_s=arguments.older_than,
            keep=arguments.keep,
            unknown=arguments.unknown,
        )
        if planned.may_run:
            say(f"stay, they may still run (`runs stop` ends them): {', '.join(planned.may_run)}")
        if arguments.dry_run:
            _tell_plan(planned, arguments.format, removed=False)
            return ExitCode.OK
        if planned.old and not arguments.yes:
            _confirm(planned)
        stayed = prune(planned.old, tower.runs.store, tower.runs.audit, tower.paths)
        gone = PrunePlan(tuple(each for each in planned.old if each.record.id not in stayed), planned.may_run)
        if gone.old:
            tower.record(f"Removed {len(gone.old)} old runs with {gone.bytes} bytes of logs")
    for run_id in stayed:
        say(f"{run_id} stays: another console has it open")
    _tell_plan(gone, arguments.format, removed=True)
    return ExitCode.OK


def _tell_plan(planned: PrunePlan, form: str, *, removed: bool) -> None:
    if form == "json":
        for each in planned.old:
            print_json({"run": each.record.id, "bytes": each.bytes, "removed": removed})
        print_json({"runs": len(planned.old), "bytes": planned.bytes, "removed": removed})
        return
    rows = [
        [
            each.record.id,
            timestamp(each.record.started_at),
            each.bytes,
            each.record.request.title or shlex.join(each.record.request.argv),
        ]
        for each in planned.old
    ]
    if rows:
        print_table(
            ["RUN", "STARTED", "BYTES", "COMMAND"], [[*row[:3], plain(str(row[3]), limit=60)] for row in rows]
        )
    say(f"{len(planned.old)} runs, {planned.bytes / 1e6:.1f} MB: {'removed' if removed else 'would be removed'}")


def _confirm(planned: PrunePlan) -> None:
    """Asks for the number of runs to be typed.

    Raises:
        OperatorError: There is no terminal, or something else was typed.
    """
    count = len(planned.old)
    if not sys.stdin.isatty():
        raise OperatorError(f"{count} runs and their logs would be removed.", "Say --yes; --dry-run lists them.")
    print(f"Type {count} to remove {count} runs and their logs: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != str(count):
        raise OperatorError("Not confirmed: nothing was removed.")
