"""The one gate for remote text: bytes from a worker, or words from the cloud, become lines that are safe to draw.

A terminal obeys what it is sent: a worker's log could set the operator's clipboard (OSC 52), wipe the screen or reverse
the order of a path with bidi controls. Nothing reaches a widget, a title, a toast or stdout without passing here.
What is kept of escape sequences is colour (SGR); the rest is dropped, and other controls are made visible.
"""

from __future__ import annotations

import re

SHOWN_LIMIT = 8 * 1024
"""Characters of one line that are shown; all of it stays on disk. Beyond this, wrapping and searching a line hurt."""

TAIL_LIMIT = 64 * 1024
"""Bytes that a line without an end may carry before it is cut into a line of its own."""

TAB_WIDTH = 8

_INVISIBLE = "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f"
_SUSPECT = re.compile(f"[\x00-\x1f\x7f-\x9f{_INVISIBLE}]")
_TOKEN = re.compile(
    r"(?P<sgr>\x1b\[[0-9;:]{0,64}m)"
    # A string sequence (OSC, DCS, SOS, PM, APC) ends with BEL or ST, or with the line.
    r"|(?P<string>\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)?)"
    r"|(?P<csi>\x1b\[[0-?]*[ -/]*[@-~]?)"
    r"|(?P<escape>\x1b[ -/]*[0-~]?)"
    f"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f{_INVISIBLE}])"
)
_MOVES = re.compile(r"[\r\x08]|\x1b\[[0-2]?K")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")


def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        return f"\\x{code:02x}"
    return f"<U+{code:04X}>"


class _Pieces:
    """A line that is only ever written forwards: the common case, kept cheap."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._column = 0

    def style(self, sequence: str) -> None:
        self._pieces.append(sequence)

    def put(self, text: str) -> None:
        self._pieces.append(text)
        self._column += len(text)

    def tab(self) -> None:
        self.put(" " * (TAB_WIDTH - self._column % TAB_WIDTH))

    def text(self) -> str:
        return "".join(self._pieces)


class _Cells:
    """One line as a printer's carriage writes it: `\\r` goes back to its start, `\\b` one cell, what comes overwrites."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._column = 0
        self._style = ""

    def style(self, sequence: str) -> None:
        self._style += sequence

    def put(self, text: str) -> None:
        for char in text:
            cell = self._style + char
            self._style = ""
            if self._column < len(self._cells):
                self._cells[self._column] = cell
            else:
                self._cells.append(cell)
            self._column += 1

    def tab(self) -> None:
        self.put(" " * (TAB_WIDTH - self._column % TAB_WIDTH))

    def move(self, token: str) -> bool:
        """Obeys a token that moves or erases within the line; False for any other."""
        if token == "\r":
            self._column = 0
        elif token == "\b":
            self._column = max(0, self._column - 1)
        elif token == "\x1b[1K":
            self._cells[: self._column] = [" "] * min(self._column, len(self._cells))
        elif token == "\x1b[2K":
            self._cells = [" "] * self._column
        elif token in ("\x1b[K", "\x1b[0K"):
            del self._cells[self._column :]
        else:
            return False
        return True

    def text(self) -> str:
        return "".join(self._cells) + self._style


def _clean(text: str, *, colour: bool) -> str:
    cells: _Cells | _Pieces = _Cells() if _MOVES.search(text) else _Pieces()
    position = 0
    for match in _TOKEN.finditer(text):
        cells.put(text[position : match.start()])
        position = match.end()
        token = match.group()
        if match.lastgroup == "sgr":
            if colour:
                cells.style(token)
        elif match.lastgroup == "escape" and token == "\x1b":
            cells.put("\u241b")
        elif token == "\t":
            cells.tab()
        elif isinstance(cells, _Cells) and cells.move(token):
            continue
        elif match.lastgroup == "control":
            cells.put(_visible(token))
    cells.put(text[position:])
    return cells.text()


def _window(raw: bytes | str, limit: int) -> tuple[str, int]:
    """The part of a long line that is shown, and how many bytes or characters of it are not."""
    if len(raw) <= limit:
        return (raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw), 0
    if isinstance(raw, bytes):
        if b"\r" in raw:
            end = raw[-limit:]
            return end[end.find(b"\r") + 1 :].decode("utf-8", "replace"), 0
        return raw[:limit].decode("utf-8", "ignore"), len(raw) - limit
    if "\r" in raw:
        end_text = raw[-limit:]
        return end_text[end_text.find("\r") + 1 :], 0
    return raw[:limit], len(raw) - limit


def _gate(raw: bytes | str, limit: int, *, colour: bool) -> str:
    text, hidden = _window(raw, limit)
    if text.endswith("\n"):
        text = text[:-1]
    if text.endswith("\r"):
        text = text[:-1]
    if _SUSPECT.search(text) is not None:
        text = _clean(text, colour=colour)
    return f"{text} [+{hidden} more]" if hidden else text


def safe_line(raw: bytes | str, *, limit: int = SHOWN_LIMIT) -> str:
    """One line that is safe to draw, with its SGR colours kept.

    Args:
        raw: The line without its newline; bytes are decoded as UTF-8, what is not UTF-8 shows as U+FFFD.
        limit: How much of it is shown, in bytes of `bytes` or characters of `str`. A line that was rewritten with
            carriage returns shows its newest part, any other its beginning and the count of what is hidden.
    """
    return _gate(raw, limit, colour=True)


def plain(raw: bytes | str, *, limit: int = SHOWN_LIMIT) -> str:
    """The same without any escape sequence: for titles, toasts, tables and the CLI's stdout."""
    return _gate(raw, limit, colour=False)


def plain_text(raw: bytes | str) -> str:
    """Several lines, each through `plain`."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    return "\n".join(plain(line) for line in text.split("\n"))


def strip_colour(line: str) -> str:
    """A line that has passed the gate, without its SGR sequences."""
    return _SGR.sub("", line) if "\x1b" in line else line


class LineSplitter:
    """Turns chunks into lines and carries the unfinished one, bounded by `TAIL_LIMIT`."""

    def __init__(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> bytes:
        """The line that has not ended yet."""
        return self._tail

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines."""
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()
        if len(self._tail) > TAIL_LIMIT:
            rewritten = self._tail.rfind(b"\r", 0, -1)
            if rewritten >= 0 and len(self._tail) - rewritten <= TAIL_LIMIT:
                self._tail = self._tail[rewritten + 1 :]
            else:
                lines.append(self._tail)
                self._tail = b""
        return lines

    def flush(self) -> bytes | None:
        """The unfinished line at the end of the stream, if there is one."""
        tail, self._tail = self._tail, b""
        return tail or None
