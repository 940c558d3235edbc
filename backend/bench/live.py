"""A benchmark while it runs: readings by worker and step, read from each worker's log as it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from backend.bench.model import BenchError, BenchRecord, BenchState, BenchSummary, StepPoint
from backend.bench.points import largest_of, median_of, number_of, point_of, whole
from backend.logs.worker_log import WorkerLog
from backend.outcomes import Outcome
from backend.runs.fanout import WorkerResult
from backend.runs.model import RunState, StopReport
from backend.sanitize import plain
from backend.targets import WorkerRef
from jobs.readings import Reading, ReadingParser
from jobs.statistics import distribution, percentile, rate_words, statistics

LINES_PER_REFRESH = 20_000
"""Lines of one log that are read at a time, so that a flood never holds the loop for long."""
READINGS_KEPT = 100_000
"""Of one worker; the oldest go first."""


@dataclass(frozen=True, slots=True)
class ToldReading:
    """One reading and where it stands."""

    step: int | None
    """As it is counted; None for what counts as no step."""
    address: str
    line: int
    """Of the worker's log, from 0."""
    reading: Reading


class FollowedRun(Protocol):
    """What a benchmark needs of a run (`backend.runs.manager.Run`)."""

    @property
    def id(self) -> str: ...
    @property
    def workers(self) -> Sequence[WorkerRef]: ...
    @property
    def results(self) -> Sequence[WorkerResult]: ...
    @property
    def logs(self) -> Mapping[str, WorkerLog]: ...
    @property
    def state(self) -> RunState: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def first_failure(self) -> WorkerResult | None: ...
    @property
    def started_at(self) -> datetime: ...
    @property
    def ended_at(self) -> datetime | None: ...
    def log(self, index: int) -> WorkerLog: ...
    def has_log(self, index: int) -> bool: ...
    async def wait(self) -> None: ...
    async def stop(self) -> StopReport: ...


class WorkerReadings:
    """One worker's log, parsed as far as it has come."""

    def __init__(self, log: WorkerLog, peak_tflops_per_device: float | None, pattern: str | None = None) -> None:
        self.log = log
        self.parser = ReadingParser(peak_tflops_per_device, pattern)
        self.readings: list[Reading] = []
        self.lines: list[int] = []
        """Of each reading: where in the log it stands, from 0."""
        self.steps: list[int | None] = []
        """Of each reading: the step that it counts as."""
        self._next_line = 0
        self._version = -1
        self._finished = False
        self._tells_steps = False
        self._unnumbered = 0

    def _step_of(self, reading: Reading) -> int | None:
        """The step that a reading is of: the one it tells, or its place among those of a log that tells none.

        None for what a log that numbers its steps says beside them, such as upstream's last line.
        """
        if reading.step is not None:
            self._tells_steps = True
            return reading.step
        if self._tells_steps:
            return None
        self._unnumbered += 1
        return self._unnumbered - 1

    def read(self, *, to_the_end: bool = False) -> list[tuple[int | None, Reading]]:
        """New readings since the last call, each with the step that it counts as.

        The line that is being written is left, unless nothing will come any more.
        """
        if self._finished or (self._version == self.log.version and not to_the_end):
            return []
        self._version = self.log.version
        end = self.log.total if to_the_end else self.log.ended
        stop = min(end, self._next_line + LINES_PER_REFRESH)
        fresh: list[Reading] = []
        for number in range(self._next_line, stop):
            raw, _ = self.log.raw_line(number)
            if raw:
                found = self.parser.feed(raw.decode("utf-8", errors="replace"))
                fresh.extend(found)
                self.lines.extend([number] * len(found))
                self.steps.extend(self._step_of(reading) for reading in found)
        self._next_line = stop
        if stop < end:
            self._version = -1
        elif to_the_end:
            self._finished = True
        self.readings.extend(fresh)
        steps = self.steps[len(self.steps) - len(fresh) :]
        surplus = len(self.readings) - READINGS_KEPT
        if surplus > 0:
            del self.readings[:surplus], self.lines[:surplus], self.steps[:surplus]
        return list(zip(steps, fresh, strict=True))

    @property
    def is_behind(self) -> bool:
        """There are lines that were not read yet."""
        return not self._finished and self._version != self.log.version


class Bench:
    """A benchmark of this console: follow `version`; everything else is as of the last `refresh`.

    Any run whose programs print readings can be wrapped in one, not only our own program's.
    """

    def __init__(self, run: FollowedRun, record: BenchRecord, *, pattern: str | None = None) -> None:
        self.run = run
        self.version = 0
        self._record = record
        self._pattern = pattern
        self._workers: dict[str, WorkerReadings] = {}
        self._by_step: dict[int, dict[str, Reading]] = {}
        self._points: dict[int, StepPoint] = {}
        self._ordered: list[StepPoint] = []
        self._stale: set[int] = set()
        self._messages = 0
        self._state = BenchState.STARTING
        self.gave_up = False
        """The manager, not the operator, stopped what was left after a failure."""
        self.refresh()

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def state(self) -> BenchState:
        return self._state

    @property
    def readings(self) -> Mapping[str, list[Reading]]:
        """By worker address, in the order in which they were told."""
        return {address: each.readings for address, each in self._workers.items()}

    def told(self, limit: int) -> list[ToldReading]:
        """The newest readings of all workers with their places, by step, then by worker."""
        found = [
            ToldReading(step, address, line, reading)
            for address, each in self._workers.items()
            for step, line, reading in zip(
                each.steps[-limit:], each.lines[-limit:], each.readings[-limit:], strict=True
            )
        ]
        order = {each.address: place for place, each in enumerate(self.run.workers)}
        found.sort(key=lambda each: (each.step if each.step is not None else -1, order[each.address]))
        return found[-limit:]

    def line_of(self, told: ToldReading) -> bytes:
        """The line that a reading was read from; empty when the log no longer keeps it."""
        raw, _ = self._workers[told.address].log.raw_line(told.line)
        return raw or b""

    @property
    def points(self) -> Sequence[StepPoint]:
        """By step, warm-ups and what was set aside included (`set_aside` says so)."""
        return self._ordered

    @property
    def record(self) -> BenchRecord:
        """As the journal would keep it now."""
        return replace_record(self._record, self)

    def point(self, step: int) -> StepPoint | None:
        return self._points.get(step)

    def worker_step_time(self, address: str) -> float | None:
        """Median step time of one worker, in seconds."""
        found = self._workers.get(address)
        spread = distribution(
            each.step_time_s
            for each in (found.readings if found else ())
            if each.counts and each.step_time_s is not None
        )
        return spread.median if spread else None

    def messages(self, kind: str) -> dict[str, dict[str, Any]]:
        """Worker address -> its last message of that kind (`device`, `compiled`, `summary`, `error`)."""
        told = {}
        for address, each in self._workers.items():
            message = each.parser.message(kind)
            if message is not None:
                told[address] = message
        return told

    @property
    def errors(self) -> tuple[BenchError, ...]:
        """What the programs told before they ended, in worker order; the run's first failure says who was first."""
        return tuple(
            BenchError(
                address,
                plain(str(error.get("kind", ""))),
                plain(str(error.get("what", "")), limit=2000),
                plain(str(error.get("cure", ""))),
            )
            for address, error in self.messages("error").items()
        )

    def refresh(self) -> bool:
        """Reads what the logs have new. True when anything changed. No await, no thread: call it on a clock."""
        for index, result in enumerate(self.run.results):
            address = result.worker.address
            told = result.output_bytes or address in self.run.logs
            if address not in self._workers and told and self.run.has_log(index):
                log = self.run.log(index)
                self._workers[address] = WorkerReadings(log, self._record.peak_tflops_per_device, self._pattern)
        ended = self.run.state == RunState.ENDED
        changed = False
        for address, worker in self._workers.items():
            for step, reading in worker.read(to_the_end=ended):
                changed = True
                if step is not None:
                    self._by_step.setdefault(step, {})[address] = reading
                    self._stale.add(step)
        messages = sum(len(each.parser.messages) for each in self._workers.values())
        state = self._state_now()
        if changed or messages != self._messages or state != self._state:
            self._messages, self._state = messages, state
            self._update_points()
            self.version += 1
            return True
        return False

    @property
    def is_behind(self) -> bool:
        """There are lines that were not read yet; call `refresh` again."""
        return any(each.is_behind for each in self._workers.values())

    def _update_points(self) -> None:
        if not self._stale:
            return
        for step in self._stale:
            self._points[step] = point_of(step, list(self._by_step[step].values()))
        self._stale.clear()
        self._ordered = [self._points[step] for step in sorted(self._points)]

    def _state_now(self) -> BenchState:
        if self.run.state == RunState.ENDED:
            if all(result.outcome == Outcome.OK for result in self.run.results):
                return BenchState.DONE
            return BenchState.STOPPED if self.run.interrupted and not self.gave_up else BenchState.FAILED
        if self.run.state == RunState.DETACHED:
            return BenchState.DETACHED
        if self._by_step:
            return BenchState.STEPPING
        joined = self.messages("device")
        if len(joined) >= len(self.run.workers) > 0:
            return BenchState.COMPILING
        return BenchState.JOINING if joined else BenchState.STARTING

    def summary(self) -> BenchSummary:
        """Figures of all counted steps so far."""
        figures = statistics(self._ordered, self._record.peak_tflops_per_device, called="steps")
        rates = figures.tflops_per_device
        compiled = list(self.messages("compiled").values())
        finished = list(self.messages("summary").values())
        ratio = next((number_of(each, "claimed_flops_per_device") for each in compiled), None)
        own = next((number_of(each, "flops_per_device") for each in compiled), None)
        slowest, slowest_ratio = self._slowest()
        devices = self._record.devices
        return replace(
            BenchSummary.of(figures),
            claimed_tflops_per_device=rates.median * ratio / own if rates and ratio and own else None,
            tflops_total=rates.median * devices if rates and devices else None,
            mfu=figures.mfu if self._is_tpu else None,
            exposed_communication=median_of(finished, "exposed_communication"),
            compile_s=largest_of(compiled, "compile_s"),
            hbm_peak_bytes=whole(largest_of(finished, "hbm_peak_bytes")),
            hbm_limit_bytes=whole(largest_of(finished, "hbm_limit_bytes")),
            slowest_worker=slowest,
            slowest_ratio=slowest_ratio,
            compiler_ratio=median_of(compiled, "compiler_ratio"),
        )

    @property
    def _is_tpu(self) -> bool:
        told = self.messages("device")
        platforms = {str(each.get("platform", "")) for each in told.values()} or {self._record.platform}
        return platforms <= {"tpu", ""}

    def versions(self) -> dict[str, str]:
        """jax, jaxlib, libtpu, Python and device kind, as the first worker told them."""
        first = next(iter(self.messages("device").values()), {})
        names = ("jax", "jaxlib", "libtpu", "python", "kind", "platform")
        return {name: plain(str(first[name])) for name in names if first.get(name)}

    def _slowest(self) -> tuple[str, float | None]:
        medians = [
            (value, address) for address in self._workers if (value := self.worker_step_time(address)) is not None
        ]
        if len(medians) < 2:
            return "", None
        middle = percentile(sorted(value for value, _ in medians), 0.5)
        value, address = max(medians)
        return address, value / middle

    def words(self) -> str:
        """Where it is, in one line: every figure of the plot in words."""
        figures = self.summary()
        if figures.step_time_s is None:
            joined = len(self.messages("device"))
            return f"{self._state.value}: {joined} of {len(self.run.workers)} workers have found their devices"
        wanted = f" of {self._record.request.steps}" if self._record.program_digest else ""
        text = f"{self._state.value}: {figures.steps}{wanted} steps, {figures.step_time_s:.4g} s a step"
        if figures.tflops_per_device is not None:
            text += f", {rate_words(figures.tflops_per_device)} a device"
        if figures.mfu is not None:
            text += f" ({figures.mfu:.1%} of peak)"
        if figures.exposed_communication is not None:
            text += f", {max(0.0, figures.exposed_communication):.0%} exposed communication"
        return f"{text}. {figures.error}" if figures.error else text


def replace_record(record: BenchRecord, bench: Bench) -> BenchRecord:
    """The record with what is known now."""
    versions = bench.versions()
    return replace(
        record,
        state=bench.state,
        ended_at=bench.run.ended_at,
        versions=versions or record.versions,
        platform=versions.get("platform", record.platform),
        summary=bench.summary(),
        points=tuple(bench.points),
        errors=bench.errors,
    )
