"""What changes queued resources: asked, told with its consequences, done, and noted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.context import Context
from backend.model import EventKind, QueuedResource, Slice
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID
from tui.screens.confirm import Ask, Choice, Question, TypedConfirmation
from tui.wording import count, fold, in_state, utc_now

ACCEPT_TIMEOUT_S = 30.0
"""How long a delete waits for the service's word; the wish outlives it."""

NODE_TIMEOUT_S = 600.0
"""Of the delete of one node."""

if TYPE_CHECKING:
    from backend.cloud.equivalents import Rest
    from tui.console import Console


def rest_of(context: Context) -> Rest:
    """How the context's REST endpoint is reached, for equivalents."""
    from backend.cloud.equivalents import Rest

    return Rest(context.rest_endpoint, authorised=context.credentials != "none")


def consequences(console: Console, items: Sequence[QueuedResource]) -> list[str]:
    """What will be gone with these requests, one line each, and what still runs on them."""
    now = utc_now()
    lines = []
    for item in items:
        since = console.fleet.since.get(item.key)
        held = f"{item.slice_count} × {item.accelerator_type or 'slice'}"
        state = item.state + (f" for {in_state(since, now)}" if since is not None else "")
        lines.append(f"{item.name}  {state}  {held}  {count(item.chips, 'chip')}  {item.zone}")
    names = {item.name for item in items}
    for run in console.live_runs():
        touched = sum(1 for result in run.results if result.worker.queued_resource in names and not result.ended)
        if touched:
            title = run.request.title or " ".join(run.request.argv)
            lines.append(f"run {run.id} ({title}) is still running on {count(touched, 'worker')} of them")
    return lines


async def delete(console: Console, items: Sequence[QueuedResource], spared: Sequence[str] = ()) -> bool:
    """Deletes requests with their slices, after the name (or for several: the number) was typed.

    Args:
        spared: What is marked with them and can't be deleted here: TPU VMs without a request.

    Returns:
        Whether it was wished.
    """
    if not items:
        raise OperatorError("There is no queued resource to delete here.")
    workers = sum(item.workers_ready for item in items)
    lines = consequences(console, items)
    if workers:
        lines.append(f"{count(workers, 'worker')} will be gone with all that is on their disks.")
    if spared:
        lines.append(f"Left as they are, without a queued resource: {fold(spared)}.")
    one = len(items) == 1
    text = items[0].name if one else f"delete {len(items)}"
    title = f"Delete {items[0].name}?" if one else f"Delete {len(items)} queued resources?"
    from backend.cloud import equivalents

    same = equivalents.delete(items[0], rest_of(console.context), force=True) if one else None
    if not await console.push_screen_wait(TypedConfirmation(title, lines, text, deed="delete", same=same)):
        return False
    await _send_deletes(console, items)
    return True


async def maintenance(console: Console, item: QueuedResource) -> None:
    """Starts the maintenance of those slices for which one is announced, after the request's name was typed."""
    from backend.cloud import equivalents
    from backend.cloud.maintenance import why_not

    announced = [each for each in item.slices if each.maintenance is not None]
    if not announced:
        raise OperatorError(f"No maintenance of {item.name} is announced.", "There is nothing to start.")
    may = [each for each in announced if not why_not(each)]
    if not may:
        raise OperatorError(f"It cannot be started by hand now: {why_not(announced[0])}.", "It begins by itself.")
    if len(may) > 1:
        may = await _ask_slices(console, may)
        if not may:
            return
    lines = []
    for each in announced:
        window = (
            f"{each.maintenance.kind} from {each.maintenance.window_start or 'an unknown time'}"
            if each.maintenance
            else ""
        )
        word = why_not(each) or ("starts now" if each in may else "left alone")
        lines.append(f"slice {each.index}  {each.node_id}  {window}  {word}")
    workers = sum(len(each.workers) for each in may)
    lines.append(f"{count(workers, 'worker')} will be gone at once, large slices perhaps for hours.")
    names = tuple(each.node_id for each in may)
    same = equivalents.perform_maintenance(item, names, rest_of(console.context))
    title = f"Start the maintenance of {item.name}?"
    if not await console.push_screen_wait(TypedConfirmation(title, lines, item.name, deed="start", same=same)):
        return
    tower = console.require_tower()
    await tower.client.perform_maintenance(*item.key, node_ids=names)
    console.note(EventKind.ACTION, f"started the maintenance of {count(len(may), 'slice')}", subject=item.name)
    tower.watch.poke()


async def _ask_slices(console: Console, may: Sequence[Slice]) -> list[Slice]:
    """Which of them: all, to begin with; none when the question was left."""
    indices = {each.index for each in may}

    def read(text: str) -> set[int]:
        wanted: set[int] = set()
        for piece in text.replace(",", " ").split():
            first, dash, last = piece.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()) or len(piece) > 9:
                raise OperatorError(f"'{plain(piece)}' is no index or range.", "Write 0,2 or 0-3.")
            wanted.update(range(int(first), int(last if dash else first) + 1))
        strange = wanted - indices
        if strange or not wanted:
            there = ", ".join(map(str, sorted(indices)))
            raise OperatorError(
                f"Slice {min(strange)} cannot be started." if strange else "No slice is named.", there
            )
        return wanted

    lines = [f"slice {each.index}  {each.node_id}" for each in may]
    value = ",".join(map(str, sorted(indices)))
    text = await console.push_screen_wait(Ask("The maintenance of which slices?", lines, value=value, check=read))
    return [each for each in may if each.index in read(text)] if text else []


async def cleanup(console: Console) -> None:
    """Deletes every dead request and what others left behind, after the list was shown."""
    from backend.cloud.policies import PolicyStore
    from backend.cloud.remains import delete_orphan, remains

    tower = console.require_tower()
    policies = PolicyStore(tower.journal)
    races = policies.lost_races()
    found = remains(console.fleet, races)
    if not found:
        console.say(
            "No request is failed or suspended, and no node is without its request: there is nothing to clean up."
        )
        return
    lines = consequences(console, found.dead)
    lines += [f"{line}  of a race that nobody runs any more" for line in consequences(console, found.zombies)]
    lines += [
        f"{each.node_id}  node without its request {each.queued_resource}  {each.zone}" for each in found.orphans
    ]
    key = console.settings.keymap.shown(BY_ID["take-up"])
    lines += [
        f"{consequences(console, [item])[0]}  entry of race {race}, which waits: {key} in policies takes it up"
        for item, race in found.waiting
    ]
    if found.dead:
        lines += ["", f"The dead hold quota for {count(found.chips, 'chip')} and never come back."]
    number = len(found.requests) + len(found.orphans)
    choices = [Choice("yes", f"Delete {number}", "error")] if number else []
    choices.append(Choice("no", "Keep them"))
    if found.waiting:
        # Never in one breath with the dead: somebody let them wait.
        choices.append(Choice("all", f"Delete all {number + len(found.waiting)}, of races that wait too", "error"))
    title = f"Delete {count(len(found.dead), 'dead request')}?" if not found.orphans else f"Delete {number}?"
    if not number:
        title = "Nothing is dead. Delete what waits for a race?"
    answer = await console.push_screen_wait(Question(title, lines, choices, chosen=1 if number else 0))
    if answer not in ("yes", "all"):
        return
    deleted = [*found.requests, *((item for item, _ in found.waiting) if answer == "all" else ())]
    if deleted:
        await _send_deletes(console, deleted)
        for race in races:
            if answer == "all" or not race.waits:
                policies.drop_race(race.id)
    for each in found.orphans:
        if await delete_orphan(tower.client, each, NODE_TIMEOUT_S):
            console.note(
                EventKind.ACTION, f"deleted {each.node_id}, whose request is gone", subject=each.queued_resource
            )
    tower.watch.poke()


async def _send_deletes(console: Console, items: Sequence[QueuedResource]) -> None:
    """Keeps the wish for each, and tells which the cloud refused for good."""
    recovery = console.require_recovery()
    failed: list[OperatorError] = []
    for item in items:
        try:
            await recovery.delete(item.key, force=True, timeout_s=ACCEPT_TIMEOUT_S, wait=False)
        except OperatorError as error:
            failed.append(error)
        else:
            console.note(EventKind.ACTION, f"asked to delete {item.name}", subject=item.name)
    console.require_tower().watch.poke()
    done = len(items) - len(failed)
    if done:
        names = fold(item.name for item in items) if not failed else f"{done} of {len(items)}"
        console.say(f"Being deleted: {names}.")
    if failed:
        raise failed[0]


async def recreate(console: Console, item: QueuedResource) -> None:
    """Shows what the same request would be, and after its name was typed keeps the wish: delete, wait, ask again."""
    recovery = console.require_recovery()
    plan = await recovery.plan(item.key)
    lines = [
        *consequences(console, [item]),
        f"It is deleted; when it is gone, {plan.request.node_count} × {plan.request.shape} is asked for again.",
        *plan.notes,
    ]
    title = f"Recreate {item.name}?"
    if not await console.push_screen_wait(TypedConfirmation(title, lines, item.name, deed="recreate")):
        return
    await recovery.wish_recreate(item.key)
    console.note(EventKind.ACTION, f"recreating {item.name}", subject=item.name)
    console.say(f"{item.name} is being recreated: it is deleted first, and asked for again when it is gone.")
    console.require_tower().watch.poke()


async def reset(console: Console, item: QueuedResource) -> None:
    """Resets one request, after its name was typed."""
    lines = [*consequences(console, [item]), "All workers restart: memory is erased, disks stay."]
    from backend.cloud import equivalents

    same = equivalents.reset(item, rest_of(console.context))
    question = TypedConfirmation(f"Reset {item.name}?", lines, item.name, deed="reset", same=same)
    if not await console.push_screen_wait(question):
        return
    tower = console.require_tower()
    await tower.client.reset_queued_resource(item.project, item.zone, item.name)
    console.note(EventKind.ACTION, f"asked to reset {item.name}", subject=item.name)
    console.say(f"{item.name} is being reset.")
    tower.watch.poke()
