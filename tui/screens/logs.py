"""Logs of a run: one worker, tiles of 2, 4 or 8, or all merged in the order of arrival."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container, Grid
from textual.widget import Widget
from textual.widgets import Static

from backend.logs.merged import MergedLog
from backend.logs.worker_log import WorkerLog
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import LOGS, Action, bindings
from tui.command_line import CommandLine
from tui.run_logs import RunLogs
from tui.screens.base import ConsoleScreen
from tui.screens.run_rows import gaps
from tui.widgets.log_view import LogView
from tui.widgets.moments import parse_moment

if TYPE_CHECKING:
    pass

__all__ = ["LogTiles", "LogsScreen", "RunLogs"]

TILES = (1, 2, 4, 8)
NO_LOGS = "No log of this run is on this machine: it printed nothing, or they were removed."
PLAIN_LINES = 2000
"""The end of a log that the plain page shows."""
POLL_LOCAL_S, POLL_REMOTE_S = 0.125, 0.2
"""Log views look for news 8 times a second, 5 times when the terminal is at the end of an ssh connection."""

READ_AT_ONCE = 8
"""So many unopened logs are opened without a word about it."""


def poll_s() -> float:
    """The log clock's period here."""
    return POLL_REMOTE_S if "SSH_CONNECTION" in os.environ else POLL_LOCAL_S


def tiles_that_fit(width: int, height: int, wanted: int) -> int:
    """At most this many tiles leave each 38 columns and 5 lines."""
    fit = max(1, width // 38) * max(1, height // 5)
    return max(tile for tile in TILES if tile <= min(wanted, fit))


class LogTiles(Grid):
    """Some log views side by side; the last row may be short."""

    def show(self, logs: Sequence[tuple[str, WorkerLog | MergedLog]]) -> None:
        """One view a log; views are kept, so that reading positions survive where the log stays."""
        count = len(logs)
        columns = 1 if count <= 2 and self.size.width < 160 else 2 if count <= 4 else 4
        columns = min(columns, max(1, self.size.width // 38), count) if count else 1
        rows = -(-count // columns) if count else 1
        self.styles.grid_size_columns = columns
        self.styles.grid_size_rows = rows
        views = list(self.query(LogView))
        for view in views[count:]:
            view.remove()
        for view in views:
            view.has_neighbours = count > 1
        for number, (title, log) in enumerate(logs):
            if number < len(views):
                if views[number].source is not log:
                    views[number].set_source(log, title=title)
            else:
                view = LogView(log, title=title)
                view.has_neighbours = count > 1
                self.mount(view)

    def poll(self) -> None:
        """Looks for news in every view."""
        now = time.time()
        for view in self.query(LogView):
            source = view.source
            if isinstance(source, MergedLog):
                source.refresh()
            view.poll(now)


class LogsScreen(ConsoleScreen):
    """Reads; the run goes on whatever is looked at."""

    SCOPE = LOGS
    BINDINGS: ClassVar = bindings(LOGS)
    CSS_PATH = "work.tcss"

    def __init__(
        self, logs: RunLogs, *, start: str = "", merged: bool = False, line: int | None = None, pattern: str = ""
    ) -> None:
        """
        Args:
            logs: By worker address, in the order of the run.
            start: The worker to begin with.
            merged: Begin with all of them merged.
            line: Begin at this line of `start`, from 0; else at the end.
            pattern: Searched for from the beginning.
        """
        super().__init__()
        self._run_id = logs.run.id
        self._logs = logs
        self._names = logs.names
        self._first = self._names.index(start) if start in self._names else 0
        self._tiles = 1
        self._merged = merged and len(self._names) > 1
        self._merged_log: MergedLog | None = None
        self._merged_from = 0
        self._reading = False
        self._pattern = ""
        self._begins_with = pattern
        self._line = line
        self.crumb = "logs"

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="logs"):
            yield Static(id="logs-head", markup=False)
            yield LogTiles(id="tiles")

    def on_mount(self) -> None:
        self.set_interval(poll_s(), self._poll)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._arrange()
        if self._begins_with:
            self.apply_filter(self._begins_with)
        view = self.view()
        if self._line is not None and view is not None:
            self.call_after_refresh(view.go_to, self._line)

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    @property
    def tiles(self) -> LogTiles:
        return self.query_one(LogTiles)

    def main_widget(self) -> Widget | None:
        return next(iter(self.query(LogView)), None)

    def view(self) -> LogView | None:
        """The view that has the focus, else the first."""
        focused = self.focused
        return focused if isinstance(focused, LogView) else next(iter(self.query(LogView)), None)

    def _poll(self) -> None:
        if self.is_current and not self.console.paused and not self.console.key_comes_first():
            for view in self.query(LogView):
                view.writer_ended = self._logs.ended(view.log_title)
            self.tiles.poll()

    def applies(self, action: Action) -> bool:
        many = len(self._names) > 1
        return many or action.id not in ("view", "more-tiles", "fewer-tiles", "next-worker")

    def tick(self) -> None:
        # A worker that speaks for the first time joins the merged log.
        if self._merged and not self._reading and self._loud() != self._merged_from:
            self._arrange()

    def _loud(self) -> int:
        return sum(self._logs.has_output(name) for name in self._names)

    async def _merge(self) -> None:
        """Reads what is to be merged, and says how far it is: hundreds of long logs take a while."""
        try:
            head = self.query_one("#logs-head", Static)
            merged = await self._logs.merge(lambda read, of: head.update(f"reading {read:,} of {of:,} logs …"))
            merged.refresh()
        finally:
            self._reading = False
        self._merged_log = merged
        if self._merged:
            self._arrange()

    def _arrange(self) -> None:
        if not self._names:
            self.query_one("#logs-head", Static).update(NO_LOGS)
            return
        if self._merged:
            loud = self._loud()
            if self._merged_log is None or loud != self._merged_from:
                if self._merged_log is None and self._logs.unopened > READ_AT_ONCE:
                    self.query_one("#logs-head", Static).update(f"reading {loud:,} logs …")
                if not self._reading:
                    self._reading, self._merged_from = True, loud
                    self.background(self._merge(), group="merge logs", title="merge logs")
            if self._merged_log is None:
                return
            shown: list[tuple[str, WorkerLog | MergedLog]] = [(f"all {len(self._names)} workers", self._merged_log)]
        else:
            tiles = tiles_that_fit(self.tiles.size.width, self.tiles.size.height, self._tiles)
            names = [
                self._names[(self._first + step) % len(self._names)] for step in range(min(tiles, len(self._names)))
            ]
            shown = [(name, self._logs.open(name)) for name in names]
        what = "merged" if self._merged else f"{len(shown)} of {len(self._names)} workers"
        title = self._logs.run.request.title or " ".join(self._logs.run.request.argv)
        torn = gaps(self._logs.run.results)
        told = f"! there are gaps · {torn[0]}" if torn else title
        self.query_one("#logs-head", Static).update(plain(f"{what} · {told} · run {self._run_id}"))
        self.tiles.show(shown)
        if not isinstance(self.focused, LogView):
            self.call_after_refresh(self.focus_main)

    # Actions

    def do_view(self) -> None:
        self._merged = not self._merged and len(self._names) > 1
        self._arrange()

    def _set_tiles(self, step: int) -> None:
        place = TILES.index(self._tiles) + step
        self._tiles = TILES[max(0, min(place, len(TILES) - 1))]
        self._merged = False
        self._arrange()

    def do_more_tiles(self) -> None:
        self._set_tiles(1)

    def do_fewer_tiles(self) -> None:
        self._set_tiles(-1)

    def do_next_worker(self) -> None:
        self._first = (self._first + self._tiles) % max(len(self._names), 1)
        self._merged = False
        self._arrange()

    def do_previous_worker(self) -> None:
        self._first = (self._first - self._tiles) % max(len(self._names), 1)
        self._merged = False
        self._arrange()

    def do_first_error(self) -> None:
        """Goes to the first line, over all workers, that reports an error."""
        best: tuple[float, str, int] | None = None
        for name in self._names:
            if not self._logs.has_output(name):
                continue
            log = self._logs.open(name)
            for number in range(log.first, log.total):
                line = log.line(number)
                if line.level == "error":
                    if best is None or line.at < best[0]:
                        best = (line.at, name, number)
                    break
        if best is None:
            self.console.say("No line reports an error.")
            return
        _, name, number = best
        self._first, self._tiles, self._merged = self._names.index(name), 1, False
        self._arrange()
        view = self.view()
        if view is not None:
            self.call_after_refresh(view.go_to, number)

    async def do_jump_time(self) -> None:
        """Asks for a time, and goes to the first line that came then, in every view."""
        from tui.screens.confirm import Ask

        def check(text: str) -> None:
            try:
                parse_moment(text, time.time())
            except ValueError as error:
                raise OperatorError(f"{error}.") from error

        lines = ("14:05, 14:05:09, -10m or 2026-11-30 14:05; times are UTC, as they arrived here.",)
        text = await self.console.push_screen_wait(Ask("Jump to which time?", lines, hint="-10m", check=check))
        if text:
            moment = parse_moment(text, time.time())
            for view in self.query(LogView):
                view.go_to_time(moment)

    async def do_search_all(self) -> None:
        from tui.screens import log_search

        await log_search.ask(self.console, self._logs, self._pattern)

    async def do_save_log(self) -> None:
        from tui.screens import log_files

        view = self.view()
        shown = view.log_title if view is not None else ""
        await log_files.ask(self.console, self._logs, shown)

    def page_text(self) -> str:
        view = self.view()
        source = view.source if view is not None else None
        if source is None:
            return ""
        lines = [source.line(number) for number in range(max(source.first, source.total - PLAIN_LINES), source.total)]
        return "\n".join(plain(f"{line.source} {line.text}" if line.source else line.text) for line in lines)

    async def do_shell(self) -> None:
        name = self._names[self._first] if self._names else ""
        await self.console.open_shell(self.console.worker_at(name))

    # Search: the prompt's `/` looks in every view.

    def filter_text(self) -> str:
        return self._pattern

    def apply_filter(self, text: str) -> None:
        for view in self.query(LogView):
            refused = view.search(text)
            if refused:
                raise OperatorError(f"'{text}' cannot be searched for: {refused}.")
        self._pattern = text

    def do_copy_lines(self) -> None:
        view = self.view()
        if view is not None:
            self.console.copy(view.copy_text())

    def do_next_tile(self) -> None:
        self.focus_next(LogView)

    def do_previous_tile(self) -> None:
        self.focus_previous(LogView)

    def take_line(self, line: CommandLine) -> bool:
        if line.word == "logs" and line.targets and line.targets[0] in self._names:
            self._first, self._merged = self._names.index(line.targets[0]), False
            self._arrange()
            return True
        return False
