"""Readings of what no benchmark was launched for: any run, live or over, and any log file."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from backend.bench.live import READINGS_KEPT, Bench, FollowedRun
from backend.bench.model import BenchRecord, BenchRequest, BenchState, BenchSummary
from backend.bench.points import point_of
from backend.outcomes import OperatorError
from backend.sanitize import LineSplitter, plain
from jobs.readings import Reading, ReadingParser
from jobs.statistics import statistics

FILE_BLOCK_BYTES = 1 << 20


def read_run(
    run: FollowedRun,
    *,
    pattern: str | None = None,
    peak_tflops_per_device: float | None = None,
    platform: str = "",
) -> Bench:
    """The readings of any run, live or over: refresh it on a clock, or once for one that has ended.

    Args:
        pattern: As `ReadingParser` takes it; the known kinds of lines when left out.
        platform: `cpu` where that is known: then no utilisation is told.

    Raises:
        ValueError: The pattern is wrong.
    """
    first = run.workers[0]
    record = BenchRecord(
        id=run.id,
        request=BenchRequest(),
        target=first.queued_resource,
        project=first.project,
        zone=first.zone,
        queued_resource=first.queued_resource,
        accelerator_type="",
        slices=len({worker.slice_index for worker in run.workers}),
        devices=0,
        platform=platform,
        state=BenchState.STARTING,
        context="",
        started_at=run.started_at,
        peak_tflops_per_device=peak_tflops_per_device,
    )
    ReadingParser(pattern=pattern)
    return Bench(run, record, pattern=pattern)


def read_file(
    path: Path, *, pattern: str | None = None, peak_tflops_per_device: float | None = None, limit: int = READINGS_KEPT
) -> BenchRecord:
    """The readings of a log file as a benchmark that is over. Reads all of it: call it in a thread.

    Args:
        limit: The newest readings that are kept.

    Raises:
        OperatorError: The file can't be read, or holds no reading.
        ValueError: The pattern is wrong.
    """
    parser = ReadingParser(peak_tflops_per_device, pattern)
    splitter = LineSplitter()
    readings: deque[Reading] = deque(maxlen=limit)
    try:
        with path.open("rb") as file:
            while block := file.read(FILE_BLOCK_BYTES):
                for line in splitter.feed(block):
                    readings.extend(parser.feed(line.decode("utf-8", errors="replace")))
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise OperatorError(
            f"{plain(str(path))} can't be read: {error.strerror}.", "Write the path of a log."
        ) from error
    rest = splitter.flush()
    if rest is not None:
        readings.extend(parser.feed(rest.decode("utf-8", errors="replace")))
    if not readings:
        raise OperatorError(
            f"{plain(str(path))} holds no step of a known kind.", "Give a pattern: `:plot FILE -- PATTERN`."
        )
    tells = any(each.step is not None for each in readings)
    by_step = {
        each.step if each.step is not None else place: each
        for place, each in enumerate(readings)
        if each.step is not None or not tells
    }
    points = tuple(point_of(step, [by_step[step]]) for step in sorted(by_step))
    return BenchRecord(
        id=path.name,
        request=BenchRequest(),
        target=plain(str(path)),
        project="",
        zone="",
        queued_resource="",
        accelerator_type="",
        slices=0,
        devices=0,
        platform="",
        state=BenchState.DONE,
        context="",
        started_at=changed_at,
        summary=BenchSummary.of(statistics(readings, peak_tflops_per_device)),
        points=points,
        peak_tflops_per_device=peak_tflops_per_device,
    )
