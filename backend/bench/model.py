"""A benchmark as data: what is asked for, what workers are like, what was measured. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from backend.interpreter import launcher
from backend.runs.model import RunPlan, RunRequest
from backend.targets import WorkerRef
from jobs.accelerators import Accelerator
from jobs.meshes import Axes, Mesh
from jobs.roofline import Model, Prediction
from jobs.statistics import Statistics

COORDINATOR_PORT = 8476
"""Google's automatic firewall rules open it; jax's own default became 8482 with 0.8.1 (jax issue 35905)."""

CPU_SIZES = {"embedding_dimension": 256, "batch_size": 64, "num_layers": 2}
"""Suggested where the workers are CPUs: a step of tens of milliseconds a device, divisible by any axis up to 256."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One benchmark, by upstream's flag names and defaults; then ours."""

    ici_data_parallelism: int = 1
    ici_fsdp_parallelism: int = 4
    ici_tensor_parallelism: int = 1
    dcn_data_parallelism: int = 1
    dcn_fsdp_parallelism: int = 1
    dcn_tensor_parallelism: int = 1
    embedding_dimension: int = 2048
    batch_size: int = 131072
    """Rows per device."""
    num_layers: int = 4
    profiler_path: str = ""
    steps: int = 20
    warmup: int = 1
    dtype: str = "bfloat16"
    no_communication_steps: int = 5
    stuck_after: float = 300.0
    """Seconds; the program ends itself when a step takes longer."""
    compile_limit: float = 1800.0
    initialization_timeout: float = 120.0
    """Seconds for all processes to have joined."""
    heartbeat_timeout: float = 30.0
    """Seconds after which a silent process counts as dead, and ends the others."""
    python: str = "python3"
    """On the workers; the default is that of `slicetower setup` where it is."""
    """The interpreter on the workers."""
    port: int = COORDINATOR_PORT
    environment: tuple[tuple[str, str], ...] = ()
    peak_tflops: float | None = None
    """Per device, instead of the catalogue's."""
    force: bool = False
    """Launches in spite of an estimate that says it won't fit."""
    title: str = ""

    @property
    def mesh(self) -> Mesh:
        return Mesh(
            Axes(self.ici_data_parallelism, self.ici_fsdp_parallelism, self.ici_tensor_parallelism),
            Axes(self.dcn_data_parallelism, self.dcn_fsdp_parallelism, self.dcn_tensor_parallelism),
        )

    @property
    def model(self) -> Model:
        return Model(self.embedding_dimension, self.num_layers, self.batch_size, self.dtype)

    @property
    def flags(self) -> tuple[str, ...]:
        """The program's arguments: the mesh, the sizes and what differs from the defaults."""
        sizes = ("embedding_dimension", "batch_size", "num_layers", "steps", "warmup")
        told: tuple[str, ...] = self.mesh.flags()
        for name in sizes:
            told += (f"--{name}", str(getattr(self, name)))
        for name in _TOLD_WHEN_CHANGED:
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                told += (f"--{name}", f"{value:g}" if isinstance(value, float) else str(value))
        return told

    @property
    def argv(self) -> tuple[str, ...]:
        """What each worker runs, in the folder of the shipped programs."""
        return (*launcher(self.python), "-m", "jobs.programs.shardings", *self.flags)

    def command(self, target: str) -> str:
        """The verb that repeats it."""
        own = ("--python", self.python) if self.python != "python3" else ()
        port = ("--port", str(self.port)) if self.port != COORDINATOR_PORT else ()
        environment = [word for name, value in self.environment for word in ("--env", f"{name}={value}")]
        peak = ("--peak_tflops", f"{self.peak_tflops:g}") if self.peak_tflops is not None else ()
        title = ("--title", self.title) if self.title else ()
        force = ("--force",) if self.force else ()
        more = (*own, *port, *environment, *peak, *title, *force)
        return shlex.join(("slicetower", "bench", "shardings", target, *self.flags, *more))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BenchRequest:
        """What `to_json` gave, of this release or another: unknown fields are left out, missing ones default."""
        known = {item.name for item in fields(cls)}
        told = {name: each for name, each in value.items() if name in known}
        told["environment"] = tuple((str(name), str(text)) for name, text in told.get("environment", ()))
        return cls(**told)


_TOLD_WHEN_CHANGED = (
    *("dtype", "profiler_path", "no_communication_steps", "stuck_after"),
    *("compile_limit", "initialization_timeout", "heartbeat_timeout"),
)
_DEFAULTS = {item.name: item.default for item in fields(BenchRequest)}


@dataclass(frozen=True, slots=True)
class WorkerSurvey:
    """What `jobs/programs/environment.py` said of a worker, or why it said nothing."""

    jax_platforms: str = ""
    cpu_devices: str = ""
    python: str = ""
    jax: str = ""
    jaxlib: str = ""
    libtpu: str = ""
    machine: str = ""
    """The kernel's boot id: workers that share it share memory and processors."""
    machine_name: str = ""
    machine_address: str = ""
    """What the machine's own name resolves to; empty when it doesn't."""
    cpus: int = 1
    memory_available: int = 0
    port: str = ""
    """The coordinator's: `free`, `taken`, or `elsewhere` when the address isn't that machine's."""
    free_port: int = 0
    """Another one that is free there."""
    error: str = ""

    @property
    def is_cpu(self) -> bool:
        """JAX is told to run on CPU there, explicitly."""
        return self.jax_platforms.strip() == "cpu"


Survey = Mapping[str, WorkerSurvey]
"""By worker address."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What will be launched, before anything is. A plan with refusals can't be launched."""

    request: BenchRequest
    target: str
    """The queued resource, or the part of it, that is measured."""
    project: str
    zone: str
    queued_resource: str
    accelerator: Accelerator | None
    slices: int
    workers: tuple[WorkerRef, ...]
    """In process order."""
    coordinator: str
    platform: str
    """`tpu`, `cpu`, or empty when no worker was asked."""
    run_request: RunRequest
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    prediction: Prediction | None = None
    """For TPU, by the catalogue; None for CPU workers and unknown types."""
    survey: Survey = field(default_factory=dict)
    run_plan: RunPlan | None = None

    @property
    def mesh(self) -> Mesh:
        return self.request.mesh

    @property
    def devices(self) -> int:
        """Over all slices."""
        return self.accelerator.devices * self.slices if self.accelerator else self.mesh.devices

    @property
    def peak_tflops_per_device(self) -> float | None:
        """For the utilisation; None on CPU, where none is told."""
        if self.platform == "cpu":
            return None
        if self.request.peak_tflops is not None:
            return self.request.peak_tflops
        return self.accelerator.generation.peak_bf16_tflops_per_device if self.accelerator else None

    @property
    def command(self) -> str:
        return self.request.command(self.target)


class BenchState(StrEnum):
    """Where a benchmark is, for the screen."""

    STARTING = "starting"
    """Nobody has said anything yet."""
    JOINING = "joining"
    """Some processes have found their devices."""
    COMPILING = "compiling"
    STEPPING = "stepping"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """By the operator."""
    DETACHED = "detached"
    """It may go on, and nobody follows it."""

    @property
    def is_over(self) -> bool:
        return self in (BenchState.DONE, BenchState.FAILED, BenchState.STOPPED)


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One step over all workers that have told it."""

    step: int
    workers: int
    step_time_s: float
    """Median over workers, as are the others without a word."""
    step_time_low_s: float
    step_time_high_s: float
    tflops_per_device: float | None
    tflops_low: float | None
    tflops_high: float | None
    set_aside: str = ""
    """`first step` for warm-ups, `above peak`; empty when it counts."""


@dataclass(frozen=True, slots=True)
class BenchError:
    """What one worker's program told before it ended."""

    address: str
    kind: str
    what: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class BenchSummary:
    """Figures over steps (each the median over workers). None where there is nothing to tell."""

    steps: int = 0
    set_aside: Mapping[str, int] = field(default_factory=dict)
    step_time_s: float | None = None
    step_time_p10_s: float | None = None
    step_time_p90_s: float | None = None
    tflops_per_device: float | None = None
    """Median, by the corrected count."""
    tflops_p10: float | None = None
    tflops_p90: float | None = None
    claimed_tflops_per_device: float | None = None
    """By upstream's count, one matmul too many."""
    tflops_total: float | None = None
    """Over all devices."""
    mfu: float | None = None
    """Corrected, over the peak; never on CPU."""
    exposed_communication: float | None = None
    """1 - time without communication / step time; below 0 is noise."""
    compile_s: float | None = None
    hbm_peak_bytes: int | None = None
    hbm_limit_bytes: int | None = None
    slowest_worker: str = ""
    slowest_ratio: float | None = None
    """Median step time of the slowest worker over that of the median worker."""
    compiler_ratio: float | None = None
    error: str = ""
    """Why the figures can't be believed."""

    @classmethod
    def of(cls, figures: Statistics) -> BenchSummary:
        """What steps alone tell."""
        times, rates = figures.step_time_s, figures.tflops_per_device
        return cls(
            steps=figures.counted,
            set_aside=dict(figures.set_aside),
            step_time_s=times.median if times else None,
            step_time_p10_s=times.p10 if times else None,
            step_time_p90_s=times.p90 if times else None,
            tflops_per_device=rates.median if rates else None,
            tflops_p10=rates.p10 if rates else None,
            tflops_p90=rates.p90 if rates else None,
            mfu=figures.mfu,
            error=figures.error,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "set_aside": dict(self.set_aside)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BenchSummary:
        known = {item.name for item in fields(cls)}
        return cls(**{name: each for name, each in value.items() if name in known})


@dataclass(frozen=True, slots=True)
class BenchRecord:
    """A benchmark as the journal keeps it: enough to read it and to repeat it."""

    id: str
    """The run's."""
    request: BenchRequest
    target: str
    project: str
    zone: str
    queued_resource: str
    accelerator_type: str
    slices: int
    devices: int
    platform: str
    state: BenchState
    context: str
    started_at: datetime
    ended_at: datetime | None = None
    program_digest: str = ""
    """sha256 of the shipped programs."""
    versions: Mapping[str, str] = field(default_factory=dict)
    summary: BenchSummary = field(default_factory=BenchSummary)
    points: tuple[StepPoint, ...] = ()
    errors: tuple[BenchError, ...] = ()
    peak_tflops_per_device: float | None = None
    predicted_tflops_per_device: float | None = None
    note: str = ""
    topology: str = ""
    """Of a slice: `4x4`; several topologies have one type of the same size."""

    @property
    def command(self) -> str:
        return self.request.command(self.target)
