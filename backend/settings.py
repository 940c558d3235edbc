"""TOML files of the operator: read, and mistakes told with file, line, key, reason and cure."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.outcomes import OperatorError

_SYNTAX_PLACE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a TOML document, that knows where it stands. `get_*` refuse what has the wrong type."""

    file: Path
    text: str = field(repr=False)
    path: tuple[str, ...]
    data: Mapping[str, Any] = field(repr=False)

    def line_of(self, key: str | None) -> int | None:
        """The line (from 1) of a key of this table, or of the table's header; None when it can't be told."""
        return _find_line(self.text, self.path, key)

    def problem(self, key: str | None, reason: str, cure: str = "") -> OperatorError:
        """An error that names file, line and key."""
        line = self.line_of(key)
        place = f"{self.file}:{line}" if line else str(self.file)
        name = ".".join((*self.path, key) if key else self.path)
        return OperatorError(f"{place}: {name + ': ' if name else ''}{reason}", cure)

    def only(self, known: Iterable[str]) -> None:
        """Refuses keys that mean nothing, naming the near ones.

        Raises:
            OperatorError: for the first unknown key.
        """
        allowed = list(known)
        for key in self.data:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=2)
                hint = f"Did you mean {' or '.join(near)}?" if near else f"Known here: {', '.join(sorted(allowed))}."
                raise self.problem(key, "there is no such key.", hint)

    def get_str(self, key: str, default: str = "") -> str:
        value = self.data.get(key, default)
        if not isinstance(value, str):
            raise self.problem(key, f"must be a text in quotes, not {_kind(value)}.", f'Write {key} = "...".')
        if "\n" in value or "\x00" in value:
            raise self.problem(key, "must be one line.", "Remove the line break.")
        return value

    def get_int(self, key: str, default: int, *, least: int, most: int) -> int:
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.problem(key, f"must be a whole number, not {_kind(value)}.", f"Write {key} = {default}.")
        if not least <= value <= most:
            raise self.problem(key, f"is {value}.", f"It may be {least} to {most}.")
        return value

    def get_bool(self, key: str, default: bool) -> bool:
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise self.problem(key, f"must be true or false, not {_kind(value)}.", f"Write {key} = true.")
        return value

    def get_number(self, key: str, *, least: float = 0.0) -> float:
        value = self.data.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.problem(key, f"must be a number, not {_kind(value)}.", f"Write {key} = 1.2.")
        if value < least:
            raise self.problem(key, f"is {value}.", f"It may not be below {least:g}.")
        return float(value)

    def get_texts(self, key: str) -> tuple[str, ...]:
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.problem(key, f"must be a list of texts, not {_kind(value)}.", f'Write {key} = ["...", "..."].')
        return tuple(value)

    def get_choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.get_str(key, default)
        if value not in choices:
            raise self.problem(key, f"'{value}' is not known.", f"It may be {', '.join(choices)}.")
        return value

    def table(self, key: str) -> Table:
        """The table below a key; an empty one where the file has none."""
        value = self.data.get(key, {})
        if not isinstance(value, dict):
            raise self.problem(
                key, f"must be a table, not {_kind(value)}.", f"Write [{'.'.join((*self.path, key))}]."
            )
        return Table(self.file, self.text, (*self.path, key), value)

    def tables(self, key: str) -> tuple[Table, ...]:
        """The tables of an array `[[key]]`."""
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.problem(
                key, f"must be tables, not {_kind(value)}.", f"Write [[{'.'.join((*self.path, key))}]]."
            )
        return tuple(Table(self.file, self.text, (*self.path, key), item) for item in value)


def read_toml(file: Path) -> Table:
    """The whole document as a table.

    Raises:
        OperatorError: the file can't be read, is not UTF-8, or is not TOML (with the line).
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise OperatorError(
            f"{file}: can't be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise OperatorError(f"{file}:{line}: is not UTF-8.", "Save the file as UTF-8.") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _SYNTAX_PLACE.search(message)
        reason = _SYNTAX_PLACE.sub("", message)
        line_text = f":{place[1]}" if place else ""
        cure = f"Correct the TOML near column {place[2]}." if place else "Correct the TOML; the file ends too early."
        raise OperatorError(f"{file}{line_text}: {reason}.", cure) from error
    return Table(file, text, (), data)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), "nothing" if value is None else f"a {type(value).__name__}")


def _find_line(text: str, path: tuple[str, ...], key: str | None) -> int | None:
    """Looks for `key =` below the header of `path`, or for the header. Good for what people write, not a TOML parser."""
    inside = not path
    header_line: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            words = stripped.split("]")[0].lstrip("[").strip()
            here = tuple(part.strip().strip("\"'") for part in words.split("."))
            inside = here == path
            if inside and header_line is None:
                header_line = number
            if key is not None and here == (*path, key):
                return number
            continue
        if inside and key is not None and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]", stripped):
            return number
    return header_line
