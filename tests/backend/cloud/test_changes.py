from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backend.cloud.changes import Look, changes, changes_while_away
from backend.model import Event, EventKind, Maintenance, QueuedResource, Slice, Status, Symptom, Worker

AT = datetime(2026, 7, 1, tzinfo=UTC)
NODE = Slice("p", "z", "a-0", 0, "READY", uid="1", health="HEALTHY", queued_resource="a", workers=(Worker(0),))
REQUEST = QueuedResource("p", "z", "a", "ACTIVE", created_at=AT, slices=(NODE,))


def look(*requests: QueuedResource, standalone: Sequence[Slice] = ()) -> Look:
    return Look("p", "z", requests, tuple(standalone))


def events(before: QueuedResource | None, after: QueuedResource | None) -> list[Event]:
    return changes(look(*([before] if before else [])), look(*([after] if after else [])), AT)


def with_node(**fields: object) -> QueuedResource:
    return replace(REQUEST, slices=(replace(NODE, **fields),))  # type: ignore[arg-type]


def test_nothing_new_is_no_event() -> None:
    assert events(REQUEST, REQUEST) == []
    assert events(REQUEST, replace(REQUEST)) == []


def test_a_failure_says_why() -> None:
    failed = replace(REQUEST, state="FAILED", error=Status(13, "an internal error has occurred"))
    (event,) = events(replace(REQUEST, state="PROVISIONING"), failed)
    assert (event.kind, event.before, event.after) == (EventKind.STATE, "PROVISIONING", "FAILED")
    assert event.text == "a: PROVISIONING -> FAILED: an internal error has occurred"


def test_a_suspension_says_who() -> None:
    (event,) = events(REQUEST, replace(REQUEST, state="SUSPENDING", state_initiator="SERVICE"))
    assert event.text == "a: ACTIVE -> SUSPENDING (by the service)"


def test_requests_appear_and_go() -> None:
    (appeared,) = events(None, REQUEST)
    (gone,) = events(REQUEST, None)
    assert (appeared.kind, appeared.after) == (EventKind.APPEARED, "ACTIVE")
    assert (gone.kind, gone.before, gone.subject) == (EventKind.GONE, "ACTIVE", "a")


def test_a_name_that_was_used_again_is_another_request() -> None:
    (event,) = events(REQUEST, replace(REQUEST, created_at=datetime(2026, 7, 2, tzinfo=UTC), state="CREATING"))
    assert event.kind is EventKind.APPEARED
    assert "made anew" in event.text


def test_a_replaced_slice_is_told_by_its_id() -> None:
    (event,) = events(REQUEST, with_node(uid="2"))
    assert (event.subject, event.kind) == ("a/0", EventKind.NODE_STATE)
    assert "replaced" in event.text


def test_a_slice_that_goes_and_comes() -> None:
    bare = replace(REQUEST, slices=())
    assert [(event.subject, event.before, event.after) for event in events(REQUEST, bare)] == [("a/0", "READY", "")]
    assert [(event.subject, event.before, event.after) for event in events(bare, REQUEST)] == [("a/0", "", "READY")]


@pytest.mark.parametrize(
    ("health", "kind"),
    [
        ("UNHEALTHY_MAINTENANCE", EventKind.ALARM),
        ("TIMEOUT", EventKind.NODE_HEALTH),
        ("HEALTH_9", EventKind.NODE_HEALTH),
    ],
)
def test_health_is_told_and_the_early_alarm_is_loud(health: str, kind: EventKind) -> None:
    (event,) = events(REQUEST, with_node(health=health))
    assert (event.kind, event.before, event.after) == (kind, "HEALTHY", health)


def test_words_of_the_service_end_before_those_that_are_put_after_them() -> None:
    (event,) = events(REQUEST, with_node(health="UNHEALTHY_MAINTENANCE", health_description="It had maintenance."))
    assert event.text.endswith("It had maintenance; a preemption often follows within minutes")


def test_recovery_is_told_and_coming_up_healthy_is_not() -> None:
    assert events(with_node(health=""), REQUEST) == []
    assert events(REQUEST, with_node(health="")) == []
    (event,) = events(with_node(health="TIMEOUT"), REQUEST)
    assert (event.before, event.after) == ("TIMEOUT", "HEALTHY")


def test_a_symptom_is_told_once_with_its_worker() -> None:
    ill = with_node(symptoms=(Symptom("OUT_OF_MEMORY", "host", "3"),))
    (event,) = events(REQUEST, ill)
    assert (event.subject, event.after) == ("a/0/3", "OUT_OF_MEMORY")
    assert events(ill, replace(ill)) == []


def test_an_upcoming_maintenance_is_an_alarm_at_each_step() -> None:
    pending = with_node(maintenance=Maintenance("SCHEDULED", "PENDING", window_start="2026-07-08T00:00:00Z"))
    ongoing = with_node(maintenance=Maintenance("SCHEDULED", "ONGOING", window_start="2026-07-08T00:00:00Z"))
    (first,) = events(REQUEST, pending)
    (second,) = events(pending, ongoing)
    assert first.kind is second.kind is EventKind.ALARM
    assert "2026-07-08" in first.text
    assert (second.before, second.after) == ("PENDING", "ONGOING")


def test_standalone_nodes_are_watched_too() -> None:
    alone = replace(NODE, queued_resource="")
    (event,) = changes(look(standalone=[alone]), look(standalone=[replace(alone, state="PREEMPTED")]), AT)
    assert (event.subject, event.after) == ("a-0", "PREEMPTED")


def test_remote_text_cannot_drive_the_terminal() -> None:
    (event,) = events(REQUEST, replace(REQUEST, state="FAILED", error=Status(13, "\x1b]52;c;x\x07boo\nline")))
    assert "\x1b" not in event.text
    assert "\n" not in event.text


def test_what_happened_while_nobody_looked_is_said_so() -> None:
    found = changes_while_away({"a": "PROVISIONING", "b": "ACTIVE"}, look(REQUEST), AT)
    assert [(event.kind, event.subject, event.before) for event in found] == [
        (EventKind.STATE, "a", "PROVISIONING"),
        (EventKind.GONE, "b", "ACTIVE"),
    ]
    assert all("when last seen" in event.text for event in found)
