"""Known failures seen while a run lives: which worker's log said what, on which line, and whom that speaks against.

The verdict of a run that has ended is attribution's. Here logs are looked into as they grow, a bounded number of bytes at a
time: a flood is passed over but for its newest part, as what an operator must know stands at the end of a log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backend.diagnosis.signatures import Finding, blamed_tasks, findings_in, match_line
from backend.outcomes import Outcome
from backend.runs.fanout import WorkerResult, first_failure
from backend.runs.model import RunRequest

LOOK_BYTES = 256 * 1024
"""At one look over all logs together: 5 ms of work where nothing matches."""
LOOK_BYTES_EACH = 32 * 1024
"""Of one log at one look, its newest; a stack trace of every thread is some ten KiB."""
LOOK_LOGS = 128
"""Logs that are opened at one look: some 4 ms."""
SIGHTINGS_EACH = 16
"""Of one worker at most: there are no more signatures in an honest log, and a hostile one is not collected."""

PROCESS_VARIABLES = ("SLICETOWER_PROCESS_ID", "JAX_PROCESS_ID")
"""A worker's process number, where the run sets it; else processes are numbered in the order of the workers."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A known failure in one worker's log, where it was first seen."""

    place: int
    """Of the worker in the run."""
    worker: str
    """Its address."""
    line: int
    """Its number in the worker's log, from 0."""
    finding: Finding
    blames: tuple[int, ...] = ()
    """Places of the workers that the lines around it name as dead or missing."""

    @property
    def text(self) -> str:
        """For people, who count lines from 1."""
        return f"{self.worker}, line {self.line + 1}: {self.finding.meaning}"


def from_record(place: int, worker: str, line: int, text: str, blames: Iterable[int]) -> Sighting | None:
    """As it was kept; None when this release knows no such failure any more."""
    finding = match_line(text.encode())
    return None if finding is None else Sighting(place, worker, line, finding, tuple(blames))


class GrowingLog(Protocol):
    """The part of backend.logs.worker_log.WorkerLog that is needed here."""

    path: Path
    size: int

    @property
    def ended(self) -> int: ...


@dataclass(slots=True)
class _Place:
    looked: int = 0
    """Bytes of the log that were looked at or passed over."""
    known: set[str] = field(default_factory=set)


class Lookout:
    """Looks into the logs of one run as they grow.

    Args:
        request: Of the run.
        results: Of all its workers, in its order.
    """

    def __init__(self, request: RunRequest, results: Sequence[WorkerResult]) -> None:
        self._request = request
        self._results = results
        self._places: dict[int, _Place] = {}
        self._next = 0
        self._numbers: dict[str, dict[int, int]] | None = None
        self.sightings: list[Sighting] = []
        """In the order in which they were seen; each signature once a worker."""

    def know(self, sightings: Iterable[Sighting]) -> None:
        """Takes what an earlier console saw."""
        for each in sightings:
            known = self._places.setdefault(each.place, _Place()).known
            if each.finding.id not in known:
                known.add(each.finding.id)
                self.sightings.append(each)

    def look(
        self, logs: Sequence[tuple[int, GrowingLog]], *, budget: int = LOOK_BYTES, most: int = LOOK_LOGS
    ) -> list[Sighting]:
        """Looks at what is new, and returns what was not seen before.

        Args:
            logs: (place, log) of those that exist. Each look begins where the last one ran out of budget.
            budget: Bytes in all.
            most: Logs in all.
        """
        fresh: list[Sighting] = []
        count = len(logs)
        self._next = self._next % count if count else 0
        for step in range(count):
            place, log = logs[(self._next + step) % count]
            state = self._places.setdefault(place, _Place())
            if log.size <= state.looked:
                continue
            if budget <= 0 or most <= 0:
                self._next = (self._next + step) % count
                break
            most -= 1
            data = self._read(state, log)
            budget -= len(data)
            fresh.extend(self._search(place, state, data, log.ended))
        self.sightings.extend(fresh)
        return fresh

    def _read(self, state: _Place, log: GrowingLog) -> bytes:
        """Whole lines, the newest LOOK_BYTES_EACH at most."""
        start = max(state.looked, log.size - LOOK_BYTES_EACH)
        try:
            with log.path.open("rb") as stream:
                stream.seek(start)
                data = stream.read(log.size - start)
        except OSError:
            return b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) >= LOOK_BYTES_EACH:
            state.looked = log.size
            return b""
        passed = start > state.looked
        state.looked = start + len(whole)
        return whole.partition(b"\n")[2] if passed else whole

    def _search(self, place: int, state: _Place, data: bytes, ended: int) -> Iterable[Sighting]:
        first = ended - data.count(b"\n")
        blames: tuple[int, ...] | None = None
        for number, finding in findings_in(data):
            if finding.id in state.known:
                continue
            if len(state.known) >= SIGHTINGS_EACH:
                return
            state.known.add(finding.id)
            if blames is None:
                blames = self._blamed(place, data)
            yield Sighting(place, self._results[place].worker.address, first + number, finding, blames)

    def _blamed(self, place: int, data: bytes) -> tuple[int, ...]:
        if self._numbers is None:
            self._numbers = process_numbers(self._request, self._results)
        own = self._numbers[self._results[place].worker.queued_resource]
        return tuple(own[number] for number in blamed_tasks(data) if number in own and own[number] != place)


def process_numbers(request: RunRequest, results: Sequence[WorkerResult]) -> dict[str, dict[int, int]]:
    """By queued resource: process number -> place. Each request is a job of its own."""
    numbers: dict[str, dict[int, int]] = {}
    for place in sorted(range(len(results)), key=lambda each: results[each].worker.order):
        worker = results[place].worker
        own = numbers.setdefault(worker.queued_resource, {})
        told = request.worker_environment.get(worker.address, {})
        given = next((told[name] for name in PROCESS_VARIABLES if told.get(name, "").isdigit()), "")
        own[int(given) if given else len(own)] = place
    return numbers


def suspicion(request: RunRequest, results: Sequence[WorkerResult], sightings: Iterable[Sighting]) -> str:
    """Whom all that was seen so far speaks against, in one sentence; empty when it speaks against nobody.

    Whom others name counts more than who died first, and both more than who complains.
    """
    every = list(sightings)
    votes = Counter(named for each in every for named in set(each.blames))
    if votes:
        most = max(votes.values())
        place = min((each for each, count in votes.items() if count == most), key=lambda each: _died(results[each]))
        voters = {each.place for each in every if place in each.blames}
        count = f"{len(voters)} other{'s' if len(voters) != 1 else ''}"
        return f"{results[place].worker.address} is named as dead or missing by {count}{_fate(results[place])}."
    causes = [each for each in every if not each.finding.symptom]
    if causes:
        first = min(causes, key=lambda each: _died(results[each.place]))
        return first.text
    died = first_failure(results)
    if died is not None and (every or request.is_gang):
        return f"{died.worker.address} was the first to fail{_fate(died)}."
    return ""


def _died(result: WorkerResult) -> float:
    return result.ended_at.timestamp() if result.ended_at is not None else float("inf")


def _fate(result: WorkerResult) -> str:
    match result.outcome:
        case Outcome.PENDING:
            return ""
        case Outcome.SIGNALLED:
            return f" (signal {result.signal})"
        case Outcome.FAILED:
            return f" (code {result.exit_code})"
        case _:
            return f" ({result.outcome.value.replace('_', ' ')})"
