"""The console's input: it keeps every printable key to itself, also those whose names Textual cannot spell."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

NAMED_CHARACTERS = frozenset({"slash", "backslash", "at", "minus", "plus", "underscore"})
"""Textual renames these keys and cannot find their characters again (8.2.8), so a binding would take them from the input."""


class Entry(Input):
    """An input for one line."""

    def on_mount(self) -> None:
        self.placeholder = self.placeholder

    def validate_placeholder(self, text: str) -> str:
        """Without colours a hint would look like what was typed: then it stands in brackets."""
        bare = not text or text.startswith("(") or not self.is_attached or not self.app.no_color
        return text if bare else f"({text})"

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key in NAMED_CHARACTERS or super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        """Edits at once, in the order of the keys.

        Textual inserts a letter when it arrives, but lets a backspace or ctrl+u climb to the application first: what
        is typed in one burst, or into a busy console, would be deleted by the keys that came before it.
        """
        await super()._on_key(event)
        if event.is_printable:
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
