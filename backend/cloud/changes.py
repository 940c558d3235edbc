"""Two looks at one zone become events: what appeared, moved, fell ill, was replaced or went, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.model import Event, EventKind, QueuedResource, Slice
from backend.sanitize import plain

MAINTENANCE_ALARM = "UNHEALTHY_MAINTENANCE"
"""Seen minutes before a preemption (research: field notes): the early alarm."""

_ENDING = frozenset({"SUSPENDING", "SUSPENDED", "DELETING"})
"""States of which it matters whether a person or the service brought them about."""

_WELL = frozenset({"", "HEALTH_UNSPECIFIED", "HEALTHY"})


@dataclass(frozen=True, slots=True)
class Look:
    """What one good poll of a (project, zone) showed."""

    project: str
    zone: str
    queued_resources: tuple[QueuedResource, ...]
    standalone: tuple[Slice, ...]


def changes(before: Look, after: Look, at: datetime) -> list[Event]:
    """The events between two good polls, in the order of the names."""
    return list(_changes(before, after, at))


def changes_while_away(states: Mapping[str, str], after: Look, at: datetime) -> list[Event]:
    """The events between what the journal last knew (name -> state) and the first poll of this console."""
    events = []
    for item in after.queued_resources:
        known = states.get(item.name)
        if known is not None and known != item.state:
            text = f"{item.name} is {_state_text(item)}; it was {known} when last seen"
            events.append(_event(at, EventKind.STATE, item, item.name, known, item.state, text))
    present = {item.name for item in after.queued_resources}
    for name, known in states.items():
        if name not in present:
            text = f"{name} is gone; it was {known} when last seen"
            events.append(_event(at, EventKind.GONE, after, name, known, "", text))
    return events


def _changes(before: Look, after: Look, at: datetime) -> Iterator[Event]:
    old = {item.name: item for item in before.queued_resources}
    for item in after.queued_resources:
        previous = old.pop(item.name, None)
        if previous is item:
            continue
        if previous is None or previous.created_at != item.created_at:
            word = "appeared" if previous is None else "was made anew"
            was = "" if previous is None else previous.state
            text = f"{item.name} {word}: {_state_text(item)}"
            yield _event(at, EventKind.APPEARED, item, item.name, was, item.state, text)
            continue
        if previous.state != item.state:
            text = f"{item.name}: {previous.state} -> {_state_text(item)}"
            yield _event(at, EventKind.STATE, item, item.name, previous.state, item.state, text)
        yield from _slice_changes(previous.slices, item.slices, item, at)
    for gone in old.values():
        yield _event(at, EventKind.GONE, gone, gone.name, gone.state, "", f"{gone.name} is gone; it was {gone.state}")
    yield from _slice_changes(before.standalone, after.standalone, None, at)


def _slice_changes(
    before: Sequence[Slice], after: Sequence[Slice], owner: QueuedResource | None, at: datetime
) -> Iterator[Event]:
    old = {item.node_id: item for item in before}
    for item in after:
        previous = old.pop(item.node_id, None)
        if previous is item:
            continue
        subject = f"{owner.name}/{item.index}" if owner is not None else item.node_id
        if previous is None:
            text = f"{subject} appeared: {item.state}"
            yield _event(at, EventKind.NODE_STATE, item, subject, "", item.state, text)
            yield from _health(None, item, subject, at)
            continue
        if previous.uid and item.uid and previous.uid != item.uid:
            text = f"{subject} was replaced: node {item.node_id} has a new id"
            yield _event(at, EventKind.NODE_STATE, item, subject, previous.state, item.state, text)
        elif previous.state != item.state:
            text = f"{subject}: {previous.state} -> {item.state}"
            yield _event(at, EventKind.NODE_STATE, item, subject, previous.state, item.state, text)
        yield from _health(previous, item, subject, at)
    for gone in old.values():
        subject = f"{owner.name}/{gone.index}" if owner is not None else gone.node_id
        text = f"{subject} is gone: node {gone.node_id}"
        yield _event(at, EventKind.NODE_STATE, gone, subject, gone.state, "", text)


def _health(previous: Slice | None, item: Slice, subject: str, at: datetime) -> Iterator[Event]:
    was = previous.health if previous is not None else ""
    # A slice that comes up healthy, or loses its health word as it is deleted, is no news.
    if item.health != was and not (item.health in _WELL and was in _WELL):
        alarm = item.health == MAINTENANCE_ALARM
        words = f": {item.health_description.rstrip('. ')}" if item.health_description else ""
        warning = "; a preemption often follows within minutes" if alarm else ""
        text = f"{subject} is {item.health or 'of unknown health'}{words}{warning}"
        kind = EventKind.ALARM if alarm else EventKind.NODE_HEALTH
        yield _event(at, kind, item, subject, was, item.health, text)
    known = set(previous.symptoms) if previous is not None else set()
    for symptom in item.symptoms:
        if symptom not in known:
            where = f"/{symptom.worker_id}" if symptom.worker_id else ""
            text = f"{subject}{where}: {symptom.kind} {symptom.details}".rstrip()
            yield _event(at, EventKind.NODE_HEALTH, item, f"{subject}{where}", "", symptom.kind, text)
    planned = previous.maintenance if previous is not None else None
    if item.maintenance is not None and item.maintenance != planned:
        upcoming = item.maintenance
        window = f" from {upcoming.window_start}" if upcoming.window_start else ""
        text = f"{subject}: {upcoming.kind} maintenance is {upcoming.status}{window}"
        before = planned.status if planned is not None else ""
        yield _event(at, EventKind.ALARM, item, subject, before, upcoming.status, text)


def _state_text(item: QueuedResource) -> str:
    """The state, who brought it about where that matters, and the cloud's reason."""
    text = item.state
    if item.state in _ENDING and item.state_initiator in ("SERVICE", "USER"):
        text += " (by the service)" if item.state_initiator == "SERVICE" else " (by a user)"
    if item.error is not None and item.error.message:
        text += f": {item.error.message}"
    return text


def _event(
    at: datetime,
    kind: EventKind,
    where: QueuedResource | Slice | Look,
    subject: str,
    before: str,
    after: str,
    text: str,
) -> Event:
    return Event(at, kind, where.project, where.zone, subject, before, after, plain(text))
