"""The log view under an operator's fingers."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.message import Message
from textual.scrollbar import ScrollDown, ScrollTo, ScrollUp

from backend.logs.merged import MergedLog
from backend.logs.worker_log import WorkerLog
from tests.tui.widgets.fake_log import FakeLog
from tests.tui.widgets.harness import WidgetApp, posted, seen
from tui.widgets.log_view import LogView

SIZE = (60, 11)
"""Ten rows of log and the status line."""


def log_of(count: int) -> FakeLog:
    return FakeLog(*(f"line {number}" for number in range(count)))


def first_line(view: LogView) -> str:
    return seen(view)[0].strip("▌◆ ")


def wheel(kind: type[events.MouseScrollUp] | type[events.MouseScrollDown]) -> events.MouseEvent:
    return kind(
        widget=None,
        x=5,
        y=5,
        delta_x=0,
        delta_y=1,
        button=0,
        shift=False,
        meta=False,
        ctrl=False,
        screen_x=5,
        screen_y=5,
    )


async def test_the_scrollbar_stands_where_the_reader_is_from_the_first_paint_on() -> None:
    view = LogView(log_of(100), title="train-a/0/3")
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert view.show_vertical_scrollbar
        assert view.vertical_scrollbar.position == view.max_scroll_y > 0


async def test_it_follows_then_pauses_on_the_first_key_up_and_says_how_much_is_new() -> None:
    told: list[Message] = []
    log = log_of(100)
    view = LogView(log, title="train-a/0/3")
    async with WidgetApp(view).run_test(size=SIZE, message_hook=told.append) as pilot:
        await pilot.pause()
        assert seen(view)[9].strip() == "line 99"
        assert seen(view)[10] == "train-a/0/3 · following · 100 lines"
        log.add("line 100")
        assert view.poll(1.0)
        await pilot.pause()
        assert seen(view)[9].strip() == "line 100"
        await pilot.press("k")
        before = seen(view)[:10]
        assert before[8] == "▌ line 99"
        log.add(*(f"line {number}" for number in range(101, 1335)))
        view.poll(2.0)
        await pilot.pause()
        assert seen(view)[:10] == before
        assert seen(view)[10] == "train-a/0/3 · paused +1,234 new · line 100 of 1,335"
        assert view.new_lines == 1234
        await pilot.press("G")
        assert seen(view)[9].strip() == "line 1334"
        assert [message.follow for message in posted(told, LogView.FollowChanged)] == [False, True]


@pytest.mark.parametrize(
    ("keys", "first", "following"),
    [
        (["k"], "line 90", False),
        (["up"] * 11, "line 88", False),
        (["ctrl+u"], "line 85", False),
        (["pageup"], "line 81", False),
        (["pageup", "pagedown"], "line 90", True),
        (["ctrl+u", "ctrl+d"], "line 90", True),
        (["g"], "line 0", False),
        (["home", "j", "down"], "line 0", False),
        (["home", "end"], "line 90", True),
        (["f"], "line 90", False),
        (["f", "f"], "line 90", True),
        (["k", "j"], "line 90", True),
    ],
)
async def test_every_key_moves_as_its_help_says(keys: list[str], first: str, following: bool) -> None:
    view = LogView(log_of(100))
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.press(*keys)
        assert first_line(view) == first
        assert view.following is following


async def test_wheel_and_scrollbar_move_the_reader() -> None:
    view = LogView(log_of(1000))
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        view.post_message(wheel(events.MouseScrollUp))
        await pilot.pause()
        assert first_line(view) == "line 987"
        assert not view.following
        view.post_message(ScrollTo(y=0))
        await pilot.pause()
        assert first_line(view) == "line 0"
        view.post_message(ScrollDown())
        await pilot.pause()
        assert first_line(view) == "line 9"
        view.post_message(ScrollUp())
        view.post_message(wheel(events.MouseScrollDown))
        await pilot.pause()
        assert first_line(view) == "line 3"
        view.post_message(ScrollTo(y=view.max_scroll_y))
        await pilot.pause()
        assert view.following


async def test_trimming_never_moves_the_reader_on_the_screen() -> None:
    log = FakeLog(*(f"line {number}" for number in range(100)), capacity=100)
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.press("pageup")
        before = seen(view)[:10]
        for round_ in range(30):
            log.add(*(f"flood {round_} {number}" for number in range(50)))
            view.poll(float(round_))
            await pilot.pause()
            assert seen(view)[:10] == before
        assert "+1,500 new" in seen(view)[10]


async def test_errors_and_warnings_are_found_in_both_directions() -> None:
    log = FakeLog(*(("error" if n in (10, 60) else "warn" if n == 30 else "fine") + f" {n}" for n in range(100)))
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        for key, number in [("E", 60), ("E", 10), ("e", 60), ("W", 30), ("e", 60), ("E", 10), ("w", 30)]:
            await pilot.press(key)
            assert view.current_line is not None
            assert view.current_line.number == number, key
            assert any(line.startswith("▌") and line.endswith(f" {number}") for line in seen(view))
        await pilot.press("w")
        assert "no later warning" in seen(view)[10]
        await pilot.press("k")
        assert "no later warning" not in seen(view)[10]


async def test_that_there_is_no_later_error_is_not_said_on_when_lines_have_come_since() -> None:
    log = FakeLog("error 1", "fine")
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        view.poll(100.0)
        await pilot.press("e")
        assert "no later error" in seen(view)[10]
        view.poll(200.0)
        assert "no later error" in seen(view)[10], "nothing came"
        log.add("error 2")
        view.poll(201.0)
        await pilot.pause()
        assert "no later error" not in seen(view)[10]


async def test_a_hit_far_away_is_reached_bit_by_bit_without_holding_up_the_screen() -> None:
    log = FakeLog("error at the start", *("fine" for _ in range(20_000)))
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        log.reads = 0
        await pilot.press("E")
        assert log.reads < 1_500
        assert "looking for the previous error" in seen(view)[10]
        for _ in range(25):
            view.poll(1.0)
        await pilot.pause()
        assert view.current_line is not None
        assert view.current_line.number == 0


async def test_search_counts_highlights_and_steps() -> None:
    log = FakeLog(*(f"step: {n}, loss: {n % 7}" for n in range(100)))
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        assert view.search("LOSS: 3$") == ""
        for _ in range(3):
            view.poll(1.0)
        assert view.match_count() == (0, True)
        assert view.search("loss: 3$") == ""
        view.poll(1.0)
        assert view.match_count() == (14, True)
        await pilot.press("N", "N")
        await pilot.pause()
        assert view.current_line is not None
        assert view.current_line.text == "step: 87, loss: 3"
        assert "'loss: 3$' 13/14" in seen(view)[10]
        lit = [
            segment.text
            for y in range(10)
            for segment in view.render_line(y)
            if segment.style and segment.style.bgcolor and "3" in segment.text and segment.text.startswith("loss")
        ]
        assert lit
        assert "no regular expression" in view.search("(")
        assert view.pattern == "loss: 3$"
        assert view.search("") == ""
        assert view.pattern == ""


async def test_marks_are_set_visited_and_copied() -> None:
    view = LogView(FakeLog(*(f"\x1b[32mline\x1b[0m {n}" for n in range(100))))
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.press("g", "m", *"jjjj", "m", "G", "U")
        assert view.current_line is not None
        assert view.current_line.number == 4
        await pilot.press("U")
        assert view.current_line.number == 0
        assert seen(view)[4].startswith("◆ line 4")
        assert view.copy_text() == "line 0\nline 4"
        await pilot.press("u", "u")
        assert "no further mark" in seen(view)[10]
        await pilot.press("m", "G")
        assert view.marks == {0}


async def test_wrapping_shows_all_of_a_line_and_keeps_the_place() -> None:
    log = FakeLog(*("0123456789" * 20 + f" end {n}" for n in range(50)))
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert not any("end" in line for line in seen(view)[:10])
        await pilot.press("z")
        await pilot.pause()
        assert seen(view)[9].endswith("end 49")
        assert "wrapped" in seen(view)[10]
        await pilot.press("k", "k", "k", "k", "z")
        await pilot.pause()
        assert view.current_line is not None
        assert view.current_line.number == 45
        assert any(line.startswith("▌") for line in seen(view))


async def test_horizontal_scroll_is_kept_while_lines_come() -> None:
    log = FakeLog(*("x" * 100 + f" end {n}" for n in range(50)))
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        await pilot.press("right", "right", "right", "right")
        await pilot.pause()
        assert seen(view)[9].endswith("end 49")
        for n in range(50, 60):
            log.add("x" * 100 + f" end {n}")
            view.poll(float(n))
            await pilot.pause()
            assert seen(view)[9].endswith(f"end {n}")


async def test_silence_is_told_and_an_idle_log_is_not_repainted() -> None:
    log = FakeLog()
    log.add("step: 1", at=1000.0)
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        view.poll(1001.0)
        await pilot.pause()
        assert not view.poll(1002.0)
        assert view.poll(1042.0)
        await pilot.pause()
        assert seen(view)[10].endswith("silent 42s")
        assert not view.poll(1042.5)


async def test_a_jump_to_a_time_lands_on_what_came_then() -> None:
    view = LogView(log_of(100))
    async with WidgetApp(view).run_test(size=SIZE):
        view.go_to_time(42.0)
        assert view.current_line is not None
        assert view.current_line.number == 42


async def test_an_unfinished_last_line_is_drawn_again_as_it_grows(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log")
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        for text, shown in [(b"load", "load"), (b"ing\r", ""), (b"50%", "50%"), (b"\n", "50%")]:
            log.append(text)
            view.poll(1.0)
            await pilot.pause()
            assert shown in seen(view)[0]
        assert seen(view)[0].strip().startswith("50%")
    log.close()


async def test_a_real_log_is_read_back_from_disk_beyond_its_ring(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log", ring_bytes=4096)
    for block in range(100):
        log.append(b"".join(b"line %d\n" % (block * 100 + n) for n in range(100)), at=1000.0 + block)
    assert log.first > 0
    view = LogView(log)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.press("g")
        assert first_line(view) == "line 0"
        view.go_to_time(1050.0)
        await pilot.pause()
        assert view.current_line is not None
        assert view.current_line.text == "line 5000"
    log.close()


async def test_a_merged_log_names_its_workers(tmp_path: Path) -> None:
    logs = {f"train-a/0/{n}": WorkerLog(tmp_path / f"{n}.log") for n in range(2)}
    merged = MergedLog(logs)
    view = LogView(merged)
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        for n in range(4):
            logs[f"train-a/0/{n % 2}"].append(b"step: %d\n" % n, at=1000.0 + n)
        merged.refresh()
        view.poll(1004.0)
        await pilot.pause()
        assert seen(view)[:4] == [f"  train-a/0/{n % 2} │ step: {n}" for n in range(4)]
    for log in logs.values():
        log.close()


async def test_text_is_selected_by_the_mouse_from_whole_lines() -> None:
    view = LogView(log_of(100))
    app = WidgetApp(view)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f")
        await pilot.mouse_down(view, offset=(2, 3))
        await pilot.hover(view, offset=(8, 4))
        await pilot.mouse_up(view, offset=(8, 4))
        await pilot.pause()
        assert app.screen.get_selected_text() == "line 93\nline 94"


async def test_hostile_lines_reach_the_screen_as_text() -> None:
    view = LogView(FakeLog("\x1b]52;c;aGk=\x07", "\x9b2J", "[bold red]not markup[/]", "\x1b[2J"))
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert all(line.isprintable() for line in seen(view))
        assert seen(view)[2].strip() == "[bold red]not markup[/]"


async def test_another_source_begins_at_its_end() -> None:
    view = LogView(log_of(100), title="a")
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.press("g", "m")
        view.set_source(log_of(5), title="b")
        await pilot.pause()
        assert view.following
        assert view.marks == set()
        assert seen(view)[4].strip() == "line 4"
        assert seen(view)[10].startswith("b · following")
        view.set_source(None)
        await pilot.pause()
        assert "no log" in seen(view)[10]


async def test_an_empty_log_says_so() -> None:
    view = LogView(FakeLog(), empty="no output yet: the command runs")
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert seen(view)[1].strip() == "no output yet: the command runs"


async def test_a_log_that_has_ended_empty_awaits_nothing() -> None:
    view = LogView(FakeLog())
    view.writer_ended = True
    async with WidgetApp(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert seen(view)[1].strip() == "it ended without any output"
