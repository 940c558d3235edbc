"""What the operator saved in the console: commands of the run form and templates of the create form, by name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from backend.outcomes import OperatorError

KINDS = ("run", "create")
LEFT_OUT: Mapping[str, frozenset[str]] = {"run": frozenset({"targets"}), "create": frozenset({"name"})}
"""Fields that belong to one use, and are no part of what is saved."""


class Saved:
    """A small file of its own, so that the configuration stays the operator's.

    Args:
        file: JSON: kind -> name -> field -> text. A missing one holds nothing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def _read(self) -> dict[str, dict[str, dict[str, str]]]:
        try:
            data = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise OperatorError(f"{self._file} cannot be read: {error}.", "Mend it, or move it away.") from error
        if not isinstance(data, dict):
            raise OperatorError(f"{self._file} is not what the console saves.", "Mend it, or move it away.")
        return {
            kind: {
                str(name): {str(field): str(text) for field, text in texts.items()}
                for name, texts in data.get(kind, {}).items()
                if isinstance(texts, dict)
            }
            for kind in KINDS
            if isinstance(data.get(kind, {}), dict)
        }

    def names(self, kind: str) -> dict[str, dict[str, str]]:
        """All of a kind: name -> texts.

        Raises:
            OperatorError: The file cannot be read.
        """
        return self._read().get(kind, {})

    def save(self, kind: str, name: str, texts: Mapping[str, str]) -> None:
        """Keeps texts under a name, in place of what had it; empty ones are left out.

        Raises:
            OperatorError: The name is empty, or the file cannot be written.
        """
        if not name.strip():
            raise OperatorError("A name is missing.")
        data = self._read()
        kept = {field: text for field, text in texts.items() if text and field not in LEFT_OUT[kind]}
        data.setdefault(kind, {})[name.strip()] = kept
        self._write(data)

    def forget(self, kind: str, name: str) -> None:
        """Removes one."""
        data = self._read()
        data.get(kind, {}).pop(name, None)
        self._write(data)

    def _write(self, data: Mapping[str, object]) -> None:
        fresh = self._file.with_name(f"{self._file.name}.new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as target:
                json.dump(data, target, indent=2)
            fresh.replace(self._file)
        except OSError as error:
            raise OperatorError(f"{self._file} cannot be written: {error.strerror}.") from error
