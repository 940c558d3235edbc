"""Readings of what no benchmark was launched for: any run, live or over, and any log file."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from backend.bench.live import READINGS_KEPT, Bench, FollowedRun, ToldReading
from backend.bench.model import BenchRecord, BenchRequest, BenchState, BenchSummary
from backend.bench.points import point_of
from backend.outcomes import OperatorError
from backend.sanitize import TAIL_LIMIT, LineSplitter, plain
from jobs.readings import Reading, ReadingParser
from jobs.statistics import statistics

FILE_BLOCK_BYTES = 1 << 20
CONTEXT_LINES = 12
"""Before and after the line of a reading, where it is shown in its log."""


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


@dataclass(frozen=True, slots=True)
class Context:
    """Lines around a reading."""

    number: int
    """Of the file, from 0."""
    text: str


class FileReadings:
    """The readings of a log file, each with its line: what `Bench` is for a run, and never changes."""

    def __init__(
        self, path: Path, record: BenchRecord, told: Sequence[ToldReading], blocks: Sequence[tuple[int, int]]
    ) -> None:
        self.id = path.name
        self.version = 0
        self.is_behind = False
        self.record = record
        self._path = path
        self._told = told
        self._blocks = blocks
        """(number of the first line that begins in it or goes on there, offset) of each block that was read."""

    def refresh(self) -> bool:
        return False

    def told(self, limit: int) -> Sequence[ToldReading]:
        """The newest readings, in the order of their lines."""
        return self._told[-limit:]

    def line_of(self, told: ToldReading) -> bytes:
        """The line that a reading was read from; empty when the file no longer has it."""
        found = [each for each in self.around(told, 0) if each.number == told.line]
        return found[0].text.encode() if found else b""

    def around(self, told: ToldReading, lines: int = CONTEXT_LINES) -> list[Context]:
        """The line of a reading with so many before and after it, as the file is now; none when it can't be read."""
        first, last = max(told.line - lines, 0), told.line + lines
        place = max(bisect_right(self._blocks, (first, -1)) - 1, 0)
        number, offset = self._blocks[place]
        found: list[Context] = []
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                while number <= last and (piece := file.readline(TAIL_LIMIT)):
                    if number >= first:
                        text = piece.rstrip(b"\r\n").decode("utf-8", errors="replace")
                        if found and found[-1].number == number:
                            found[-1] = Context(number, found[-1].text + text)
                        else:
                            found.append(Context(number, text))
                    number += piece.endswith(b"\n")
        except OSError:
            return []
        return found


def read_log(
    path: Path, *, pattern: str | None = None, peak_tflops_per_device: float | None = None, limit: int = READINGS_KEPT
) -> FileReadings:
    """The readings of a log file as a benchmark that is over. Reads all of it: call it in a thread.

    Args:
        limit: The newest readings that are kept.

    Raises:
        OperatorError: The file can't be read, or holds no reading.
        ValueError: The pattern is wrong.
    """
    parser = ReadingParser(peak_tflops_per_device, pattern)
    splitter = LineSplitter()
    placed: deque[tuple[int, Reading]] = deque(maxlen=limit)
    blocks: list[tuple[int, int]] = []
    number = offset = 0
    try:
        with path.open("rb") as file:
            while block := file.read(FILE_BLOCK_BYTES):
                blocks.append((number, offset))
                ended = block.count(b"\n")
                # What comes after the ended ones is the part of a line that is too long to be waited for.
                for place, line in enumerate(splitter.feed(block)):
                    at = number + min(place, ended)
                    placed.extend((at, each) for each in parser.feed(line.decode("utf-8", errors="replace")))
                number += ended
                offset += len(block)
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise OperatorError(
            f"{plain(str(path))} can't be read: {error.strerror}.", "Write the path of a log."
        ) from error
    rest = splitter.flush()
    if rest is not None:
        placed.extend((number, each) for each in parser.feed(rest.decode("utf-8", errors="replace")))
    readings = [reading for _, reading in placed]
    if not readings:
        raise OperatorError(
            f"{plain(str(path))} holds no step of a known kind.", "Give a pattern: `:plot FILE -- PATTERN`."
        )
    tells = any(each.step is not None for each in readings)
    # A log that numbers its steps says other things beside them, such as upstream's last line: those are no step.
    steps = [each.step if each.step is not None or tells else place for place, each in enumerate(readings)]
    by_step = {step: each for step, each in zip(steps, readings, strict=True) if step is not None}
    points = tuple(point_of(step, [by_step[step]]) for step in sorted(by_step))
    record = BenchRecord(
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
    told = [ToldReading(step, path.name, line, reading) for step, (line, reading) in zip(steps, placed, strict=True)]
    return FileReadings(path, record, told, blocks)
