"""What takes a while before a deed, with its progress and a way out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from backend.sanitize import plain_text
from tui.actions import DIALOG, Action, bindings
from tui.screens.base import Dialog

if TYPE_CHECKING:
    from tui.console import Console

AT_ONCE_S = 0.3
"""What is done within this is not told about."""

T = TypeVar("T")


class Working(Dialog[bool]):
    """Shows how far a task is; `escape` breaks it off. Answers True when it has ended, however it did."""

    BINDINGS: ClassVar = bindings(DIALOG)

    def __init__(self, title: str, task: asyncio.Task[Any], words: Callable[[], str]) -> None:
        super().__init__()
        self._question = title
        self._doing = task
        self._words = words
        self._left = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="dialog-title", markup=False)
            yield Static(self._words(), id="progress", markup=False)
            yield Static("esc breaks it off; nothing is sent", classes="muted", markup=False)

    def on_mount(self) -> None:
        self.set_interval(0.2, self._show)
        self.background(self._wait(), group="wait", title=self._question)

    def _show(self) -> None:
        self.query_one("#progress", Static).update(plain_text(self._words()))

    async def _wait(self) -> None:
        await asyncio.wait({self._doing})
        if not self._left:
            self.dismiss(True)

    def applies(self, action: Action) -> bool:
        return action.id == "back"

    def do_back(self) -> None:
        if not self._left:
            self._left = True
            self.dismiss(None)

    def do_submit(self) -> None:
        """There is nothing to answer."""


async def work(
    console: Console, title: str, doing: Coroutine[Any, Any, T], words: Callable[[], str] = lambda: ""
) -> T | None:
    """Does something that may take a while; None when the operator broke it off.

    Args:
        console: Over whose screen its progress is shown.
        title: What is done.
        doing: Does it; cancelled when it is broken off.
        words: How far it is.

    Raises:
        OperatorError: What it raises.
    """
    task = asyncio.create_task(doing, name=title)
    try:
        await asyncio.wait({task}, timeout=AT_ONCE_S)
        if not task.done() and not await console.push_screen_wait(Working(title, task, words)):
            return None
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
