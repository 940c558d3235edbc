"""What became of a run, grouped: workers with the same outcome and the same output stand together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.message import Message
from textual.scroll_view import ScrollView


@dataclass(frozen=True, slots=True)
class OutcomeGroup:
    """Workers that ended alike."""

    outcome: str
    """A `backend.outcomes.Outcome`."""
    count: int
    members: str
    """Folded addresses, e.g. `train-a/0/0-3`."""
    detail: str = ""
    """E.g. `exit 1`, `SIGABRT`."""
    lines: tuple[str, ...] = ()
    """Their common output, through the gate, with SGR."""
    is_first_failure: bool = False
    folded: int = 0
    """Workers whose failure merely follows from the first one, counted under it."""
    first_member: str = ""
    """The address to open when the group is activated."""


class OutcomeGroups(ScrollView, can_focus=True):
    """Groups, worst first, each with a head line and its output; enter opens and closes one."""

    class GroupActivated(Message):
        """`l` or a double click on a group: show its log."""

        def __init__(self, view: OutcomeGroups, group: OutcomeGroup) -> None:
            super().__init__()
            self.view = view
            self.group = group

    def set_groups(self, groups: Sequence[OutcomeGroup]) -> None:
        raise NotImplementedError
