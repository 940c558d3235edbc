"""What is in the prompt once it is opened: an input that completes commands and walks through their history."""

from __future__ import annotations

import asyncio
from typing import Protocol

from textual import events
from textual.suggester import Suggester

from tui.completion import Known, complete
from tui.screens.entry import Entry


class Around(Protocol):
    """What the input needs of the prompt around it."""

    @property
    def takes_commands(self) -> bool: ...
    @property
    def known(self) -> Known: ...
    def take_key(self, key: str) -> bool: ...


class CommandSuggester(Suggester):
    """Completes the command line from names that the application knows now."""

    def __init__(self, prompt: Around) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._prompt = prompt

    async def get_suggestion(self, value: str) -> str | None:
        if not self._prompt.takes_commands:
            return None
        # A path is looked up in its folder.
        return await asyncio.to_thread(complete, value, self._prompt.known)


class PromptInput(Entry):
    """An input that leaves history and completion keys to the prompt around it."""

    SCOPED_CSS = False
    DEFAULT_CSS = """
    #prompt-mark { width: 2; padding-left: 1; color: $key; text-style: bold; }
    #prompt-usage { width: auto; max-width: 60%; height: 1; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
    #prompt-input { width: 1fr; min-width: 30; background: $surface; border: none; padding: 0 1; }
    """

    def __init__(self, prompt: Around) -> None:
        super().__init__(id="prompt-input", compact=True, suggester=CommandSuggester(prompt), select_on_focus=False)
        self._prompt = prompt

    async def _on_key(self, event: events.Key) -> None:
        if self._prompt.take_key(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)
