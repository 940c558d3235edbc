"""`slicetower qr`: queued resources, listed, described, asked for, waited for and deleted."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from backend.cloud.equivalents import describe as describe_equivalent
from backend.model import Fleet
from backend.outcomes import ExitCode, OperatorError
from backend.tower import Tower
from tui.cli import qr_actions, qr_costs, qr_create, qr_job, qr_maintenance, qr_policies, qr_wait, qr_waits
from tui.cli.output import add_format, print_json, timestamp
from tui.cli.places import add_place, context_of, find, rest_of
from tui.cli.qr_views import equivalent_json, outline, print_rows, row_json, slices_json, tell_failing

TAKES_COMMAND = True
"""After `--`, for the job of a create."""

Verb = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Awaitable[int]]]


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.description = "Every request of the context's zones."
    parser.add_argument(
        "--state",
        action="append",
        type=qr_wait.filter_argument,
        default=[],
        metavar="STATE",
        help="only this state; may be given again",
    )
    parser.add_argument("--costs", action="store_true", help="chip-hours so far, and money if [prices] are given")
    add_format(parser)
    add_place(parser)


def _add_describe(parser: argparse.ArgumentParser) -> None:
    parser.description = "One request in full: all that the API sends, its slices, what was seen of its states."
    parser.add_argument("name", metavar="ID")
    add_format(parser)
    add_place(parser)


def _add_create(parser: argparse.ArgumentParser) -> None:
    qr_create.add_arguments(parser)
    qr_job.add_flags(parser)


async def _list(arguments: argparse.Namespace) -> int:
    async with Tower.open(context_of(arguments), watch=False) as tower:
        fleet = await tower.refresh()
        items = [item for item in fleet.queued_resources if not arguments.state or item.state in arguments.state]
        spent = tower.costs(items) if arguments.costs else None
    none = f"No queued resource is {' or '.join(arguments.state)}." if arguments.state else "No queued resources."
    print_rows(items, fleet, arguments.format, spent, none=none)
    return ExitCode.CLOUD if tell_failing(fleet) else ExitCode.OK


async def _describe(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        item = find(fleet, arguments.name)
        raw = await tower.client.describe(*item.key)
        spans = tower.journal.timeline(item.key)
    view = {
        **raw,
        "summary": _summary(item.key, fleet),
        "slices": slices_json(item),
        "timeline": [
            {
                "state": span.state,
                "entered_at": timestamp(span.entered_at),
                "entered_is_lower_bound": span.entered_is_lower_bound,
                "left_at": timestamp(span.left_at),
            }
            for span in spans
        ],
    }
    if arguments.format == "json":
        print_json({**view, "equivalent": equivalent_json(describe_equivalent(item, rest_of(context)))})
    else:
        print("\n".join(outline(view)))
    return ExitCode.OK


def _summary(key: tuple[str, str, str], fleet: Fleet) -> dict[str, object]:
    from backend.cloud.watch import now_utc

    item = next(item for item in fleet.queued_resources if item.key == key)
    return row_json(item, fleet.since.get(key), now_utc())


VERBS: dict[str, Verb] = {
    "list": ("every request", _add_list, _list),
    "describe": ("one request in full", _add_describe, _describe),
    "create": ("ask for slices", _add_create, qr_create.main),
    "wait": ("until it is ready, in a state, or gone", qr_wait.add_arguments, qr_wait.main),
    "waits": ("how long requests waited for capacity", qr_waits.add_arguments, qr_waits.main),
    "costs": ("chip-hours of all that was seen, gone or not", qr_costs.add_arguments, qr_costs.main),
    "delete": ("delete requests and wait until they are gone", qr_actions.add_delete, qr_actions.delete),
    "reset": ("restart all workers", qr_actions.add_reset, qr_actions.reset),
    "recreate": ("delete, wait until gone, ask for the same", qr_actions.add_recreate, qr_actions.recreate),
    "adopt": ("take up the job of a request that somebody else made", qr_job.add_adopt, qr_job.adopt),
    "cleanup": ("delete what is dead and holds quota", qr_actions.add_cleanup, qr_actions.cleanup),
    "keep": ("make it again after preemptions and failures", qr_policies.add_keep, qr_policies.keep),
    "race": ("several zones or types, the first wins", qr_policies.add_race, qr_policies.race),
    "maintenance": ("upcoming maintenance, and start it", qr_maintenance.add, qr_maintenance.maintenance),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="qr_verb", required=True, metavar="VERB")
    for name, (line, add, _) in VERBS.items():
        add(verbs.add_parser(name, help=line, allow_abbrev=False))


def main(arguments: argparse.Namespace) -> int:
    return int(asyncio.run(_run(arguments)))


async def _run(arguments: argparse.Namespace) -> int:
    if arguments.command and arguments.qr_verb != "create":
        raise OperatorError(f"qr {arguments.qr_verb} takes no command.", "Leave out what stands after `--`.")
    return await VERBS[arguments.qr_verb][2](arguments)
