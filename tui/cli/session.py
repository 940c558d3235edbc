"""What the verbs that talk to workers share: an open tower, the targets' workers, a passphrase asked on the terminal."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

from backend.context import Context, load_context
from backend.model import Fleet
from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.targets import WorkerRef, expand, select
from backend.tower import Tower

TOLD = 8
"""So many slices without workers are named, and the others counted."""


def context_of(arguments: argparse.Namespace, *, changes: str = "") -> Context:
    """The context of the arguments.

    Args:
        arguments: With context, context_file and read_only.
        changes: What the verb would change; refused in a read-only context.

    Raises:
        OperatorError: No usable context, or it is read-only.
    """
    file = Path(arguments.context_file) if arguments.context_file else None
    context = load_context(arguments.context, file, read_only=arguments.read_only)
    if changes and context.read_only:
        raise OperatorError(f"{changes}: the context {context.name} is read-only.", "Leave out --read-only.")
    return context


@asynccontextmanager
async def open_tower(context: Context) -> AsyncIterator[Tower]:
    """A tower without a watch, that asks for a key's passphrase on the terminal."""
    async with Tower.open(context, watch=False) as tower:
        tower.ask_passphrase = ask_passphrase if sys.stdin.isatty() else None
        tower.announce = say
        yield tower


async def ask_passphrase(path: Path) -> str | None:
    """None when the operator gives none."""
    try:
        return await asyncio.to_thread(getpass.getpass, f"Passphrase of {path}: ") or None
    except EOFError:
        return None


async def workers_for(tower: Tower, targets: Sequence[str]) -> tuple[WorkerRef, ...]:
    """The workers that the targets, and the saved groups among them, name now.

    Raises:
        OperatorError: The cloud can't be asked, or a target matches nothing.
    """
    fleet = await tower.refresh()
    workers = select(fleet, targets, tower.groups)
    for text in missing_slices(fleet, expand(targets, tower.groups), workers):
        say(f"warning: {text}")
    return workers


def missing_slices(fleet: Fleet, targets: Sequence[str], workers: Sequence[WorkerRef]) -> list[str]:
    """Of requests that a target names with all their slices: those without a worker now, which nobody would miss."""
    whole = {name for name, _, rest in (target.partition("/") for target in targets) if rest[:1] in ("", "*")}
    found = []
    for item in (each for each in fleet.queued_resources if each.name in whole):
        own = {ref.slice_index for ref in workers if (ref.project, ref.zone, ref.queued_resource) == item.key}
        gone = [index for index in range(item.slice_count) if index not in own]
        if own and gone:
            more = f" and {len(gone) - TOLD} more" if len(gone) > TOLD else ""
            some = f"{', '.join(map(str, gone[:TOLD]))}{more}"
            slices = f"slice {some} has" if len(gone) == 1 else f"slices {some} have"
            found.append(f"{slices} no workers now: {item.name} is {item.state}")
    return found


@contextmanager
def on_interrupt(
    handle: Callable[[], None], end: Callable[[], None] | None = None, hang_up: Callable[[], None] | None = None
) -> Iterator[None]:
    """Calls `handle` for every Ctrl-C in the block, `end` for every SIGTERM, `hang_up` for a closed terminal.

    What is not given is as the one before. Under `nohup`, which has a closed terminal ignored, it stays so.
    """
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGINT: handle, signal.SIGTERM: end or handle}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = partial(_hung_up, hang_up or end or handle)
    for kind, handler in handlers.items():
        loop.add_signal_handler(kind, handler)
    try:
        yield
    finally:
        for kind in handlers:
            with suppress(ValueError):
                loop.remove_signal_handler(kind)


def _hung_up(then: Callable[[], None]) -> None:
    """The terminal is gone: what would be told there is told nobody, since writing there is an error now."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
    then()


def say(text: str) -> None:
    """One line of talk, on stderr."""
    print(f"slicetower: {plain(text)}", file=sys.stderr, flush=True)


class Waiting:
    """Says once for each worker what it is waited for, so that a booting slice does not look like a hang."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, worker: WorkerRef, text: str) -> None:
        if text and worker.address not in self._said:
            self._said.add(worker.address)
            say(f"{worker.address}: {text}")
