"""What is asked about a run, from its own screen and from the list: to stop it, and the operator's words on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.model import EventKind
from backend.runs.model import RunState
from backend.sanitize import plain
from tui.screens.confirm import Ask, Choice, Question
from tui.screens.run_rows import stop_words
from tui.wording import count

if TYPE_CHECKING:
    from backend.runs.manager import Run
    from tui.console import Console


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


async def ask_stop(console: Console, run: Run) -> None:
    """Asks, then stops the remote groups and verifies that nothing is left."""
    living = sum(not result.ended for result in run.results)
    leave = [Choice("detach", "Detach")] if run.request.supervised and run.state is RunState.RUNNING else []
    choices = (Choice("stop", "Stop it there", "error"), *leave, Choice("no", "Let it run"))
    lines = [f"It still runs on {count(living, 'worker')}."]
    answer = await console.push_screen_wait(Question(f"Stop run {run.id}?", lines, choices, chosen=len(choices) - 1))
    if answer == "detach":
        run.detach()
        console.say(f"Run {run.id} goes on by itself.")
    elif answer == "stop":
        report = await run.stop()
        words = stop_words(report)
        console.note(EventKind.ACTION, f"run {run.id}: {words}", subject=run.id)
        console.say(words, severity="information" if report.clean else "error")
