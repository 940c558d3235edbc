"""Short messages over the screen: the newest two at most, gone with the first key after they could be read."""

from __future__ import annotations

import time
from typing import Any, cast

from textual.notifications import Notify

from backend.sanitize import plain
from tui.console import Console

SHOWN = 2
"""At once; more would cover a form or the detail at 80x24. Errors are among the events as well."""
READ_S = 1.0
"""A key before that was pressed without the message having been seen."""
TIMEOUT_S = 8.0


class Toasts(Console):
    """A part of the application."""

    _said_at = float("-inf")

    def say(self, text: str, *, title: str = "", severity: str = "information") -> None:
        """A toast. The text passes the gate and is never markup; what it says already is not said twice."""
        self._said_at = time.monotonic()
        self.notify(plain(text), title=plain(title), severity=cast("Any", severity), markup=False, timeout=TIMEOUT_S)

    def on_notify(self, event: Notify) -> None:
        """Before it is shown: the same again, or more than there is room for, takes the place of the older."""
        fresh = event.notification
        kept = list(self._notifications)
        same = [each for each in kept if (each.message, each.title) == (fresh.message, fresh.title)]
        rest = sorted((each for each in kept if each not in same), key=lambda each: each.raised_at)
        for each in same + rest[: max(len(rest) - SHOWN + 1, 0)]:
            self._unnotify(each, refresh=False)

    def dismiss_read(self, pressed_at: float) -> None:
        """Takes the toasts away, if a key came after they could be read."""
        if pressed_at - self._said_at >= READ_S and len(self._notifications):
            self.clear_notifications()
