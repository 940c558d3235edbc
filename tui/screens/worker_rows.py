"""Workers as lines of a table and cells of a strip: pure functions of the fleet, the runs and the time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from backend.model import Fleet, Slice
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.ssh.roll import Place, place_of
from backend.targets import WorkerRef, workers_of, workers_of_slice
from tui.durations import MINUTE_S, format_duration
from tui.look import state_token
from tui.screens.fleet_detail import ASKED, NOBODY, SILENT, slice_token
from tui.screens.run_rows import detail
from tui.widgets.heat_strip import HeatSlice
from tui.widgets.rows import Cell, Column, Key, Row, number_cell, outcome_cell

if TYPE_CHECKING:
    from backend.runs.manager import Run

COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=30),
    Column("state", "SLICE", min_width=9, max_width=26),
    Column("run", "NEWEST RUN", min_width=10, max_width=22),
    Column("last", "LAST OUTPUT", width=11, align="right"),
    Column("command", "COMMAND", min_width=8, max_width=60, flex=1, priority=2),
    Column("address", "ADDRESS", min_width=9, max_width=16, priority=1),
)


SliceIndex = Mapping[tuple[str, str, str], Slice]
"""By (project, zone, node id)."""
OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def everything(fleet: Fleet) -> list[WorkerRef]:
    """All workers of the fleet, in its order."""
    found = [worker for item in fleet.queued_resources for worker in workers_of(item)]
    return found + [worker for one in fleet.standalone for worker in workers_of_slice(one)]


def slices_of(fleet: Fleet) -> SliceIndex:
    """Slices by (project, zone, node id)."""
    owned = [one for item in fleet.queued_resources for one in item.slices]
    return {(one.project, one.zone, one.node_id): one for one in (*owned, *fleet.standalone)}


class Newest:
    """The newest run of each worker, by address; gathered again only when there are other runs."""

    def __init__(self) -> None:
        self._runs: tuple[Run, ...] = ()
        self._found: dict[str, tuple[Run, WorkerResult]] = {}

    def of(self, runs: Iterable[Run]) -> dict[str, tuple[Run, WorkerResult]]:
        """What is newest of these runs."""
        ordered = tuple(sorted(runs, key=lambda item: item.started_at))
        if ordered != self._runs:
            self._runs = ordered
            self._found = {result.worker.address: (run, result) for run in ordered for result in run.results}
        return self._found


Latest = Mapping[str, tuple["Run", WorkerResult]]
"""The newest run of each worker and what became of it there, by address."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """All that one line shows; equal facts make an equal line."""

    address: str
    state: str
    token: str
    outcome: str
    detail: str
    quiet: str
    quiet_s: float
    command: str
    ip: str


NO_RUN = ("", "", "", -1.0, "")


def _run_facts(worker: WorkerRef, latest: Latest, now_s: float) -> tuple[str, str, str, float, str]:
    """(outcome or phase, detail, quiet in words, quiet in whole seconds, command)."""
    if worker.address not in latest:
        return NO_RUN
    run, result = latest[worker.address]
    command = run.request.title or " ".join(run.request.argv)
    log = run.logs.get(worker.address)
    quiet, quiet_s = "", -1.0
    if log is not None and log.last_at:
        quiet_s = max(0.0, now_s - log.last_at)
        quiet = format_duration(quiet_s)
    pending = result.outcome is Outcome.PENDING
    # As coarse as the words: a second that passes unseen in them needs no new line.
    coarse = quiet_s // 1 if quiet_s < 2 * MINUTE_S else quiet_s // MINUTE_S * MINUTE_S
    return (result.phase.value if pending else result.outcome.value, detail(result), quiet, coarse, command)


def facts(worker: WorkerRef, slices: SliceIndex, latest: Latest, now_s: float, ssh: str = "") -> WorkerFacts:
    """What is known of one worker now; `ssh` is what is said where it does not answer (yet)."""
    one = slices.get((worker.project, worker.zone, worker.node_id))
    if one is None:
        state, token = "gone", "muted"
    elif one.state == "READY" and not one.ready:
        state, token = one.health or one.state, slice_token(one)
    elif ssh:
        state, token = ssh, SILENT if ssh.startswith("no ssh") else ASKED
    else:
        state, token = one.state, state_token(one.state)
    outcome, more, quiet, quiet_s, command = _run_facts(worker, latest, now_s)
    ip = worker.external_ip or worker.internal_ip
    return WorkerFacts(worker.address, state, token, outcome, more, quiet, quiet_s if quiet else -1.0, command, ip)


def make_row(known: WorkerFacts) -> Row:
    """The line of one worker."""
    run: Cell | str = Cell("-", token="muted")
    if known.outcome in OUTCOMES:
        run = outcome_cell(known.outcome, detail=known.detail)
    elif known.outcome:
        run = Cell(known.outcome, token="outcome-pending", glyph="outcome-pending")
    return Row(
        known.address,
        (
            known.address,
            Cell(known.state, token=known.token, glyph=known.token if known.token != "muted" else ""),
            run,
            number_cell(known.quiet_s, known.quiet) if known.quiet else number_cell(None),
            known.command,
            Cell(known.ip, token="muted"),
        ),
    )


AGE_S = 10.0
"""An age is looked at again after half of this to one and a half of it, where it is not on the screen."""
SPREAD = 16
"""Lines take turns in so many parts of that time, so that no tick has all of them to make."""


@dataclass(slots=True)
class _Line:
    """One worker's line, and how long it need not be looked at."""

    worker: WorkerRef
    address: str
    turn: float
    """From 0.5 to 1.5: its part of `AGE_S`."""
    row: Row | None = None
    known: WorkerFacts | None = None
    of: tuple[Run, WorkerResult] | None = None
    """The run that it tells of, and what its words say of it."""
    outcome: Outcome | None = None
    phase: Phase | None = None
    place: Place = ("", "", "", 0)
    ssh: str | None = None
    """What is said of it where ssh does not answer."""
    until: float = 0.0
    """When the age of its output is to be looked at again (epoch seconds)."""


class WorkerRows:
    """Lines that are made again only when their facts change, and looked at only when these can have changed.

    16,384 workers are gone through twice a second. What became of each is always what it is now; how long ago its last
    output came is so for those on the screen, and some seconds old for the others: a fleet whose ages all change every
    second would do nothing else.
    """

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._by_address: dict[str, _Line] = {}
        self._made_for: tuple[object, object] = (None, None)
        self._ssh_version = -1

    def rows(
        self,
        workers: Sequence[WorkerRef],
        slices: SliceIndex,
        latest: Latest,
        now: datetime,
        shown: Iterable[Key] = (),
        ssh: tuple[int, Mapping[Place, str]] = (0, {}),
    ) -> list[Row]:
        """The rows of all workers, in their order.

        Args:
            workers: Another object when the fleet is another, as `slices`.
            shown: Keys of the rows on the screen.
            ssh: A version, and what is said of workers on which ssh does not answer.
        """
        now_s = now.timestamp()
        if self._made_for[0] is not workers or self._made_for[1] is not slices:
            self._made_for = (workers, slices)
            self._begin(workers)
        for key in shown:
            if (line := self._by_address.get(str(key))) is not None and line.of is not None:
                line.until = 0.0
        if ssh[0] != self._ssh_version:
            self._ssh_version, unanswered = ssh
            for line in self._lines:
                if unanswered.get(line.place) != line.ssh:
                    line.ssh, line.until = unanswered.get(line.place), 0.0
        found: list[Row] = []
        for line in self._lines:
            row, of = line.row, line.of
            if (
                row is None
                or now_s >= line.until
                or latest.get(line.address) is not of
                or (of is not None and (of[1].outcome is not line.outcome or of[1].phase is not line.phase))
            ):
                row = self._look(line, slices, latest, now_s)
            found.append(row)
        return found

    def _begin(self, workers: Sequence[WorkerRef]) -> None:
        old, self._lines = self._by_address, []
        for place, worker in enumerate(workers):
            line = _Line(worker, worker.address, 0.5 + place % SPREAD / SPREAD, place=place_of(worker))
            if (before := old.get(line.address)) is not None:
                line.row, line.known, line.ssh = before.row, before.known, before.ssh
            self._lines.append(line)
        self._by_address = {line.address: line for line in self._lines}

    def _look(self, line: _Line, slices: SliceIndex, latest: Latest, now_s: float) -> Row:
        known = facts(line.worker, slices, latest, now_s, line.ssh or "")
        line.of = latest.get(line.address)
        line.until = math.inf
        if line.of is not None:
            _, result = line.of
            line.outcome, line.phase = result.outcome, result.phase
            if known.quiet or not result.ended:
                line.until = now_s + AGE_S * line.turn
        if line.row is None or known != line.known:
            line.known, line.row = known, make_row(known)
        return line.row


def heat(
    workers: Sequence[WorkerRef], slices: SliceIndex, unanswered: Mapping[Place, str] = NOBODY
) -> tuple[list[HeatSlice], dict[str, tuple[int, int]]]:
    """One cell a worker, by slice, and where in them each address is: (place of its slice, place in it)."""
    found: dict[tuple[str, int], list[str]] = {}
    numbers: dict[tuple[str, int], int] = {}
    places: dict[str, tuple[int, int]] = {}
    for worker in workers:
        key = (worker.queued_resource, worker.slice_index)
        one = slices.get((worker.project, worker.zone, worker.node_id))
        tokens = found.setdefault(key, [])
        places[worker.address] = (numbers.setdefault(key, len(numbers)), len(tokens))
        said = unanswered.get(place_of(worker)) if unanswered else None
        if one is None or said is None:
            tokens.append(slice_token(one) if one is not None else "heat-empty")
        else:
            tokens.append(SILENT if said.startswith("no ssh") else ASKED)
    cells = [HeatSlice(f"{name}/{index}", tuple(tokens)) for (name, index), tokens in found.items()]
    return cells, places


def pointed_out(cells: Sequence[HeatSlice], at: tuple[int, int] | None) -> list[HeatSlice]:
    """The same with one worker pointed out."""
    shown = list(cells)
    if at is not None:
        place, cursor = at
        shown[place] = replace(shown[place], cursor=cursor)
    return shown
