"""The gate: what a hostile worker sends must not reach the terminal, and what an honest one sends must."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.sanitize import SHOWN_LIMIT, TAIL_LIMIT, LineSplitter, plain, plain_text, safe_line, strip_colour

HOSTILE_ALPHABET = st.sampled_from(
    ["\x1b", "[", "]", "m", "K", "J", "3", "1", ";", "52", "\x07", "\\", "\r", "\n", "\b", "\t", "\x9b", "\x9d", "P", "_", "a",
     "é", "\u202e", "\u2066", "\x00", "\x7f", "?", "0", "c", "(", "B"]
)  # fmt: skip
HOSTILE = st.lists(HOSTILE_ALPHABET, max_size=40).map("".join)
ALLOWED_ESCAPE = re.compile(r"\x1b\[[0-9;:]*m")
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")


@given(HOSTILE)
def test_only_colour_survives(text: str) -> None:
    assert FORBIDDEN.search(ALLOWED_ESCAPE.sub("", safe_line(text))) is None
    assert FORBIDDEN.search(plain(text)) is None


@given(st.binary(max_size=300))
def test_any_bytes_become_a_safe_line(raw: bytes) -> None:
    assert FORBIDDEN.search(plain(raw)) is None


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=200))
def test_honest_text_is_unchanged(text: str) -> None:
    assert safe_line(text.encode()) == text


@given(HOSTILE)
def test_stripping_colour_afterwards_equals_never_letting_it_in(text: str) -> None:
    assert strip_colour(safe_line(text)) == plain(text)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b]52;c;QUJD\x07after", "after"),
        (b"\x1b]52;c;QUJD\x1b\\after", "after"),
        (b"\x1b]0;never ends", ""),
        (b"\x1b[2J\x1b[Hhome", "home"),
        (b"\x1bP1$q\x1b\\dcs", "dcs"),
        (b"\x1bcreset", "reset"),
        (b"bare \x1b", "bare \u241b"),
        ("c1 \x9b31m".encode(), "c1 \\x9b31m"),
        ("a\u202eb".encode(), "a<U+202E>b"),
        (b"nul\x00bell\x07", "nul\u2400bell\u2407"),
        (b"a\tb", "a       b"),
        (b"crlf\r\n", "crlf"),
        (b" 10%\r 20%\r 30%", " 30%"),
        (b"long text\rshort", "shorttext"),
        (b"long text\r\x1b[Kshort", "short"),
        (b"x\bY", "Y"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_each_kind_of_attack(raw: bytes, shown: str) -> None:
    assert plain(raw) == shown


def test_colour_is_kept_and_can_be_left_out() -> None:
    assert safe_line(b"\x1b[1;31mred\x1b[0m") == "\x1b[1;31mred\x1b[0m"
    assert plain(b"\x1b[1;31mred\x1b[0m") == "red"


def test_a_long_line_is_cut_and_says_by_how_much() -> None:
    line = safe_line(b"x" * (SHOWN_LIMIT + 7))
    assert line == "x" * SHOWN_LIMIT + " [+7 more]"


def test_a_long_progress_line_shows_its_newest_part() -> None:
    raw = b"".join(b"\rstep %06d" % number for number in range(5_000))
    assert plain(raw) == "step 004999"


def test_a_cut_never_splits_a_character() -> None:
    assert "\ufffd" not in safe_line("é".encode() * SHOWN_LIMIT, limit=101)


def test_plain_text_keeps_lines() -> None:
    assert plain_text(b"a\x1b[2J\nb\r\nc") == "a\nb\nc"


@given(st.binary(max_size=400), st.integers(1, 50))
def test_splitting_in_chunks_loses_nothing(data: bytes, size: int) -> None:
    splitter = LineSplitter()
    lines = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
    tail = splitter.flush()
    assert b"\n".join([*lines, tail or b""]) == data


def test_a_line_without_end_is_bounded() -> None:
    splitter = LineSplitter()
    lines = [line for _ in range(10) for line in splitter.feed(b"x" * (TAIL_LIMIT // 2))]
    assert lines
    assert len(splitter.tail) <= TAIL_LIMIT


def test_a_progress_bar_without_newline_keeps_its_newest_state() -> None:
    splitter = LineSplitter()
    for number in range(20_000):
        splitter.feed(b"\rstep %06d" % number)
    assert len(splitter.tail) <= TAIL_LIMIT
    assert plain(splitter.tail) == "step 019999"
