"""Lists in pages, and the small part of AIP-160 filters that the service's own lists are asked with."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from backend.sim.refusals import Code, Json, Refusal

DEFAULT_PAGE = 500
LARGEST_PAGE = 1000
_TERM = re.compile(r'\s*([A-Za-z_.]+)\s*(=|:|!=)\s*("[^"]*"|[^\s()]+)\s*')


def page(items: Sequence[tuple[str, Json]], request: Json) -> tuple[list[Json], str]:
    """One page of items that are sorted by their unique key, and the token of the next (empty at the end).

    Raises:
        Refusal: A page size below 0, or a token that is not ours.
    """
    size = int(request.get("pageSize", 0))
    if size < 0:
        raise Refusal(Code.INVALID_ARGUMENT, "The page size must not be negative.")
    size = min(size or DEFAULT_PAGE, LARGEST_PAGE)
    after = _decode(str(request.get("pageToken", "")))
    rest = [item for item in items if after is None or item[0] > after]
    token = base64.urlsafe_b64encode(b"after:" + rest[size - 1][0].encode()).decode() if len(rest) > size else ""
    return [view for _, view in rest[:size]], token


def _decode(token: str) -> str | None:
    if not token:
        return None
    try:
        text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        text = ""
    if not text.startswith("after:"):
        raise Refusal(Code.INVALID_ARGUMENT, "The page token is invalid.")
    return text.removeprefix("after:")


def matches(view: Json, expression: str) -> bool:
    """Whether a view passes `field=value AND field:part ...`.

    Raises:
        Refusal: An expression that is not of this form.
    """
    position, passed = 0, True
    text = expression.strip()
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            raise Refusal(Code.INVALID_ARGUMENT, f"Invalid list filter: {expression}")
        passed = passed and _holds(view, term[1], term[2], term[3].strip('"'))
        position = term.end()
        if text[position : position + 4].upper() == "AND ":
            position += 4
    return passed


def _holds(view: Json, field: str, operator: str, wanted: str) -> bool:
    value: object = view
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    text = "" if value is None else str(value)
    if operator == ":":
        return wanted in text
    equal = text == wanted or (field == "name" and text.rsplit("/", 1)[-1] == wanted)
    return equal if operator == "=" else not equal
