"""How log lines are drawn, without an app."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tests.tui.widgets.fake_log import FakeLine
from tui.glyphs import ASCII
from tui.look import PLAIN, Look
from tui.themes import shipped_themes
from tui.widgets.log_paint import LinePainter, status_line, window, with_offsets, worker_ordinal
from tui.widgets.log_status import LogFacts, log_status
from tui.widgets.moments import parse_moment
from tui.widgets.sgr import strip_sgr


def painter(width: int = 30, **options: object) -> LinePainter:
    return LinePainter(PLAIN, Style.null(), width, **options)  # type: ignore[arg-type]


def drawn(brush: LinePainter, line: FakeLine, *, cursor: bool = False, marked: bool = False) -> list[str]:
    rows = []
    for row, body in enumerate(brush.body(line)):
        rows.append((Strip(brush.prefix(line, row, cursor=cursor, marked=marked)).text + body.text).rstrip())
    return rows


def test_levels_cursor_and_marks_stand_in_the_gutter() -> None:
    brush = painter()
    assert drawn(brush, FakeLine(0, "fine")) == ["  fine"]
    assert drawn(brush, FakeLine(0, "bad", level="error")) == [" ✗bad"]
    assert drawn(brush, FakeLine(0, "hm", level="warning"), marked=True) == ["◆!hm"]
    assert drawn(brush, FakeLine(0, "here"), cursor=True) == ["▌ here"]


def test_merged_lines_bear_their_worker_and_time() -> None:
    brush = painter(60, show_time=True)
    line = FakeLine(0, "step: 1", at=1_764_500_000.5, source="train-a/0/3")
    assert brush.see_sources([line.source])
    assert not brush.see_sources(["a/0/0"])
    assert drawn(brush, line) == ["  10:53:20 train-a/0/3 │ step: 1"]
    assert drawn(brush, FakeLine(1, "x", source="a/0/0")) == ["  00:00:00 a/0/0       │ x"]


def test_wrapped_rows_keep_the_bar_and_the_colours() -> None:
    brush = painter(26, wrap=True)
    brush.see_sources(["a/0/0"])
    line = FakeLine(0, "\x1b[31m" + "0123456789" * 4, source="a/0/0")
    assert brush.text_width == 16
    assert drawn(brush, line) == ["  a/0/0 │ 0123456789012345", "        │ 6789012345678901", "        │ 23456789"]
    assert brush.rows_of(line) == 3
    for row in brush.body(line):
        assert "color(1)" in str(next(iter(row)).style)


@given(st.text(max_size=200), st.integers(12, 60))
def test_the_rows_that_are_told_are_the_rows_that_are_drawn(text: str, width: int) -> None:
    brush = painter(width, wrap=True)
    line = FakeLine(0, text)
    rows = brush.body(line)
    assert len(rows) == brush.rows_of(line)
    assert all(row.cell_length == brush.text_width for row in rows)


@given(st.lists(st.text(alphabet="abc☃漢", max_size=12), max_size=5), st.integers(0, 30), st.integers(1, 30))
def test_a_window_is_what_a_crop_would_be(texts: list[str], start: int, width: int) -> None:
    segments = [Segment(text, Style(bold=bool(index % 2))) for index, text in enumerate(texts) if text]
    cut = Strip(window(segments, start, width, Style.null()))
    assert cut.cell_length == width
    assert cut.text == Strip(segments).crop_extend(start, start + width, Style.null()).text


def test_every_cell_of_the_text_knows_its_column_and_line() -> None:
    strip = with_offsets([Segment("> ")], [Segment("ab"), Segment("cd")], 10, 7)
    assert [segment.style.meta["offset"] for segment in strip if segment.style] == [(0, 7), (10, 7), (12, 7)]
    assert strip.cell_length == 6


def test_a_match_is_drawn_over_the_colours_that_it_crosses() -> None:
    look = Look(shipped_themes()[0]["tower-dark"].variables)
    brush = LinePainter(look, Style.null(), 40, pattern=re.compile("two three"))
    line = FakeLine(0, "one \x1b[32mtwo \x1b[34mthree\x1b[0m two threes")
    strip = brush.body(line)[0]
    assert strip.text == strip_sgr(line.text)
    lit = [segment.text for segment in strip if segment.style and segment.style.bgcolor]
    assert "".join(lit) == "two three" * 2


@given(st.text(alphabet="ab ", max_size=40), st.sampled_from(["a", "b+", "a b", "x*", "^a", "b$"]))
def test_highlighting_never_changes_the_text(text: str, pattern: str) -> None:
    assert painter(pattern=re.compile(pattern)).body(FakeLine(0, text))[0].text == text


def test_neighbours_have_different_colours_and_everyone_keeps_theirs() -> None:
    for slice_index in range(4):
        for worker in range(8):
            here = worker_ordinal(f"train-a/{slice_index}/{worker}") % 8
            assert here != worker_ordinal(f"train-a/{slice_index}/{worker + 1}") % 8
            assert here != worker_ordinal(f"train-a/{slice_index + 1}/{worker}") % 8
    assert worker_ordinal("odd") == worker_ordinal("odd")


@pytest.mark.parametrize(
    ("facts", "width", "text"),
    [
        (LogFacts("train-a/0/3", 1234), 80, "train-a/0/3 · following · 1,234 lines"),
        (LogFacts("train-a/0/3", 1234, silence_s=42, ended=True), 80, "train-a/0/3 · ended · 1,234 lines"),
        (
            LogFacts("train-a/0/3", 5000, following=False, line=1200, new_lines=1234),
            80,
            "train-a/0/3 · paused +1,234 new · line 1,200 of 5,000",
        ),
        (
            LogFacts("t", 10, pattern="step", matches=7, match=3, silence_s=42, wrapping=True, marks=2),
            80,
            "t · following · 10 lines · 'step' 3/7 · 2 marked · wrapped · silent 42s",
        ),
        (
            LogFacts("t", 10, pattern="step", matches=7, match=3, all_searched=False),
            80,
            "t · following · 10 lines · 'step' 7+",
        ),
        (
            LogFacts("train-a/0/3", 5000, following=False, line=1200, new_lines=1234),
            34,
            "train-a/0/3 · paused +1,234 new",
        ),
        (LogFacts("train-a/0/3", 5000, following=False, new_lines=1234), 20, "paused +1,234 new"),
        (LogFacts("t", 10, silence_s=3), 80, "t · following · 10 lines"),
        (LogFacts("t"), 80, "t · no log"),
    ],
)
def test_the_status_line_says_what_matters_most_first(facts: LogFacts, width: int, text: str) -> None:
    strip = status_line(log_status(facts), PLAIN, Style.null(), width)
    assert strip.cell_length == width
    assert strip.text.rstrip() == text


def test_the_ascii_set_draws_ascii_alone() -> None:
    brush = LinePainter(Look(glyphs=ASCII), Style.null(), 40)
    brush.see_sources(["a-very-long-name-of-a-request/10/12"])
    line = FakeLine(0, "x", level="error", source="a-very-long-name-of-a-request/10/12")
    assert "".join(drawn(brush, line, cursor=True)).isascii()


NOW = 1_764_500_000.0  # 2025-11-30 10:53:20 UTC


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("-10m", NOW - 600),
        ("- 1.5 h", NOW - 5400),
        ("10:53", NOW - 20),
        ("10:53:21", NOW + 1 - 86400),
        ("2025-11-30 10:53:20", NOW),
        ("2025-11-30T10:53:20+00:00", NOW),
    ],
)
def test_times_are_read_as_typed(text: str, moment: float) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "25:00", "10:99", "-10", "2025-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="type 14:05"):
        parse_moment(text, NOW)
