"""Where the reader of a log is: follow, pause, trim, page; by example and by property."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.tui.widgets.fake_log import FakeLog
from tui.widgets.log_index import LogIndex
from tui.widgets.log_reader import LogReader
from tui.widgets.log_source import LogLineLike

WIDTH = 10


def wrapped(line: LogLineLike) -> int:
    return max(1, -(-len(line.text) // WIDTH))


def reader_of(log: FakeLog, height: int = 5, *, wrap: bool = False) -> LogReader:
    reader = LogReader(log, wrapped)
    reader.wrapped = wrap
    reader.resize(height)
    return reader


def is_following(reader: LogReader) -> bool:
    return reader.following


def texts(reader: LogReader) -> list[tuple[int, str]]:
    return [(number, line.text) for number in numbers(reader) if (line := reader.line(number))]


def numbers(reader: LogReader) -> list[int]:
    return [number for number, _ in reader.page()]


def test_a_follower_sees_the_end() -> None:
    log = FakeLog(*"abcdefgh")
    reader = reader_of(log)
    assert numbers(reader) == [3, 4, 5, 6, 7]
    log.add("i", "j")
    reader.sync()
    assert numbers(reader) == [5, 6, 7, 8, 9]
    assert reader.new_lines == 0


def test_scrolling_up_pauses_and_new_lines_are_counted_not_shown() -> None:
    log = FakeLog(*"abcdefgh")
    reader = reader_of(log)
    reader.scroll(-1)
    log.add(*"ijk")
    reader.sync()
    assert numbers(reader) == [2, 3, 4, 5, 6]
    assert reader.new_lines == 3
    reader.scroll(2)
    assert reader.new_lines == 2
    assert not is_following(reader)
    reader.scroll(100)
    assert is_following(reader)
    assert numbers(reader) == [6, 7, 8, 9, 10]


def test_trimming_under_a_paused_reader_moves_nothing() -> None:
    log = FakeLog(*"abcdefgh", capacity=8)
    reader = reader_of(log)
    reader.scroll(-3)
    before = texts(reader)
    assert [text for _, text in before] == list("abcde")
    log.add(*(str(each) for each in range(100)))
    reader.sync()
    assert texts(reader) == before
    assert reader.new_lines == 100
    reader.scroll(3)
    assert numbers(reader) == [3, 4, 100, 101, 102]
    reader.scroll(3)
    assert numbers(reader)[0] >= 100


def test_a_line_that_was_gone_to_before_the_page_had_its_height_leaves_no_room_empty() -> None:
    reader = reader_of(FakeLog(*"abc"), height=1)
    reader.go_to(1)
    reader.resize(5)
    assert numbers(reader) == [0, 1, 2]
    assert reader.cursor == 1


def test_a_page_across_a_gap_stands_still_too() -> None:
    log = FakeLog("a", capacity=3)
    reader = reader_of(log, height=1)
    reader.go_to_start()
    reader.resize(2)
    log.add(*"bcde")
    reader.sync()
    assert texts(reader) == [(0, "a"), (2, "c")]
    log.add("f")
    reader.sync()
    assert texts(reader) == [(0, "a"), (2, "c")]


def test_a_wrapped_end_shows_the_last_rows_of_a_long_line() -> None:
    log = FakeLog("short", "x" * 95)
    reader = reader_of(log, wrap=True)
    assert reader.page() == [(1, 5), (1, 6), (1, 7), (1, 8), (1, 9)]
    reader.scroll(-3)
    assert reader.page()[0] == (1, 2)
    reader.scroll(-3)
    assert reader.page()[0] == (0, 0)
    reader.scroll(1)
    assert reader.page()[0] == (1, 0)


def test_the_cursor_scrolls_the_page_at_its_edges_and_follows_again_at_the_end() -> None:
    log = FakeLog(*"abcdefghij")
    reader = reader_of(log)
    for _ in range(4):
        reader.move_cursor(-1)
    assert (reader.cursor, numbers(reader)) == (5, [5, 6, 7, 8, 9])
    reader.move_cursor(-1)
    assert (reader.cursor, numbers(reader)) == (4, [4, 5, 6, 7, 8])
    reader.move_cursor(4)
    assert numbers(reader) == [4, 5, 6, 7, 8]
    assert not is_following(reader)
    reader.move_cursor(1)
    assert is_following(reader)


def test_going_to_a_line_shows_what_led_to_it() -> None:
    log = FakeLog(*(str(each) for each in range(100)))
    reader = reader_of(log, height=9)
    reader.go_to(50)
    assert reader.cursor == 50
    assert numbers(reader)[0] == 47
    reader.go_to(52)
    assert numbers(reader)[0] == 47
    reader.go_to(0)
    assert numbers(reader)[0] == 0
    reader.go_to(1_000)
    assert reader.cursor == 99
    assert numbers(reader)[-1] == 99


def test_an_empty_log_and_its_first_lines() -> None:
    log = FakeLog()
    reader = reader_of(log)
    assert reader.page() == []
    reader.scroll(-3)
    reader.move_cursor(-1)
    reader.go_to(7)
    assert reader.page() == []
    log.add("a")
    reader.sync()
    assert numbers(reader) == [0]


def test_a_log_that_became_shorter_is_followed_anew() -> None:
    log = FakeLog(*"abcdefgh")
    reader = reader_of(log)
    reader.go_to_start()
    reader.source = FakeLog("z")
    reader.cursor = 5
    reader.sync()
    assert reader.following
    assert numbers(reader) == [0]


class ReaderMachine(RuleBasedStateMachine):
    """Whatever an operator does and whatever comes: the page is whole, in order, and still when paused."""

    @initialize(capacity=st.integers(3, 30), height=st.integers(1, 8), wrap=st.booleans())
    def begin(self, capacity: int, height: int, wrap: bool) -> None:
        self.log = FakeLog(capacity=capacity)
        self.reader = reader_of(self.log, height, wrap=wrap)

    @rule(lengths=st.lists(st.integers(0, 45), max_size=40))
    def lines_come(self, lengths: list[int]) -> None:
        paused = not self.reader.following
        before = self.reader.page()
        full = len(before) == self.reader.height
        self.log.add(*("x" * length for length in lengths))
        self.reader.sync()
        if paused and full and not self.reader.following:
            assert self.reader.page() == before

    @rule(rows=st.integers(-20, 20))
    def scroll(self, rows: int) -> None:
        self.reader.scroll(rows)

    @rule(lines=st.integers(-5, 5))
    def move(self, lines: int) -> None:
        self.reader.move_cursor(lines)

    @rule(number=st.integers(0, 200))
    def go_to(self, number: int) -> None:
        self.reader.go_to(number)

    @rule(height=st.integers(1, 9))
    def resize(self, height: int) -> None:
        self.reader.resize(height)

    @rule()
    def home(self) -> None:
        self.reader.go_to_start()

    @rule()
    def end(self) -> None:
        self.reader.follow()

    @rule(number=st.integers(0, 200))
    def drag(self, number: int) -> None:
        self.reader.set_top(number)

    @invariant()
    def the_page_is_whole(self) -> None:
        if not hasattr(self, "reader"):
            return
        page = self.reader.page()
        assert page == sorted(set(page))
        assert len(page) <= self.reader.height
        if self.log.total:
            assert page
            assert all(self.reader.line(number) is not None for number, _ in page)
        if self.reader.following and self.log.total:
            assert page[-1][0] == self.log.total - 1

    @invariant()
    def the_cursor_is_on_a_line(self) -> None:
        if hasattr(self, "reader") and self.log.total:
            assert 0 <= self.reader.cursor < self.log.total


ReaderMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestReaderMachine = ReaderMachine.TestCase


@given(
    st.lists(st.booleans(), min_size=1, max_size=80),
    st.integers(0, 79),
    st.integers(1, 7),
    st.integers(0, 60),
)
def test_an_index_finds_what_a_plain_search_finds(hits: list[bool], start: int, budget: int, trim: int) -> None:
    log = FakeLog(*("error" if hit else "fine" for hit in hits))
    index = LogIndex(lambda line: line.level == "error", min(start, len(hits) - 1))
    looks = 0
    while not index.complete(log):
        assert index.scan(log, budget) <= budget
        looks += 1
        assert looks < 200
    log.add("error", "fine")
    while not index.complete(log):
        index.scan(log, budget)
    log.capacity = max(1, log.total - trim)
    log.add()
    expected = [number for number in range(log.first, log.total) if log.line(number).level == "error"]
    assert index.count(log) == len(expected)
    for number in range(log.first, log.total):
        assert index.next_after(log, number) == next((each for each in expected if each > number), None)
        assert index.previous_before(log, number) == next(
            (each for each in reversed(expected) if each < number), None
        )
        assert index.rank(log, number) == (expected.index(number) + 1 if number in expected else 0)
