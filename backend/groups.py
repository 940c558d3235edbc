"""Saved target groups of the configuration: `[groups]`, used as `@name` wherever a target is written."""

from __future__ import annotations

import re
from pathlib import Path

from backend.settings import read_toml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Groups = dict[str, tuple[str, ...]]
"""Name -> targets, which may be other groups."""


def load_groups(config: Path) -> Groups:
    """The groups of a configuration file; none where there is no file.

    Raises:
        OperatorError: A mistake in the file (with file, line, key, reason and cure).
    """
    if not config.exists():
        return {}
    table = read_toml(config).table("groups")
    found: Groups = {}
    for name in table.data:
        if not _NAME.fullmatch(name):
            raise table.problem(name, "is no name of a group.", "Use letters, digits, dots, dashes and underscores.")
        targets = table.get_texts(name)
        if not targets:
            raise table.problem(name, "the group is empty.", f'Write {name} = ["train-a/0", "train-b"].')
        found[name] = targets
    return found
