"""The order in which workers are started, and when starting stops: batches, failure limits, the deadlock detector.

No I/O here. The unit is workers. A batch starts when the one before it has ended, which is gcloud's meaning of
`--batch-size`; inside a batch everything runs at once.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.outcomes import ExitCode, OperatorError, Outcome
from backend.targets import WorkerRef

DEADLOCK_QUIET_S = 60.0
"""No exit and no output for this long, with workers still unstarted: they may be waiting for each other."""

BATCH_CURE = "Write --batch-size 4, --batch-size all, or a list such as --batch-size 1,5,25%."

_COUNT = re.compile(r"([0-9]{1,9})(%?)")

FAILURES = frozenset(
    {Outcome.FAILED, Outcome.SIGNALLED, Outcome.TIMED_OUT, Outcome.UNREACHABLE, Outcome.UNKNOWN},
)
"""What counts against a failure limit: everything that was tried and is not known to be well."""
RETRIED = (FAILURES - {Outcome.UNKNOWN}) | {Outcome.NOT_STARTED}
"""What a retry runs again. Unknown outcomes only on request: the command may have run, or still run."""


class Phase(StrEnum):
    """Where one worker of a run is, for the screen; the outcome has the last word."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    SHIPPING = "shipping"
    SETUP = "setup"
    STARTING = "starting"
    RUNNING = "running"
    RECONNECTING = "reconnecting"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class WorkerResult:
    """One worker of a run, live: the run's `version` rises with every change of it."""

    worker: WorkerRef
    outcome: Outcome = Outcome.PENDING
    phase: Phase = Phase.WAITING
    exit_code: int | None = None
    signal: str | None = None
    """The signal's name without SIG, such as KILL."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    output_bytes: int = 0
    error: str = ""
    """One sentence, safe to show; empty when all is well."""
    note: str = ""
    """What is being waited for right now; empty when nothing is."""
    process_group: int = 0
    """The remote process group, 0 until it is known."""

    @property
    def ended(self) -> bool:
        return self.outcome is not Outcome.PENDING


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of workers, or a share of all of them."""

    value: int
    percent: bool = False

    def of(self, total: int) -> int:
        return total * self.value // 100 if self.percent else self.value

    def __str__(self) -> str:
        return f"{self.value}{'%' if self.percent else ''}"


def _amount(text: str, what: str, cure: str) -> Amount:
    match = _COUNT.fullmatch(text.strip())
    if match is None or (match[2] and int(match[1]) > 100):
        raise OperatorError(f"'{text}' is no {what}.", cure)
    return Amount(int(match[1]), bool(match[2]))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """`all`, `N`, or a canary list such as `1,5,25%`, whose last size repeats. A share is never less than one worker."""

    sizes: tuple[Amount, ...]
    """Empty: everything at once."""

    @classmethod
    def parse(cls, text: str) -> BatchPlan:
        """Raises OperatorError for anything but the three forms."""
        if text.strip() == "all":
            return cls(())
        sizes = tuple(_amount(piece, "batch size", BATCH_CURE) for piece in text.split(","))
        if any(size.value == 0 for size in sizes):
            raise OperatorError("A batch of 0 workers would never end.", BATCH_CURE)
        return cls(sizes)

    def split(self, total: int) -> tuple[tuple[int, ...], ...]:
        """The indices of each batch, in order; every index once."""
        batches: list[tuple[int, ...]] = []
        start = 0
        while start < total:
            size = total - start
            if self.sizes:
                size = max(1, self.sizes[min(len(batches), len(self.sizes) - 1)].of(total))
            batches.append(tuple(range(start, min(start + size, total))))
            start += size
        return tuple(batches)

    def __str__(self) -> str:
        return ",".join(map(str, self.sizes)) or "all"


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """When further batches are not started. Workers that run already are left to run.

    `on_failure="stop"` stops after a batch with more failures than `max_failures` (0 when it is not given), counted
    over the whole run; `continue` stops only when `max_failures` is given and exceeded.
    """

    on_failure: str = "stop"
    max_failures: Amount | None = None

    @classmethod
    def parse(cls, on_failure: str = "stop", max_failures: str | int | None = None) -> FailurePolicy:
        """Raises OperatorError for an unknown word or amount."""
        if on_failure not in ("stop", "continue"):
            raise OperatorError(f"'{on_failure}' is no policy.", "Write --on-failure stop or --on-failure continue.")
        limit = None
        if max_failures is not None:
            limit = _amount(str(max_failures), "number of failures", "Write --max-failures 3 or --max-failures 10%.")
        return cls(on_failure, limit)

    def stops(self, failures: int, total: int) -> bool:
        """Whether no further batch starts after this many failures of `total` workers. A limit must be exceeded."""
        if self.max_failures is not None:
            return failures > self.max_failures.of(total)
        return self.on_failure == "stop" and failures > 0


class Fanout:
    """Starts workers batch by batch.

    Args:
        results: One for each worker, mutated by `execute`.
        batches: Indices into `results`.
        execute: Brings one worker to its end and sets its outcome; raises nothing but cancellation.
        changed: Called after each change of this object's own state.
        resumed: The run began in an earlier process: what has not ended goes on at once, whatever the policy.
        quiet_s: See DEADLOCK_QUIET_S.
    """

    def __init__(
        self,
        results: Sequence[WorkerResult],
        batches: Sequence[Sequence[int]],
        policy: FailurePolicy,
        execute: Callable[[int], Awaitable[None]],
        changed: Callable[[], None],
        *,
        begins: Callable[[Sequence[int]], None] = lambda _batch: None,
        resumed: bool = False,
        quiet_s: float = DEADLOCK_QUIET_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._results = results
        self._batches = batches
        self._policy = policy
        self._execute = execute
        self._changed = changed
        self._begins = begins
        self._quiet_s = quiet_s
        self._clock = clock
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Future[None]] = set()
        self._bug: BaseException | None = None
        self._resumed = resumed
        self._all_at_once = resumed
        self._launching = True
        self._last_activity = clock()
        self.batch = 0
        """Batches started so far."""
        self.started = 0
        """Workers started so far."""
        self.deadlock = ""
        """A sentence while a deadlock is probable, else empty."""
        self.stop_reason = ""
        """Why the remaining batches were not started; empty when all were."""

    @property
    def unstarted(self) -> int:
        return len(self._results) - self.started

    def activity(self) -> None:
        """Tells of output or an exit. Called for every chunk of output: must stay cheap."""
        self._last_activity = self._clock()
        if self.deadlock:
            self.deadlock = ""
            self._changed()

    def start_rest(self) -> None:
        """Starts everything that is not started, at once: the cure of a deadlock among batches."""
        self._all_at_once = True
        self._wake.set()

    def stop_launching(self, reason: str) -> None:
        """No further batch starts; what runs goes on."""
        self._launching = False
        self.stop_reason = self.stop_reason or reason
        self._wake.set()

    async def run(self) -> None:
        """Returns when every started worker has ended; the rest is then NOT_STARTED."""
        try:
            for batch in self._batches:
                if not self._may_start():
                    break
                self.batch += 1
                self.started += len(batch)
                self._begins(batch)
                self._last_activity = self._clock()
                for index in (index for index in batch if not self._results[index].ended):
                    task = asyncio.ensure_future(self._execute(index))
                    self._tasks.add(task)
                    task.add_done_callback(self._ended)
                self._changed()
                while self._tasks and not self._all_at_once:
                    await self._pause()
            while self._tasks:
                await self._pause()
        finally:
            await _cancel(self._tasks)
        if self._bug is not None:
            raise self._bug
        unreached = [self._results[index] for batch in self._batches[self.batch :] for index in batch]
        for result in (result for result in unreached if not result.ended):
            result.outcome, result.phase = Outcome.NOT_STARTED, Phase.ENDED
            result.error = self.stop_reason
        self._changed()

    def _may_start(self) -> bool:
        if self._launching and not self._all_at_once:
            failures = sum(result.outcome in FAILURES for result in self._results)
            if self._policy.stops(failures, len(self._results)):
                limit = self._policy.max_failures
                allowed = f", more than {limit}" if limit is not None else ""
                self.stop_launching(f"Not started: {failures} of the workers before it failed{allowed}.")
        return self._launching or self._resumed

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._bug = self._bug or task.exception()
        self.activity()
        if not self._tasks:
            self._wake.set()

    async def _pause(self) -> None:
        """Until the batch has ended, the operator wants the rest, or it is time to look for a deadlock."""
        timeout = None
        if self.unstarted:
            left = self._last_activity + self._quiet_s - self._clock()
            timeout = self._quiet_s if self.deadlock else max(left, 0.01)
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            self._look_for_deadlock()
        self._wake.clear()

    def _look_for_deadlock(self) -> None:
        quiet = self._clock() - self._last_activity >= self._quiet_s
        if self._tasks and quiet and self.unstarted and self._launching and not self.deadlock:
            count = f"{self.started} of {len(self._results)}"
            self.deadlock = f"Probable deadlock: {count} started, and no output for {self._quiet_s:.0f} s."
            self._changed()


async def _cancel(tasks: Iterable[asyncio.Future[None]]) -> None:
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.gather(*left, return_exceptions=True)


def summarize(results: Iterable[WorkerResult]) -> dict[Outcome, int]:
    """How many workers have each outcome; only outcomes that occur."""
    counts: dict[Outcome, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return counts


def first_failure(results: Iterable[WorkerResult]) -> WorkerResult | None:
    """The worker that failed first in time: the culprit is mostly it, not those whose barrier timed out after it."""
    failed = [item for item in results if item.outcome in FAILURES]
    known = [(item.ended_at, place) for place, item in enumerate(failed) if item.ended_at is not None]
    if known:
        return failed[min(known)[1]]
    return failed[0] if failed else None


def exit_code(results: Iterable[WorkerResult], *, interrupted: bool = False) -> ExitCode:
    """The process exit code of a run: of 130, 3, 124 and 1 the first that holds."""
    outcomes = {result.outcome for result in results}
    if interrupted:
        return ExitCode.INTERRUPTED
    if outcomes & {Outcome.UNREACHABLE, Outcome.UNKNOWN}:
        return ExitCode.UNREACHABLE
    if Outcome.TIMED_OUT in outcomes:
        return ExitCode.TIMED_OUT
    if outcomes & {Outcome.FAILED, Outcome.SIGNALLED}:
        return ExitCode.COMMAND_FAILED
    return ExitCode.OK
