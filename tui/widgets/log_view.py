"""A log on the line API: lines are parsed and wrapped when they are drawn, and the reader stays where they read."""

from __future__ import annotations

from datetime import UTC, tzinfo

from textual.message import Message

from tui.look import look_of
from tui.widgets.log_index import LogIndex
from tui.widgets.log_keys import Kind
from tui.widgets.log_reader import LogReader
from tui.widgets.log_screen import LogScreen
from tui.widgets.log_source import LineSource, LogLineLike
from tui.widgets.log_status import LogFacts
from tui.widgets.sgr import strip_sgr
from tui.widgets.table_filter import FilterError, compile_smart

NO_LATER = "no later"
NOTICE_S = 3.0
"""So long that there is no later match stays true enough of a log that grows."""


class LogView(LogScreen, can_focus=True):
    """One worker's log, or a merged one, over a `LineSource`. The app calls `poll`: it has no timer of its own.

    Args:
        source: What to show; None until `set_source`.
        title: Shown on the status line, e.g. the worker's address.
        empty: The sentence shown while there is no line.
        timezone: In which arrival times are shown.
    """

    class FollowChanged(Message):
        """The view began or ceased to follow the end."""

        def __init__(self, view: LogView, follow: bool) -> None:
            super().__init__()
            self.view = view
            self.follow = follow

        @property
        def control(self) -> LogView:
            return self.view

    def __init__(
        self,
        source: LineSource | None = None,
        *,
        title: str = "",
        empty: str = "no output yet",
        timezone: tzinfo = UTC,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(title=title, empty=empty, timezone=timezone, id=id, classes=classes)
        self._indexes: dict[Kind, LogIndex] = {}
        self._wanted: tuple[Kind, int] | None = None
        self._now = 0.0
        self._noticed_at = 0.0
        self.writer_ended = False
        """Set by whoever knows: nothing more will come."""
        self.has_neighbours = False
        """Set by whoever knows: other logs stand beside it, so that the one of the keys needs a mark."""
        self._version: int | None = None
        self._told_follow = True
        self.set_source(source, title=title)

    # -- what screens call ---------------------------------------------------------------------------------------------

    def set_source(self, source: LineSource | None, *, title: str = "") -> None:
        """Shows another log, from its end, following. Marks and search results belong to the old one and go."""
        self.source = source
        self.log_title = title or self.log_title
        self.marks.clear()
        self._indexes.clear()
        self._wanted = None
        self._version = None
        self._widest = self._source_width = 0
        self._painter = None
        self._rows.clear()
        self.reader = LogReader(source, self._rows_of) if source is not None else None
        if self.reader is not None:
            self.reader.wrapped = self.wrapping
            self.reader.resize(self.page_height)
            if self._pattern is not None:
                self._indexes["match"] = self._index_of("match")
        self.moved()

    def poll(self, now: float) -> bool:
        """Looks whether the source changed, and repaints what did. Cheap when nothing did.

        Args:
            now: Unix seconds, for the silence age.

        Returns:
            Whether anything was repainted.
        """
        self._now = now
        source, reader = self.source, self.reader
        if source is None or reader is None:
            return False
        self._scan()
        if source.version == self._version:
            return self.refresh_status()
        self._version = source.version
        if self.notice.startswith(NO_LATER) and now - self._noticed_at >= NOTICE_S:
            # Lines have come since: one of them may be what was looked for.
            self.notice = ""
        whole = reader.following or len(self._page) < self.page_height or self._page[-1][0] >= source.total - 1
        top = reader.top
        reader.sync()
        if whole or reader.top != top:
            self.moved()
            return True
        self._place_scrollbar()
        return self.refresh_status()

    @property
    def new_lines(self) -> int:
        """Lines that came since the view ceased to follow, and were not yet seen."""
        return self.reader.new_lines if self.reader is not None else 0

    @property
    def current_line(self) -> LogLineLike | None:
        """The line under the reader's cursor; the last one while following."""
        if self.reader is None or self.reader.last < 0:
            return None
        return self.reader.line(self.reader.cursor)

    def tell_follow(self) -> None:
        """Tells whether the view follows, when that changed."""
        if self.following != self._told_follow:
            self._told_follow = self.following
            self.post_message(self.FollowChanged(self, self.following))

    def follow(self, on: bool = True) -> None:
        """Goes to the end and stays there, or stays here."""
        if self.reader is not None:
            if on:
                self.reader.follow()
            else:
                self.reader.pause()
            self.moved()

    def go_to(self, number: int) -> None:
        """Puts the cursor on an absolute line, in view, and ceases to follow."""
        if self.reader is not None:
            self.reader.go_to(number)
            self.moved()

    def go_to_time(self, moment: float) -> None:
        """Puts the cursor on the first line that arrived at or after `moment`, Unix seconds."""
        if self.source is not None:
            self.go_to(self.source.line_at(moment))

    def search(self, pattern: str) -> str:
        """Highlights a regex (case-blind unless it has a capital) and finds its matches; empty clears it.

        Returns:
            The reason when the pattern can't be used, else empty.
        """
        try:
            self._pattern = compile_smart(pattern) if pattern else None
        except FilterError as error:
            return str(error)
        self._indexes.pop("match", None)
        self._wanted = None
        if self._pattern is not None and self.reader is not None:
            self._indexes["match"] = self._index_of("match")
        self.forget()
        return ""

    @property
    def pattern(self) -> str:
        """What is searched for."""
        return self._pattern.pattern if self._pattern is not None else ""

    def match_count(self) -> tuple[int, bool]:
        """How many lines match among those looked at, and whether all were."""
        index = self._indexes.get("match")
        if index is None or self.source is None:
            return 0, True
        return index.count(self.source), index.complete(self.source)

    def copy_text(self) -> str:
        """The marked lines, or the line under the cursor, without colours."""
        if self.reader is None:
            return ""
        numbers = sorted(self.marks) or [self.reader.cursor]
        lines = [self.reader.line(number) for number in numbers]
        return "\n".join(strip_sgr(line.text) for line in lines if line is not None)

    def page_text(self) -> str:
        """What stands on the page, without colours: for the plain page."""
        numbers = dict.fromkeys(number for number, _ in self._page)
        lines = [self.reader.line(number) for number in numbers] if self.reader is not None else []
        return "\n".join(f"{line.source} {strip_sgr(line.text)}".lstrip() for line in lines if line is not None)

    # -- search, errors, warnings ------------------------------------------------------------------------------------

    def _index_of(self, kind: Kind) -> LogIndex:
        assert self.reader is not None
        start = max(0, min(self.reader.cursor, self.reader.last))
        if kind != "match":
            return LogIndex(lambda line: line.level == kind, start)
        pattern = self._pattern
        assert pattern is not None
        search = pattern.search
        return LogIndex(lambda line: search(strip_sgr(line.text)) is not None, start)

    def _scan(self) -> None:
        """Looks at some more lines; makes the jump that waited for them."""
        source = self.source
        if source is None:
            return
        for index in self._indexes.values():
            if not index.complete(source):
                index.scan(source)
        if self._wanted is not None:
            kind, direction = self._wanted
            self.jump(kind, direction, 0)

    def jump(self, kind: Kind, direction: int, budget: int) -> None:
        source, reader = self.source, self.reader
        if source is None or reader is None:
            return
        index = self._indexes.get(kind)
        if index is None:
            index = self._indexes[kind] = self._index_of(kind)
        looked = 0
        while True:
            found = (index.next_after if direction > 0 else index.previous_before)(source, reader.cursor)
            if found is not None:
                self._wanted, self.notice = None, ""
                reader.go_to(found)
                self.moved()
                return
            if looked >= budget or index.complete(source):
                break
            looked += max(1, index.scan(source))
        if index.complete(source):
            self._wanted = None
            self.notice = f"{NO_LATER if direction > 0 else 'no earlier'} {kind}"
            self._noticed_at = self._now
        else:
            self._wanted = (kind, direction)
            self.notice = f"looking for the {'next' if direction > 0 else 'previous'} {kind}"
        self.refresh_status()

    def empty_words(self) -> str:
        return "it ended without any output" if self.writer_ended else self.empty

    def status_facts(self) -> LogFacts:
        """What the status line says."""
        source, reader = self.source, self.reader
        chosen = self.has_neighbours and self.has_focus
        facts = LogFacts(
            title=f"{look_of(self).glyphs['cursor']}{self.log_title}" if chosen else self.log_title,
            notice=self.notice,
            marks=len(self.marks),
            wrapping=self.wrapping,
            ended=self.writer_ended,
        )
        if source is not None and reader is not None:
            facts.total, facts.following = source.total, reader.following
            facts.line, facts.new_lines = reader.cursor + 1, reader.new_lines
            if source.last_at and self._now:
                facts.silence_s = self._now - source.last_at
            if self._pattern is not None:
                facts.pattern = self._pattern.pattern
                facts.matches, facts.all_searched = self.match_count()
                facts.match = self._indexes["match"].rank(source, reader.cursor)
        return facts
