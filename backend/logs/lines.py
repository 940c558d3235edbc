"""One line of a log, and what it claims of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ERROR = re.compile(
    rb"\b(?:error|fatal|traceback|exception|critical|panic|aborted|segmentation fault)\b|\w(?:Error|Exception):|^[EF]\d{4} ",
    re.IGNORECASE,
)
_ERROR_HINTS = (b"error", b"fatal", b"traceback", b"exception", b"critical", b"panic", b"aborted", b"segmentation")
_WARNING = re.compile(rb"\bwarn(?:ing)?\b|^W\d{4} |\bdeprecat", re.IGNORECASE)


def level_of(raw: bytes) -> str:
    """`error`, `warning` or the empty string: what a line claims of itself, by its words or its glog letter."""
    lower = raw.lower()
    # Plain containment is several times cheaper than the expressions, and most lines hold none of the words.
    if (any(word in lower for word in _ERROR_HINTS) or raw[:1] in (b"E", b"F")) and _ERROR.search(raw):
        return "error"
    if b"warn" in lower or b"deprecat" in lower or raw[:1] == b"W":
        return "warning" if _WARNING.search(raw) else ""
    return ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, already through the gate."""

    number: int
    """Absolute, from 0; trimming the ring never changes it."""
    text: str
    """With SGR colours."""
    at: float
    """Arrival in Unix seconds, of the chunk that brought it."""
    level: str = ""
    source: str = ""
    """The worker's address in a merged log; empty in its own."""
