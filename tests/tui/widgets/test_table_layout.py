"""Columns: what is dropped, what is shared, and how rows are drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tui.glyphs import ASCII
from tui.look import PLAIN, Look
from tui.widgets.rows import Cell, Column, Row, number_cell, state_cell
from tui.widgets.table_layout import place, total_width
from tui.widgets.table_paint import RowPainter, fit, width_of

FLEET_COLUMNS = (
    Column("name", "NAME"),
    Column("state", "STATE"),
    Column("slices", "SLICES", align="right"),
    Column("type", "TYPE"),
    Column("tier", "TIER", priority=2),
    Column("chips", "CHIPS", align="right", priority=3),
    Column("workers", "WORKERS", align="right"),
    Column("age", "AGE", align="right", priority=1),
    Column("in-state", "IN STATE", align="right"),
    Column("note", "NOTE", flex=1, priority=0),
)
ROWS = (
    Row("a", ("train-a", state_cell("ACTIVE"), "2", "v5litepod-16", "spot", "32", "8/8", "2h", "1h51m", "ready")),
    Row(
        "c",
        (
            "big-c",
            state_cell("WAITING_FOR_RESOURCES"),
            "2",
            "v5p-128",
            "reserved",
            number_cell(128),
            "-",
            "31m",
            ">= 31m",
            Cell("15 min passed: ask your account team", token="stale"),
        ),
    ),
)


def painter(width: int, look: Look = PLAIN, rows: tuple[Row, ...] = ROWS) -> RowPainter:
    widest = [max(width_of(row.cells[index]) for row in rows) for index in range(len(FLEET_COLUMNS))]
    return RowPainter(FLEET_COLUMNS, place(FLEET_COLUMNS, widest, width), look, Style.null(), width)


def drawn(width: int, look: Look = PLAIN, scroll_x: int = 0) -> list[str]:
    brush = painter(width, look)
    head = brush.header(sort_column="chips", descending=True, scroll_x=scroll_x)
    body = [
        brush.row(row, cursor=row.key == "c", focused=True, marked=row.key == "a", scroll_x=scroll_x) for row in ROWS
    ]
    assert {strip.cell_length for strip in [head, *body]} == {width}
    return [strip.text.rstrip() for strip in [head, *body]]


def test_a_wide_terminal_shows_all_columns() -> None:
    assert drawn(150) == [
        "  NAME     STATE                    SLICES  TYPE          TIER      CHIPS▼ WORKERS  AGE  IN STATE  NOTE",
        " ◆train-a  ● ACTIVE                      2  v5litepod-16  spot         32      8/8   2h     1h51m  ready",
        "▌ big-c    ◌ WAITING_FOR_RESOURCES       2  v5p-128       reserved    128        -  31m    >= 31m"
        "  15 min passed: ask your account team",
    ]


def test_at_eighty_columns_the_promised_ones_are_left() -> None:
    lines = drawn(80)
    assert lines[0].split() == ["NAME", "STATE", "SLICES", "TYPE", "WORKERS", "IN", "STATE"]
    assert lines[2].split() == ["▌", "big-c", "◌", "WAITING_FOR_RESOURCES", "2", "v5p-128", "-", ">=", "31m"]


def test_narrower_still_it_scrolls_and_the_name_stays() -> None:
    first, scrolled = drawn(40), drawn(40, scroll_x=24)
    assert first[0].endswith("›")
    assert scrolled[0].startswith("  NAME    ‹ SLICES")
    assert scrolled[1].startswith(" ◆train-a")
    assert "v5litepod-16" in scrolled[1]
    assert "v5litepod-16" not in first[1]


def test_the_ascii_set_draws_ascii_alone() -> None:
    assert "".join(drawn(60, Look(glyphs=ASCII))).isascii()


def test_colour_is_never_alone_and_the_cursor_is_a_glyph_too() -> None:
    line = painter(150).row(ROWS[0], cursor=True, focused=False, marked=True, scroll_x=0)
    assert line.text.startswith("▌◆train-a")
    assert "● ACTIVE" in line.text


def test_control_characters_in_a_cell_never_reach_the_terminal() -> None:
    hostile = Row(
        "x", ("\x1b]52;c;aGk=\x07evil", "\x9b2J", "a\nb", "\x07", "\r", "\u202e", "\t", "\x00", "", "[red]x[/]")
    )
    text = painter(200, rows=(hostile,)).row(hostile, cursor=False, focused=False, marked=False, scroll_x=0).text
    assert text.isprintable()
    assert "[red]x[/]" in text


columns = st.lists(
    st.builds(
        lambda least, extra, flex, priority: (least, least + extra, flex, priority),
        st.integers(1, 8),
        st.integers(0, 30),
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=8,
)


@given(columns, st.integers(1, 200), st.lists(st.integers(0, 50), min_size=8, max_size=8))
def test_a_layout_fits_or_holds_only_what_is_never_dropped(
    shapes: list[tuple[int, int, int, int | None]], available: int, widest: list[int]
) -> None:
    made = [
        Column(str(index), "T", min_width=least, max_width=most, flex=flex, priority=priority)
        for index, (least, most, flex, priority) in enumerate(shapes)
    ]
    placed = place(made, widest[: len(made)], available)
    assert placed[0].index == 0
    for item in placed:
        assert made[item.index].min_width <= item.width <= max(made[item.index].max_width, made[item.index].min_width)
    if total_width(placed) > available:
        assert all(made[item.index].priority is None for item in placed[1:])
    shown = {item.index for item in placed}
    dropped = [made[index].priority for index in range(len(made)) if index not in shown]
    kept = [made[index].priority for index in shown if index and made[index].priority is not None]
    assert (
        not dropped or not kept or max(p for p in dropped if p is not None) <= min(p for p in kept if p is not None)
    )


@given(st.text(), st.integers(0, 30), st.booleans())
def test_a_cell_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(text, width, right=right)) == width
