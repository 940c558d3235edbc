"""What fails and leaves the console standing: told as a sentence, whatever it was that was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.outcomes import OperatorError

if TYPE_CHECKING:
    from tui.console import Console


def told_errors() -> tuple[type[Exception], ...]:
    """What is told and leaves the console standing: an operator's error, and a journal that cannot be read or written.

    Asked for when something has failed: the first frame does without the database.
    """
    import sqlite3

    return OperatorError, sqlite3.Error


def as_told(console: Console, error: Exception) -> OperatorError:
    """One of those as a sentence with its cure."""
    if isinstance(error, OperatorError):
        return error
    from backend.sqlite import told

    return told(console.require_tower().journal.path, error)
