"""A log on the line API: lines are parsed and wrapped when they are drawn, and the reader stays where they read."""

from __future__ import annotations

from typing import ClassVar

from textual.message import Message
from textual.scroll_view import ScrollView

from tui.widgets.log_source import LineSource, LogLineLike


class LogView(ScrollView, can_focus=True):
    """One worker's log, or a merged one, over a `LineSource`. The app calls `poll`: it has no timer of its own.

    Args:
        source: What to show; None until `set_source`.
        title: Shown on the status line, e.g. the worker's address.
        empty: The sentence shown while there is no line.
    """

    ALLOW_SELECT: ClassVar[bool] = True

    class FollowChanged(Message):
        """The view began or ceased to follow the end."""

        def __init__(self, view: LogView, follow: bool) -> None:
            super().__init__()
            self.view = view
            self.follow = follow

        @property
        def control(self) -> LogView:
            return self.view

    def __init__(
        self,
        source: LineSource | None = None,
        *,
        title: str = "",
        empty: str = "no output yet",
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.source = source
        self.log_title = title
        self.empty = empty

    def set_source(self, source: LineSource | None, *, title: str = "") -> None:
        """Shows another log, from its end, following."""
        raise NotImplementedError

    def poll(self, now: float) -> bool:
        """Looks whether the source changed, and repaints if it did.

        Args:
            now: Unix seconds, for the silence age.

        Returns:
            Whether anything was repainted.
        """
        raise NotImplementedError

    @property
    def following(self) -> bool:
        raise NotImplementedError

    @property
    def new_lines(self) -> int:
        """Lines that came since the view ceased to follow."""
        raise NotImplementedError

    @property
    def current_line(self) -> LogLineLike | None:
        """The line under the reader's cursor; the last one while following."""
        raise NotImplementedError

    def follow(self, on: bool = True) -> None:
        raise NotImplementedError

    def go_to(self, number: int) -> None:
        """Puts the cursor on an absolute line, in view, and ceases to follow."""
        raise NotImplementedError

    def go_to_time(self, moment: float) -> None:
        """Puts the cursor on the first line that arrived at or after `moment`, Unix seconds."""
        raise NotImplementedError

    def search(self, pattern: str) -> str:
        """Highlights a regex (case-blind unless it has a capital) and finds its matches; empty clears it.

        Returns:
            The reason when the pattern can't be used, else empty.
        """
        raise NotImplementedError

    def copy_text(self) -> str:
        """The marked lines, or the line under the cursor, without colours."""
        raise NotImplementedError
