"""What is told before the console is left: what still exists and costs, and what becomes of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from backend.costs import total
from backend.model import DEAD_STATES, Fleet, QueuedResourceState
from backend.runs.model import RunState
from jobs import accelerators
from tui.screens.confirm import Choice
from tui.wording import count, fold

if TYPE_CHECKING:
    from backend.cloud.intents import Intent
    from backend.cloud.policies import Keep
    from backend.costs import Cost
    from backend.runs.manager import Run
    from tui.forwards import OpenForward


def costs(fleet: Fleet, prices: Sequence[tuple[str, float]]) -> str:
    """What ACTIVE requests cost an hour by the operator's prices; empty where none apply."""
    price = dict(prices)
    total = 0.0
    for item in fleet.queued_resources:
        found = accelerators.find(item.accelerator_type)
        if item.state == QueuedResourceState.ACTIVE and found is not None:
            total += price.get(found.generation.name, 0.0) * item.chips
    return f"about {total:,.2f} USD an hour by your prices" if total else ""


def leaving_lines(
    fleet: Fleet,
    runs: Iterable[Run],
    prices: Sequence[tuple[str, float]] = (),
    *,
    spent: Iterable[Cost] = (),
    keeps: Iterable[Keep] = (),
    wishes: Iterable[Intent] = (),
    forwards: Sequence[OpenForward] = (),
    kept_here: Sequence[str] = (),
    raced_here: Sequence[int] = (),
) -> list[str]:
    """One sentence each; none when nothing is left behind.

    Args:
        fleet: What exists.
        runs: What this console launched or found again.
        prices: USD per chip-hour by generation.
        spent: What the requests have cost so far.
        keeps: Policies that were not ended.
        wishes: Deletes and recreates that are not done.
        forwards: Ports that are open.
        kept_here: Requests that this console keeps.
        raced_here: Races that it runs.
    """
    active = [item for item in fleet.queued_resources if item.state == QueuedResourceState.ACTIVE]
    dead = [item for item in fleet.queued_resources if item.state in DEAD_STATES]
    other = [item for item in fleet.queued_resources if item not in active and item not in dead]
    lines = []
    if active:
        chips = count(sum(item.chips for item in active), "chip")
        money = costs(fleet, prices)
        lines.append(
            f"ACTIVE and costing: {fold(item.name for item in active)} ({chips}{', ' + money if money else ''})."
        )
    if other:
        chips = count(sum(item.chips for item in other), "chip")
        lines.append(f"On its way: {fold(item.name for item in other)} ({chips}).")
    if dead:
        chips = count(sum(item.chips for item in dead), "chip")
        lines.append(f"Dead and holding quota: {fold(item.name for item in dead)} ({chips}).")
    if fleet.standalone:
        lines.append(f"TPU VMs without a queued resource: {fold(item.node_id for item in fleet.standalone)}.")
    so_far = total(spent)
    if so_far.chip_hours or so_far.is_lower_bound:
        lines.append(f"What exists has used {so_far.sentence}.")
    pending = [f"{each.kind.value} {each.name}" for each in wishes]
    if pending:
        lines.append(f"Wished and not done; it goes on when a console is open: {', '.join(pending)}.")
    if kept_here:
        lines.append(
            f"Kept by this console alone: {fold(kept_here)}. When it ends nobody makes it again;"
            f" `slicetower qr keep {kept_here[0]}` goes on without a console."
        )
    for race in raced_here:
        lines.append(
            f"Race {race} is run by this console alone. When it ends, what it asked for waits, and may become ACTIVE and"
            f" cost; `slicetower qr race --resume {race}` goes on without a console."
        )
    idle = [each.name for each in keeps if not each.running and each.name not in kept_here]
    if idle:
        lines.append(f"Kept by a policy that no process carries out (`slicetower qr keep`): {fold(idle)}.")
    living = [run for run in runs if run.state is RunState.RUNNING]
    detached = [run for run in living if run.request.supervised]
    tied = [run for run in living if not run.request.supervised]
    if detached:
        themselves = "itself" if len(detached) == 1 else "themselves"
        lines.append(f"{count(len(detached), 'run')} will go on by {themselves} and be found again.")
    if tied:
        lines.append(f"{count(len(tied), 'run')} tied to this console will lose their connection.")
    if forwards:
        where = fold(f"port {each.ports.remote} of {each.worker.address}" for each in forwards)
        lines.append(f"{count(len(forwards), 'forward')} will be closed: {where}.")
    return lines


def leaving_choices(carries: bool) -> tuple[Choice, ...]:
    """The answers of the question; what the console carries out itself can be given up on the way."""
    if not carries:
        return (Choice("quit", "Quit", "primary"), Choice("no", "Stay"))
    return (
        Choice("quit", "Quit, they wait", "primary"),
        Choice("give up", "Give them up and quit", "error"),
        Choice("no", "Stay"),
    )


def left_words(kept: Sequence[str], raced: Sequence[int], undeleted: Sequence[str]) -> str:
    """What the terminal says once the console is gone: how to go on without it."""
    lines = [f"{name} is not kept now: slicetower qr keep {name}" for name in kept]
    lines += [f"Race {race} waits: slicetower qr race --resume {race}" for race in raced]
    if undeleted:
        lines.append(f"Being deleted, not gone yet: {fold(undeleted)}. slicetower qr cleanup goes on with it.")
    return "\n".join(lines)
