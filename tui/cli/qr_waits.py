"""`slicetower qr waits`: how long requests waited for capacity, as this machine's journal saw it. The cloud isn't asked."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from backend.cloud.waits import statistics
from backend.journal import Journal
from backend.outcomes import ExitCode
from backend.paths import paths
from tui.cli.output import add_format, duration, print_json, print_table, timestamp
from tui.cli.places import add_place, context_of

HEADERS = ("TYPE", "ZONE", "TIER", "WAITS", "SHORTEST", "MEDIAN", "LONGEST", "LAST", "LAST ASKED AT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Queue waits by type, zone and tier: from creation to PROVISIONING. Only waits count that were seen whole, by any "
        "console or verb on this machine."
    )
    parser.add_argument("--type", default="", metavar="TYPE", help="only this accelerator type")
    add_format(parser)
    add_place(parser)


async def main(arguments: argparse.Namespace) -> int:
    places = set(context_of(arguments).places)
    journal = Journal.open(paths().journal)
    try:
        waits = journal.queue_waits()
    finally:
        journal.close()
    found = [
        each
        for each in statistics(waits)
        if (each.project, each.zone) in places and arguments.type in ("", each.accelerator_type)
    ]
    if arguments.format == "json":
        for each in found:
            print_json({**asdict(each), "last_at": timestamp(each.last_at)})
    elif found:
        rows = [
            (
                each.accelerator_type,
                each.zone,
                each.tier,
                each.count,
                duration(each.shortest_s),
                duration(each.median_s),
                duration(each.longest_s),
                duration(each.last_s),
                timestamp(each.last_at),
            )
            for each in found
        ]
        print_table(HEADERS, rows)
    else:
        print("No wait was seen from its beginning to its end yet.", file=sys.stderr)
    return ExitCode.OK
