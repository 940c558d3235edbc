"""Golden files: the lines of a widget as they were last found good. `UPDATE_GOLDEN=1 pytest ...` writes them anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from textual.strip import Strip

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, strips: Iterable[Strip]) -> None:
    """Compares with `golden/NAME.txt`, line by line, without trailing blanks."""
    lines = [strip.text.rstrip() for strip in strips]
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == path.read_text("utf-8").removesuffix("\n").split("\n")
