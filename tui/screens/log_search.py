"""A pattern in the logs of all workers of a run: how many lines have it, where the first stands; enter opens it there."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on

from backend.logs.store import search_file
from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID, LOG_SEARCH, bindings
from tui.screens.confirm import Ask
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row, number_cell
from tui.widgets.table_filter import FilterError, compile_smart
from tui.wording import count

if TYPE_CHECKING:
    from tui.console import Console
    from tui.run_logs import RunLogs

COUNTED_MOST = 1_000_000
"""Lines of one log that are counted."""
COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=32),
    Column("lines", "LINES", width=9, align="right"),
    Column("line", "FIRST AT", width=9, align="right", hint="The line of the worker's log, from 1."),
    Column("first", "THE FIRST", min_width=20, max_width=400, flex=1),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What one log has."""

    address: str
    lines: int
    number: int = 0
    """Of the first, from 0."""
    text: str = ""


def pattern_of(text: str) -> re.Pattern[bytes]:
    """A regular expression over raw lines, case-blind unless it has a capital: as `/` in a log.

    Raises:
        OperatorError: It is none.
    """
    try:
        flags = compile_smart(text).flags & re.IGNORECASE
    except FilterError as error:
        raise OperatorError(f"'{plain(text)}' cannot be searched for: {error}.") from error
    if not text:
        raise OperatorError("A pattern is missing.", "Write a word or a regular expression.")
    return re.compile(text.encode("utf-8", "surrogateescape"), flags)


def search_one(address: str, path: Path, pattern: re.Pattern[bytes]) -> Found:
    """Reads a whole log in blocks: call it in a thread."""
    lines, number, text = 0, 0, ""
    for hit in search_file(path, pattern, limit=COUNTED_MOST):
        if not lines:
            number, text = hit.number, hit.text
        lines += 1
    return Found(address, lines, number, text)


def row(found: Found) -> Row:
    """One worker."""
    lines = number_cell(found.lines, f"{found.lines:,}")
    return Row(found.address, (found.address, lines, number_cell(found.number + 1), plain(found.text)))


async def ask(console: Console, logs: RunLogs, pattern: str) -> None:
    """Asks for the pattern, and searches."""
    lines = ("In all logs of this run, whole. A regular expression; case counts once it has a capital.",)
    asked = Ask("Search all logs for what?", lines, value=pattern, hint="error|Traceback", check=pattern_of)
    text = await console.push_screen_wait(asked)
    if text:
        console.push_screen(LogSearchScreen(logs, text))


class LogSearchScreen(WorkScreen):
    """The workers whose logs have it, those with the most lines first; `r` searches again in what came since."""

    SCOPE = LOG_SEARCH
    BINDINGS: ClassVar = bindings(LOG_SEARCH)
    COLUMNS = COLUMNS
    word = "search"

    def __init__(self, logs: RunLogs, pattern: str) -> None:
        super().__init__(logs.names)
        self._logs = logs
        self._text = pattern
        self._pattern = pattern_of(pattern)
        self._found: dict[str, Found] = {}
        self.crumb = f"search {plain(pattern)!r}"

    def on_mount(self) -> None:
        self.do_refresh()

    def do_refresh(self) -> None:
        if self.is_working:
            raise OperatorError("It is still being searched.")
        self._found = {}
        self.detail("")
        self.begin(self._search(), f"Searching {count(len(self.targets), 'log')}")

    async def _search(self) -> None:
        for address in self.targets:
            path = self._logs.path(address)
            if path.exists():
                self._found[address] = await asyncio.to_thread(search_one, address, path, self._pattern)
            else:
                self._found[address] = Found(address, 0)
        self._draw()
        if not self.table.row_count:
            self.table.set_message(f"No log has {plain(self._text)!r}.", kind="empty")

    def tick(self) -> None:
        if self.is_working:
            self._draw()

    def _draw(self) -> None:
        hits = [each for each in self._found.values() if each.lines]
        self.table.set_rows([row(each) for each in sorted(hits, key=lambda each: -each.lines)])
        lines = sum(each.lines for each in hits)
        done = len(self._found)
        how_far = f"searched {done} of " if done < len(self.targets) else ""
        self.head(
            f"{plain(self._text)!r}: {count(lines, 'line')} in {count(len(hits), 'log')} · "
            f"{how_far}{count(len(self.targets), 'log')}"
        )

    @on(LiveTable.RowHighlighted)
    def _show(self) -> None:
        found = self._chosen()
        self.detail(f"{found.address}, line {found.number + 1}: {plain(found.text)}" if found is not None else "")

    def _chosen(self) -> Found | None:
        cursor = self.table.cursor_row
        return self._found.get(str(cursor.key)) if cursor is not None else None

    def targets_here(self) -> list[str]:
        found = self._chosen()
        return [found.address] if found is not None else []

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """The log at the first line that has it, with the search in force."""
        found = self._chosen()
        if found is None:
            raise OperatorError("There is no log under the cursor.")
        self.console.open_log_at(self._logs, found.address, found.number, self._text)

    def do_logs(self) -> None:
        self.do_open()
