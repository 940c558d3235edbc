"""Old runs go, with their logs: never one that runs or may still run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.outcomes import OperatorError, Outcome
from backend.paths import Paths
from backend.runs.audit import RunAudit
from backend.runs.live import RunLock
from backend.runs.model import RunHead, RunRecord, RunState
from backend.runs.store import RunStore


@dataclass(frozen=True, slots=True)
class OldRun:
    """A run that may go."""

    record: RunRecord | RunHead
    bytes: int
    """On this machine's disk."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune would do."""

    old: tuple[OldRun, ...]
    may_run: tuple[str, ...]
    """Ids that are old enough and stay: not ended, or with a worker whose outcome is unknown."""

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.old)


def plan_prune(
    records: Sequence[RunRecord | RunHead],
    paths: Paths,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    unknown: bool = False,
    now: datetime | None = None,
) -> PrunePlan:
    """Chooses runs.

    Args:
        records: All of them.
        paths: Where their logs lie.
        older_than_s: Only those that ended longer ago.
        keep: Never one of the newest so many.
        unknown: Also ended runs with unknown outcomes.
        now: For tests.

    Raises:
        OperatorError: Neither an age nor a number was given.
    """
    if older_than_s is None and keep is None:
        raise OperatorError("Which runs may go was not said.", "Write --older-than 30d, --keep 100, or both.")
    if keep is not None and keep < 0:
        raise OperatorError(f"{keep} runs can't be kept.", "Write --keep with 0 or more.")
    old, may_run = choose(records, older_than_s=older_than_s, keep=keep, unknown=unknown, now=now)
    return PrunePlan(
        tuple(OldRun(record, size_of(runs_folder(paths.runs_dir, record.id))) for record in old),
        tuple(record.id for record in may_run),
    )


def choose(
    records: Iterable[RunRecord | RunHead],
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    unknown: bool = False,
    now: datetime | None = None,
) -> tuple[list[RunRecord | RunHead], list[RunRecord | RunHead]]:
    """Those that may go, and those that are old enough and stay, as `plan_prune` chooses them; no file is looked at."""
    now = now or datetime.now(UTC)
    old: list[RunRecord | RunHead] = []
    may_run: list[RunRecord | RunHead] = []
    newest_first = sorted(records, key=lambda record: record.started_at, reverse=True)
    for record in newest_first[keep or 0 :]:
        if older_than_s is not None and (record.ended_at or record.started_at) > now - timedelta(
            seconds=older_than_s
        ):
            continue
        uncertain = any(record.summary.get(outcome) for outcome in (Outcome.UNKNOWN, Outcome.PENDING))
        if record.state is not RunState.ENDED or (uncertain and not unknown):
            may_run.append(record)
        else:
            old.append(record)
    return old, may_run


def runs_folder(runs_dir: Path, run_id: str) -> Path:
    """Where the logs of a run lie; never outside of `runs_dir`, whatever the record says."""
    return runs_dir / (Path(run_id).name or "-")


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def remove_logs(run: OldRun, paths: Paths) -> bool:
    """Removes the logs of one run; False where another console drives or reads it: then all of it stays. For any thread.

    Raises:
        OperatorError: The folder can't be removed.
    """
    folder = runs_folder(paths.runs_dir, run.record.id)
    lock = RunLock(folder / "lock")
    if not lock.take():
        return False
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise OperatorError(
            f"{folder} can't be removed: {error.strerror}.", "Make it writable; the other runs are untouched."
        ) from error
    finally:
        lock.release()
    return True


def is_old_still(run: OldRun, store: RunStore) -> bool:
    """Whether a run is there yet and as ended as when it was chosen: a job may have been taken up again meanwhile."""
    return store.has(run.record.id) and store.get(run.record.id).state is RunState.ENDED


def forget(run: OldRun, store: RunStore, audit: RunAudit) -> None:
    """Drops the record of a run whose logs are removed, and what was noted of it."""
    store.delete(run.record.id)
    audit.forget(run.record.id)


def prune(runs: Iterable[OldRun], store: RunStore, audit: RunAudit, paths: Paths) -> list[str]:
    """Removes logs and records, logs first, so that a run is never without its record while it has logs.

    Returns:
        Ids that stayed, since another console drives or reads them.

    Raises:
        OperatorError: A folder can't be removed; the rest is untouched.
    """
    stayed = []
    for each in runs:
        if is_old_still(each, store) and remove_logs(each, paths):
            forget(each, store, audit)
        else:
            stayed.append(each.record.id)
    return stayed
