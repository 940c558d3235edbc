"""What works here and now: made from the registry, the keymap and the read-only gate."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import events
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from tui.actions import HELP, Action, Confirm, Group, bindings, in_scope, key_names
from tui.command_line import ARGUMENTS
from tui.keymap import Keymap
from tui.look import PLAIN, Look, look_of
from tui.screens.base import ConsoleScreen
from tui.version import version

if TYPE_CHECKING:
    from tui.console import Console

KEY_WIDTH = 12


def sections(
    scope: str, keymap: Keymap, *, read_only: bool, simulated: bool = True
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(heading, [(keys, title, sentence)]) of one screen; nothing that the read-only gate refuses."""
    result = []
    here = [action for action in in_scope(scope) if simulated or not action.only_simulated]
    actions = [action for action in here if not (read_only and action.changes)]
    for group in Group:
        lines = [
            (key_names(keymap.keys(action)) or _line(action), action.title, _sentence(action))
            for action in actions
            if action.group is group
        ]
        if lines:
            result.append((group.value, lines))
    words = [
        (f":{action.words[0]} {ARGUMENTS.get(action.words[0], '')}".strip(), action.title, action.help)
        for action in actions
        if action.words
    ]
    result.append(("command line", words))
    if read_only:
        withheld = ", ".join(action.title for action in here if action.changes)
        result.append(("withheld, because this console is read-only", [("", withheld or "nothing", "")]))
    return result


def _line(action: Action) -> str:
    return f":{action.words[0]}" if action.words else "palette"


def _sentence(action: Action) -> str:
    return action.help if action.confirm is Confirm.NONE else f"{action.help} ({action.confirm.value})"


def render(
    scope: str, keymap: Keymap, look: Look, *, read_only: bool, simulated: bool = True, width: int = 80
) -> Text:
    """The page for a width: sentences wrap under themselves."""
    text = Text()
    parts = sections(scope, keymap, read_only=read_only, simulated=simulated)
    # The sentence of a withheld list stands where a title stands, and is long.
    title_width = 2 + max(len(title) for _, lines in parts for keys, title, _ in lines if keys)
    indent = 3 + KEY_WIDTH + title_width
    for heading, lines in parts:
        text.append(f"{heading}\n", look.style("title"))
        for keys, title, sentence in lines:
            text.append(f"  {keys:<{KEY_WIDTH}} ", look.style("key"))
            if len(keys) > KEY_WIDTH:
                text.append("\n" + " " * (KEY_WIDTH + 3))
            wrapped = textwrap.wrap(sentence, max(width - indent, 20)) or [""]
            text.append(f"{title:<{title_width}}")
            text.append(f"{wrapped[0]}\n", look.style("muted"))
            for rest in wrapped[1:]:
                text.append(f"{' ' * indent}{rest}\n", look.style("muted"))
        text.append("\n")
    text.append(f"{version()}\n", look.style("muted"))
    return text


class HelpPage(Static):
    """Draws the help for its own width."""

    def __init__(self, about: str) -> None:
        super().__init__(id="help-text", markup=False)
        self._about = about

    def on_mount(self) -> None:
        """Drawn for the whole terminal at once, and again when its own width is known: never an empty page first."""
        self._draw(self.app.size.width - 2)

    def on_resize(self, event: events.Resize) -> None:
        self._draw(event.size.width)

    def _draw(self, width: int) -> None:
        console = cast("Console", self.app)
        self.update(
            render(
                self._about,
                console.settings.keymap,
                look_of(self),
                read_only=console.read_only,
                simulated=console.is_simulated,
                width=width,
            )
        )


class HelpScreen(ConsoleScreen):
    """Help for the screen from which it was opened."""

    SCOPE = HELP
    BINDINGS: ClassVar = bindings(HELP)
    CSS_PATH = "pages.tcss"

    def __init__(self, about: str) -> None:
        super().__init__()
        self._about = about
        self.crumb = f"help: {about}"

    def compose_body(self) -> Iterable[Widget]:
        with VerticalScroll(id="help-scroll"):
            yield HelpPage(self._about)

    def main_widget(self) -> Widget:
        return self.query_one("#help-scroll")

    def page_text(self) -> str:
        console = self.console
        page = render(
            self._about,
            console.settings.keymap,
            PLAIN,
            read_only=console.read_only,
            simulated=console.is_simulated,
        )
        return page.plain
