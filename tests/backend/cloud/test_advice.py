"""The note beside a request: ready, or what is missing where; how long is long; what never comes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud.advice import Urgency, advice, readiness
from backend.model import (
    Maintenance,
    QueuedResource,
    QueuedResourceState,
    Slice,
    SshWord,
    Standing,
    StateSince,
    Status,
    Worker,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def piece(index: int, state: str = "READY", health: str = "HEALTHY", workers: int = 4) -> Slice:
    return Slice(
        "p",
        "z",
        f"a-{index}",
        index,
        state,
        health=health,
        workers=tuple(Worker(number, "10.0.0.1") for number in range(workers)),
    )


def request(state: str, *slices: Slice, age_s: float = 0.0) -> QueuedResource:
    return QueuedResource(
        "p",
        "z",
        "a",
        state,
        slice_count=2,
        slices=slices,
        workers_per_slice=4,
        created_at=NOW - timedelta(seconds=age_s),
    )


def note(item: QueuedResource, age_s: float = 0.0) -> str:
    return advice(item, StateSince(NOW - timedelta(seconds=age_s), False), NOW).text


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        ((piece(0), piece(1)), "ready by the cloud's word"),
        ((piece(0), piece(1, "REPAIRING")), "slice 1: REPAIRING"),
        ((piece(0, workers=3), piece(1)), "slice 0: 3 of 4 endpoints"),
        ((piece(0, workers=0), piece(1)), "slice 0: no endpoint"),
        ((piece(1),), "slice 0: no node"),
        ((), "slice 0: no node, and 1 more"),
        ((piece(0), piece(1, health="TIMEOUT")), "slice 1: TIMEOUT"),
    ],
)
def test_an_active_request_is_ready_or_says_which_slice_lacks_what(slices: tuple[Slice, ...], said: str) -> None:
    assert note(request("ACTIVE", *slices)) == said


def test_ready_with_unhealthy_maintenance_is_an_alarm_whatever_else_holds() -> None:
    item = request("ACTIVE", piece(0), piece(1, health="UNHEALTHY_MAINTENANCE"))
    found = advice(item, None, NOW)
    assert found.urgency is Urgency.ALARM
    assert "slice 1" in found.text
    assert "checkpoint now" in found.text


@pytest.mark.parametrize("state", ["WAITING_FOR_RESOURCES", "ACCEPTED"])
def test_fifteen_minutes_of_waiting_are_told_and_fourteen_are_not(state: str) -> None:
    assert note(request(state, age_s=14 * 60)) == ""
    assert note(request(state, age_s=15 * 60)) == "15 min passed: ask your account team"


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(2, ""), (6, "longer than the usual"), (16, "ask your account team"), (40, "1 to 2 h"), (130, "stuck")],
)
def test_provisioning_is_told_by_its_age(minutes: int, said: str) -> None:
    text = note(request("PROVISIONING", piece(0, "CREATING")), minutes * 60)
    assert said in text
    assert bool(text) == bool(said)


def test_a_long_provisioning_without_a_node_says_so() -> None:
    assert "no node yet" in note(request("PROVISIONING"), 3600)


def test_time_since_creation_is_not_taken_for_time_in_provisioning() -> None:
    assert note(request("PROVISIONING", age_s=7200), 60) == ""


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_dead_requests_hold_quota_and_name_the_keys_that_help(state: str) -> None:
    found = advice(request(state), None, NOW)
    assert "holds quota" in found.text
    assert str(found).endswith("D delete, R recreate")
    assert "D delete" not in found.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Status(13, "an internal error has occurred"), "capacity withdrawn"),
        (Status(8, "You have reached IN_USE_ADDRESSES limit."), "external addresses"),
        (Status(8, 'There is no more capacity in the zone "z"'), "no capacity"),
    ],
)
def test_a_failed_request_says_why_in_a_word(error: Status, said: str) -> None:
    assert said in note(replace(request("FAILED"), error=error))


def test_failed_with_slices_still_running_is_loud() -> None:
    found = advice(request("FAILED", piece(0)), None, NOW)
    assert found.urgency is Urgency.ALARM
    assert "1 of 2 slices running" in found.text


def test_announced_maintenance_is_said_beside_ready() -> None:
    item = request(
        "ACTIVE", piece(0), replace(piece(1), maintenance=Maintenance("SCHEDULED", "PENDING", True, "soon"))
    )
    assert note(item) == "ready by the cloud's word; maintenance of slice 1 from soon"
    assert advice(item, None, NOW, SshWord(Standing.ANSWERS, "")).text == "ready; maintenance of slice 1 from soon"


@pytest.mark.parametrize(
    ("ssh", "said", "urgency"),
    [
        (None, "ready by the cloud's word", Urgency.OK),
        (SshWord(Standing.ANSWERS, "ssh answers on 8 of 8 workers"), "ready", Urgency.OK),
        (SshWord(Standing.ASKING, "asking ssh 5/8"), "asking ssh 5/8", Urgency.INFO),
        (
            SshWord(Standing.NOT_ASKED, "ssh not asked (iap, 512 workers)"),
            "ssh not asked (iap, 512 workers)",
            Urgency.INFO,
        ),
        (SshWord(Standing.LACKS, "slice 1: no ssh on worker 2"), "slice 1: no ssh on worker 2", Urgency.WARNING),
    ],
)
def test_nothing_is_called_ready_before_ssh_answers_on_all(ssh: SshWord | None, said: str, urgency: Urgency) -> None:
    item = request("ACTIVE", piece(0), piece(1))
    found = advice(item, None, NOW, ssh)
    assert (found.text, found.urgency) == (said, urgency)
    lacking = request("ACTIVE", piece(0), piece(1, "REPAIRING"))
    assert advice(lacking, None, NOW, ssh).text == "slice 1: REPAIRING", "what the cloud lacks comes first"


@given(
    st.sampled_from([*QueuedResourceState, "SOMETHING_NEW"]),
    st.lists(st.builds(piece, st.integers(0, 3), st.sampled_from(["READY", "CREATING", "NEW"])), max_size=4),
    st.floats(0, 1e6),
)
def test_any_request_gets_a_note_and_only_ready_ones_are_called_ready(
    state: str, slices: list[Slice], age_s: float
) -> None:
    item = request(state, *slices)
    text = note(item, age_s)
    if text.startswith("ready"):
        assert state == "ACTIVE"
        assert readiness(item) == ()
