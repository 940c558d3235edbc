"""Rows of the fleet are made again when they say something else, and not before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.model import Fleet, QueuedResource, Slice, SshWord, Standing, StateSince, Worker, ZonePoll
from tui.screens.fleet_rows import WIDE_COLUMNS, FleetRows
from tui.screens.worker_rows import everything, heat, pointed_out, slices_of
from tui.widgets.rows import Cell, Row

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
COLUMNS = [column.id for column in WIDE_COLUMNS]


def request(name: str, **age: float) -> QueuedResource:
    return QueuedResource("p", "z", name, "ACTIVE", created_at=NOW - timedelta(**age))


def fleet(*items: QueuedResource, **more: object) -> Fleet:
    since = {item.key: StateSince(item.created_at, False) for item in items if item.created_at is not None}
    return replace(Fleet(queued_resources=items, since=since, loaded=True), **more)  # type: ignore[arg-type]


def drawn(rows: FleetRows, known: Fleet, after_s: float = 0.0, ssh: SshWord | None = None) -> list[Row]:
    moment = NOW + timedelta(seconds=after_s)
    return rows.rows(known, moment, narrow=False, short=False, keys="D delete", ssh=lambda _item: ssh)


def cell(row: Row, column: str) -> Cell:
    found = row.cells[COLUMNS.index(column)]
    return found if isinstance(found, Cell) else Cell(found)


def test_a_row_is_kept_until_its_words_change_and_never_longer() -> None:
    rows, known = FleetRows(), fleet(request("old", hours=2, seconds=50), request("young", seconds=30))
    old, young = drawn(rows, known)
    assert (cell(old, "age").text, cell(young, "age").text) == ("2h", "30s")
    for after_s in range(1, 200):
        again_old, again_young = drawn(rows, known, after_s)
        made_old, made_young = drawn(FleetRows(), known, after_s)
        assert (again_old, again_young) == (made_old, made_young), "what is kept says what a new one would"
        assert (again_old is old) == (cell(made_old, "age").text == cell(old, "age").text), after_s
        old = again_old


@pytest.mark.parametrize("what", ["item", "ssh", "since", "stale", "keys"])
def test_a_row_is_made_again_when_what_it_tells_has_changed(what: str) -> None:
    rows, known = FleetRows(), fleet(request("a", hours=2))
    item = known.queued_resources[0]
    (before,) = drawn(rows, known)
    assert drawn(rows, known, 1)[0] is before
    match what:
        case "item":
            (after,) = drawn(rows, replace(known, queued_resources=(replace(item, state="SUSPENDED"),)))
            assert cell(after, "state").text == "SUSPENDED"
        case "ssh":
            one = Slice("p", "z", "a-0", 0, "READY", health="HEALTHY", workers=(Worker(0, "10.0.0.1", "192.0.2.1"),))
            up = fleet(replace(item, slices=(one,), slice_count=1, workers_per_slice=1))
            (asked,) = drawn(rows, up, ssh=SshWord(Standing.ASKING, "asking ssh 0/1", 0, 1))
            (after,) = drawn(rows, up, ssh=SshWord(Standing.LACKS, "slice 0: no ssh on worker 0", 0, 1))
            assert (cell(asked, "note").text, cell(after, "note").text) == (
                "asking ssh 0/1",
                "slice 0: no ssh on worker 0",
            )
        case "since":
            (after,) = drawn(rows, replace(known, since={item.key: StateSince(NOW, False)}))
            assert cell(after, "in").text == "0s"
        case "stale":
            (after,) = drawn(rows, replace(known, polls=(ZonePoll("p", "z", failures=1),)))
            assert cell(after, "state").text == "ACTIVE ?"
        case _:
            dead = fleet(replace(item, state="FAILED"))
            drawn(rows, dead)
            (after,) = rows.rows(dead, NOW, narrow=False, short=False, keys="Z zap", ssh=lambda _item: None)
            assert "Z zap" in cell(after, "note").text


def test_rows_that_were_made_at_different_times_sort_in_the_order_of_their_ages() -> None:
    rows, first = FleetRows(), request("first", hours=1, seconds=10)
    drawn(rows, fleet(first))
    later = fleet(first, request("second", hours=1, seconds=5))
    for after_s in (20, 40, 51, 56, 70):
        ages = [cell(row, "age").sort for row in drawn(rows, later, after_s)]
        assert ages == sorted(ages, reverse=True), after_s


def test_one_worker_is_pointed_out_without_looking_at_the_others_again() -> None:
    workers = tuple(Worker(index, f"10.0.0.{index}") for index in range(3))
    slices = tuple(
        Slice("p", "z", f"a-{place}", place, "READY", queued_resource="a", workers=workers) for place in range(2)
    )
    known = fleet(replace(request("a"), slices=slices))
    cells, places = heat(tuple(everything(known)), slices_of(known), {("p", "z", "a-1", 2): "no ssh (refused)"})
    assert places["a/1/2"] == (1, 2)
    assert cells[0].tokens != cells[1].tokens, "who does not answer looks otherwise"
    shown = pointed_out(cells, places["a/1/2"])
    assert [each.cursor for each in shown] == [None, 2]
    assert shown[0] is cells[0]
    assert [each.cursor for each in cells] == [None, None]
    assert pointed_out(cells, None) == cells


def test_two_of_one_name_are_told_apart_by_their_zones_as_long_as_there_are_two() -> None:
    one, other = request("race1", hours=1), replace(request("race1", hours=1), zone="y")
    rows = FleetRows()
    assert [cell(row, "name").text for row in drawn(rows, fleet(one, other, request("a")))] == [
        "race1 · z",
        "race1 · y",
        "a",
    ]
    assert [cell(row, "name").text for row in drawn(rows, fleet(one, request("a")))] == ["race1", "a"]
