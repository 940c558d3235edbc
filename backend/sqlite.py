"""SQLite as the journal uses it: private files, transactions that are said, errors told with the file's name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.outcomes import ExitCode, OperatorError

BUSY_TIMEOUT_S = 5.0
"""How long a writer waits for another console's transaction; those take milliseconds."""


def make_private(path: Path) -> None:
    """Makes the file if there is none, readable by its owner alone; its WAL inherits that."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)


def connect(path: Path, *, create: bool = True) -> sqlite3.Connection:
    """A connection for any thread.

    Args:
        path: The file.
        create: Makes it where there is none; else that is an error.
    """
    place = str(path) if create else f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(
        place, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=not create
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def statements(script: str) -> Iterator[str]:
    """The statements of a script: `executescript` would commit in their midst."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            if statement.strip(" \n;"):
                yield statement
            statement = ""


def told(path: Path, error: Exception) -> OperatorError:
    text = str(error)
    if isinstance(error, OSError):
        return OperatorError(
            f"The journal {path} can't be opened: {error.strerror or error}.",
            "Make its folder writable, or set XDG_STATE_HOME to another.",
        )
    if "locked" in text:
        return OperatorError(
            f"The journal {path} is held by another program.",
            "Close the other slicetower, then try again.",
            exit_code=ExitCode.UNREACHABLE,
            raw=text,
        )
    if "readonly" in text or "unable to open" in text:
        return OperatorError(
            f"The journal {path} can't be written: {text}.",
            "Make the file and its folder writable, or set XDG_STATE_HOME to another.",
            raw=text,
        )
    if "full" in text or "disk I/O" in text:
        return OperatorError(f"The journal {path} can't be written: the disk is full.", "Free some space.", raw=text)
    return OperatorError(
        f"The journal {path} is damaged: {text}.",
        "Move the file away (keep it if its history matters) and start again: a new one is made.",
        raw=text,
    )
