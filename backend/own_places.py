"""Where this program keeps its own on this machine, and how much it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.paths import Paths


@dataclass(frozen=True, slots=True)
class Place:
    """One file or folder of ours, as it was looked at."""

    name: str
    path: Path
    exists: bool
    bytes: int = 0
    """With all that is in it; of the journal, with what SQLite keeps beside it."""
    files: int = 0
    problem: str = ""
    """Why it can't be looked at, or that others may read what is private."""


def own_places(paths: Paths) -> dict[str, Path]:
    """By the name that `locate` gives them, in its order."""
    return {
        "config": paths.config,
        "themes": paths.themes_dir,
        "journal": paths.journal,
        "runs": paths.runs_dir,
        "console_log": paths.console_log,
    }


PRIVATE = frozenset({"journal", "runs", "console_log"})


def look_at(name: str, path: Path) -> Place:
    """How much is there. Looks at every file below: for a thread."""
    try:
        if not path.exists():
            return Place(name, path, False)
        open_to = path.stat().st_mode & 0o077 if name in PRIVATE else 0
        problem = f"others may read it: chmod go= {path}" if open_to else ""
        if path.is_dir():
            sizes = [each.lstat().st_size for each in path.rglob("*") if each.is_file()]
        else:
            beside = [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]
            sizes = [each.stat().st_size for each in (path, *beside) if each.exists()]
        return Place(name, path, True, sum(sizes), len(sizes), problem)
    except OSError as error:
        return Place(name, path, True, problem=f"it can't be looked at: {error.strerror}")
