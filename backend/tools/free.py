"""`free`: ends whoever holds the chips of workers, confirms it, then removes libtpu's lockfile. Nothing else is signalled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.targets import WorkerRef, fold
from backend.tools.ship import PROGRAM_TIMEOUT_S, Answer, Told, run_everywhere

if TYPE_CHECKING:
    from backend.tower import Tower

GRACE_S = 10.0
"""From TERM to KILL: a training program may want to write its last checkpoint."""
KILL_S = 15.0
"""For KILL to take, and for the second look."""


async def free(
    tower: Tower,
    workers: Sequence[WorkerRef],
    *,
    grace_s: float = GRACE_S,
    root: str = "/",
    dry_run: bool = False,
    python: str = "",
    told: Told | None = None,
) -> list[Answer]:
    """Frees all workers at once, or tells what would be done; an action is written to the journal.

    Facts of an answer: `free`, `holders`, `terminated`, `killed`, `refused`, `lockfile` (see jobs/programs/free.py).

    Raises:
        OperatorError: No key can be loaded, or too few open files.
    """
    ordered = sorted(workers, key=lambda each: each.order)
    arguments = ["--root", root, "--grace", f"{grace_s:g}", *(("--dry-run",) if dry_run else ())]
    answers = await run_everywhere(
        tower.pool,
        ordered,
        ("outside", "check", "free"),
        arguments,
        python=python,
        timeout_s=PROGRAM_TIMEOUT_S + grace_s + KILL_S,
        told=told,
    )
    if not dry_run:
        ended = sum(len(each.facts["terminated"]) + len(each.facts["killed"]) for each in answers if each.facts)
        where = fold(worker.address for worker in ordered)
        tower.record(f"Freed {where}: {ended} processes ended", subject=where)
    return answers


def is_free(answer: Answer) -> bool:
    """Nobody holds the chips of that worker any more, and no lockfile is left."""
    return answer.facts is not None and bool(answer.facts["free"])
