"""Whole numbers that are typed."""

from __future__ import annotations

MOST = 2**31 - 1
"""Nothing here is counted beyond; what is longer is a slip of the hand, and too long a one could not even be read."""


def whole_number(text: str, *, most: int = MOST) -> int | None:
    """The number from 0 to `most` that a text is; None where it is none."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
