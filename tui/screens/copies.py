"""Files to workers or from them: the form, and what became of each worker's copy."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.suggester import Suggester
from textual.widgets import Input

from backend.local_files import is_there, own_path
from backend.model import EventKind
from backend.outcomes import OperatorError, Outcome
from backend.sanitize import plain
from backend.targets import fold
from tui.actions import BY_ID, COPIES, COPY_FORM, bindings
from tui.completion import complete_path
from tui.screens.form import FormLine
from tui.screens.plan_form import Judged, TargetForm
from tui.screens.work_screen import WorkScreen
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column, Row, outcome_cell
from tui.wording import count

if TYPE_CHECKING:
    from backend.targets import WorkerRef
    from backend.tools.transfers import Transfer

TO, FROM = "to workers", "from workers"
COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=26),
    Column("outcome", "OUTCOME", min_width=12, max_width=18),
    Column("place", "WHERE, OR WHY NOT", min_width=20, max_width=300, flex=1),
)


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What is copied."""

    uploads: bool
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    destination: str

    @property
    def local_sources(self) -> list[Path]:
        return [own_path(name) for name in self.sources]

    @property
    def local_folder(self) -> Path:
        return own_path(self.destination)

    @property
    def words(self) -> str:
        names, where = " ".join(self.sources), " ".join(self.targets)
        if self.uploads:
            return f"copy {names} to {where}:{self.destination or '~'}"
        return f"copy {where}:{' '.join(self.sources)} to {self.destination}"


def read_form(texts: Mapping[str, str]) -> tuple[CopyRequest, dict[str, str]]:
    """What the form asks for, and each mistake by field."""
    wrong: dict[str, str] = {}
    uploads = texts.get("direction") != FROM
    try:
        sources = tuple(shlex.split(texts.get("sources", "")))
    except ValueError as error:
        sources = ()
        wrong["sources"] = f"The files cannot be read: {error}. Close the quotes."
    if not sources:
        wrong.setdefault("sources", "No file is named.")
    if uploads:
        missing = [name for name in sources if not is_there(name)]
        if missing:
            wrong["sources"] = f"There is no file {plain(missing[0])} here."
    destination = texts.get("destination", "").strip()
    if not uploads and not destination:
        wrong["destination"] = "A folder of this machine is missing."
    elif not uploads:
        try:
            own_path(destination)
        except OperatorError as error:
            wrong["destination"] = str(error)
    return CopyRequest(uploads, tuple(texts.get("targets", "").split()), sources, destination), wrong


class PathSuggester(Suggester):
    """Completes the last path of a line from this machine's folders."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return await asyncio.to_thread(complete_path, value)


class CopyFormScreen(TargetForm):
    """Asks what is copied, from where, and where to."""

    SCOPE = COPY_FORM
    BINDINGS: ClassVar = bindings(COPY_FORM)
    crumb = "copy"
    draft_name = "copy"
    first_field = "sources"

    _request: CopyRequest | None = None

    def fields(self) -> Iterable[FormLine]:
        kept = self.draft()
        # A read-only console may fetch, and changes no worker.
        ways = (FROM,) if self.console.read_only else (TO, FROM)
        yield FormLine("direction", "direction", value=kept.get("direction", ""), choices=ways)
        yield self.targets_line()
        yield FormLine("sources", "files", value=kept.get("sources", ""), hint="of the side they come from")
        yield FormLine(
            "destination", "to", value=kept.get("destination", ""), hint="a path of the other side; ~ there"
        )

    def judge(self, texts: Mapping[str, str]) -> Judged:
        request, wrong = read_form(texts)
        workers: tuple[WorkerRef, ...] = ()
        try:
            workers = self.workers_of(texts)
        except OperatorError as error:
            wrong["targets"] = str(error)
        for name in ("sources", "destination"):
            control = self.line(name).control
            local = (name == "sources") == request.uploads
            if isinstance(control, Input):
                control.suggester = PathSuggester() if local else None
        self._request = request
        if wrong:
            return Judged([next(iter(wrong.values()))], wrong)
        lines = [request.words, f"{count(len(workers), 'worker')}: {fold(each.address for each in workers)}"]
        if not request.uploads and len(workers) > 1:
            lines.append(f"each into a folder of its own: {request.destination}/{workers[0].file_stem} ...")
        return Judged([*lines, "", "ctrl+r copies"])

    def do_submit(self) -> None:
        self.require_right("Nothing was copied.")
        request = self._request
        assert request is not None
        self.give_way(CopiesScreen(request))


class CopiesScreen(WorkScreen):
    """What became of each copy, as they end."""

    SCOPE = COPIES
    BINDINGS: ClassVar = bindings(COPIES)
    COLUMNS = COLUMNS
    word = "copy"

    def __init__(self, request: CopyRequest) -> None:
        super().__init__(request.targets)
        self._request = request
        self._done: dict[str, Transfer] = {}
        self._workers: tuple[WorkerRef, ...] = ()

    def on_mount(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._done = {}
        self.begin(self._copy(), self._request.words)

    def do_refresh(self) -> None:
        """Copies again, once this is over."""
        if self.is_working:
            raise OperatorError("It is still being copied.")
        self._begin()

    async def _copy(self) -> None:
        from backend.ssh.connections import require_files
        from backend.tools.transfers import download, upload

        tower, request = self.console.require_tower(), self._request
        self._workers = self.chosen_workers()
        self._draw()
        require_files(len(self._workers))
        await tower.pool.require_key()
        if request.uploads:
            await upload(tower.pool, self._workers, request.local_sources, request.destination, self._told)
        else:
            await download(tower.pool, self._workers, request.sources, request.local_folder, self._told)
        self._draw()
        self.console.note(EventKind.ACTION, f"{plain(request.words)}: {self._counts()}")

    def _told(self, done: Transfer) -> None:
        self._done[done.worker.address] = done

    def tick(self) -> None:
        if self.is_working:
            self._draw()

    def _counts(self) -> str:
        outcomes = Counter(each.outcome.value for each in self._done.values())
        return ", ".join(f"{number} {word}" for word, number in outcomes.items()) or "none yet"

    def _draw(self) -> None:
        found = []
        for worker in self._workers:
            done = self._done.get(worker.address)
            outcome = done.outcome if done is not None else Outcome.PENDING
            place = "" if done is None else done.error or done.place
            found.append(Row(worker.address, (worker.address, outcome_cell(outcome.value), plain(place))))
        self.table.set_rows(found)
        self._show()
        self.head(f"{self._request.words} · {len(self._done)} of {len(self._workers)} · {self._counts()}")

    def loss(self) -> str:
        left = len(self._workers) - len(self._done)
        return f"The copies of {count(left, 'worker')} would be left unfinished."

    @on(LiveTable.RowHighlighted)
    def _show(self) -> None:
        """What became of the cursor's worker, in full."""
        row = self.table.cursor_row
        words = [str(getattr(cell, "text", cell)) for cell in row.cells] if row is not None else []
        self.detail(": ".join(word for word in words if word))

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def do_open(self) -> None:
        """The worker, with what runs on it."""
        from tui.screens.workers import WorkersScreen

        row = self.table.cursor_row
        if row is not None:
            self.console.push_screen(WorkersScreen([str(row.key)]))
