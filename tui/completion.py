"""What may stand next on the command line: the last word completed from what is known, or out of this machine's folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tui.actions import words
from tui.command_line import ARGUMENTS, TARGET_WORDS
from tui.run_words import OPTIONS, usage_of

FOLDER_LIMIT = 2000
"""Entries of a folder that are looked at to complete a path."""
FIXED: Mapping[str, Sequence[str]] = {"costs": ("1d", "7d", "30d", "all"), "export": ("csv", "jsonl")}
"""What may follow a word, whatever there is."""
RUN_WORDS = frozenset({"run", "x"})
PATH_WORDS = frozenset({"plot", "ctx"})


@dataclass(frozen=True, slots=True)
class Known:
    """Names that the console knows when the line is opened."""

    targets: Sequence[str] = ()
    """Queued resources, addresses of workers, groups."""
    themes: Sequence[str] = ()
    contexts: Sequence[str] = ()
    faults: Callable[[], Mapping[str, Sequence[str]]] | None = None
    """Gives the names of faults with their options; None where nothing can be injected."""


def complete(text: str, known: Known) -> str | None:
    """The line with its last word completed, or None when nothing fits (or it is complete). May read a folder.

    Args:
        text: The line so far, without the colon.
        known: Names to complete from.
    """
    if not text or text.endswith(" -- ") or " -- " in text:
        return None
    head, blank, last = text.rpartition(" ")
    if blank and not last:
        return None
    word = head.split(" ")[0]
    found = next((item for item in _candidates(head, known) if item.startswith(last) and item != last), None)
    if found is not None:
        return f"{head}{blank}{found}"
    return complete_path(text) if word in PATH_WORDS else None


def _candidates(head: str, known: Known) -> Iterable[str]:
    """What may stand after the words of `head`."""
    if not head:
        offered = [word for word, action in words().items() if known.faults is not None or not action.only_simulated]
        return sorted(offered, key=lambda item: (len(item), item))
    word, *before = head.split(" ")
    if word in RUN_WORDS:
        return [*known.targets, *OPTIONS]
    if word in TARGET_WORDS:
        return known.targets
    if word == "theme" and not before:
        return known.themes
    if word == "ctx" and not before:
        return known.contexts
    if word in FIXED and not before:
        return FIXED[word]
    if word == "plan" and not before:
        from jobs.accelerators import all_types

        return (item.name for item in all_types())
    if word == "inject" and known.faults is not None:
        faults = known.faults()
        return [*faults.get(before[0], ()), *known.targets] if before else faults
    return ()


def usage(text: str, known: Known) -> str:
    """What the word at the beginning of a line takes, or does where it takes nothing; empty while it is no word."""
    word, *rest = text.split(" ")
    action = words().get(word)
    if action is None or (action.only_simulated and known.faults is None):
        return ""
    if word == "inject" and rest and rest[0] and known.faults is not None:
        from backend.sim import fault_words
        from backend.sim.faults import FAULTS

        fault = FAULTS.get(rest[0])
        return f"{fault_words.usage(fault).removeprefix(fault.name).strip()}  {fault.help}".strip() if fault else ""
    if word in RUN_WORDS and " -- " not in text and (said := usage_of(rest)):
        return said
    return f"{ARGUMENTS.get(word, '')}  {action.help}".strip()


def complete_path(line: str) -> str | None:
    """The line with its last path completed out of its folder; None where nothing fits."""
    head, blank, last = line.rpartition(" ")
    folder, slash, start = last.rpartition("/")
    if not start:
        return None
    try:
        entries = islice(Path(f"{folder}{slash}" or ".").expanduser().iterdir(), FOLDER_LIMIT)
        names = sorted(
            f"{each.name}{'/' if each.is_dir() else ''}" for each in entries if each.name.startswith(start)
        )
    except (OSError, RuntimeError, ValueError):
        return None
    return f"{head}{blank}{folder}{slash}{names[0]}" if names else None
