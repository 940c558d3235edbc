"""`slicetower qr maintenance`: what is announced for a request's slices, and its start by hand where the API allows that."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from backend.cloud import equivalents
from backend.cloud.maintenance import why_not
from backend.model import QueuedResource, Slice
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import print_json, print_table
from tui.cli.places import confirm, context_of, find, refuse_read_only, rest_of
from tui.cli.qr_actions import OPERATION_TIMEOUT_S, common, line_of
from tui.cli.qr_views import print_dry_run

CURE = (
    "The API allows it only while one is PENDING and says can_reschedule, on v4 and v5p, or on v5e and v6e of 2x4 or larger; "
    "`qr maintenance` shows what is announced."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Upcoming maintenance of a request's slices; --start begins it now, where the API allows it."
    parser.add_argument("name", metavar="ID")
    parser.add_argument("--start", action="store_true", help="begin it now: the slices go away, for hours perhaps")
    parser.add_argument("--slices", default="", metavar="LIST", help="only these slices, by index: 0,2 or 0-3")
    parser.add_argument("--node", action="append", default=[], metavar="NODE", help="only these slices, by node")
    common(parser)


def _chosen(item: QueuedResource, arguments: argparse.Namespace) -> list[Slice]:
    """The slices that the arguments name; all of them when they name none."""
    unknown = set(arguments.node) - {each.node_id for each in item.slices}
    if unknown:
        raise OperatorError(
            f"{item.name} has no slice {plain(sorted(unknown)[0])}.",
            f"It has {', '.join(each.node_id for each in item.slices[:8]) or 'none'}.",
        )
    wanted: set[int] = set()
    for piece in filter(None, arguments.slices.split(",")):
        first, dash, last = piece.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(piece) > 9:
            raise OperatorError(f"--slices: '{plain(piece)}' is no index or range.", "Write --slices 0,2 or 0-3.")
        wanted.update(range(int(first), int(last if dash else first) + 1))
    missing = wanted - {each.index for each in item.slices}
    if missing:
        raise OperatorError(
            f"{item.name} has no slice {min(missing)}.", f"Its slices run from 0 to {len(item.slices) - 1}."
        )
    if not wanted and not arguments.node:
        return list(item.slices)
    return [each for each in item.slices if each.index in wanted or each.node_id in arguments.node]


async def maintenance(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    async with Tower.open(context, watch=False) as tower:
        item = find(await tower.refresh(), arguments.name)
        chosen = _chosen(item, arguments)
        if arguments.start or arguments.dry_run:
            return await _start(tower, item, chosen, arguments)
        announced = [each for each in chosen if each.maintenance is not None]
        if arguments.format == "json":
            for each in announced:
                print_json(_row(each))
        elif announced:
            headers = ("SLICE", "NODE", "TYPE", "STATUS", "MAY START", "FROM", "TO", "LATEST START")
            print_table(headers, [_cells(each) for each in announced])
        else:
            print(f"No maintenance of {item.name} is announced.", file=sys.stderr)
        return ExitCode.OK


def _row(each: Slice) -> dict[str, object]:
    found = each.maintenance
    assert found is not None
    return {
        "slice": each.index,
        "node_id": each.node_id,
        "type": found.kind,
        "status": found.status,
        "can_reschedule": found.can_reschedule,
        "window_start": found.window_start,
        "window_end": found.window_end,
        "latest_start": found.latest_start,
        "may_start": not why_not(each),
        "why_not": why_not(each),
    }


def _cells(each: Slice) -> list[object]:
    found = each.maintenance
    assert found is not None
    may = "no" if why_not(each) else "yes"
    return [
        each.index, each.node_id, found.kind, found.status, may, found.window_start, found.window_end, found.latest_start
    ]  # fmt: skip


async def _start(tower: Tower, item: QueuedResource, chosen: list[Slice], arguments: argparse.Namespace) -> int:
    node_ids = [each.node_id for each in chosen]
    reasons = [reason for each in chosen if (reason := why_not(each))]
    why = reasons[0] if reasons else "" if chosen else f"{item.name} has no slices now"
    if arguments.dry_run:
        shown = equivalents.perform_maintenance(item, node_ids, rest_of(tower.context))
        print_dry_run("maintenance", [shown], arguments.format)
        if why:
            print(f"slicetower: without --dry-run it would be refused now: {why}", file=sys.stderr)
        return ExitCode.OK
    refuse_read_only(tower.context, "start a maintenance")
    if why:
        may = ",".join(str(each.index) for each in chosen if not why_not(each))
        cure = f"Where it may be started: add --slices {may}." if may else CURE
        raise OperatorError(f"The maintenance cannot be started by hand now: {why}.", cure)
    go = "goes" if len(node_ids) == 1 else "go"
    lines = [line_of(item), f"{', '.join(node_ids)} {go} away at once, large slices perhaps for hours."]
    confirm([item.name], "start the maintenance of", yes=arguments.yes, preview=lines)
    operation = await tower.client.perform_maintenance(*item.key, node_ids=tuple(node_ids))
    tower.record(f"started the maintenance of {len(node_ids)} slices", subject=item.name)
    if not arguments.run_async:
        operation = await tower.client.wait_operation(operation, arguments.timeout or OPERATION_TIMEOUT_S)
    print_json({"name": item.name, "operation": operation.path, "done": operation.done, "at": datetime.now(UTC)})
    return ExitCode.OK
