"""What is asked about a run, from its own screen and from the list: to stop it, and the operator's words on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.runs.model import RunState
from backend.sanitize import plain
from backend.targets import fold
from tui.screens.confirm import Ask, Choice, Question
from tui.screens.run_rows import stop_words
from tui.wording import count

if TYPE_CHECKING:
    from backend.runs.manager import Run
    from backend.targets import WorkerRef
    from tui.console import Console


STOP_GRACE_S = 3.0
"""Between TERM and KILL, when nothing else is asked for."""
LONGEST_GRACE_S = 3600.0


def note_words(note: str, tags: Sequence[str]) -> str:
    """Words and tags on one line, as they are typed."""
    return " ".join([*([note] if note else []), *(f"#{tag}" for tag in tags)])


def read_note(text: str) -> tuple[str, tuple[str, ...]]:
    """(words, tags) of a line; a tag is a word that begins with #."""
    words = text.split()
    tags = tuple(dict.fromkeys(word[1:] for word in words if word.startswith("#") and len(word) > 1))
    return " ".join(word for word in words if not word.startswith("#")), tags


async def ask_note(console: Console, run_id: str) -> None:
    """Asks for the words on a run, and keeps them."""
    from backend.runs.audit import checked_tag

    runs = console.require_tower().runs
    record, before = runs.store.get(run_id), runs.audit.tags(run_id)

    def check(text: str) -> None:
        for tag in read_note(text)[1]:
            checked_tag(tag)

    asked = Ask(
        f"Your words on run {run_id}",
        ("#words are tags; nothing removes them.",),
        value=note_words(record.note, before),
        hint="after the fix #baseline",
        check=check,
    )
    text = await console.push_screen_wait(asked)
    if text is not None:
        note, tags = read_note(text)
        runs.store.set_note(run_id, plain(note))
        runs.audit.tag(run_id, tags, [tag for tag in before if tag not in tags])
        console.say(f"Noted on {run_id}." if text else f"The note on {run_id} is removed.")


def read_grace(text: str) -> float:
    """Seconds between TERM and KILL.

    Raises:
        OperatorError: It is no duration, or too long.
    """
    from backend.cloud.gcloud_flags import parse_duration

    try:
        grace = parse_duration(f"{text}s" if text.isdecimal() else text)
    except ValueError as error:
        raise OperatorError(f"{error}.", "Write 30s or 2m.") from error
    if grace > LONGEST_GRACE_S:
        raise OperatorError("Longer than an hour is not waited for.", "Write 30s or 2m.")
    return float(grace)


async def ask_grace(console: Console) -> float | None:
    """How long the processes get to end by themselves, as for a last checkpoint; None when it was left."""
    lines = ("They get TERM at once, and KILL when this has passed; it is waited for.",)
    text = await console.push_screen_wait(
        Ask("How much grace?", lines, value="60s", hint="30s, 2m", check=read_grace)
    )
    return read_grace(text) if text is not None else None


async def ask_unknown(console: Console, workers: Sequence[WorkerRef], *, others: bool) -> bool:
    """Whether those whose outcome is unknown are run again too: the command may have run there, or still run."""
    lines = [
        f"The outcome is unknown on {count(len(workers), 'worker')}: {fold(each.address for each in workers)}",
        "The command may have run there, or still run.",
    ]
    choices = (Choice("no", "Leave them out", "primary"), Choice("yes", "Run it there too"))
    title = "Retry these as well?" if others else "Retry where the outcome is unknown?"
    return await console.push_screen_wait(Question(title, lines, choices)) == "yes"


async def ask_stop(console: Console, run: Run) -> None:
    """Asks, then stops the remote groups and verifies that nothing is left."""
    living = sum(not result.ended for result in run.results)
    leave = [Choice("detach", "Detach")] if run.request.supervised and run.state is RunState.RUNNING else []
    choices = (
        Choice("stop", "Stop it there", "error"),
        Choice("grace", "With more grace"),
        *leave,
        Choice("no", "Let it run"),
    )
    lines = [f"It still runs on {count(living, 'worker')}.", f"TERM first, KILL {STOP_GRACE_S:g} s later."]
    answer = await console.push_screen_wait(Question(f"Stop run {run.id}?", lines, choices, chosen=len(choices) - 1))
    if answer == "detach":
        run.detach()
        console.say(f"Run {run.id} goes on by itself.")
    elif answer in ("stop", "grace"):
        grace = await ask_grace(console) if answer == "grace" else STOP_GRACE_S
        if grace is None:
            return
        report = await run.stop(grace)
        words = stop_words(report)
        console.note(EventKind.ACTION, f"run {run.id}: {words}", subject=run.id)
        console.say(words, severity="information" if report.clean else "error")
