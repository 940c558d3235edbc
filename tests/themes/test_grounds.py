"""Text is read on more than the background: on the header, the footer, in fields, in dialogs. And no glyph is an emoji."""

from __future__ import annotations

import ast
import unicodedata
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.color import Color
from textual.theme import Theme

from tui.look import contrast
from tui.themes import shipped_themes

ROOT = Path(__file__).parents[2]
SNAPSHOTS = ROOT / "tests" / "tui" / "snapshots"
TRUECOLOR = [theme for theme in shipped_themes()[0].values() if not theme.ansi]
READ_ON = {
    "panel": (
        *("foreground", "muted", "title", "key", "simulated", "stale", "log-error"),
        *("badge-read-only", "badge-read-write", "state-active", "state-waiting", "state-failed"),
    ),
    "surface": ("foreground", "muted", "title", "key", "error", "warning"),
}
"""Which words stand on the grounds of header and footer (panel), and of fields and dialogs (surface)."""
PICTORIAL = (range(0x1F000, 0x20000), range(0xFE0F, 0xFE10), range(0x2B50, 0x2B56))
"""Emoji, and what turns a sign before it into one."""


def color_of(theme: Theme, name: str) -> Color:
    value = theme.variables.get(name) or getattr(theme, name, None)
    assert value, f"{theme.name} sets no {name}"
    return Color.parse(value)


@pytest.mark.parametrize("ground", READ_ON)
@pytest.mark.parametrize("theme", TRUECOLOR, ids=lambda theme: str(theme.name))
def test_words_are_legible_on_the_ground_they_stand_on(theme: Theme, ground: str) -> None:
    below = color_of(theme, ground)
    faint = {
        name: round(ratio, 2)
        for name in READ_ON[ground]
        if (ratio := contrast(color_of(theme, name).rgb, below.rgb)) < 4.5
    }
    assert not faint, f"on {ground}"


def literals() -> list[tuple[str, str]]:
    """(place, text) of every string in what draws, and of every glyph."""
    found = []
    for file in sorted((ROOT / "tui").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((f"{file.relative_to(ROOT)}:{node.lineno}", node.value))
    return found


def test_no_text_of_the_console_holds_an_emoji_or_a_sign_of_two_cells() -> None:
    texts = literals()
    assert any("queued resources" in text for _, text in texts)
    wrong = [
        f"{place}: {unicodedata.name(sign, sign)}"
        for place, text in texts
        for sign in text
        if any(ord(sign) in pictures for pictures in PICTORIAL) or (sign.isprintable() and cell_len(sign) > 1)
    ]
    assert not wrong


def test_no_screen_shows_an_emoji_of_anybody() -> None:
    shown = {
        (picture.stem, unicodedata.name(sign, sign))
        for picture in SNAPSHOTS.glob("*.svg")
        for sign in picture.read_text(encoding="utf-8")
        if any(ord(sign) in pictures for pictures in PICTORIAL)
    }
    assert any(SNAPSHOTS.iterdir())
    assert not shown
