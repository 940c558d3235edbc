"""Bars in tables, line by line, and what they must never hide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.strip import Strip

from tests.tui.widgets.golden import assert_golden
from tui.glyphs import ASCII, UNICODE, GlyphSet
from tui.look import Look
from tui.widgets.bars import bar, bar_and_text
from tui.widgets.rows import Column, Row, number_cell, share_cell
from tui.widgets.table_layout import place
from tui.widgets.table_paint import RowPainter

COLUMNS = (
    Column("name", "NAME", width=8),
    Column("hours", "HOURS", width=7, align="right"),
    Column("share", "SHARE", min_width=5, max_width=200, flex=1),
    Column("zone", "ZONE", width=10, priority=1),
)
SHARES = (1.0, 0.62, 0.5, 0.3001, 0.125, 0.004, 0.0, None)


def table(width: int, glyphs: GlyphSet) -> list[Strip]:
    painter = RowPainter(COLUMNS, place(COLUMNS, [0] * 4, width), Look(glyphs=glyphs), Style.null(), width)
    rows = [
        Row(at, (f"row {at}", number_cell(share and share * 100), share_cell(share), "us-west4-a"))
        for at, share in enumerate(SHARES)
    ]
    return [
        painter.header(sort_column="", descending=False, scroll_x=0),
        *(painter.row(row, cursor=not row.key, focused=True, marked=False, scroll_x=0) for row in rows),
    ]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: str(glyphs.name))
@pytest.mark.parametrize("width", [30, 80, 160])
def test_a_table_with_bars_looks_as_it_was_last_found_good(width: int, glyphs: GlyphSet) -> None:
    assert_golden(f"bars-{glyphs.name}-{width}", table(width, glyphs))


@given(st.floats(allow_infinity=False), st.integers(-3, 300), st.sampled_from((UNICODE, ASCII)))
def test_a_bar_is_as_wide_as_it_was_given(share: float, width: int, glyphs: GlyphSet) -> None:
    drawn = bar(share, width, glyphs)
    assert len(drawn) == max(width, 0)
    if width > 0 and share > 0:
        assert drawn[0] != " "


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 100))
def test_more_is_never_drawn_shorter(one: float, other: float, width: int) -> None:
    less, more = sorted((one, other))
    assert len(bar(less, width).rstrip()) <= len(bar(more, width).rstrip())


@given(st.floats(0, 1), st.text("0123456789%", max_size=6), st.integers(0, 60))
def test_no_bar_hides_a_figure(share: float, text: str, width: int) -> None:
    drawn = bar_and_text(share, text, width)
    assert drawn.endswith(text)
    assert len(drawn) == max(width, len(text))
