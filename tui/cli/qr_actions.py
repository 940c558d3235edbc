"""`slicetower qr delete|reset|recreate|cleanup`: what changes or destroys, confirmed first."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace

from backend.cloud import equivalents
from backend.cloud.intents import IntentKind, IntentStore
from backend.cloud.policies import PolicyStore
from backend.cloud.recover import Recovery
from backend.cloud.remains import delete_orphan, remains
from backend.cloud.usage import LimitStore
from backend.model import QueuedResource, QueuedResourceState
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, print_json
from tui.cli.places import add_place, confirm, context_of, find, refuse_read_only, rest_of, seconds_argument
from tui.cli.qr_views import LINE_LIMIT, print_dry_run, tell_failing
from tui.cli.qr_wait import add_no_ssh, tell_made

OPERATION_TIMEOUT_S = 600.0
RECREATE_TIMEOUT_S = 1800.0


def common(parser: argparse.ArgumentParser, *, run_async: bool = True) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="print the calls and their equivalents, send nothing")
    if run_async:
        parser.add_argument("--async", dest="run_async", action="store_true", help="do not wait")
    parser.add_argument("--timeout", type=seconds_argument, default=None, metavar="DURATION", help="such as 15m")
    add_format(parser)
    add_place(parser)


def add_delete(parser: argparse.ArgumentParser) -> None:
    parser.description = "Deletes requests and waits until they are gone, through states in which the API refuses it."
    parser.add_argument("names", nargs="+", metavar="ID")
    parser.add_argument("--force", action="store_true", help="also delete the slices of an ACTIVE request")
    common(parser)


def add_reset(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Restarts all workers of an ACTIVE request: memory is lost, disks stay, startup scripts run again."
    )
    parser.add_argument("name", metavar="ID")
    common(parser)


def add_recreate(parser: argparse.ArgumentParser) -> None:
    parser.description = "Deletes a request with its slices, waits until it is gone, and asks for the same again."
    parser.add_argument("name", metavar="ID")
    parser.add_argument(
        "--wait", action="store_true", help="wait until the new one is ready: ACTIVE, and ssh answers"
    )
    add_no_ssh(parser)
    common(parser, run_async=False)


def add_cleanup(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Deletes what is dead (FAILED, SUSPENDED) or left over, and goes on with deletes that were kept."
    )
    parser.add_argument(
        "--waiting-races", action="store_true", help="also entries of races that wait for a process to take them up"
    )
    common(parser, run_async=False)


def line_of(item: QueuedResource) -> str:
    running = f", {item.workers_ready} workers running" if item.workers_ready else ""
    return (
        f"{item.name}  {item.zone}  {item.state}  {item.slice_count} x {plain(item.accelerator_type)}  {item.tier}  "
        f"{item.chips} chips{running}"
    )


def _recovery(tower: Tower) -> Recovery:
    return Recovery(
        tower.client,
        IntentStore(tower.journal),
        say=lambda text: print(plain(text, limit=LINE_LIMIT), file=sys.stderr, flush=True),
        limits=LimitStore(tower.journal),
    )


async def delete(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "delete")
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        items = [find(fleet, name) for name in dict.fromkeys(arguments.names)]
        if not arguments.force:
            _require_force(items)
        if arguments.dry_run:
            shown = [
                equivalents.delete(item, rest_of(context), force=arguments.force, run_async=arguments.run_async)
                for item in items
            ]
            print_dry_run("delete", shown, arguments.format)
            return ExitCode.OK
        confirm([item.name for item in items], "delete", yes=arguments.yes, preview=[line_of(item) for item in items])
        return await _delete_all(
            tower,
            items,
            arguments.format,
            force=arguments.force,
            wait=not arguments.run_async,
            timeout=arguments.timeout,
        )


def _require_force(items: list[QueuedResource]) -> None:
    """Raises OperatorError where slices run: the service would refuse it, after a name was typed for nothing."""
    running = [item for item in items if item.state == QueuedResourceState.ACTIVE]
    if running:
        for item in running:
            print(line_of(item), file=sys.stderr)
        names = ", ".join(item.name for item in running)
        raise OperatorError(
            f"{names} is ACTIVE: it is deleted only together with its slices."
            if len(running) == 1
            else f"{names} are ACTIVE: they are deleted only together with their slices.",
            "Add --force to end what runs there and delete them too.",
        )


async def _delete_all(
    tower: Tower, items: list[QueuedResource], output: str, *, force: bool, wait: bool, timeout: float | None
) -> int:
    """Deletes side by side; each tells its own end, and the worst exit code counts."""
    recovery = _recovery(tower)
    codes: list[ExitCode] = []

    async def one(item: QueuedResource) -> None:
        tower.record(f"delete {'with its slices' if force else ''}".strip(), subject=item.name)
        error: OperatorError | None = None
        try:
            await recovery.delete(item.key, force=force, timeout_s=timeout or OPERATION_TIMEOUT_S, wait=wait)
        except OperatorError as caught:
            error = caught
            codes.append(caught.exit_code)
        _tell(item, error, wait=wait, output=output)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    return next(
        (code for code in (ExitCode.CLOUD, ExitCode.UNREACHABLE, ExitCode.TIMED_OUT) if code in codes), ExitCode.OK
    )


def _tell(item: QueuedResource, error: OperatorError | None, *, wait: bool, output: str) -> None:
    if output == "json":
        facts = {"name": item.name, "zone": item.zone, "deleted": error is None and wait, "accepted": error is None}
        print_json({**facts, "error": None if error is None else error.what})
    elif error is None:
        print(f"Deleted {item.name}." if wait else f"Deleting {item.name}.")
    if error is not None:
        print(f"slicetower: {plain(error.what)}", file=sys.stderr)
        for line in (error.cure, f"the original text: {error.raw}" if error.raw else ""):
            if line:
                print(f"  {plain(line)}", file=sys.stderr)


async def reset(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "reset")
    async with Tower.open(context, watch=False) as tower:
        item = find(await tower.refresh(), arguments.name)
        if arguments.dry_run:
            print_dry_run("reset", [equivalents.reset(item, rest_of(context))], arguments.format)
            return ExitCode.OK
        confirm([item.name], "reset", yes=arguments.yes, preview=[line_of(item)])
        operation = await tower.client.reset_queued_resource(*item.key)
        tower.record("reset", subject=item.name)
        if not arguments.run_async:
            operation = await tower.client.wait_operation(operation, arguments.timeout or OPERATION_TIMEOUT_S)
        if arguments.format == "json":
            print_json({"name": item.name, "zone": item.zone, "operation": operation.path, "done": operation.done})
        else:
            print(f"{'Reset' if operation.done else 'Resetting'} {item.name}.")
        return ExitCode.OK


async def recreate(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "recreate")
    async with Tower.open(context, watch=False) as tower:
        item = find(await tower.refresh(), arguments.name)
        recovery = _recovery(tower)
        plan = await recovery.plan(item.key)
        for note in plan.notes:
            print(f"slicetower: {plain(note)}", file=sys.stderr)
        if arguments.dry_run:
            shown = [
                equivalents.delete(item, rest_of(context), force=True),
                equivalents.create(plan.request, rest_of(context)),
            ]
            print_dry_run("recreate", shown, arguments.format)
            return ExitCode.OK
        confirm([item.name], "recreate", yes=arguments.yes, preview=[line_of(item)])
        tower.record("recreate: delete, then ask for the same", subject=item.name)
        intent, _ = await recovery.recreate(item.key, timeout_s=arguments.timeout or RECREATE_TIMEOUT_S)
        if intent.outcome != "done":
            raise OperatorError(intent.last_text or f"{item.name} was not made again.", exit_code=ExitCode.CLOUD)
        job = dict(plan.request.metadata).get("slicetower-run", "")
        if job and tower.runs.reopen(job):
            print(f"slicetower: its job goes on as run {plain(job)}", file=sys.stderr)
        return await tell_made(tower, item.name, arguments)


async def cleanup(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    if not arguments.dry_run:
        refuse_read_only(context, "clean up")
    async with Tower.open(context, watch=False) as tower:
        fleet = await tower.refresh()
        failing = tell_failing(fleet)
        store = IntentStore(tower.journal)
        here = {(poll.project, poll.zone) for poll in fleet.polls if not poll.error}
        kept = [intent for intent in store.open_intents() if (intent.project, intent.zone) in here]
        policies = PolicyStore(tower.journal)
        lost_races = policies.lost_races()
        found = remains(fleet, lost_races)
        if arguments.waiting_races:
            found = replace(found, zombies=(*found.zombies, *(item for item, _ in found.waiting)), waiting=())
        else:
            lost_races = [race for race in lost_races if not race.waits]
        dead, orphans, zombies = found.dead, found.orphans, found.zombies
        for item, kept_by in found.waiting:
            print(
                f"{item.name} in {item.zone} is an entry of race {kept_by}, which waits: kept."
                f" `slicetower qr race --resume {kept_by}` takes it up, --waiting-races deletes it.",
                file=sys.stderr,
            )
        for item in found.winners:
            print(f"{item.name} in {item.zone} is ACTIVE, of a race that nobody runs: kept.", file=sys.stderr)
        if arguments.dry_run:
            rest = rest_of(context)
            shown = [equivalents.delete(item, rest, force=True) for item in found.requests]
            print_dry_run(
                "cleanup", [*shown, *(equivalents.delete_node(each, rest) for each in orphans)], arguments.format
            )
            return ExitCode.OK
        if not dead and not orphans and not kept and not zombies:
            print("Nothing is dead, left over or waiting to be deleted.", file=sys.stderr)
            return ExitCode.CLOUD if failing else ExitCode.OK
        preview = [line_of(item) for item in dead]
        preview += [
            f"{plain(each.node_id)}  {each.zone}  node without its request {each.queued_resource}" for each in orphans
        ]
        preview += [f"{intent.name}  {intent.zone}  {intent.kind} wished before, still open" for intent in kept]
        preview += [f"{line_of(item)}  of a race that nobody runs any more" for item in zombies]
        preview.append(f"{len(dead)} dead requests hold the quota of {found.chips} chips.")
        names = [item.name for item in dead] + [each.node_id for each in orphans] + [intent.name for intent in kept]
        names += [item.name for item in zombies]
        confirm(names, "delete", yes=arguments.yes, preview=preview)
        code = await _delete_all(
            tower, list(found.requests), arguments.format, force=True, wait=True, timeout=arguments.timeout
        )
        if code == ExitCode.OK:
            for race in lost_races:
                policies.drop_race(race.id)
        recovery = _recovery(tower)
        done = {item.key for item in dead}
        for intent in kept:
            if intent.kind is IntentKind.RECREATE or intent.key not in done:
                await recovery.finish(intent, arguments.timeout or OPERATION_TIMEOUT_S)
        for each in orphans:
            if not await delete_orphan(tower.client, each, arguments.timeout or OPERATION_TIMEOUT_S):
                print(f"{plain(each.node_id)}: its request is there after all; left alone.", file=sys.stderr)
                continue
            tower.record(f"deleted the node {each.node_id}, whose request is gone", subject=each.queued_resource)
            if arguments.format == "json":
                print_json(
                    {"name": each.node_id, "zone": each.zone, "deleted": True, "accepted": True, "error": None}
                )
            else:
                print(f"Deleted the node {plain(each.node_id)}.")
        return ExitCode.CLOUD if failing else code
