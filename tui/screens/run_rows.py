"""A run's workers as rows, cells and groups, and what became of it in words: pure but for reading logs from disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from backend.diagnosis.grouping import OUTPUT_LIMIT, WorkerOutput, differences, group, reference
from backend.outcomes import Outcome
from backend.runs.fanout import FAILURES, WorkerResult
from backend.runs.model import NOT_KEPT, StopReport
from backend.runs.sightings import Sighting
from backend.targets import WorkerRef, fold
from tui.durations import format_duration
from tui.widgets.heat_strip import HeatSlice
from tui.widgets.outcome_groups import OutcomeGroup
from tui.widgets.rows import Cell, Column, Row, number_cell, outcome_cell
from tui.wording import count, size

COLUMNS = (
    Column("worker", "WORKER", min_width=10, max_width=30),
    Column("outcome", "OUTCOME", min_width=12, max_width=24),
    Column("time", "TIME", width=8),
    Column("output", "OUTPUT", width=9, align="right"),
    Column("note", "NOTE", min_width=10, max_width=200, flex=1),
)


def detail(result: WorkerResult) -> str:
    """The number behind an outcome: exit code or signal."""
    if result.outcome is Outcome.FAILED and result.exit_code is not None:
        return f"exit {result.exit_code}"
    return f"SIG{result.signal}" if result.signal else ""


def gaps(results: Iterable[WorkerResult]) -> list[str]:
    """Whose output was not kept whole, and why: what is shown of it has gaps, though its outcome may be fine."""
    torn: dict[str, list[WorkerRef]] = {}
    for result in results:
        if result.error.startswith(NOT_KEPT):
            torn.setdefault(result.error, []).append(result.worker)
    return [f"{' '.join(fold_targets(workers))}: {error}" for error, workers in torn.items()]


def rows(results: Iterable[WorkerResult], now: datetime, notes: Mapping[str, str] | None = None) -> list[Row]:
    """One row a worker.

    Args:
        results: What became of each.
        now: For those that still run.
        notes: What is told of a worker by its address, where nothing else is.
    """
    found = []
    for result in results:
        took = ((result.ended_at or now) - result.started_at).total_seconds() if result.started_at else None
        state = outcome_cell(result.outcome, detail=detail(result))
        if result.outcome is Outcome.PENDING:
            state = Cell(result.phase.value, token="outcome-pending", glyph="outcome-pending")
        found.append(
            Row(
                result.worker.address,
                (
                    result.worker.address,
                    state,
                    number_cell(took, format_duration(took) if took is not None else "-"),
                    number_cell(result.output_bytes, size(result.output_bytes)),
                    result.error or (notes or {}).get(result.worker.address, "") or result.note,
                ),
            )
        )
    return found


def heat(results: Iterable[WorkerResult]) -> list[HeatSlice]:
    """One cell a worker, by slice."""
    slices: dict[str, list[str]] = {}
    for result in results:
        token = f"outcome-{result.outcome.value.replace('_', '-')}"
        slices.setdefault(f"{result.worker.queued_resource}/{result.worker.slice_index}", []).append(token)
    return [HeatSlice(label, tuple(tokens)) for label, tokens in slices.items()]


def phase_counts(results: Iterable[WorkerResult]) -> Counter[str]:
    """How many are where: outcomes of those that ended, of the others what they are at."""
    return Counter(
        result.phase.value if result.outcome is Outcome.PENDING else result.outcome.value.replace("_", " ")
        for result in results
    )


def progress_words(results: Iterable[WorkerResult]) -> str:
    """The same in words."""
    return ", ".join(f"{number} {word}" for word, number in phase_counts(results).items())


def tail(path: Path, limit: int = OUTPUT_LIMIT) -> bytes:
    """The end of a log, from the beginning of a line. Reads from disk: call it in a thread."""
    try:
        with path.open("rb") as file:
            left_out = max(0, path.stat().st_size - limit)
            file.seek(left_out)
            end = file.read(limit)
            # One line that is longer than all of it is shown by its end.
            return (end.partition(b"\n")[2] or end) if left_out else end
    except FileNotFoundError:
        # A worker that never began has no log.
        return b""


def _left_out(path: Path) -> int:
    """Bytes of a log before the end that is shown."""
    try:
        return max(0, path.stat().st_size - OUTPUT_LIMIT)
    except FileNotFoundError:
        return 0


def gather(results: Sequence[WorkerResult], paths: Sequence[Path]) -> list[OutcomeGroup]:
    """Groups of workers that ended alike with the same output. Reads logs from disk: call it in a thread.

    Args:
        results: One entry a worker.
        paths: Their logs, in the same order.
    """
    ended = [result for result in results if result.ended]
    by_path = {result.worker.address: path for result, path in zip(results, paths, strict=True)}
    known = [result for result in ended if result.outcome in FAILURES]
    first = min(known, key=lambda item: (item.ended_at is None, item.ended_at), default=None)
    by_address = {result.worker.address: result for result in ended}
    outputs = [
        WorkerOutput(address, result.outcome, result.exit_code, tail(by_path[address]))
        for address, result in by_address.items()
    ]
    found = []
    groups = group(outputs)
    rule, differ = reference(groups), differences(groups)
    for each in groups:
        head = by_address[each.addresses[0]]
        text = each.text or head.error
        found.append(
            OutcomeGroup(
                outcome=each.outcome.value,
                count=len(each.addresses),
                members=fold(each.addresses),
                detail=detail(head),
                lines=tuple(text.split("\n")) if text else (),
                cut_bytes=_left_out(by_path[each.addresses[0]]),
                rule=fold(rule.addresses) if rule is not None and each in differ else "",
                differs=differ.get(each, ()),
                is_first_failure=first is not None and first.worker.address in each.addresses,
                first_member=first.worker.address
                if first is not None and first.worker.address in each.addresses
                else each.addresses[0],
            )
        )
    return sorted(found, key=lambda item: (item.outcome == Outcome.OK, not item.is_first_failure, -item.count))


def stop_words(report: StopReport) -> str:
    """What became of stopping, in a sentence."""
    if report.clean:
        return f"Stopped on {count(len(report.stopped), 'worker')}; nothing of it is left there."
    parts = [f"stopped on {count(len(report.stopped), 'worker')}"] if report.stopped else []
    parts += [f"{address} still has pids {', '.join(map(str, pids))}" for address, pids in report.survivors]
    parts += [f"{address} could not be checked: {why}" for address, why in report.unverified]
    return "; ".join(parts) + "."


def fold_targets(workers: Iterable[WorkerRef]) -> list[str]:
    """Addresses of workers, as short as targets can be."""
    addresses = [worker.address for worker in workers]
    return fold(addresses).split() if addresses else []


def seen_lines(sightings: Sequence[Sighting], suspicion: str, *, most: int = 3) -> list[str]:
    """What the logs of a living run say has failed, each failure once with its workers, and whom that speaks against."""
    groups: dict[str, list[Sighting]] = {}
    for each in sightings:
        groups.setdefault(each.finding.id, []).append(each)
    lines = [suspicion] if suspicion else []
    for same in list(groups.values())[:most]:
        first = same[0]
        if first.text == suspicion:
            continue
        where = f"{first.worker}, line {first.line + 1}"
        more = f" (and on {count(len(same) - 1, 'more worker')})" if len(same) > 1 else ""
        lines.append(f"seen: {where}{more}: {first.finding.meaning}")
    if len(groups) > most:
        lines.append(f"and {count(len(groups) - most, 'more known failure')}")
    return lines
