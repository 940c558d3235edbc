"""Colours of a log line: SGR sequences to styled pieces, as fast as it must be and no more than colours.

Everything else of escape sequences was dropped by the gate (`backend.sanitize`); what slipped through is made visible here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rich.color import Color
from rich.style import Style

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _Pen(NamedTuple):
    """What the next characters look like."""

    color: int | tuple[int, int, int] | None = None
    background: int | tuple[int, int, int] | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


_PLAIN = _Pen()
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike", 21: "underline"}
_OFF: dict[int, tuple[str, ...]] = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline",),
    27: ("reverse",),
    29: ("strike",),
}


def strip_sgr(text: str) -> str:
    """The words alone."""
    return _SGR.sub("", text) if "\x1b" in text else text


def pieces(text: str) -> list[tuple[str, Style]]:
    """Cuts a line into runs of one style. Control characters become visible; none is passed on."""
    if "\x1b" not in text:
        return [(_visible(text), Style.null())] if text else []
    found: list[tuple[str, Style]] = []
    pen, position = _PLAIN, 0
    for match in _SGR.finditer(text):
        if match.start() > position:
            found.append((_visible(text[position : match.start()]), _style(pen)))
        pen = _advance(pen, match[1])
        position = match.end()
    if position < len(text):
        found.append((_visible(text[position:]), _style(pen)))
    return found


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: chr(0x2400 + ord(match[0])) if match[0] < " " else "\u2421", text)


@lru_cache(maxsize=1024)
def _style(pen: _Pen) -> Style:
    if pen == _PLAIN:
        return Style.null()
    background = None if pen.background == pen.color else pen.background
    return Style(
        color=_color(pen.color),
        bgcolor=_color(background),
        bold=pen.bold or None,
        dim=pen.dim or None,
        italic=pen.italic or None,
        underline=pen.underline or None,
        reverse=pen.reverse or None,
        strike=pen.strike or None,
    )


def _color(value: int | tuple[int, int, int] | None) -> Color | None:
    if value is None:
        return None
    return Color.from_ansi(value) if isinstance(value, int) else Color.from_rgb(*value)


@lru_cache(maxsize=4096)
def _advance(pen: _Pen, parameters: str) -> _Pen:
    """The pen after one sequence. Unknown codes, blinking and hidden text change nothing."""
    groups = parameters.split(";")
    index = 0
    while index < len(groups):
        group = groups[index]
        index += 1
        if ":" in group:
            pen = _extended(pen, [int(part) if part else -1 for part in group.split(":")])
            continue
        code = int(group) if group else 0
        if code in (38, 48):
            numbers = [code]
            count = {"5": 2, "2": 4}.get(groups[index] if index < len(groups) else "", 0)
            numbers += [int(part) if part and ":" not in part else 0 for part in groups[index : index + count]]
            index += count
            pen = _extended(pen, numbers)
        else:
            pen = _simple(pen, code)
    return pen


def _simple(pen: _Pen, code: int) -> _Pen:
    if code == 0:
        return _PLAIN
    if code in _ON:
        return pen._replace(**{_ON[code]: True})
    if code in _OFF:
        return pen._replace(**dict.fromkeys(_OFF[code], False))
    if 30 <= code <= 37:
        return pen._replace(color=code - 30)
    if 90 <= code <= 97:
        return pen._replace(color=code - 82)
    if 40 <= code <= 47:
        return pen._replace(background=code - 40)
    if 100 <= code <= 107:
        return pen._replace(background=code - 92)
    if code == 39:
        return pen._replace(color=None)
    if code == 49:
        return pen._replace(background=None)
    return pen


def _extended(pen: _Pen, numbers: list[int]) -> _Pen:
    """`38;5;N`, `38;2;R;G;B`, and the same with colons, where a colour space may stand before the red."""
    kind = numbers[1] if len(numbers) > 1 else -1
    value: int | tuple[int, int, int] | None = None
    if kind == 5 and len(numbers) > 2 and 0 <= numbers[2] <= 255:
        value = numbers[2]
    elif kind == 2 and len(numbers) > 4:
        red, green, blue = numbers[-3:] if len(numbers) > 5 else numbers[2:5]
        if all(0 <= part <= 255 for part in (red, green, blue)):
            value = (red, green, blue)
    if value is None:
        return pen
    return pen._replace(color=value) if numbers[0] == 38 else pen._replace(background=value)
