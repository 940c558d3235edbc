"""The one line above the footer: `:` for commands with completion and history, `/` for filters and searches."""

from __future__ import annotations

from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from tui.command_line import History
from tui.completion import Known, complete, usage

COMMAND, FILTER = ":", "/"


class Prompt(Horizontal):
    """Hidden until it is opened. Tells its screen what was entered, and what is typed while filtering."""

    class Entered(Message):
        """A line was entered."""

        def __init__(self, mode: str, text: str) -> None:
            super().__init__()
            self.mode = mode
            self.text = text

    class Typed(Message):
        """The filter so far; only the newest counts."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Prompt.Typed)

    class Left(Message):
        """The operator left the line without entering it."""

        def __init__(self, mode: str) -> None:
            super().__init__()
            self.mode = mode

    def __init__(self, history: History) -> None:
        super().__init__(id="prompt")
        self.history = history
        self.mode = COMMAND
        self.known = Known()
        """Names for completion, set when the line is opened."""

    def _fill(self) -> None:
        """Its widgets, when it is opened first: the first frame of a screen does without an input and its style sheet."""
        from tui.screens.prompt_input import PromptInput

        self.mount(
            Static(COMMAND, id="prompt-mark", markup=False),
            PromptInput(self),
            Static(id="prompt-usage", markup=False),
        )

    @property
    def input(self) -> Input:
        return self.query_one("#prompt-input", Input)

    @property
    def takes_commands(self) -> bool:
        return self.mode == COMMAND

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, mode: str, text: str = "") -> None:
        """Shows the line with a text to go on from, and gives it the focus."""
        self.mode = mode
        if not self.children:
            self._fill()
        self.query_one("#prompt-mark", Static).update(mode)
        self._show_usage(text)
        entry = self.input
        with entry.prevent(Input.Changed):
            entry.value = text
        entry.cursor_position = len(text)
        self.add_class("-open")
        # Not `focus()`, which waits for a turn of the loop: the next key belongs to the prompt already.
        self.screen.set_focus(entry)

    def close(self) -> None:
        """Hides the line; the focus goes back where it was by the screen's care."""
        self.remove_class("-open")

    def take_key(self, key: str) -> bool:
        """History, completion and leaving; True when the key was used up."""
        entry = self.input
        if key == "escape":
            self.close()
            self.post_message(self.Left(self.mode))
            return True
        if self.mode == COMMAND and key in ("up", "down"):
            text = self.history.older() if key == "up" else self.history.newer()
            if text is not None:
                entry.value = text
                entry.cursor_position = len(text)
            return True
        if self.mode == COMMAND and key == "tab":
            completed = complete(entry.value, self.known)
            if completed is not None:
                entry.value = completed
                entry.cursor_position = len(completed)
            return True
        return False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()
        if self.mode == COMMAND:
            self.history.add(event.value)
        self.post_message(self.Entered(self.mode, event.value))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.mode == FILTER:
            self.post_message(self.Typed(event.value))
        self._show_usage(event.value)

    def _show_usage(self, text: str) -> None:
        """What the word takes, beside what is typed."""
        said = usage(text, self.known) if self.mode == COMMAND else ""
        place = self.query_one("#prompt-usage", Static)
        place.display = bool(said)
        place.update(said)
