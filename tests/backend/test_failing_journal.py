"""A journal that fails is told as a sentence with its file, whatever reads or writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest

from backend.bench.store import BenchStore
from backend.cloud.intents import IntentStore
from backend.cloud.policies import PolicyStore
from backend.cloud.usage import LimitStore
from backend.journal import Journal
from backend.model import Fleet
from backend.outcomes import OperatorError, Outcome
from backend.runs.audit import AuditHistory, RunAudit
from backend.runs.fanout import WorkerResult
from backend.runs.history import RunHistory
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.store import RunStore
from backend.ssh.boot import ReadySince
from backend.ssh.hostkeys import HostKeys
from backend.targets import WorkerRef
from backend.tools.check import Boots

NOW = datetime(2026, 11, 30, tzinfo=UTC)
WORKER = WorkerRef("p", "z", "a", 0, 1, "a-0", "77")
RESULT = WorkerResult(WORKER, Outcome.OK, exit_code=0, started_at=NOW, ended_at=NOW)
RUN = "20261130-000000-aaaa"


def record(run_id: str) -> RunRecord:
    request = RunRequest(argv=("hostname",))
    return RunRecord(run_id, request, (WORKER,), (RESULT,), RunState.ENDED, "demo", "hostname", NOW, NOW)


class Stores:
    """All that keep something in the journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.runs = RunStore(journal)
        self.audit = RunAudit(journal)
        self.benches = BenchStore(journal)
        self.policies = PolicyStore(journal)
        self.intents = IntentStore(journal)
        self.limits = LimitStore(journal)
        self.keys = HostKeys(journal, None)
        self.boots = Boots(journal)
        self.ready = ReadySince(journal, Fleet)
        self.runs.create(record(RUN))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    journal = Journal.open(tmp_path / "journal.db")
    yield Stores(journal)
    journal.close()


Use: TypeAlias = Callable[[Stores], object]
READS: dict[str, Use] = {
    "heads": lambda kept: kept.runs.heads(),
    "history": lambda kept: kept.runs.history(),
    "get": lambda kept: kept.runs.get(RUN),
    "has": lambda kept: kept.runs.has(RUN),
    "open runs": lambda kept: kept.runs.open_runs(),
    "open ids": lambda kept: kept.runs.open_ids(),
    "results": lambda kept: kept.runs.results(RUN),
    "symptoms": lambda kept: kept.runs.symptoms(RUN, [WORKER]),
    "origin": lambda kept: kept.audit.origin(RUN),
    "tags": lambda kept: kept.audit.tags(RUN),
    "all tags": lambda kept: kept.audit.all_tags(),
    "tagged": lambda kept: kept.audit.tagged("x"),
    "benches": lambda kept: kept.benches.records(),
    "bench": lambda kept: kept.benches.get("b"),
    "baselines": lambda kept: kept.benches.baselines(),
    "keeps": lambda kept: kept.policies.keeps(),
    "races": lambda kept: kept.policies.races(),
    "lost races": lambda kept: kept.policies.lost_races(),
    "wishes": lambda kept: kept.intents.open_intents(),
    "limits": lambda kept: kept.limits.known("p"),
    "host keys": lambda kept: kept.keys.read([WORKER]),
    "known host keys": lambda kept: kept.keys.known(WORKER),
    "boots": lambda kept: kept.boots.last(WORKER),
    "ready since": lambda kept: kept.ready(WORKER),
}
WRITES: dict[str, Use] = {
    "create": lambda kept: kept.runs.create(record("20261130-000000-bbbb")),
    "update": lambda kept: kept.runs.update(RUN, [(0, RESULT)]),
    "state": lambda kept: kept.runs.set_state(RUN, RunState.ENDED, NOW),
    "note": lambda kept: kept.runs.set_note(RUN, "mine"),
    "delete": lambda kept: kept.runs.delete(RUN),
    "started": lambda kept: kept.audit.started(RUN),
    "tag": lambda kept: kept.audit.tag(RUN, ["x"]),
    "forget": lambda kept: kept.audit.forget(RUN),
    "end keep": lambda kept: kept.policies.end_keep(("p", "z", "a"), "given up"),
    "end race": lambda kept: kept.policies.end_race(1),
    "boot": lambda kept: kept.boots.keep([(WORKER, "b")]),
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_a_journal_without_its_tables_is_told_as_damaged(name: str, stores: Stores) -> None:
    tables = stores.journal.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (table,) in tables:
        stores.journal.connection.execute(f"DROP TABLE {table}")
    with pytest.raises(OperatorError, match="is damaged: no such table") as told:
        (READS | WRITES)[name](stores)
    assert str(stores.journal.path) in told.value.what


@pytest.mark.parametrize("name", WRITES)
def test_a_journal_that_may_not_be_written_says_so_and_keeps_what_it_has(name: str, stores: Stores) -> None:
    stores.journal.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(OperatorError, match="can't be written: attempt to write a readonly database"):
        WRITES[name](stores)
    assert stores.runs.get(RUN) == record(RUN)
    stores.journal.connection.execute("PRAGMA query_only = OFF")
    stores.runs.set_note(RUN, "again")
    assert stores.runs.get(RUN).note == "again"


def test_what_is_read_beside_the_loop_is_the_same_and_fails_as_a_sentence(stores: Stores) -> None:
    stores.audit.tag(RUN, ["x"])
    with stores.journal.apart() as reader:
        apart = RunHistory(reader)
        assert apart.heads() == stores.runs.heads()
        assert (
            apart.history() == stores.runs.history() == list(apart.oldest_first()) == list(apart.oldest_first([RUN]))
        )
        assert list(apart.oldest_first(["another"])) == []
        assert AuditHistory(reader).tags(RUN) == ("x",)
        reader.connection.execute("DROP TABLE run_workers")
        with pytest.raises(OperatorError, match="is damaged: no such table"):
            apart.history()


def test_a_run_is_written_with_all_its_workers_or_not_at_all(stores: Stores) -> None:
    stores.journal.connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON run_workers BEGIN SELECT raise(ABORT, 'disk I/O error'); END"
    )
    with pytest.raises(OperatorError, match="the disk is full"):
        stores.runs.create(record("20261130-000000-bbbb"))
    assert not stores.runs.has("20261130-000000-bbbb")


async def test_new_host_keys_are_kept_until_they_can_be_written(stores: Stores) -> None:
    import asyncssh

    from backend.ssh.hostkeys import Trust

    key = asyncssh.generate_private_key("ssh-ed25519")
    stores.keys.accept(WORKER, Trust((key,), pinned=False), key)
    stores.journal.connection.execute("PRAGMA query_only = ON")
    stores.keys.flush()
    assert not stores.journal.rows("SELECT * FROM hostkeys")
    stores.journal.connection.execute("PRAGMA query_only = OFF")
    stores.keys.flush()
    assert len(stores.journal.rows("SELECT * FROM hostkeys")) == 1
