"""Who broke a run, and why: one verdict out of the ends of all logs, the order of deaths and what survivors say.

When one worker of a gang dies its siblings shout, and it mostly prints nothing (research: field notes, section 0, fact 9).
So the culprit is whom the survivors name; else the first whose log tells a cause; else the first that died in silence;
else the first that failed. Everything else is folded below as its symptoms.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.diagnosis.signatures import Finding, blamed_tasks, cause, scan
from backend.logs.store import LogStore
from backend.outcomes import Outcome
from backend.runs.fanout import FAILURES, WorkerResult, first_failure
from backend.runs.live import Run
from backend.runs.model import RunRecord, RunRequest
from backend.runs.sightings import process_numbers
from backend.sanitize import plain
from backend.targets import fold

TAIL_BYTES = 64 * 1024
"""Of the end of each log: a stack trace of every thread is some ten KiB."""
LOGS_READ = 1024
"""At most so many logs are read, those of the first that failed, so that a fleet's verdict comes within a second or so."""
LAST_LINES = 3
LAST_LINE_LIMIT = 300
"""Characters of each."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """Failures that follow from the culprit's."""

    workers: tuple[str, ...]
    what: str

    @property
    def text(self) -> str:
        return f"{fold(self.workers)}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who broke the run."""

    culprit: str
    """The worker's address."""
    workers: tuple[str, ...]
    """All workers with the culprit's own cause, itself included."""
    finding: Finding | None
    """What its log says, if that is known."""
    what: str
    """What happened to it, in one sentence, safe to show."""
    why: str
    """Why it is the culprit."""
    symptoms: tuple[Symptom, ...] = ()
    last_lines: tuple[str, ...] = ()
    """The end of the culprit's log, safe to show; empty when it printed nothing."""

    @property
    def cure(self) -> str:
        return self.finding.cure if self.finding is not None else ""

    @property
    def text(self) -> str:
        """One line for a person."""
        return f"{fold(self.workers)}: {self.what} ({self.why})"


def of_run(run: Run) -> Verdict | None:
    """The verdict of a live or opened run. Reads files: call it from a thread where a screen waits."""
    return attribute(run.request, run.results, lambda index: tail(run.log_path(index)))


def of_record(record: RunRecord, logs: LogStore) -> Verdict | None:
    """The verdict of a run of the past. Reads files."""

    def end(index: int) -> bytes:
        return tail(logs.path(record.id, record.workers[index].file_stem))

    return attribute(record.request, record.results, end)


def tail(path: Path) -> bytes:
    """The last whole lines of a log, at most TAIL_BYTES; nothing where there is no log."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - TAIL_BYTES))
            data = stream.read(TAIL_BYTES)
    except OSError:
        return b""
    return data.partition(b"\n")[2] if size > TAIL_BYTES else data


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What one worker's log tells."""

    place: int
    result: WorkerResult
    findings: tuple[Finding, ...]
    blames: tuple[int, ...]
    """Places that it names as dead or missing."""
    data: bytes

    @property
    def cause(self) -> Finding | None:
        return next((each for each in self.findings if not each.symptom), None)

    @property
    def died_at(self) -> float:
        return self.result.ended_at.timestamp() if self.result.ended_at is not None else float("inf")


def attribute(request: RunRequest, results: Sequence[WorkerResult], end_of: Callable[[int], bytes]) -> Verdict | None:
    """One verdict.

    Args:
        request: Of the run.
        results: Of all its workers, in its order.
        end_of: The last lines of the log of the worker at a place.

    Returns:
        None when nothing failed, or when nothing is known beyond each worker's own outcome.
    """
    failed = [place for place, result in enumerate(results) if result.outcome in FAILURES]
    if not failed:
        return None
    failed.sort(key=lambda place: (_ended(results[place]), place))
    numbers = process_numbers(request, results)
    seen = {place: _look(place, results, numbers, end_of(place)) for place in failed[:LOGS_READ]}
    votes = Counter(named for each in seen.values() for named in each.blames if named != each.place)
    for place in votes:
        if place not in seen:
            seen[place] = _look(place, results, numbers, end_of(place))
    guilty, why = _culprit(seen, votes)
    if guilty is None:
        if not request.is_gang:
            return None
        first = first_failure(results)
        assert first is not None
        guilty = seen[next(place for place, result in enumerate(results) if result is first)]
        why = "the first that failed"
    return _verdict(guilty, why, seen, votes)


def _ended(result: WorkerResult) -> float:
    return result.ended_at.timestamp() if result.ended_at is not None else float("inf")


def _look(place: int, results: Sequence[WorkerResult], numbers: dict[str, dict[int, int]], data: bytes) -> _Evidence:
    own = numbers[results[place].worker.queued_resource]
    blames = tuple(own[number] for number in blamed_tasks(data) if number in own)
    return _Evidence(place, results[place], scan(data), blames, data)


def _culprit(seen: dict[int, _Evidence], votes: Counter[int]) -> tuple[_Evidence | None, str]:
    """The worker to blame and why; none when the logs tell nothing."""
    if votes:
        most = max(votes.values())
        named = [seen[place] for place, count in votes.items() if count == most]
        guilty = min(named, key=lambda each: (each.cause is None, each.died_at, each.place))
        voters = sum(guilty.place in each.blames for each in seen.values() if each.place != guilty.place)
        why = f"named as dead or missing by {voters} other{'s' if voters != 1 else ''}"
        return guilty, why if guilty.result.ended else f"{why}, and it has not ended"
    ordered = sorted(seen.values(), key=lambda each: (each.died_at, each.place))
    with_cause = [each for each in ordered if each.cause is not None]
    if with_cause:
        others = "its log tells a cause, and the others' only its effects" if len(seen) > len(with_cause) else ""
        return with_cause[0], others or "its log tells the cause"
    if any(each.findings for each in ordered):
        silent = [each for each in ordered if not each.findings]
        if silent:
            return silent[0], "it died first of those that do not complain about others"
        return ordered[0], "the first that failed"
    return None, ""


def _verdict(guilty: _Evidence, why: str, seen: dict[int, _Evidence], votes: Counter[int]) -> Verdict:
    finding = cause(guilty.findings)
    same = [guilty.place]
    if finding is not None and not finding.symptom:
        same = [place for place, each in seen.items() if each.cause is not None and each.cause.id == finding.id]
    elif votes:
        same = [place for place, count in votes.items() if count == votes[guilty.place] and seen[place].cause is None]
    groups: dict[str, list[str]] = {}
    for place, each in seen.items():
        if place not in same and each.result.outcome in FAILURES:
            shown = cause(each.findings)
            text = shown.meaning if shown is not None else _fate(each.result)
            groups.setdefault(plain(text), []).append(each.result.worker.address)
    return Verdict(
        culprit=guilty.result.worker.address,
        workers=tuple(seen[place].result.worker.address for place in sorted(same)),
        finding=finding,
        what=plain(finding.meaning if finding is not None and not finding.symptom else _fate(guilty.result)),
        why=why,
        symptoms=tuple(Symptom(tuple(addresses), text) for text, addresses in groups.items()),
        last_lines=last_lines(guilty.data),
    )


def _fate(result: WorkerResult) -> str:
    """How a worker ended, where its log does not say why."""
    match result.outcome:
        case Outcome.SIGNALLED:
            killed = result.signal == "KILL"
            return f"Ended by signal {result.signal}{', as the kernel does when memory runs out' if killed else ''}."
        case Outcome.FAILED if result.exit_code == 137:
            return "Ended with code 137: it was killed, as the kernel does when memory runs out."
        case Outcome.FAILED if result.exit_code is None:
            return result.error or "Ended, and nobody saw with which code."
        case Outcome.FAILED:
            return f"Ended with code {result.exit_code}."
        case Outcome.PENDING:
            return "Has not ended."
        case Outcome.OK:
            return "Ended well, before the others did."
        case _:
            return result.error or f"{result.outcome.value.replace('_', ' ').capitalize()}."


def last_lines(data: bytes) -> tuple[str, ...]:
    """The last words of a log, safe to show."""
    lines: Iterable[bytes] = (line for line in data.rstrip().split(b"\n") if line.strip())
    return tuple(plain(line, limit=LAST_LINE_LIMIT) for line in list(lines)[-LAST_LINES:])
