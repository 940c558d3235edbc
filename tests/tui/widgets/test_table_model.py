"""Order, filter, cursor and marks of a table, by example and by property."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.widgets.rows import Cell, Column, Row, number_cell, outcome_cell, state_cell
from tui.widgets.table_filter import FilterError, parse_filter
from tui.widgets.table_model import TableModel, natural_key

COLUMNS = (
    Column("name", "NAME"),
    Column("state", "STATE"),
    Column("chips", "CHIPS", align="right"),
    Column("in-state", "IN STATE"),
)


def row(name: str, state: str = "ACTIVE", chips: float | None = 1, age_s: float = 60) -> Row:
    return Row(name, (name, state_cell(state), number_cell(chips), Cell(f"{age_s:.0f}s", sort=age_s)))


FLEET = (
    row("train-a", "ACTIVE", 32, 6660),
    row("sweep-b", "PROVISIONING", 64, 120),
    row("big-c", "WAITING_FOR_RESOURCES", 128, 1860),
    row("old-d", "FAILED", 16, 259200),
    row("train-10", "ACTIVE", None, 10),
    row("train-9", "ACTIVE", 16, 9),
)


def names(model: TableModel) -> list[str]:
    return [str(item.key) for item in model.view]


def filtered(text: str) -> list[str]:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.set_filter(text)
    return names(model)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["train-a", "sweep-b", "big-c", "old-d", "train-10", "train-9"]),
        ("train", ["train-a", "train-10", "train-9"]),
        ("TRAIN", []),
        ("^train-\\d+$", ["train-10", "train-9"]),
        ("state=active", ["train-a", "train-10", "train-9"]),
        ("STATE=FAILED,PROVISIONING", ["sweep-b", "old-d"]),
        ("state=*ING*", ["sweep-b", "big-c"]),
        ("state!=ACTIVE", ["sweep-b", "big-c", "old-d"]),
        ("!state=ACTIVE", ["sweep-b", "big-c", "old-d"]),
        ("! train state=ACTIVE", ["sweep-b", "big-c", "old-d"]),
        ("! train", ["sweep-b", "big-c", "old-d"]),
        ("!train", ["sweep-b", "big-c", "old-d"]),
        ("train !-9", ["train-a", "train-10"]),
        ("chips>=64", ["sweep-b", "big-c"]),
        ("chips<32", ["old-d", "train-9"]),
        ("in-state>30m", ["train-a", "big-c", "old-d"]),
        ("name~^s", ["sweep-b"]),
        ('"train-9"', ["train-9"]),
        ('!"train-9" train', ["train-a", "train-10"]),
        ("chips=16", ["old-d", "train-9"]),
    ],
)
def test_filters_show_what_they_say(text: str, expected: list[str]) -> None:
    assert filtered(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "no regular expression"),
        ("stat=ACTIVE", "there is no column 'stat': use name, state, chips, in-state"),
        ("chips>many", "is no number"),
        ("name~[", "no regular expression"),
    ],
)
def test_a_filter_that_cannot_be_used_says_why_and_changes_nothing(text: str, reason: str) -> None:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.set_filter("old")
    with pytest.raises(FilterError, match=reason):
        model.set_filter(text)
    assert names(model) == ["old-d"]
    assert model.filter_text == "old"


def test_a_quoted_term_with_an_equals_sign_is_text() -> None:
    assert parse_filter('"x=1"', COLUMNS) is not None


def test_numbers_in_names_sort_by_value_and_unknown_ones_last() -> None:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.sort_by("name")
    assert names(model) == ["big-c", "old-d", "sweep-b", "train-9", "train-10", "train-a"]
    model.sort_by("chips")
    assert names(model)[-1] == "train-10"
    model.sort_by("chips", descending=True)
    assert names(model) == ["big-c", "sweep-b", "train-a", "old-d", "train-9", "train-10"]
    model.sort_by("")
    assert names(model) == [str(item.key) for item in FLEET]
    with pytest.raises(KeyError):
        model.sort_by("colour")


def test_a_column_of_mixed_kinds_sorts_by_its_text_instead_of_failing() -> None:
    model = TableModel((Column("a", "A"),))
    model.set_rows([Row(1, (Cell("b", sort="x"),)), Row(2, (Cell("a", sort=3),)), Row(3, (Cell("c", sort=None),))])
    model.sort_by("a")
    assert [item.key for item in model.view] == [2, 1, 3]


def test_not_a_number_counts_as_unknown() -> None:
    model = TableModel((Column("a", "A"),))
    model.set_rows([Row(1, (number_cell(float("nan")),)), Row(2, (number_cell(3),)), Row(3, (number_cell(1),))])
    model.sort_by("a")
    assert [item.key for item in model.view] == [3, 2, 1]


numbers = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=40)


@given(numbers, st.booleans())
def test_sorting_keeps_the_order_of_equals_and_every_row(values: list[int | None], descending: bool) -> None:
    model = TableModel((Column("n", "N"),))
    model.set_rows([Row(index, (number_cell(value),)) for index, value in enumerate(values)])
    model.sort_by("n", descending=descending)
    order = [item.key for item in model.view]
    assert sorted(order) == list(range(len(values)))  # type: ignore[type-var]
    known = [key for key in order if values[int(str(key))] is not None]
    assert order[: len(known)] == known
    for before, after in itertools.pairwise(order):
        one, two = values[int(str(before))], values[int(str(after))]
        if one == two:
            assert int(str(before)) < int(str(after))
        elif one is not None and two is not None:
            assert one > two if descending else one < two


cells = st.one_of(st.none(), st.integers(0, 4), st.sampled_from(["b1", "b10", "b2", "a"]))
tables = st.lists(st.lists(cells, min_size=6, max_size=6), min_size=2, max_size=6)


@given(tables, st.booleans(), st.sampled_from(["", "a", "! b", "n>2"]), st.booleans())
def test_a_table_that_is_patched_looks_like_one_that_is_new(
    history: list[list[int | str | None]], descending: bool, text: str, by_value: bool
) -> None:
    model = TableModel((Column("n", "N"),))
    model.sort_by("n" if by_value else "", descending=descending)
    model.set_filter(text)
    before: list[Row] = []
    for values in history:
        rows = [
            Row(index, (value if isinstance(value, str) else number_cell(value),))
            for index, value in enumerate(values)
        ]
        # What did not change stays the same object, as in life.
        before = [old if old == new else new for old, new in itertools.zip_longest(before, rows) if new is not None]
        model.set_rows(before)
        fresh = TableModel(model.columns)
        fresh.set_rows(rows)
        fresh.set_filter(text)
        fresh.sort_by(model.sort_column, descending=descending)
        assert [item.key for item in model.view] == [item.key for item in fresh.view]
        assert not model.view or model.view[model.cursor].key == model.cursor_key


@given(st.lists(numbers, min_size=2, max_size=4))
def test_the_order_depends_on_the_rows_alone_not_on_those_before(history: list[list[int | None]]) -> None:
    model, fresh = TableModel((Column("n", "N"),)), TableModel((Column("n", "N"),))
    model.sort_by("n")
    for values in history:
        model.set_rows([Row(index, (number_cell(value),)) for index, value in enumerate(values)])
    fresh.set_rows(model.rows)
    fresh.sort_by("n")
    assert [item.key for item in model.view] == [item.key for item in fresh.view]


@given(st.permutations(range(12)), st.integers(0, 11), st.sets(st.integers(0, 11)))
def test_cursor_and_marks_stay_with_their_rows(order: list[int], cursor: int, marked: set[int]) -> None:
    model = TableModel((Column("n", "N"),))
    model.set_rows([Row(number, (str(number),)) for number in range(12)])
    for number in marked:
        model.move(number)
        model.toggle_mark()
    model.move(cursor)
    model.set_rows([Row(number, (str(number),)) for number in order])
    assert model.cursor_key == cursor
    assert model.view[model.cursor].key == cursor
    assert model.marks == marked


@given(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=9))
def test_when_the_row_of_the_cursor_goes_the_cursor_stays_near(cursor: int, kept: set[int]) -> None:
    model = TableModel((Column("n", "N"),))
    model.set_rows([Row(number, (str(number),)) for number in range(10)])
    model.move(cursor)
    model.set_rows([Row(number, (str(number),)) for number in sorted(kept)])
    if kept:
        assert model.cursor_key in kept
        assert model.view[model.cursor].key == model.cursor_key
    else:
        assert model.cursor_key is None


def test_marks_of_rows_that_are_gone_are_forgotten() -> None:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.toggle_all()
    model.set_rows(FLEET[:2])
    assert model.marks == {"train-a", "sweep-b"}


def test_marking_all_marks_only_what_the_filter_shows() -> None:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.set_filter("state=ACTIVE")
    model.toggle_all()
    model.set_filter("")
    assert [item.key for item in model.selected()] == ["train-a", "train-10", "train-9"]
    model.set_filter("old")
    assert [item.key for item in model.selected()] == ["train-a", "train-10", "train-9"]


def test_a_range_follows_the_cursor_and_can_be_taken_back() -> None:
    model = TableModel(COLUMNS)
    model.set_rows(FLEET)
    model.toggle_mark()
    model.move(2)
    model.start_range()
    model.move(4)
    assert model.marks == {"train-a", "big-c", "old-d", "train-10"}
    model.move(1)
    assert model.marks == {"train-a", "sweep-b", "big-c"}
    model.end_range(keep=False)
    assert model.marks == {"train-a"}
    assert not model.in_range


def test_without_marks_the_row_at_the_cursor_is_selected() -> None:
    model = TableModel(COLUMNS)
    assert model.selected() == []
    model.set_rows(FLEET)
    model.move(3)
    assert [item.key for item in model.selected()] == ["old-d"]


def test_outcomes_are_words_as_well_as_glyphs() -> None:
    assert outcome_cell("timed_out").text == "timed out"
    assert outcome_cell("failed", detail="1").text == "failed (1)"


@given(st.text(), st.text())
def test_any_two_names_can_be_compared(one: str, two: str) -> None:
    assert (natural_key(one) < natural_key(two)) in (True, False)
