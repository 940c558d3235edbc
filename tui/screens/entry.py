"""The console's input: it keeps every printable key to itself, also those whose names Textual cannot spell."""

from __future__ import annotations

from textual.widgets import Input

NAMED_CHARACTERS = frozenset({"slash", "backslash", "at", "minus", "plus", "underscore"})
"""Textual renames these keys and cannot find their characters again (8.2.8), so a binding would take them from the input."""


class Entry(Input):
    """An input for one line."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key in NAMED_CHARACTERS or super().check_consume_key(key, character)
