from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from backend.model import Status, Tier
from tui.cli.output import duration, print_json, print_table, timestamp


def table(headers: list[str], rows: list[list[object]]) -> list[str]:
    target = io.StringIO()
    print_table(headers, rows, file=target)
    return target.getvalue().splitlines()


def test_columns_align_numbers_to_the_right_and_lines_end_clean() -> None:
    assert table(["NAME", "CHIPS", "NOTE"], [["a", 8, ""], ["longer", 128, "x"]]) == [
        "NAME    CHIPS  NOTE",
        "a           8  -",
        "longer    128  x",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["NAME", "CHIPS"], []) == ["NAME  CHIPS"]


def test_remote_text_in_a_table_cannot_drive_the_terminal() -> None:
    text = "\n".join(table(["NAME"], [["\x1b[2J\x1b]0;title\x07evil\u202e\nsecond"]]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text.splitlines()) == 2


def test_json_is_one_line_of_plain_ascii() -> None:
    target = io.StringIO()
    value = {
        "at": datetime(2026, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2))),
        "path": Path("/x"),
        "tier": Tier.SPOT,
        "error": Status(13, "\x1b[31mré\n"),
        "set": {"b", "a"},
    }
    print_json(value, file=target)
    text = target.getvalue()
    assert text.count("\n") == 1
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text) == {
        "at": "2026-07-01T12:00:00.000Z",
        "path": "/x",
        "tier": "spot",
        "error": {"code": 13, "message": "\x1b[31mré\n"},
        "set": ["a", "b"],
    }


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        print_json({"x": object()}, file=io.StringIO())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (-3, "0s"), (59.9, "59s"), (432, "7m12s"), (11100, "3h05m"), (187200, "2d04h")],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_missing_time_stays_missing() -> None:
    assert timestamp(None) is None
    assert timestamp(datetime(2026, 7, 1, tzinfo=UTC)) == "2026-07-01T00:00:00.000Z"
