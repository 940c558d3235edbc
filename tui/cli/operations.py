"""`slicetower operations`: the service's long-running operations, listed, described and cancelled."""

from __future__ import annotations

import argparse
import asyncio

from backend.cloud import equivalents
from backend.model import Operation
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, print_json, print_table, timestamp
from tui.cli.places import add_place, confirm, context_of, refuse_read_only, rest_of
from tui.cli.qr_views import outline, print_dry_run
from tui.operation_facts import facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="operations_verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="all operations of the context's zones, newest first", allow_abbrev=False)
    listing.add_argument("--running", action="store_true", help="only those that are not done")
    one = verbs.add_parser("describe", help="one operation in full", allow_abbrev=False)
    cancel = verbs.add_parser(
        "cancel", help="ask the service to cancel one; it may end all the same", allow_abbrev=False
    )
    cancel.add_argument("--yes", action="store_true", help="do not ask")
    cancel.add_argument("--dry-run", action="store_true", help="print the call, send nothing")
    for each in (one, cancel):
        each.add_argument("name", metavar="OPERATION", help="its id, or its full name")
    for each in (listing, one, cancel):
        add_format(each)
        add_place(each)


def main(arguments: argparse.Namespace) -> int:
    return int(asyncio.run(_run(arguments)))


async def _run(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    cancels = arguments.operations_verb == "cancel"
    if cancels and not arguments.dry_run:
        refuse_read_only(context, "cancel an operation")
    async with Tower.open(context, watch=False) as tower:
        found = await tower.operations()
        if arguments.operations_verb == "list":
            _print_list([item for item in found if not (arguments.running and item.done)], arguments.format)
            return ExitCode.OK
        item = _find(found, arguments.name)
        if not cancels:
            _print_one(item, arguments.format)
            return ExitCode.OK
        if arguments.dry_run:
            shown = equivalents.operation(item.path, rest_of(context), cancel=True)
            print_dry_run("cancel", [shown], arguments.format)
            return ExitCode.OK
        confirm([item.name], "cancel", yes=arguments.yes, preview=[f"{item.verb} {plain(item.target)}"])
        await tower.client.cancel_operation(item.path)
        tower.record(f"cancelled the operation {item.name}", subject=plain(item.target.rpartition("/")[2]))
        _print_one(await tower.client.get_operation(item.path), arguments.format)
        return ExitCode.OK


def _find(found: list[Operation], name: str) -> Operation:
    matching = [item for item in found if name in (item.name, item.path)]
    if matching:
        return matching[0]
    known = ", ".join(item.name for item in found[:3])
    raise OperatorError(
        f"There is no operation {plain(name)}.", f"The newest are {known}." if known else "There is none."
    )


def _print_list(items: list[Operation], output: str) -> None:
    if output == "json":
        for item in items:
            print_json(facts(item))
        return
    rows = [
        (item.name, item.zone, item.verb, item.target.rpartition("/")[2], _state(item), timestamp(item.created_at))
        for item in items
    ]
    print_table(("OPERATION", "ZONE", "VERB", "TARGET", "STATE", "CREATED"), rows)


def _state(item: Operation) -> str:
    if item.error is not None:
        return f"failed: {item.error.message}"
    return "done" if item.done else "cancelling" if item.cancel_requested else "running"


def _print_one(item: Operation, output: str) -> None:
    if output == "json":
        print_json(facts(item))
    else:
        print("\n".join(outline(facts(item))))
