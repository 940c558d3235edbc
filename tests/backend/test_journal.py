from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from backend import journal as journal_module
from backend.journal import EVENTS_KEPT, PRUNE_EVERY_S, Journal
from backend.model import Event, EventKind, QueuedResource, Tier
from backend.outcomes import OperatorError

START = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
PLACE = ("p", "z")


def qr(name: str, state: str, created: datetime | None = START) -> QueuedResource:
    return QueuedResource("p", "z", name, state, accelerator_type="v5litepod-16", tier=Tier.SPOT, created_at=created)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(tmp_path / "journal.db")


def test_the_file_is_private(tmp_path: Path, journal: Journal) -> None:
    assert stat.S_IMODE((tmp_path / "journal.db").stat().st_mode) == 0o600


def test_events_come_back_in_order_and_by_subject(journal: Journal) -> None:
    journal.record(
        [
            Event(at(1), EventKind.STATE, "p", "z", "a", "CREATING", "ACTIVE", "a is ACTIVE"),
            Event(at(2), EventKind.NODE_STATE, "p", "z", "a/0"),
            Event(at(3), EventKind.STATE, "p", "z", "ab"),
        ]
    )
    assert [event.subject for event in journal.events()] == ["a", "a/0", "ab"]
    assert [event.subject for event in journal.events(subject="a")] == ["a", "a/0"]
    first = journal.events()[0]
    assert (first.at, first.before, first.after, first.text) == (at(1), "CREATING", "ACTIVE", "a is ACTIVE")
    assert [event.subject for event in journal.events(after=first.sequence, limit=1)] == ["ab"]


def test_what_was_not_seen_to_begin_is_a_lower_bound(journal: Journal) -> None:
    since = journal.observe(PLACE, [qr("a", "ACTIVE")], [], at(1860))
    assert since["p", "z", "a"].at == at(1860)
    assert since["p", "z", "a"].is_lower_bound


def test_an_older_request_under_a_known_name_was_not_seen_to_come(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "ACTIVE", created=at(-9000))], [], at(10_000))
    since = journal.observe(
        PLACE, [qr("a", "ACTIVE", created=at(-5000)), qr("b", "ACTIVE", at(-5000))], [], at(10_005)
    )
    assert since["p", "z", "a"].is_lower_bound
    assert since["p", "z", "b"].is_lower_bound


def test_a_request_seen_while_creating_began_with_its_creation(journal: Journal) -> None:
    since = journal.observe(PLACE, [qr("a", "CREATING")], [], at(3))
    assert (since["p", "z", "a"].at, since["p", "z", "a"].is_lower_bound) == (START, False)


def test_a_change_between_two_polls_is_seen(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "WAITING_FOR_RESOURCES")], [], at(0))
    since = journal.observe(PLACE, [qr("a", "ACTIVE")], [], at(10))
    assert (since["p", "z", "a"].at, since["p", "z", "a"].is_lower_bound) == (at(10), False)
    spans = journal.timeline(("p", "z", "a"))
    assert [(span.state, span.entered_is_lower_bound) for span in spans] == [
        ("WAITING_FOR_RESOURCES", True),
        ("ACTIVE", False),
    ]
    assert spans[0].left_at == at(10)
    assert spans[1].left_at is None


def test_a_change_while_nobody_looked_is_a_lower_bound(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "WAITING_FOR_RESOURCES")], [], at(0))
    since = journal.observe(PLACE, [qr("a", "ACTIVE")], [], at(7200))
    assert since["p", "z", "a"].is_lower_bound


def test_history_survives_a_restart(tmp_path: Path) -> None:
    first = Journal.open(tmp_path / "j.db")
    first.observe(PLACE, [qr("a", "CREATING")], [], at(1))
    first.observe(PLACE, [qr("a", "ACTIVE")], [], at(5))
    first.close()
    second = Journal.open(tmp_path / "j.db")
    since = second.observe(PLACE, [qr("a", "ACTIVE")], [], at(5000))
    assert (since["p", "z", "a"].at, since["p", "z", "a"].is_lower_bound) == (at(5), False)


def test_a_gone_request_is_closed_and_a_new_one_of_that_name_is_another(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "CREATING")], [], at(1))
    journal.observe(PLACE, [], [], at(5))
    assert journal.timeline(("p", "z", "a"))[-1].left_at == at(5)
    journal.observe(PLACE, [qr("a", "ACCEPTED", at(7))], [], at(10))
    spans = journal.timeline(("p", "z", "a"))
    assert [(span.state, span.entered_at, span.entered_is_lower_bound) for span in spans] == [
        ("ACCEPTED", at(7), False)
    ]


def test_a_recreated_request_in_the_same_state_is_another(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "ACTIVE")], [], at(1))
    journal.observe(PLACE, [qr("a", "ACTIVE", at(20))], [], at(30))
    assert [span.entered_at for span in journal.timeline(("p", "z", "a"))] == [at(20)]


def test_the_failure_of_one_zone_does_not_close_another(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "ACTIVE")], [], at(1))
    journal.observe(("p", "other"), [], [], at(2))
    assert journal.timeline(("p", "z", "a"))[-1].left_at is None


def test_two_consoles_agree_and_write_nothing_twice(tmp_path: Path) -> None:
    one, two = Journal.open(tmp_path / "j.db"), Journal.open(tmp_path / "j.db")
    change = Event(at(10), EventKind.STATE, "p", "z", "a", "CREATING", "ACTIVE")
    one.observe(PLACE, [qr("a", "CREATING")], [], at(1))
    two.observe(PLACE, [qr("a", "CREATING")], [], at(2))
    one.observe(PLACE, [qr("a", "ACTIVE")], [change], at(10))
    since = two.observe(PLACE, [qr("a", "ACTIVE")], [replace(change, at=at(600))], at(600))
    assert since["p", "z", "a"].at == at(10)
    assert [span.state for span in one.timeline(("p", "z", "a"))] == ["CREATING", "ACTIVE"]
    assert len(one.events()) == 1


def test_two_consoles_write_a_slices_change_once(tmp_path: Path) -> None:
    one, two = Journal.open(tmp_path / "j.db"), Journal.open(tmp_path / "j.db")
    change = Event(at(10), EventKind.NODE_STATE, "p", "z", "a/0", "READY", "REPAIRING")
    for journal, seconds in ((one, 10), (two, 13)):
        journal.observe(PLACE, [qr("a", "ACTIVE")], [replace(change, at=at(seconds))], at(seconds))
    assert len(one.events()) == 1


def test_a_late_observation_does_not_undo_a_newer_one(tmp_path: Path) -> None:
    one, two = Journal.open(tmp_path / "j.db"), Journal.open(tmp_path / "j.db")
    one.observe(PLACE, [qr("a", "CREATING")], [], at(1))
    two.observe(PLACE, [qr("a", "ACTIVE")], [], at(10))
    one.observe(PLACE, [qr("a", "CREATING")], [], at(9))
    assert [span.state for span in one.timeline(("p", "z", "a"))] == ["CREATING", "ACTIVE"]


def test_a_state_that_comes_back_is_recorded_each_time(journal: Journal) -> None:
    there = Event(at(1), EventKind.NODE_STATE, "p", "z", "a/0", "READY", "REPAIRING")
    journal.observe(PLACE, [], [there], at(1))
    journal.observe(PLACE, [], [replace(there, at=at(2), before="REPAIRING", after="READY")], at(2))
    journal.observe(PLACE, [], [replace(there, at=at(3))], at(3))
    assert len(journal.events()) == 3


def test_queue_waits_count_only_what_was_seen(journal: Journal) -> None:
    journal.observe(PLACE, [qr("a", "WAITING_FOR_RESOURCES"), qr("b", "ACTIVE")], [], at(1))
    journal.observe(PLACE, [qr("a", "PROVISIONING"), qr("b", "ACTIVE")], [], at(61))
    journal.observe(PLACE, [qr("a", "ACTIVE"), qr("b", "ACTIVE")], [], at(100))
    waits = journal.queue_waits()
    assert [(wait.name, wait.waited_s, wait.tier) for wait in waits] == [("a", 61.0, "spot")]


def test_steps_run_once_and_only_forward(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j.db")
    steps = [
        "CREATE TABLE notes (text TEXT)",
        "ALTER TABLE notes ADD COLUMN tag TEXT; INSERT INTO notes VALUES ('a;b', 't')",
    ]
    journal.migrate("notes", steps[:1])
    journal.migrate("notes", steps)
    journal.migrate("notes", steps)
    assert journal.connection.execute("SELECT * FROM notes").fetchall() == [("a;b", "t")]
    with pytest.raises(OperatorError, match="newer slicetower"):
        journal.migrate("notes", steps[:1])


def test_a_failing_step_leaves_nothing_behind(journal: Journal) -> None:
    with pytest.raises(OperatorError):
        journal.migrate("notes", ["CREATE TABLE notes (text TEXT); INSERT INTO nowhere VALUES (1)"])
    journal.migrate("notes", ["CREATE TABLE notes (text TEXT)"])


def test_a_transaction_that_fails_is_rolled_back(journal: Journal) -> None:
    journal.migrate("notes", ["CREATE TABLE notes (text TEXT)"])

    def write_and_fail() -> None:
        with journal.transaction() as connection:
            connection.execute("INSERT INTO notes VALUES ('x')")
            raise RuntimeError("lost heart")

    with pytest.raises(RuntimeError, match="lost heart"):
        write_and_fail()
    assert journal.connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_damaged_file_is_told_with_its_name_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "j.db"
    file.write_bytes(content)
    with pytest.raises(OperatorError) as caught:
        Journal.open(file)
    assert str(file) in caught.value.what
    assert "Move the file away" in caught.value.cure
    assert file.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="can't be opened"):
        Journal.open(tmp_path / "file" / "j.db")


WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from backend import journal as journal_module
from backend.journal import EVENTS_KEPT, PRUNE_EVERY_S, Journal
from backend.model import Event, EventKind, QueuedResource
journal = Journal.open(Path(sys.argv[1]))
start = datetime(2026, 7, 1, tzinfo=UTC)
for step in range(60):
    now = start + timedelta(seconds=step)
    items = [QueuedResource("p", "z", f"q{n}", f"STATE_{step // 10}", created_at=start) for n in range(20)]
    journal.observe(("p", "z"), items, [], now)
    journal.record([Event(now, EventKind.ACTION, subject=sys.argv[2])])
"""


def test_concurrent_consoles_in_processes_lose_nothing_and_overlap_nothing(tmp_path: Path) -> None:
    file = tmp_path / "j.db"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), str(number)], cwd=Path(__file__).parents[2])
        for number in range(3)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    journal = Journal.open(file)
    assert len(journal.events(limit=10_000)) == 180
    for number in range(20):
        spans = journal.timeline(("p", "z", f"q{number}"))
        assert len({span.state for span in spans}) == len(spans)
        assert all(one.left_at == two.entered_at for one, two in pairwise(spans))
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_old_events_and_those_beyond_the_most_go_once_in_a_while(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "EVENTS_MOST", 5)
    monkeypatch.setattr(journal_module, "PRUNE_ROWS", 4)
    long_ago = START - EVENTS_KEPT - timedelta(seconds=1)
    journal.record(Event(long_ago, EventKind.ACTION, text=f"old {number}") for number in range(6))
    journal.record(Event(START, EventKind.ACTION, text=f"new {number}") for number in range(7))
    assert len(journal.events()) == 13
    seen = [4, 8, 8]
    for number, gone in enumerate(seen):
        journal.observe(("p", "z"), [], [], at(number))
        assert len(journal.events()) == 13 - gone
    assert [event.text for event in journal.events()] == [f"new {number}" for number in range(2, 7)]
    journal.record([Event(START, EventKind.ACTION, text="new 7")])
    journal.observe(("p", "z"), [], [], at(10))
    assert len(journal.events()) == 6
    journal.observe(("p", "z"), [], [], at(10 + PRUNE_EVERY_S))
    assert [event.text for event in journal.events()] == [f"new {number}" for number in range(3, 8)]
