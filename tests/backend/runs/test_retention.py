"""Old runs go with their logs, running ones never; who ran what stays readable until then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.journal import Journal
from backend.outcomes import OperatorError, Outcome
from backend.paths import Paths
from backend.runs.audit import AUDIT_FIELDS, RunAudit, who
from backend.runs.fanout import WorkerResult
from backend.runs.live import RunLock
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.retention import plan_prune, prune
from backend.runs.store import RunStore
from backend.targets import WorkerRef

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY_S = 86_400.0


@dataclass
class Kept:
    paths: Paths
    store: RunStore
    audit: RunAudit
    journal: Journal

    def add(self, run_id: str, days: float, outcome: Outcome = Outcome.OK, state: RunState = RunState.ENDED) -> None:
        """A run that ended so many days ago, with 100 bytes of logs."""
        at = NOW - timedelta(days=days)
        worker = WorkerRef("p", "z", "a", 0, 1, "a-0", "77")
        request = RunRequest(argv=("hostname",), title="=title", secret_environment=("TOKEN",))
        result = WorkerResult(worker, outcome, exit_code=0, started_at=at, ended_at=at)
        ended = at if state is RunState.ENDED else None
        self.store.create(RunRecord(run_id, request, (worker,), (result,), state, "demo", "hostname", at, ended))
        self.audit.started(run_id)
        folder = self.paths.runs_dir / run_id
        folder.mkdir(parents=True)
        (folder / "a.0.1.log").write_bytes(bytes(100))

    @property
    def ids(self) -> list[str]:
        return [record.id for record in self.store.history()]

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.paths.runs_dir.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    paths = Paths(tmp_path / "config", tmp_path / "state")
    journal = Journal.open(paths.journal)
    yield Kept(paths, RunStore(journal), RunAudit(journal), journal)
    journal.close()


def test_age_and_number_hold_together(kept: Kept) -> None:
    for number, days in enumerate((1, 20, 40, 60)):
        kept.add(f"run-{number}", days)
    records = kept.store.history()
    old = plan_prune(records, kept.paths, older_than_s=30 * DAY_S, now=NOW)
    assert [each.record.id for each in old.old] == ["run-2", "run-3"]
    assert old.bytes == 200
    both = plan_prune(records, kept.paths, older_than_s=30 * DAY_S, keep=3, now=NOW)
    assert [each.record.id for each in both.old] == ["run-3"]
    assert [each.record.id for each in plan_prune(records, kept.paths, keep=1, now=NOW).old] == [
        "run-1",
        "run-2",
        "run-3",
    ]
    with pytest.raises(OperatorError, match="not said"):
        plan_prune(records, kept.paths)


def test_what_runs_or_may_run_never_goes(kept: Kept) -> None:
    kept.add("running", 90, Outcome.PENDING, RunState.RUNNING)
    kept.add("left", 90, Outcome.PENDING, RunState.DETACHED)
    kept.add("unknown", 90, Outcome.UNKNOWN)
    kept.add("done", 90, Outcome.FAILED)
    planned = plan_prune(kept.store.history(), kept.paths, keep=0, now=NOW)
    assert [each.record.id for each in planned.old] == ["done"]
    assert set(planned.may_run) == {"running", "left", "unknown"}
    wider = plan_prune(kept.store.history(), kept.paths, keep=0, unknown=True, now=NOW)
    assert {each.record.id for each in wider.old} == {"done", "unknown"}


def test_a_pruned_run_leaves_nothing_and_others_stay_whole(kept: Kept) -> None:
    kept.add("old", 90)
    kept.add("new", 1)
    kept.audit.tag("old", ["gone"])
    planned = plan_prune(kept.store.history(), kept.paths, older_than_s=DAY_S * 30, now=NOW)
    assert prune(planned.old, kept.store, kept.audit, kept.paths) == []
    assert (kept.ids, kept.folders) == (["new"], ["new"])
    assert kept.audit.tagged("gone") == frozenset()
    assert kept.audit.origin("old").user == ""
    assert kept.store.results("old") == []


def test_a_run_that_another_console_drives_stays(kept: Kept) -> None:
    kept.add("old", 90)
    lock = RunLock(kept.paths.runs_dir / "old" / "lock")
    assert lock.take()
    planned = plan_prune(kept.store.history(), kept.paths, keep=0, now=NOW)
    try:
        assert prune(planned.old, kept.store, kept.audit, kept.paths) == ["old"]
    finally:
        lock.release()
    assert (kept.ids, kept.folders) == (["old"], ["old"])


def test_a_hostile_id_reaches_no_other_folder(kept: Kept) -> None:
    outside = kept.paths.state_dir / "precious"
    outside.mkdir()
    at = NOW - timedelta(days=90)
    request = RunRequest(argv=("x",))
    kept.store.create(RunRecord("../precious", request, (), (), RunState.ENDED, "demo", "x", at, at))
    planned = plan_prune(kept.store.history(), kept.paths, keep=0, now=NOW)
    prune(planned.old, kept.store, kept.audit, kept.paths)
    assert outside.is_dir()
    assert kept.ids == []


def test_the_audit_says_who_what_where_when_and_the_outcome(kept: Kept) -> None:
    kept.add("one", 1, Outcome.FAILED)
    kept.store.set_note("one", "first try")
    kept.audit.tag("one", ["b", "a"])
    (row,) = kept.audit.rows(kept.store.history())
    assert tuple(row) == AUDIT_FIELDS
    assert (row["user"], row["host"]) == (who().user, who().host)
    assert row["user"]
    assert (row["command"], row["target"], row["outcome"]) == ("hostname", "a/0/1", "failed")
    assert row["worker_ended_at"] == NOW - timedelta(days=1)
    assert (row["note"], row["tags"]) == ("first try", "a b")


def test_tags_are_words_added_once_and_removed(kept: Kept) -> None:
    kept.audit.tag("x", ["one", "two", "one"])
    kept.audit.tag("x", [], ["two", "never"])
    kept.audit.tag("y", ["b", "a"])
    assert kept.audit.all_tags() == {"x": ("one",), "y": ("a", "b")}
    assert kept.audit.tags("x") == ("one",)
    for text in ("", "a b", "a,b", "x" * 65, "\x1b"):
        with pytest.raises(OperatorError, match="no tag"):
            kept.audit.tag("x", ["fine", text])
    assert kept.audit.tags("x") == ("one",)


def test_a_list_of_many_runs_counts_their_workers_without_reading_them_and_ended_ones_once(kept: Kept) -> None:
    kept.add("20261101-000000-aaaa", 29)
    kept.add("20261129-000000-bbbb", 1, Outcome.FAILED)
    kept.add("20261130-000000-cccc", 0, Outcome.PENDING, RunState.RUNNING)
    asked: list[str] = []
    kept.journal.connection.set_trace_callback(asked.append)
    heads = kept.store.heads()
    assert [(head.id[-4:], head.size, dict(head.summary)) for head in heads] == [
        ("cccc", 1, {Outcome.PENDING: 1}),
        ("bbbb", 1, {Outcome.FAILED: 1}),
        ("aaaa", 1, {Outcome.OK: 1}),
    ]
    counts = sum("run_workers" in statement for statement in asked)
    assert counts == 3
    assert not any("SELECT worker" in statement for statement in asked)
    asked.clear()
    assert kept.store.heads() == heads
    assert sum("run_workers" in statement for statement in asked) == 1, "only the one that has not ended"
    kept.store.set_note("20261129-000000-bbbb", "why")
    kept.store.update(
        "20261130-000000-cccc", [(0, WorkerResult(kept.store.results("20261130-000000-cccc")[0].worker, Outcome.OK))]
    )
    again = kept.store.heads(limit=2)
    assert [(head.note, dict(head.summary)) for head in again] == [
        ("", {Outcome.OK: 1}),
        ("why", {Outcome.FAILED: 1}),
    ]
