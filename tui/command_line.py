"""The words after `:`: taking a line apart, and those that were entered. Pure, no widget.

`WORD [TARGET...] [REST]`: a word is an action's name on the command line, or one of the few that need an argument.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.outcomes import OperatorError
from tui.actions import BY_ID, Action, key_name, words

ARGUMENTS: dict[str, str] = {
    "w": "TARGET [filter]",
    "workers": "TARGET [filter]",
    "qr": "[filter]",
    "fleet": "[filter]",
    "run": "TARGET... [OPTIONS] [-- COMMAND]",
    "x": "TARGET... [OPTIONS] [-- COMMAND]",
    "bench": "TARGET",
    "logs": "[RUN|TARGET]",
    "show": "[RUN]",
    "shell": "WORKER",
    "describe": "NAME",
    "delete": "NAME",
    "recreate": "NAME",
    "reset": "NAME",
    "keep": "NAME",
    "race": "[NAME]",
    "maintenance": "NAME",
    "again": "NAME",
    "adopt": "NAME",
    "gcloud": "NAME",
    "ask-ssh": "TARGET...",
    "check": "TARGET...",
    "free": "TARGET...",
    "setup": "TARGET...",
    "copy": "TARGET...",
    "forward": "WORKER [PORT[:LOCAL]]",
    "theme": "NAME",
    "ctx": "[NAME|FILE]",
    "events": "[filter]",
    "runs": "[filter]",
    "benches": "[filter]",
    "operations": "[filter]",
    "costs": "[DURATION]",
    "export": "[csv|jsonl]",
    "plot": "[FILE] [peak=T|type=TYPE] [-- PATTERN]",
    "plan": "[TYPE [SLICES]]",
    "inject": "[FAULT ARGUMENTS]",
}
"""What may follow a word; words that are not here take nothing."""

TARGET_WORDS = frozenset(
    {"w", "workers", "run", "x", "bench", "logs", "shell", "describe", "delete", "recreate", "reset", "gcloud"}
    | {"ask-ssh", "check", "free", "setup", "copy", "forward", "keep", "race", "maintenance", "again", "adopt"}
)
HISTORY_LIMIT = 200


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One line, taken apart."""

    word: str
    action: Action
    targets: tuple[str, ...] = ()
    """Arguments before `--`."""
    rest: str = ""
    """Everything after `--`, as typed."""


def parse(text: str) -> CommandLine | None:
    """Takes a line apart; None for an empty one.

    Raises:
        OperatorError: There is no such word, or quotes are not closed.
    """
    line = text.strip().removeprefix(":").strip()
    if not line:
        return None
    head, dashes, rest = line.partition(" -- ")
    if not dashes and line.endswith(" --"):
        head = line.removesuffix(" --")
    import shlex

    try:
        word, *arguments = shlex.split(head)
    except ValueError as error:
        raise OperatorError(f"'{line}' cannot be read: {error}.", "Close the quotes.") from error
    known = words()
    action = known.get(word)
    if action is None:
        if (keyed := BY_ID.get(word)) is not None and keyed.keys:
            where = ", ".join(sorted(keyed.scopes)[:3])
            raise OperatorError(
                f"'{word}' is no command: it goes by key, {key_name(keyed.keys[0])} in {where}.", keyed.help
            )
        near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
        raise OperatorError(
            f"There is no command '{word}'.", f"Near: {', '.join(near)}." if near else "Press ? for all of them."
        )
    if (arguments or rest) and word not in ARGUMENTS:
        raise OperatorError(f"':{word}' takes no arguments.", f"Write :{word} alone.")
    return CommandLine(word, action, tuple(arguments), rest.strip())


class History:
    """Lines that were entered, newest last; `older` and `newer` walk through those that begin alike."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._lines: list[str] = list(lines)[-HISTORY_LIMIT:]
        self._position = len(self._lines)
        self._file: Path | None = None

    def keep_in(self, file: Path) -> None:
        """Goes on from a file, and keeps there what is entered from now on. One that can't be used is done without."""
        try:
            kept = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            kept = []
        ours, self._lines = self._lines, []
        for line in (*kept[-HISTORY_LIMIT:], *ours):
            self.add(line)
        self._file = file
        if len(kept) > 2 * HISTORY_LIMIT:
            self._write(os.O_TRUNC, self._lines)

    def _write(self, flag: int, lines: Iterable[str]) -> None:
        if self._file is not None:
            with suppress(OSError):
                descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as target:
                    target.writelines(f"{line}\n" for line in lines)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def add(self, line: str) -> None:
        """Remembers a line once, as the newest; one that begins with a blank for as long as this console lasts."""
        if not line.startswith(" ") and line.strip():
            self._write(os.O_APPEND, [line.strip()])
        line = line.strip()
        if line:
            kept = [item for item in self._lines if item != line]
            self._lines = [*kept[1 - HISTORY_LIMIT :], line]
        self._position = len(self._lines)

    def older(self) -> str | None:
        """The line before; None at the oldest."""
        if self._position == 0:
            return None
        self._position -= 1
        return self._lines[self._position]

    def newer(self) -> str | None:
        """The line after; an empty one behind the newest; None when already there."""
        if self._position >= len(self._lines):
            return None
        self._position += 1
        return self._lines[self._position] if self._position < len(self._lines) else ""


_SHELL_COMMAND = re.compile(r"`slicetower (?:qr )?([a-z]+)((?: [^`]*)?)`")
_OTHERWISE = frozenset({"runs", "operations", "bench", "keep", "race"})
"""Words whose command in the shell does something else, or goes on without a console."""
_LISTS = {"runs list": ":runs", "operations list": ":operations", "bench list": ":benches"}


def in_console(text: str) -> str:
    """Advice that names commands of the shell, with the console's own where it takes the same words: `:cleanup`."""

    def own(found: re.Match[str]) -> str:
        verb, rest = found[1], found[2]
        if verb + rest in _LISTS:
            return f"`{_LISTS[verb + rest]}`"
        has_options = " --" in rest.partition(" -- ")[0]
        is_same = verb in words() and verb not in _OTHERWISE and not has_options
        return f"`:{verb}{rest}`" if is_same else found[0]

    return _SHELL_COMMAND.sub(own, text)
