"""Faults by `:inject`, in a context that a simulator wrote and nowhere else: what `slicetower sim inject` does from a shell.

The console learns nothing by it: what the fault did is seen as on the real service.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.model import EventKind
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.console import Console


def folder_of(console: Console) -> Path:
    """The folder of the simulator that serves this context.

    Raises:
        OperatorError: None wrote it.
    """
    if not console.is_simulated or not console.context.source:
        raise OperatorError(
            f"{console.context.name} is no simulated context: there is nothing to inject into.",
            "`slicetower demo` opens a console on a simulated Cloud TPU.",
        )
    return Path(console.context.source).parent


def options() -> Mapping[str, Sequence[str]]:
    """Faults with their options, for completion."""
    from backend.sim import fault_words

    return fault_words.options()


async def ask(console: Console) -> list[str]:
    """Which fault, and with what; nothing when it was left."""
    from backend.sim import fault_words
    from backend.sim.faults import FAULTS
    from tui.screens.choose import Choose, Offer
    from tui.screens.confirm import Ask

    folder_of(console)
    offers = [Offer(fault.name, note=fault.help) for fault in FAULTS.values()]
    name = await console.push_screen_wait(Choose("Inject which fault into the simulated Cloud TPU?", offers))
    if name is None:
        return []
    fault = FAULTS[name]
    if not fault.arguments:
        return [name]
    lines = [fault.help, *fault_words.explained(fault), "Nothing of a real Cloud TPU is touched."]
    usage = fault_words.usage(fault).removeprefix(f"{name} ")

    def check(text: str) -> None:
        fault_words.read([name, *_split(text)])

    text = await console.push_screen_wait(Ask(f"SIMULATED FAULT: {name}", lines, hint=usage, check=check))
    return [name, *_split(text)] if text is not None else []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OperatorError(f"It cannot be read: {error}.", "Close the quotes.") from error


async def inject(console: Console, words: Sequence[str]) -> None:
    """Brings it about, says so loudly, and notes it among the events.

    Raises:
        OperatorError: The context is not simulated, the words are no fault, or the simulator refused.
    """
    from backend.sim import control, fault_words

    folder = folder_of(console)
    fault, values = fault_words.read(words)
    done = await asyncio.to_thread(control.inject, folder, fault.name, values)
    text = plain(f"{shlex.join(words)}: {done}")
    console.say(text, title="SIMULATED FAULT", severity="warning")
    subject = str(values.get("target") or values.get("name") or "").partition("/")[0]
    console.note(EventKind.ACTION, f"simulated fault: {text}", subject=plain(subject))
