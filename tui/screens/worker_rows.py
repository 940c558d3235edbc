"""Workers as lines of a table and cells of a strip: pure functions of the fleet, the runs and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from backend.model import Fleet, Slice
from backend.outcomes import Outcome
from backend.runs.fanout import WorkerResult
from backend.targets import WorkerRef, workers_of, workers_of_slice
from tui.durations import MINUTE_S, format_duration
from tui.look import state_token
from tui.screens.fleet_detail import slice_token
from tui.screens.run_rows import detail
from tui.widgets.heat_strip import HeatSlice
from tui.widgets.rows import Cell, Column, Row, RowKeeper, number_cell, outcome_cell

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


def newest(runs: Iterable[Run]) -> dict[str, tuple[Run, WorkerResult]]:
    """The newest run of each worker, by address."""
    found: dict[str, tuple[Run, WorkerResult]] = {}
    for run in sorted(runs, key=lambda item: item.started_at):
        for result in run.results:
            found[result.worker.address] = (run, result)
    return found


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


def facts(worker: WorkerRef, slices: SliceIndex, latest: Latest, now_s: float) -> WorkerFacts:
    """What is known of one worker now."""
    one = slices.get((worker.project, worker.zone, worker.node_id))
    if one is None:
        state, token = "gone", "muted"
    elif one.state == "READY" and not one.ready:
        state, token = one.health or one.state, slice_token(one)
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


class WorkerRows:
    """Lines that are made again only when their facts change: 16,384 of them are looked at twice a second."""

    def __init__(self) -> None:
        self._keeper = RowKeeper[WorkerFacts](lambda known: known.address, lambda known: known, make_row)

    def rows(self, workers: Iterable[WorkerRef], slices: SliceIndex, latest: Latest, now: datetime) -> list[Row]:
        now_s = now.timestamp()
        return self._keeper.rows(facts(worker, slices, latest, now_s) for worker in workers)


def heat(workers: Sequence[WorkerRef], slices: SliceIndex, cursor: str) -> list[HeatSlice]:
    """One cell a worker, by slice, the cursor's pointed out."""
    found: dict[tuple[str, int], list[str]] = {}
    pointed: dict[tuple[str, int], int] = {}
    for worker in workers:
        key = (worker.queued_resource, worker.slice_index)
        one = slices.get((worker.project, worker.zone, worker.node_id))
        tokens = found.setdefault(key, [])
        if worker.address == cursor:
            pointed[key] = len(tokens)
        tokens.append(slice_token(one) if one is not None else "heat-empty")
    return [
        HeatSlice(f"{name}/{index}", tuple(tokens), pointed.get((name, index)))
        for (name, index), tokens in found.items()
    ]
