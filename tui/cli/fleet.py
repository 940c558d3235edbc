"""`slicetower fleet`: the fleet as plain text, once; for pipes, screen readers and a quick look. `--watch` tells what is
worth telling, for machines on which no console runs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.context import Context, load_context
from backend.costs import Cost, total
from backend.model import DEAD_STATES, WAITING_STATES, Fleet, Slice
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.timestamps import rfc3339
from backend.tower import Tower
from tui.cli.fleet_views import print_events, print_workers
from tui.cli.output import add_format, print_json, print_table
from tui.cli.qr_views import HEADERS, cost_json, row_cells, row_json

if TYPE_CHECKING:
    from backend.notifications import Notice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Every queued resource with its slices, and TPU VMs that stand alone."
    parser.add_argument(
        "--once", "--plain", action="store_true", help="print once and exit (the console is what stays)"
    )
    views = parser.add_mutually_exclusive_group()
    views.add_argument("--workers", action="store_true", help="instead: one line a worker, with its addresses")
    views.add_argument(
        "--events", type=int, metavar="N", help="instead: the newest N events of the journal, without asking the API"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="stay, and tell the notices of [notifications] and [alerts] until Ctrl-C; their command gets them too",
    )
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    file = Path(arguments.context_file) if arguments.context_file else None
    context = load_context(arguments.context, file, read_only=arguments.read_only)
    if arguments.watch:
        if arguments.once or arguments.workers or arguments.events is not None:
            raise OperatorError("What prints once and --watch exclude each other.", "Leave one of the two out.")
        return asyncio.run(_watch(context, arguments.format))
    if arguments.events is not None:
        return asyncio.run(_events(context, arguments.events, arguments.format))
    fleet, spent = asyncio.run(_refresh(context))
    now = datetime.now(UTC)
    if arguments.workers:
        print_workers(fleet, arguments.format)
    elif arguments.format == "json":
        _print_json(fleet, spent, now)
    else:
        _print_table(context, fleet, spent, now)
    failing = [poll for poll in fleet.polls if poll.error]
    for poll in failing:
        print(f"slicetower: {poll.zone}: {poll.error} {poll.cure}".rstrip(), file=sys.stderr)
    return ExitCode.CLOUD if failing else ExitCode.OK


async def _refresh(context: Context) -> tuple[Fleet, dict[tuple[str, str, str], Cost]]:
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        return fleet, tower.costs(fleet.queued_resources)


async def _events(context: Context, most: int, output: str) -> int:
    if most < 1:
        raise OperatorError(f"--events {most}: that is none.", "Say how many, such as --events 50.")
    async with Tower.open(context, watch=False) as tower:
        print_events(tower.journal.events(limit=most), output)
    return ExitCode.OK


async def _watch(context: Context, output: str) -> int:
    """Until it is interrupted."""
    from tui.cli.notices import tell, telling

    async with Tower.open(context) as tower:
        bell = tower.notification_settings().bell

        def show(notice: Notice) -> None:
            if output == "json":
                print_json({**asdict(notice), "at": rfc3339(notice.at)})
                sys.stdout.flush()
            else:
                tell(notice, bell=bell)

        async with telling(tower, show):
            places = ", ".join(zone for _, zone in context.places)
            print(f"slicetower: watching {plain(places)}; Ctrl-C ends it", file=sys.stderr, flush=True)
            await asyncio.Event().wait()
    return ExitCode.OK


def totals(fleet: Fleet) -> dict[str, int]:
    """Chips by what they mean for the operator: active, on their way, waiting, held by dead requests."""
    chips = {"active": 0, "coming": 0, "waiting": 0, "dead": 0}
    for item in fleet.queued_resources:
        if item.state == "ACTIVE":
            chips["active"] += item.chips
        elif item.state in WAITING_STATES:
            chips["waiting"] += item.chips
        elif item.state in DEAD_STATES:
            chips["dead"] += item.chips
        else:
            chips["coming"] += item.chips
    return chips


def _print_table(context: Context, fleet: Fleet, spent: dict[tuple[str, str, str], Cost], now: datetime) -> None:
    label = f" ({context.label})" if context.label else ""
    chips = " · ".join(f"{kind} {count}" for kind, count in totals(fleet).items() if count)
    print(plain(f"{context.name}{label}: {context.project}, {' '.join(context.zones)}; chips: {chips or 'none'}"))
    if not fleet.queued_resources and not fleet.standalone:
        print("No queued resources and no TPU VMs.")
        return
    rows = [row_cells(item, fleet.since.get(item.key), now) for item in fleet.queued_resources]
    if rows:
        print_table(HEADERS, rows)
        if spent:
            print(f"\n{total(spent.values()).sentence}")
    slices = [each for item in fleet.queued_resources for each in item.slices] + list(fleet.standalone)
    if slices:
        print()
        print_table(
            ["SLICE", "NODE", "STATE", "HEALTH", "WORKERS", "FIRST ADDRESS"],
            [
                [
                    f"{each.queued_resource}/{each.index}" if each.queued_resource else each.node_id,
                    each.node_id,
                    each.state,
                    each.health,
                    len(each.workers),
                    (each.workers[0].external_ip or each.workers[0].internal_ip) if each.workers else "",
                ]
                for each in slices
            ],
        )


def _print_json(fleet: Fleet, spent: dict[tuple[str, str, str], Cost], now: datetime) -> None:
    for item in fleet.queued_resources:
        print_json(
            {
                **row_json(item, fleet.since.get(item.key), now),
                "nodes": [_node(each) for each in item.slices],
                **cost_json(spent.get(item.key)),
            }
        )
    for each in fleet.standalone:
        print_json({"standalone": True, **_node(each)})


def _node(each: Slice) -> dict[str, Any]:
    return {
        "node_id": each.node_id,
        "zone": each.zone,
        "index": each.index,
        "state": each.state,
        "health": each.health,
        "accelerator_type": each.accelerator_type,
        "workers": [
            {"index": worker.index, "internal_ip": worker.internal_ip, "external_ip": worker.external_ip}
            for worker in each.workers
        ],
    }
