"""An app around widgets, in the shipped default theme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from textual.app import App, ComposeResult
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.glyphs import UNICODE, GlyphSet
from tui.look import default_variables
from tui.themes import DEFAULT_THEME, ThemeStore

M = TypeVar("M", bound=Message)


class WidgetApp(App[None]):
    """Shows widgets one below the other; the first has the focus."""

    def __init__(self, *widgets: Widget, glyphs: GlyphSet = UNICODE) -> None:
        super().__init__()
        self.shown = widgets
        self.glyphs = glyphs

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables(self.current_theme.to_color_system().generate())

    def compose(self) -> ComposeResult:
        yield from self.shown

    def on_mount(self) -> None:
        ThemeStore().install(self)
        self.theme = DEFAULT_THEME
        self.shown[0].focus()


def posted(hooked: Iterable[Message], kind: type[M]) -> list[M]:
    """The messages of one kind, each once: the hook of `run_test` sees them again at every step of their way up."""
    return list({id(message): message for message in hooked if isinstance(message, kind)}.values())


def seen(widget: Widget) -> list[str]:
    """What stands in a widget, line by line, without trailing blanks."""
    return lines_of(widget.render_lines(widget.size.region))


def lines_of(strips: Iterable[Strip]) -> list[str]:
    return [strip.text.rstrip() for strip in strips]
