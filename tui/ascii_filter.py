"""The ASCII setting for everything that is drawn, also frames and scroll bars: one cell in, one cell out."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from tui.glyphs import ASCII, UNICODE

_FRAMES = {
    "─━╌┄┈╴╶═▔▁⎯": "-",
    "│┃╎┆┊╵╷║▏▕▎▍▌▋▊▐": "|",
    "╭╮╰╯┌┐└┘├┤┬┴┼╔╗╚╝": "+",
    "█▉▇▆▅▄▀▂▃": "#",
    "▓▒░": ":",
    "·•": "|",
    "…": "~",
    "→›": ">",
    "←‹": "<",
    "×": "x",
    "–—−": "-",
    "≥": ">",
    "≤": "<",
    "≈": "~",
    "“”": '"',
    "‘’": "'",
    "\N{NO-BREAK SPACE}": " ",
    "".join(map(chr, range(0x2400, 0x2422))): "^",
}
TABLE = str.maketrans(
    {letter: plain for letters, plain in _FRAMES.items() for letter in letters}
    | {UNICODE.table[token]: ASCII.table[token] for token in UNICODE.table}
)
"""What the console and Textual draw themselves; letters of remote text are left as they are."""


class AsciiFilter(LineFilter):
    """Applied by Textual to each line as it is drawn."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.text.isascii()
            else Segment(segment.text.translate(TABLE), segment.style, segment.control)
            for segment in segments
        ]
