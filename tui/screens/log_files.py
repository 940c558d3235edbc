"""Logs written to files: one as its bytes came, all merged in the order of arrival, or all as they are, a file each."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from backend.local_files import is_there, own_path
from backend.logs.merged import by_arrival
from backend.outcomes import OperatorError
from backend.sanitize import plain, strip_colour
from tui.screens.confirm import Ask, Pick
from tui.wording import count

if TYPE_CHECKING:
    from tui.console import Console
    from tui.run_logs import RunLogs

SLICE_LINES = 2_000
"""Merged lines that are written at a stretch: keys are painted between."""


def _create(path: Path) -> int:
    """A new file of the operator's alone; what exists is never overwritten."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise OperatorError(
            f"{plain(str(path))} can't be written: {error.strerror}.", "Give another name."
        ) from error


def save_one(source: Path, target: Path) -> int:
    """One log byte for byte; returns its size. Call it in a thread.

    Raises:
        OperatorError: The target exists or cannot be written.
    """
    with open(source, "rb") as read, os.fdopen(_create(target), "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        return written.tell()


def save_each(sources: Sequence[Path], folder: Path) -> int:
    """Every log byte for byte into a folder, which is made; returns their size.

    Raises:
        OperatorError: The folder or a file of it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(f"{plain(str(folder))} can't be made: {error.strerror}.", "Give another name.") from error
    return sum(save_one(source, folder / source.name) for source in sources)


async def save_merged(logs: RunLogs, names: Sequence[str], target: Path) -> int:
    """All lines in the order of arrival, each after its worker, without colours; returns how many.

    Raises:
        OperatorError: The target exists or cannot be written.
    """
    opened = {name: logs.open(name) for name in names}
    lines = 0
    with os.fdopen(_create(target), "w", encoding="utf-8") as written:
        unfinished = ((name, log.ended) for name, log in opened.items() if log.total > log.ended)
        for source, number in chain(by_arrival(opened), unfinished):
            written.write(f"{source}: {strip_colour(opened[source].line(number).text)}\n")
            lines += 1
            if lines % SLICE_LINES == 0:
                await asyncio.sleep(0)
    return lines


async def ask(console: Console, logs: RunLogs, shown: str) -> None:
    """Asks what is saved and where, and saves it.

    Args:
        console: Where it is asked and told.
        logs: Of the run.
        shown: The worker that is looked at.
    """
    there = [name for name in logs.names if logs.path(name).exists()]
    if not there:
        raise OperatorError("No log of this run is on this machine.")
    one = shown if shown in there else there[0]
    what: str | None = "one"
    if len(there) > 1:
        picks = [
            ("one", f"{one}, as it came"),
            ("merged", f"all {len(there)}, merged, as text"),
            ("each", f"all {len(there)}, a file each"),
        ]
        what = await console.push_screen_wait(Pick("Save what?", picks, ("o", "m", "e")))
    if what is None:
        return
    name = {"one": logs.path(one).name, "merged": f"{logs.run.id}.log", "each": logs.run.id}[what]

    def check(text: str) -> None:
        own_path(text)
        if not text or (is_there(text) and what != "each"):
            raise OperatorError(f"{plain(text)} exists already." if text else "A name is missing.")

    title = "Into which folder?" if what == "each" else "To which file?"
    text = await console.push_screen_wait(Ask(title, (f"here: {Path.cwd()}",), value=name, check=check))
    if not text:
        return
    target = own_path(text)
    if what == "merged":
        said = count(await save_merged(logs, there, target), "line")
    elif what == "each":
        size = await asyncio.to_thread(save_each, [logs.path(each) for each in there], target)
        said = f"{count(len(there), 'log')}, {count(size, 'byte')}"
    else:
        said = count(await asyncio.to_thread(save_one, logs.path(one), target), "byte")
    console.say(f"Saved {said} to {plain(str(target))}.")
