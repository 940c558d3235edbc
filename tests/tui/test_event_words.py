"""Events as one reads them: each thing once."""

from __future__ import annotations

import pytest

from backend.model import Event, EventKind
from tests.tui.fixed.facts import NOW
from tui.screens.events import sentence


@pytest.mark.parametrize(
    ("kind", "subject", "before", "after", "text", "read"),
    [
        ("state", "a", "ACCEPTED", "ACTIVE", "a: ACCEPTED -> ACTIVE", "ACCEPTED → ACTIVE"),
        ("state", "a", "ACTIVE", "FAILED", "a: ACTIVE -> FAILED: no capacity", "ACTIVE → FAILED: no capacity"),
        (
            "state",
            "a",
            "",
            "ACTIVE",
            "a is ACTIVE; it was FAILED when last seen",
            "is ACTIVE; it was FAILED when last seen",
        ),
        ("state", "a", "ACCEPTED", "ACTIVE", "", "ACCEPTED → ACTIVE"),
        ("state", "a", "ACCEPTED", "ACTIVE", "at last", "ACCEPTED → ACTIVE: at last"),
        ("appeared", "a", "", "CREATING", "a appeared: CREATING", "appeared: CREATING"),
        ("error", "", "", "", "list: no answer", "list: no answer"),
        ("node-state", "a/0", "READY", "PREEMPTED", "a/0: READY -> PREEMPTED", "READY → PREEMPTED"),
        ("action", "run-1", "", "", "Run run-1 ended: 8 ok", "ended: 8 ok"),
        ("action", "run-1", "", "", "run-1x is another", "run-1x is another"),
    ],
)
def test_an_event_says_its_change_once_and_its_subject_in_its_own_column(
    kind: str, subject: str, before: str, after: str, text: str, read: str
) -> None:
    assert sentence(Event(NOW, EventKind(kind), subject=subject, before=before, after=after, text=text)) == read
