"""An operator at the console: keys one by one, as a person presses them, each awaited on the screen."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.journeys.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent
PICTURES = os.environ.get("SLICETOWER_PICTURES", "")
"""A folder for a picture of each step; `make pictures` sets it to docs/pictures."""

KEY_S = 0.15
"""Between two keys: nobody types faster, and the focus has moved by then."""


def environment(home: Path) -> dict[str, str]:
    """A home of its own for the console: no configuration, journal or key of whoever runs the tests."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": str(ROOT),
        "TEXTUAL_ANIMATIONS": "none",
    }


def slicetower(*words: str) -> list[str]:
    """The command line of `slicetower WORDS`."""
    return [sys.executable, "-m", "tui.cli.main", *words]


class Operator(Terminal):
    """A terminal with the console in it."""

    def keys(self, *keys: str) -> None:
        """Presses keys one after the other."""
        for key in keys:
            self.press(key)
            time.sleep(KEY_S)

    def write(self, text: str) -> None:
        """Types into the focused field."""
        self.type(text)
        time.sleep(KEY_S)

    def step(self, name: str) -> None:
        """Takes a picture of this step when pictures are asked for."""
        if PICTURES:
            self.picture(Path(PICTURES) / f"{name}.svg", title=f"slicetower: {name}")
