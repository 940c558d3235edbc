"""`slicetower qr keep` and `qr race`: in the foreground, with their state in the journal."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial

from backend.cloud import equivalents
from backend.cloud.cautions import warnings
from backend.cloud.gcloud_flags import request_of
from backend.cloud.intents import IntentStore
from backend.cloud.keep import Keeper
from backend.cloud.kept_races import RACE_TIMEOUT_S
from backend.cloud.policies import FAILURE_BUDGET, PREEMPTION_BUDGET, Keep, PolicyStore
from backend.cloud.race import Race, candidates
from backend.cloud.recover import Recovery
from backend.cloud.requests import RUN_KEY, CreateRequest
from backend.cloud.usage import LimitStore
from backend.cloud.validation import problems
from backend.context import Context
from backend.model import Fleet
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, print_json, print_table
from tui.cli.places import add_place, confirm, context_of, find, refuse_read_only, rest_of
from tui.cli.qr_create import add_arguments as add_create
from tui.cli.qr_create import request_from
from tui.cli.qr_views import print_dry_run, print_problems, print_rows
from tui.durations import format_duration
from tui.race_words import resume_lines


def add_keep(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Stays in the foreground, makes a request again when it is preempted or fails, and tells notices and alerts as the "
        "configuration says; without an ID: what is kept."
    )
    parser.add_argument("name", nargs="?", default="", metavar="ID")
    parser.add_argument(
        "--preemptions", type=int, default=PREEMPTION_BUDGET, metavar="N", help="budget (default: 20)"
    )
    parser.add_argument("--failures", type=int, default=FAILURE_BUDGET, metavar="N", help="budget (default: 3)")
    parser.add_argument(
        "--on-ready",
        default="",
        metavar="COMMAND",
        help="run here, each time it is ready anew, such as a detached run",
    )
    parser.add_argument(
        "--end", action="store_true", help="keep it no more, where no process does; the request stays as it is"
    )
    parser.add_argument("--env", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--yes", action="store_true", help="do not ask: it will delete and make again by itself")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent after a preemption")
    add_format(parser)
    add_place(parser)


def add_race(parser: argparse.ArgumentParser) -> None:
    add_create(parser)
    parser.description = (
        "Asks in several zones or for several types; the first ACTIVE wins, the others are cancelled. Killed in any state it "
        "is taken up by --resume, and nothing is made twice; without an ID: the races that are not over."
    )
    parser.add_argument("--zones", default="", metavar="ZONE,...", help="default: the zones of the context")
    parser.add_argument("--accelerator-types", default="", metavar="TYPE,...", help="instead of --accelerator-type")
    parser.add_argument(
        "--resume", type=int, default=None, metavar="RACE", help="take up a race that no process runs any more"
    )


def _say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def _job_again(tower: Tower, request: CreateRequest) -> None:
    """The job of a request that was made again goes on as the run that it was."""
    run_id = dict(request.metadata).get(RUN_KEY, "")
    if run_id and tower.runs.reopen(run_id):
        _say(f"its job goes on as run {run_id}")


async def keep(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.name:
        return await _list_keeps(arguments)
    if arguments.end:
        return await _end_keep(arguments)
    if arguments.env:
        from backend.runs.production import secret_refused

        raise secret_refused(
            arguments.env[0].partition("=")[0], "what is kept is made again when nobody is there to give a value"
        )
    if min(arguments.preemptions, arguments.failures) < 0:
        raise OperatorError("A budget cannot be below 0.", "0 means: never made again for that reason.")
    try:
        on_ready = tuple(shlex.split(arguments.on_ready))
    except ValueError as error:
        raise OperatorError(f"--on-ready cannot be read: {error}.", "Look at its quotes.") from error
    if not arguments.dry_run:
        refuse_read_only(context, "keep a request")
    async with Tower.open(context, watch=False) as tower:
        item = find(await tower.refresh(), arguments.name)
        recovery = Recovery(tower.client, IntentStore(tower.journal), say=_say, limits=LimitStore(tower.journal))
        plan = await recovery.plan(item.key)
        for note in plan.notes:
            _say(note)
        if arguments.dry_run:
            rest = rest_of(context)
            shown = [equivalents.delete(item, rest, force=True), equivalents.create(plan.request, rest)]
            print_dry_run("keep", shown, arguments.format)
            return ExitCode.OK
        preview = f"{item.name} will be deleted and made again after up to {arguments.preemptions} preemptions and "
        confirm([item.name], "keep", yes=arguments.yes, preview=[f"{preview}{arguments.failures} failures."])
        wanted = Keep(*item.key, arguments.preemptions, arguments.failures, on_ready)
    async with Tower.open(replace(context, project=item.project, zones=(item.zone,), also=())) as tower:
        recovery = Recovery(
            tower.client,
            IntentStore(tower.journal),
            say=_say,
            limits=LimitStore(tower.journal),
            made_again=partial(_job_again, tower),
        )
        keeper = Keeper(recovery, PolicyStore(tower.journal), tower.watch, say=_say, ssh=tower.roll_call.word)

        def kept() -> Fleet:
            mine = (each for each in tower.watch.fleet.queued_resources if each.key == item.key)
            return Fleet(queued_resources=tuple(mine))

        tower.record("kept from now on", subject=item.name)
        from tui.cli.notices import tell, telling

        async with telling(tower, tell):
            calling = asyncio.create_task(tower.roll_call.run(kept))
            try:
                text = await keeper.run(wanted)
            finally:
                calling.cancel()
                with suppress(asyncio.CancelledError):
                    await calling
        tower.record(f"not kept any more: {text}", subject=item.name)
    raise OperatorError(text, exit_code=ExitCode.CLOUD)


async def _end_keep(arguments: argparse.Namespace) -> int:
    """Ends a policy that no process carries out; the request may be gone already."""
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "end a policy")
    async with Tower.open(context, watch=False) as tower:
        store = PolicyStore(tower.journal)
        places = {(context.project, zone) for zone in context.zones}
        kept = [each for each in store.keeps() if (each.project, each.zone) in places]
        found = next((each for each in kept if each.name == arguments.name), None)
        if found is None:
            names = ", ".join(sorted(each.name for each in kept))
            raise OperatorError(
                f"{plain(arguments.name)} is not kept.", f"Kept: {names}." if names else "Nothing is kept."
            )
        if arguments.dry_run:
            _say(f"{found.name} would be kept no more; nothing is sent to the cloud")
            return ExitCode.OK
        if not store.end_keep(found.key, "ended"):
            raise OperatorError(f"Another process keeps {found.name}.", "Interrupt that one: it holds the lease.")
        tower.record("not kept any more: ended", subject=found.name)
    _say(f"{found.name} is kept no more; it stays as it is")
    return ExitCode.OK


async def _list_keeps(arguments: argparse.Namespace) -> int:
    async with Tower.open(context_of(arguments), watch=False) as tower:
        found = PolicyStore(tower.journal).keeps()
    rows = [
        {
            "name": each.name,
            "zone": each.zone,
            "running": each.running,
            "preemptions": each.preemptions,
            "preemption_budget": each.preemption_budget,
            "failures": each.failures,
            "failure_budget": each.failure_budget,
            "on_ready": list(each.on_ready),
            "last": each.last_text,
        }
        for each in found
    ]
    if arguments.format == "json":
        for row in rows:
            print_json(row)
    elif rows:
        print_table(
            ("NAME", "ZONE", "RUNS", "PREEMPTIONS", "FAILURES", "LAST"),
            [
                (
                    each.name,
                    each.zone,
                    "yes" if each.running else "no process",
                    f"{each.preemptions}/{each.preemption_budget}",
                    f"{each.failures}/{each.failure_budget}",
                    each.last_text,
                )
                for each in found
            ],
        )
    else:
        print("Nothing is kept.", file=sys.stderr)
    return ExitCode.OK


async def race(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if arguments.resume is not None:
        return await _resume(arguments, context)
    if _says_nothing(arguments):
        return await _list_races(arguments)
    request = request_from(arguments, context)
    zones = [zone for zone in arguments.zones.split(",") if zone] or list(context.zones)
    types = [kind.lower() for kind in arguments.accelerator_types.split(",") if kind]
    entries = candidates(request, list(dict.fromkeys(zones)), list(dict.fromkeys(types)))
    if len(entries) < 2:
        raise OperatorError("One request is no race.", "Give several --zones or --accelerator-types.")
    for entry in entries:
        for problem in problems(entry):
            raise OperatorError(f"{entry.zone}: {problem.what}", problem.cure)
    for entry in entries:
        print_problems([replace(item, what=f"{entry.zone}: {item.what}") for item in warnings(entry)], kind="warning")
    if arguments.dry_run:
        print_dry_run("race", [equivalents.create(entry, rest_of(context)) for entry in entries], arguments.format)
        return ExitCode.OK
    refuse_read_only(context, "race")
    context = replace(context, project=request.project, zones=tuple(dict.fromkeys(zones)), also=())
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        taken = {item.key for item in fleet.queued_resources}
        for entry in entries:
            if entry.key in taken:
                raise OperatorError(f"{entry.name} exists already in {entry.zone}.", "Choose another id.")
    async with Tower.open(context) as tower:
        recovery = Recovery(tower.client, IntentStore(tower.journal), say=_say, limits=LimitStore(tower.journal))
        runner = _runner(tower, recovery)
        tower.record(f"a race of {len(entries)} requests", subject=request.name)
        winner = await runner.run(entries, arguments.timeout or RACE_TIMEOUT_S)
        tower.record(f"won the race in {winner.zone}", subject=winner.name)
        fleet = await tower.refresh()
        print_rows([item for item in fleet.queued_resources if item.key == winner.key], fleet, arguments.format)
    return ExitCode.OK


def _runner(tower: Tower, recovery: Recovery) -> Race:
    from backend.runs.production import given_up

    over = partial(given_up, manager=tower.runs)
    return Race(recovery, PolicyStore(tower.journal), tower.watch, say=_say, given_up=over)


def _says_nothing(arguments: argparse.Namespace) -> bool:
    """Neither an id nor anything about a request."""
    given = replace(request_of(arguments, arguments.name), project="", zone="")
    elsewhere = (arguments.from_file, arguments.from_gcloud, arguments.from_recreate, arguments.ssh_key)
    return given == CreateRequest("", "", "") and not any((*elsewhere, arguments.zones, arguments.accelerator_types))


async def _list_races(arguments: argparse.Namespace) -> int:
    async with Tower.open(context_of(arguments), watch=False) as tower:
        found = PolicyStore(tower.journal).races(ended=0)
    rows = [
        {
            "race": each.id,
            "running": each.running,
            "settling": each.settling,
            "winner": each.winner,
            "left_s": round(each.left_s),
            "entries": [
                {
                    "name": part.request.name,
                    "zone": part.request.zone,
                    "type": part.request.shape,
                    "state": part.state,
                }
                for part in each.parts
            ],
        }
        for each in found
    ]
    if arguments.format == "json":
        for row in rows:
            print_json(row)
    elif found:
        print_table(
            ("RACE", "RUNS", "LEFT", "ENTRIES"),
            [
                (
                    str(each.id),
                    "yes" if each.running else "no process",
                    "decided" if each.settling else format_duration(each.left_s),
                    ", ".join(f"{part.name} in {part.zone}" for part in each.entries),
                )
                for each in found
            ],
        )
        for each in found:
            if each.lost:
                _say(f"nobody runs race {each.id}: `slicetower qr race --resume {each.id}` takes it up")
    else:
        print("No race is going on.", file=sys.stderr)
    return ExitCode.OK


async def _resume(arguments: argparse.Namespace, context: Context) -> int:
    """Goes on with a race of the journal, in whatever state its process left it."""
    if not _says_nothing(arguments):
        raise OperatorError("--resume goes on with a race as it was begun.", "Leave out the id and its options.")
    if not arguments.dry_run:
        refuse_read_only(context, "race")
    async with Tower.open(context, watch=False) as tower:
        kept = PolicyStore(tower.journal).race(arguments.resume)
        if kept is None or kept.ended:
            raise OperatorError(
                f"{'Race' if kept else 'There is no race'} {arguments.resume}{' is over' if kept else ''}.",
                "`slicetower qr race` lists those that are not over.",
            )
        places = {entry.key[:2] for entry in kept.entries}
        if not places <= set(context.places):
            strange = ", ".join(sorted(zone for project, zone in places - set(context.places)))
            raise OperatorError(
                f"Race {kept.id} asks in {strange}, which this context does not have.",
                "Give the context with which it was begun.",
            )
        if not kept.running:
            for line in resume_lines(kept, await tower.refresh()):
                _say(line)
    if arguments.dry_run:
        return ExitCode.OK
    zones = tuple(dict.fromkeys(entry.zone for entry in kept.entries))
    projects = {entry.project for entry in kept.entries}
    if len(projects) == 1:
        context = replace(context, project=projects.pop(), zones=zones, also=())
    async with Tower.open(context) as tower:
        recovery = Recovery(tower.client, IntentStore(tower.journal), say=_say, limits=LimitStore(tower.journal))
        runner = _runner(tower, recovery)
        winner = await runner.resume(kept.id, arguments.timeout)
        if winner is None:
            _say(f"race {kept.id} was decided before: what lost is cancelled")
            return ExitCode.OK
        tower.record(f"won the race in {winner.zone}", subject=winner.name)
        fleet = await tower.refresh()
        print_rows([item for item in fleet.queued_resources if item.key == winner.key], fleet, arguments.format)
    return ExitCode.OK
