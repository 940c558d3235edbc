"""What verbs print: plain aligned tables for people, JSON lines for programs. Data goes to stdout alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, TextIO

from backend.sanitize import plain
from backend.timestamps import rfc3339

GAP = "  "


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds `--format table|json`, read as `arguments.format`."""
    parser.add_argument("--format", choices=("table", "json"), default="table", help="table, or JSON lines")


def count_argument(text: str) -> int:
    """An argparse type: how many rows, at least one (the database would take -1 for all, and 0 shows none)."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{plain(text)}' is no number of rows; write it as 50")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, file: TextIO | None = None) -> None:
    """Columns as wide as their widest cell, numbers to the right, no trailing blanks; texts pass the gate."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(cells) and all(_is_number(row[index]) for row in cells) for index in range(len(headers))]
    widths = [max(len(line[index]) for line in [list(headers), *cells]) for index in range(len(headers))]
    for line in [list(headers), *cells]:
        pieces = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        print(GAP.join(pieces).rstrip(), file=file or sys.stdout)


def print_json(value: object, *, file: TextIO | None = None) -> None:
    """One JSON object on one line, flushed, so that a reader sees it at once. Times are RFC 3339 in UTC.

    Non-ASCII is escaped: no control character of remote text can reach the terminal.
    """
    print(json.dumps(value, default=_plain_value, separators=(", ", ": ")), file=file or sys.stdout, flush=True)


def timestamp(at: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond; None stays None."""
    return None if at is None else rfc3339(at, timespec="milliseconds")


def duration(seconds: float | None) -> str:
    """`42s`, `7m12s`, `3h05m`, `2d04h`: two units at most; an empty text for None."""
    if seconds is None:
        return ""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return timestamp(value) or "-"
    return plain(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).isdecimal()


def _plain_value(value: object) -> Any:
    if isinstance(value, datetime):
        return timestamp(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
