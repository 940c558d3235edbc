"""How the console answers what the command line can do: the kinds of answers, and where each must be found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why the console has no counterpart: few, and none of them "not yet"."""

    OUTPUT = "the form of the output; the console shows, copies (y) and exports"
    WAITING = "waiting in the foreground; the console stays and shows it"
    ASKING = "stands for a question; the console asks it"
    PREVIEW = "a look without sending; the console shows it before it asks, and g the calls"
    START = "said when the console is started"
    PLACE = "where it is; the console takes what is under the cursor, and :ctx the project"
    SHELL = "of a shell alone: standard input, a pipe or a process of its own"


@dataclass(frozen=True, slots=True)
class Key:
    """An action of the registry."""

    action: str
    how: str = ""
    """What of it, where the action alone does not say."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form."""

    form: str
    name: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the command line, with what follows it."""

    word: str
    argument: str = ""
    """As `ARGUMENTS` of tui/command_line.py has it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: sorted by `o`, filtered by `/COLUMN=value`."""

    screen: str
    column: str


Answer = Reason | Key | Field | Word | Column
