"""A run as data: what is asked for, what will be done, how it goes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.outcomes import Outcome
from backend.runs.bundles import Bundle
from backend.runs.fanout import WorkerResult
from backend.targets import WorkerRef

NOT_KEPT = "Output is not kept"
"""Begins the error of a worker whose log has gaps, whatever else became of it."""


class RunState(StrEnum):
    """A run's life as this console sees it."""

    RUNNING = "running"
    DETACHED = "detached"
    """It lives on its workers, and nobody here follows it now."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the operator asks for.

    `argv` goes over literally, word by word; with `shell` it is one text for the worker's login shell. Values of
    `secret_environment` are taken from the operator's environment when the run starts, and are never stored or shown.
    """

    argv: tuple[str, ...]
    shell: bool = False
    batch: str = "all"
    on_failure: str = "stop"
    max_failures: str | None = None
    """A number, or a share such as `10%`; what may fail before further batches are not started."""
    timeout_s: float | None = None
    """For each worker, from the start of its command."""
    detach: bool = False
    """Starts through the supervisor, so that the command outlives its connection. A bench or a job always does."""
    gang: bool = False
    force: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    secret_environment: tuple[str, ...] = ()
    """Names only."""
    worker_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More variables by worker address, such as process indices."""
    bundle: Bundle | None = None
    """Code that is shipped first; its folder is the command's working directory."""
    setup: str = ""
    """A shell text that runs once per bundle content and boot, everywhere, before the command starts anywhere."""
    kind: str = "command"
    """command, bench or job."""
    title: str = ""
    at_boot: bool = False
    """A production job: its workers start it themselves at every boot, from their metadata."""

    @property
    def is_gang(self) -> bool:
        """Its processes wait for each other: nobody can tell that from a command, so it is said."""
        return self.gang or self.kind != "command"

    @property
    def supervised(self) -> bool:
        return self.detach or self.kind != "command"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What will be done, before anything is sent. A plan with refusals can't be launched."""

    request: RunRequest
    workers: tuple[WorkerRef, ...]
    batches: tuple[tuple[int, ...], ...]
    remote_text: str
    """The exact shell text that each worker runs; values of secrets are shown as `***`."""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopReport:
    """What became of stopping a run."""

    stopped: tuple[str, ...] = ()
    """Addresses whose processes are gone, verified."""
    survivors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(address, pids) that are still there after KILL."""
    unverified: tuple[tuple[str, str], ...] = ()
    """(address, why): nobody could look."""

    @property
    def clean(self) -> bool:
        return not self.survivors and not self.unverified


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the journal keeps it."""

    id: str
    request: RunRequest
    """Without the bundle's content and without values of secrets."""
    workers: tuple[WorkerRef, ...]
    results: tuple[WorkerResult, ...]
    state: RunState
    context: str
    remote_text: str
    started_at: datetime
    ended_at: datetime | None = None
    bundle_digest: str = ""
    bundle_source: str = ""
    note: str = ""

    @property
    def summary(self) -> dict[Outcome, int]:
        counts: dict[Outcome, int] = {}
        for result in self.results:
            counts[result.outcome] = counts.get(result.outcome, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class RunHead:
    """A run of the journal without its workers: what a list of many runs needs."""

    id: str
    request: RunRequest
    state: RunState
    started_at: datetime
    ended_at: datetime | None
    note: str
    size: int
    """Workers."""
    summary: Mapping[Outcome, int]
    phases: Mapping[str, int]
    """What its workers are at: the outcome of those that ended, the phase of the others."""
