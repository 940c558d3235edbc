"""`slicetower qr costs`: chip-hours of every request that was seen, also of those that are gone; money where a price is given."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

from backend import inventory
from backend.costs import at_most, spent_in, total
from backend.outcomes import ExitCode
from backend.tower import Tower
from tui.cli.output import add_format, print_json, print_table, timestamp
from tui.cli.places import add_place, context_of, seconds_argument
from tui.cli.qr_views import cost_json, tell_failing

DEFAULT_S = 30 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "What requests have used while they were ACTIVE, as the journal saw it; >= where it did not see all of it."
    )
    parser.add_argument(
        "--since", type=seconds_argument, default=DEFAULT_S, metavar="DURATION", help="7d, 12h (default: 30d)"
    )
    add_format(parser)
    add_place(parser)


async def main(arguments: argparse.Namespace) -> int:
    async with Tower.open(context_of(arguments), watch=False) as tower:
        fleet = await tower.refresh()
        failing = tell_failing(fleet)
        now = datetime.now(UTC)
        since = now - timedelta(seconds=arguments.since)
        spent = spent_in(tower.journal, set(tower.context.places), since, now, tower.context.price)
        costs = [(each.seen, each.cost) for each in spent]
    if arguments.format == "json":
        for item, used in costs:
            print_json(
                {
                    "name": item.name,
                    "zone": item.zone,
                    "project": item.project,
                    "accelerator_type": item.accelerator_type,
                    "tier": item.tier,
                    "chips": item.chips,
                    "created_at": timestamp(item.created_at),
                    "gone_at": timestamp(item.spans[-1].left_at),
                    **cost_json(used),
                }
            )
    elif costs:
        print_table(
            ("NAME", "ZONE", "TYPE", "TIER", "CHIPS", "CREATED", "GONE", "CHIP-HOURS", "USD"),
            [
                (
                    item.name,
                    item.zone,
                    item.accelerator_type,
                    item.tier,
                    item.chips or "",
                    timestamp(item.created_at) or "",
                    timestamp(item.spans[-1].left_at) or "",
                    "not known" if spent is None else f"{spent.bound}{spent.chip_hours:,.1f}",
                    "" if spent is None or spent.usd is None else f"{spent.bound}{spent.usd:,.2f}",
                )
                for item, spent in costs
            ],
        )
        print(f"\n{total(spent for _, spent in costs if spent is not None).sentence}")
    else:
        print("No request was seen in that time.", file=sys.stderr)
    alone = [at_most(each, since, now) for each in fleet.standalone if each.zone != inventory.ZONE]
    known = [hours for hours in alone if hours is not None]
    if known:
        print(f"TPU VMs that stand alone: at most {sum(known):,.1f} chip-hours besides.", file=sys.stderr)
    return ExitCode.CLOUD if failing else ExitCode.OK
