"""A screen as a small SVG: a fixed grid of cells, one line of the file for each line of the screen, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from typing import Any

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from textual.app import App

CELL, LINE, BASELINE = 10, 20, 15
"""Units of one cell, so that a column is a whole number."""
FONT = "DejaVu Sans Mono,Menlo,Consolas,monospace"
FAINT = 0.6

Line = Sequence[Segment]


def screen_lines(app: App[Any]) -> list[list[Segment]]:
    """What the terminal shows now, dialogs over what lies below."""
    width, height = app.size
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    console = app.console
    assert update is not None
    segments = console.render(update, console.options.update(width=width, height=height))
    drawn = [segment for segment in segments if not segment.control]
    return list(Segment.split_and_crop_lines(drawn, width, include_new_lines=False))[:height]


def text_of(lines: Iterable[Line]) -> list[str]:
    """The words alone, without trailing blanks."""
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


class Painter:
    """Colours of one picture as short classes, in the order in which they come."""

    def __init__(self, theme: TerminalTheme = DIMMED_MONOKAI) -> None:
        self._theme = theme
        self._classes: dict[str, str] = {}

    def css(self) -> str:
        return "".join(f".{name}{{{rule}}}" for rule, name in self._classes.items())

    def _class(self, rule: str) -> str:
        return self._classes.setdefault(rule, f"c{len(self._classes)}")

    def _hex(self, color: Color | None, *, foreground: bool) -> str:
        triplet = (color or Color.default()).get_truecolor(self._theme, foreground=foreground)
        return triplet.hex

    def colors(self, style: Style | None) -> tuple[str, str]:
        """Foreground and background, as they are drawn."""
        if style is None:
            return self._hex(None, foreground=True), self._hex(None, foreground=False)
        front = self._hex(style.color, foreground=True)
        back = self._hex(style.bgcolor, foreground=False)
        return (back, front) if style.reverse else (front, back)

    def line(self, number: int, line: Line, ground: str) -> str:
        """One line: grounds that differ from the picture's, then words."""
        grounds: list[tuple[int, int, str]] = []
        words: list[tuple[int, int, str, str]] = []
        column = 0
        for segment in line:
            width = cell_len(segment.text)
            front, back = self.colors(segment.style)
            if back != ground and width:
                if grounds and grounds[-1][2] == back and grounds[-1][0] + grounds[-1][1] == column:
                    grounds[-1] = (grounds[-1][0], grounds[-1][1] + width, back)
                else:
                    grounds.append((column, width, back))
            rule = self._rule(segment.style, front)
            at = column
            for part in re.split(r"(\s{2,})", segment.text):
                if part.strip():
                    lead = len(part) - len(part.lstrip(" "))
                    body = part.strip(" ")
                    words.append((at + lead, cell_len(body), rule, body))
                at += cell_len(part)
            column += width
        drawn = [
            f'<rect class="{self._class(f"fill:{back}")}" x="{at * CELL}" y="{number * LINE}" '
            f'width="{width * CELL}" height="{LINE}"/>'
            for at, width, back in grounds
        ]
        drawn += [
            f'<text class="{self._class(rule)}" x="{at * CELL}" y="{number * LINE + BASELINE}" '
            f'textLength="{width * CELL}">{escape(body, quote=False).replace(" ", "&#160;")}</text>'
            for at, width, rule, body in words
        ]
        return "".join(drawn)

    def _rule(self, style: Style | None, front: str) -> str:
        rule = f"fill:{front}"
        if style is not None:
            rule += ";font-weight:bold" if style.bold else ""
            rule += ";font-style:italic" if style.italic else ""
            rule += f";opacity:{FAINT}" if style.dim else ""
            marks = [name for name, on in (("underline", style.underline), ("line-through", style.strike)) if on]
            rule += f";text-decoration:{' '.join(marks)}" if marks else ""
        return rule


def ground_of(lines: Sequence[Line], painter: Painter) -> str:
    """The background that covers most cells."""
    counts: dict[str, int] = {}
    for line in lines:
        for segment in line:
            back = painter.colors(segment.style)[1]
            counts[back] = counts.get(back, 0) + cell_len(segment.text)
    return max(counts, key=lambda back: counts[back], default="#000000")


def svg(lines: Sequence[Line], size: tuple[int, int], title: str) -> str:
    """A picture of a screen, the same text for the same screen on every machine."""
    painter = Painter()
    ground = ground_of(lines, painter)
    body = [painter.line(number, line, ground) for number, line in enumerate(lines)]
    width, height = size[0] * CELL, size[1] * LINE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>text{{font:16.6px {FONT};white-space:pre}}{painter.css()}</style>",
            f'<rect width="{width}" height="{height}" fill="{ground}"/>',
            *body,
            "</svg>",
            "",
        ]
    )


_WORD = re.compile(r'<text class="\w+" x="(\d+)" y="\d+" textLength="\d+">([^<]*)</text>')


def words_of(picture: str) -> list[str]:
    """The text of a picture again, line by line, for telling what differs."""
    found = []
    for line in picture.split("\n")[4:-2]:
        text = ""
        for at, body in _WORD.findall(line):
            text = text.ljust(int(at) // CELL) + unescape(body).replace("\xa0", " ")
        found.append(text)
    return found


def difference(expected: str, found: str) -> str:
    """Which lines say something else, in words; empty where both pictures are the same."""
    if expected == found:
        return ""
    one, other = words_of(expected), words_of(found)
    lines = [
        f"  line {number + 1}: was {before!r}\n  line {number + 1}: now {after!r}"
        for number, (before, after) in enumerate(zip(one, other, strict=False))
        if before != after
    ]
    if len(one) != len(other):
        lines.append(f"  it had {len(one)} lines, and has {len(other)}")
    if lines:
        return "\n".join(lines)
    drawn = zip(expected.split("\n")[4:-2], found.split("\n")[4:-2], strict=False)
    places = [str(number + 1) for number, (before, after) in enumerate(drawn) if before != after]
    return (
        f"  the words are the same; colours or styles differ in lines {', '.join(places) or 'of the palette alone'}"
    )
