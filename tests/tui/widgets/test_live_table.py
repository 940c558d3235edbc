"""The table under an operator's fingers."""

from __future__ import annotations

import pytest
from textual.message import Message

from tests.tui.widgets.harness import WidgetApp, posted, seen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row, number_cell, state_cell

COLUMNS = (
    Column("name", "WORKER"),
    Column("state", "STATE"),
    Column("step", "STEP", align="right"),
    Column("note", "NOTE", min_width=30, flex=1),
)


def rows(count: int, shift: int = 0) -> list[Row]:
    return [
        Row(
            index,
            (f"train-a/0/{index}", state_cell("READY"), number_cell((index * 7 + shift) % count), f"note {index}"),
        )
        for index in range(count)
    ]


async def test_every_key_moves_the_cursor_as_its_help_says() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(100))
        await pilot.pause()
        assert table.page_height == 11
        for keys, expected in [
            (["j"], 1),
            (["down"], 2),
            (["k"], 1),
            (["up", "up"], 0),
            (["ctrl+d"], 5),
            (["ctrl+u"], 0),
            (["pagedown"], 10),
            (["pageup"], 0),
            (["G"], 99),
            (["j"], 99),
            (["g"], 0),
            (["end"], 99),
            (["home"], 0),
        ]:
            await pilot.press(*keys)
            assert table.model.cursor == expected, keys
            assert any(line.startswith("▌") for line in seen(table)), keys


async def test_a_scrollbar_cuts_no_figure_of_the_last_column() -> None:
    columns = (Column("name", "NAME", min_width=10, flex=1), Column("rows", "ROWS", width=8, align="right"))
    table = LiveTable(columns)
    async with WidgetApp(table).run_test(size=(40, 12)) as pilot:
        for count in (5, 100, 5):
            table.set_rows(
                [Row(index, ("a name that is long enough to be cut", number_cell(22510))) for index in range(count)]
            )
            await pilot.pause()
            await pilot.pause()
            lines = [line for line in seen(table)[1:] if line.strip()]
            assert lines
            assert all("22510" in line for line in lines), seen(table)
            visible = table.scrollable_content_region.width
            assert all(line.index("22510") + 5 <= visible for line in lines), "under the scrollbar"


async def test_the_cursor_stays_in_sight_and_on_its_row_when_rows_change_places() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(1000))
        table.sort_by("step")
        await pilot.press("G")
        row = table.cursor_row
        assert row is not None
        for shift in range(1, 30, 7):
            table.set_rows(rows(1000, shift))
            await pilot.pause()
            assert table.cursor_row is not None
            assert table.cursor_row.key == row.key
            assert any(line.startswith(f"▌ train-a/0/{row.key} ") for line in seen(table))


async def test_rows_are_drawn_again_only_where_they_changed() -> None:
    table = LiveTable(COLUMNS)
    app = WidgetApp(table)
    drawn: list[int] = []
    async with app.run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(50))
        await pilot.pause()
        original = table.render_line

        def spy(y: int) -> object:
            drawn.append(y)
            return original(y)

        table.render_line = spy  # type: ignore[method-assign, assignment]
        table.set_rows(rows(50))
        await pilot.pause()
        assert drawn == []
        changed = rows(50)
        changed[3] = Row(3, ("train-a/0/3", state_cell("READY"), number_cell(1), "gone"))
        changed[40] = Row(40, ("out of sight", "", "", ""))
        table.set_rows(changed)
        await pilot.pause()
        assert drawn == [4]
        assert seen(table)[4].endswith("gone")


async def test_the_cursor_line_is_redrawn_when_the_row_below_it_slides_up() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(5))
        await pilot.press("G")
        table.set_rows(rows(4))
        await pilot.pause()
        strips = pilot.app.screen.find_widget(table)
        assert strips
        assert [line for line in seen(table) if line.startswith("▌")] == [seen(table)[4]]


async def test_marks_range_and_all() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(20))
        await pilot.press("space", "space")
        assert table.marks == {0, 1}
        assert table.model.cursor == 2
        await pilot.press("j", "v", "j", "j")
        assert table.marks == {0, 1, 3, 4, 5}
        assert table.cancel_range()
        assert table.marks == {0, 1}
        assert not table.cancel_range()
        assert table.set_filter("/1\\d") == ""
        await pilot.press("asterisk")
        assert table.marks == {0, 1, *range(10, 20)}
        await pilot.press("asterisk")
        assert table.marks == {0, 1}
        table.clear_marks()
        assert table.marks == set()


async def test_messages_tell_of_cursor_marks_and_activation() -> None:
    told: list[Message] = []
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12), message_hook=told.append) as pilot:
        table.set_rows(rows(20))
        await pilot.press("j", "enter", "space")
        await pilot.pause()
        highlighted = [m.row.key for m in posted(told, LiveTable.RowHighlighted) if m.row]
        assert highlighted[0] == 0
        assert highlighted[-1] == 2
        assert [m.row.key for m in posted(told, LiveTable.RowActivated)] == [1]
        assert [set(m.marks) for m in posted(told, LiveTable.MarksChanged)] == [{1}]
        told.clear()
        table.set_rows([])
        await pilot.pause()
        assert [m.row for m in posted(told, LiveTable.RowHighlighted)] == [None]
        assert [set(m.marks) for m in posted(told, LiveTable.MarksChanged)] == [set()]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("", "empty", "  no queued resource in us-west4-a"),
        ("asking the cloud", "loading", "  asking the cloud"),
        ("permission denied", "error", "  permission denied"),
    ],
)
async def test_an_empty_table_says_why(text: str, kind: str, line: str) -> None:
    table = LiveTable(COLUMNS, empty="no queued resource in us-west4-a")
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_message(text, kind=kind)
        await pilot.pause()
        assert seen(table)[2] == line
        table.set_rows(rows(3))
        await pilot.pause()
        assert line not in seen(table)
        table.set_filter("nothing")
        await pilot.pause()
        assert seen(table)[2] == "  no row of 3 matches 'nothing'"


async def test_a_long_error_is_wrapped_not_cut() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(40, 12)) as pilot:
        table.set_message("quota exceeded for TPUS_PER_TPU_FAMILY in zone us-west4-a: ask for more", kind="error")
        await pilot.pause()
        assert " ".join(line.strip() for line in seen(table)[2:]).strip().endswith("ask for more")


async def test_a_bad_filter_is_refused_with_its_reason() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)):
        table.set_rows(rows(3))
        assert "no regular expression" in table.set_filter("(")
        assert len(table.visible_rows) == 3


async def test_a_click_moves_a_second_opens_and_a_title_sorts() -> None:
    told: list[Message] = []
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12), message_hook=told.append) as pilot:
        table.set_rows(rows(20))
        await pilot.pause()
        await pilot.click(table, offset=(5, 4))
        assert table.model.cursor == 3
        await pilot.click(table, offset=(5, 6), times=2)
        assert table.model.cursor == 5
        assert [m.row.key for m in posted(told, LiveTable.RowActivated)] == [5]
        at = seen(table)[0].index("STEP")
        await pilot.click(table, offset=(at, 0))
        assert (table.sort_column, table.descending) == ("step", False)
        await pilot.click(table, offset=(at, 0))
        assert (table.sort_column, table.descending) == ("step", True)
        assert "STEP▼" in seen(table)[0]
        await pilot.press("O")
        assert not table.descending


async def test_sideways_scrolling_keeps_name_and_header() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(36, 12)) as pilot:
        table.set_rows(rows(20))
        await pilot.pause()
        assert "note 3" not in seen(table)[4]
        await pilot.press("right")
        await pilot.pause()
        assert "note 3" in seen(table)[4]
        assert "train-a/0/3" in seen(table)[4]
        assert seen(table)[0].startswith("  WORKER")
        table.set_rows(rows(20, 1))
        await pilot.pause()
        assert "note 3" in seen(table)[4]


async def test_copied_text_is_what_the_cells_say() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(3))
        await pilot.press("space", "space")
        assert table.copy_text(header=True) == (
            "WORKER\tSTATE\tSTEP\tNOTE\ntrain-a/0/0\tREADY\t0\tnote 0\ntrain-a/0/1\tREADY\t1\tnote 1"
        )


async def test_text_can_be_selected_with_the_mouse() -> None:
    table = LiveTable(COLUMNS)
    app = WidgetApp(table)
    async with app.run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(30))
        await pilot.press("G")
        await pilot.pause()
        await pilot.mouse_down(table, offset=(2, 3))
        await pilot.hover(table, offset=(12, 4))
        await pilot.mouse_up(table, offset=(12, 4))
        await pilot.pause()
        selected = app.screen.get_selected_text()
        assert selected is not None
        first, second = selected.split("\n")
        assert first.startswith("train-a/0/21")
        assert second.strip() == "train-a/0/2"


async def test_a_new_theme_repaints_the_rows() -> None:
    table = LiveTable(COLUMNS)
    app = WidgetApp(table)
    async with app.run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(3))
        await pilot.pause()
        before = [segment.style for segment in table.render_line(2)]
        app.theme = "tower-light"
        await pilot.pause()
        assert [segment.style for segment in table.render_line(2)] != before


async def test_more_rows_than_a_region_has_lines_are_paged_to_the_last() -> None:
    table = LiveTable(COLUMNS)
    async with WidgetApp(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(rows(16_384))
        await pilot.press("G")
        await pilot.pause()
        assert seen(table)[11].startswith("▌ train-a/0/16383")
