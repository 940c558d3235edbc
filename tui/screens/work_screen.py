"""A table that one piece of work fills: begun when the screen opens, told while it goes on, cancelled when it is left."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import ClassVar

from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from backend.outcomes import OperatorError
from backend.sanitize import plain_text
from backend.targets import WorkerRef, select
from tui.actions import Action
from tui.screens.base import TableScreen
from tui.screens.confirm import Choice, Question
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Column


class WorkScreen(TableScreen):
    """What is done to workers at once, with a line above that says how far it is, and the words about the cursor below."""

    CSS_PATH = "tools.tcss"
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    word: ClassVar[str] = ""
    """What is done, for crumbs and titles."""

    def __init__(self, targets: Iterable[str]) -> None:
        super().__init__()
        self.targets = tuple(targets)
        self.crumb = f"{self.word} {' '.join(self.targets)}"
        self.working: Worker[None] | None = None
        self._waits: dict[str, str] = {}
        self._head = ""

    def compose_body(self) -> Iterable[Widget]:
        with Container(classes="work"):
            yield Static(classes="work-head", markup=False)
            yield LiveTable(self.COLUMNS, id="table")
            yield Static(classes="work-detail", markup=False)

    # The work

    @property
    def is_working(self) -> bool:
        return self.working is not None and not self.working.is_finished

    def begin(self, work: Awaitable[None], words: str) -> None:
        """Begins; what was begun before is cancelled."""
        self._waits.clear()
        self.table.set_rows([])
        self.table.set_message(f"{words} …", kind="loading")
        self.head(f"{words} …")
        self.working = self.background(self._guarded(work), group="work", title=self.word)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except OperatorError as error:
            self.head(f"{self.word}: not done")
            again = self.console.settings.keymap.shown(_refresh())
            self.table.set_message(f"{error.what} {error.cure}".strip() + f"\n{again} tries again.", kind="error")
            raise

    def chosen_workers(self) -> tuple[WorkerRef, ...]:
        """Whom the targets name now.

        Raises:
            OperatorError: They name nobody, or nobody yet.
        """
        tower = self.console.require_tower()
        found = select(self.console.fleet, self.targets, tower.groups)
        if not found:
            raise OperatorError(
                f"{' '.join(self.targets)} has no workers now.", "They come when a request becomes ACTIVE."
            )
        return found

    def told(self, worker: WorkerRef, text: str) -> None:
        """What a worker is waited for; kept until the next tick."""
        if text:
            self._waits[worker.address] = text
        else:
            self._waits.pop(worker.address, None)

    def waiting_words(self) -> str:
        """The first worker that is waited for, and how many more."""
        if not self._waits:
            return ""
        first, text = next(iter(self._waits.items()))
        more = f" (and {len(self._waits) - 1} more)" if len(self._waits) > 1 else ""
        return f"{first}: {text}{more}"

    def head(self, text: str) -> None:
        """Says how far it is."""
        if text != self._head:
            self._head = text
            self.query_one(".work-head", Static).update(plain_text(text))

    def detail(self, text: str) -> None:
        """Words about the cursor's row; none hides the place."""
        place = self.query_one(".work-detail", Static)
        place.display = bool(text)
        place.update(plain_text(text))

    # Keys

    def applies(self, action: Action) -> bool:
        return self.is_working if action.id == "break-off" else super().applies(action)

    def targets_here(self) -> list[str]:
        return list(self.targets)

    def do_break_off(self) -> None:
        if not self.is_working:
            raise OperatorError("Nothing goes on here now.")
        assert self.working is not None
        self.working.cancel()
        self.head(f"{self.word}: cancelled")
        if not self.table.row_count:
            self.table.set_message("Cancelled.", kind="empty")

    def loss(self) -> str:
        """What would be broken off by leaving now, as a sentence; empty where nothing is lost."""
        return ""

    def do_back(self) -> None:
        if self.is_working and self.loss() and not self.prompt.is_open and not self.filter_text():
            self.background(self._ask_leave(), group="leave", title="leave")
        else:
            super().do_back()

    def do_close(self) -> Awaitable[None] | None:
        if self.is_working and self.loss():
            return self._ask_leave()
        return super().do_close()

    async def _ask_leave(self) -> None:
        choices = (Choice("leave", "Break it off", "error"), Choice("no", "Stay"))
        question = Question("It still goes on. Leave?", [self.loss()], choices, chosen=1)
        if await self.console.push_screen_wait(question) == "leave" and self.is_current:
            self.console.pop_screen()


def _refresh() -> Action:
    from tui.actions import BY_ID

    return BY_ID["refresh"]
