"""What Textual 8.2.8 holds for ever, let go. Imported by the application, once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from textual._styles_cache import StylesCache
from textual.style import Style

if TYPE_CHECKING:
    from textual.app import App
    from textual.color import Color

BACKGROUNDS = 1024
"""Pairs of backgrounds whose styles are kept, as Textual does."""


@lru_cache(BACKGROUNDS)
def inner_outer(base_background: Color, background: Color) -> tuple[Style, Style]:
    """The styles inside and outside a border."""
    return Style(background=base_background + background), Style(background=base_background)


def let_go_of_closed_widgets() -> None:
    """Textual caches this by a widget's cache of strips as well, which holds a screen's strips after it was closed."""
    StylesCache.get_inner_outer = staticmethod(inner_outer)  # type: ignore[assignment]


def forget_closed(app: App[Any]) -> None:
    """Drops what closed widgets watch of the application: a text area, and with it its screen, is held by it."""
    for watchers in getattr(app, "__watchers", {}).values():
        watchers[:] = [pair for pair in watchers if not pair[0]._closing and pair[0].is_attached]
