"""Data as text for reading: JSON and a plain YAML, with no library for what is only shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@ ()+-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "~"})


def to_json(value: object) -> str:
    """Indented JSON with the API's own order of keys."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def to_yaml(value: object, indent: int = 0) -> str:
    """Block-style YAML 1.2 of JSON data: mappings, sequences and scalars."""
    lines = _block(value, indent)
    return "\n".join(lines) if lines else _scalar(value)


def _block(value: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, Mapping) and value:
        lines: list[str] = []
        for key, item in value.items():
            head = f"{pad}{_scalar(str(key))}:"
            inner = _block(item, indent + 2)
            lines += [head, *inner] if inner else [f"{head} {_scalar(item)}"]
        return lines
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        lines = []
        for item in value:
            inner = _block(item, indent + 2)
            if inner:
                lines += [f"{pad}- {inner[0].strip()}", *inner[1:]]
            else:
                lines.append(f"{pad}- {_scalar(item)}")
        return lines
    return []


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text == text.strip():
        return text
    return json.dumps(text, ensure_ascii=False)
