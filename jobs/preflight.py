"""The preflight: compiles the sharding benchmark for the real topology on this machine, before anything is paid for.

libtpu compiles without a TPU. A child process does it (`jobs.programs.preflight`), so that it can be cancelled and the
console never imports jax. What comes back is the compiler's own: memory per device, whether it fits, FLOPs, and every byte
that crosses ICI and DCN. The step time is a prediction from these, never validated on hardware by us.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from jobs.accelerators import Accelerator
from jobs.batch_search import BatchSearch
from jobs.compiler import Compiler, PreflightError
from jobs.hlo import Sent
from jobs.meshes import Mesh
from jobs.roofline import Model, ici_rate, largest_batch

TOPOLOGIES = {"v4": "v4", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "7x": "tpu7x"}
"""Generation -> libtpu's name of it."""
DIGESTED = (
    "hlo.py",
    "meshes.py",
    "programs/preflight.py",
    "programs/process.py",
    "programs/sharding_flags.py",
    "programs/shardings.py",
)
"""What an answer depends on besides its inputs."""

_AVAILABLE = re.compile(r"available HBM \(([\d.]+)([KMGT])\)|Used [\d.]+[KMGT] of ([\d.]+)([KMGT]) hbm")
_NEEDED = re.compile(r"HLO temporaries \(([\d.]+)([KMGT])\)|Used ([\d.]+)([KMGT]) of")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """What to compile."""

    accelerator: Accelerator
    slices: int
    mesh: Mesh
    model: Model

    @property
    def topology(self) -> str:
        """libtpu's name, e.g. `v5e:4x4`.

        Raises:
            PreflightError: libtpu compiles for no such generation.
        """
        name = TOPOLOGIES.get(self.accelerator.generation.name)
        if name is None:
            known = ", ".join(TOPOLOGIES)
            raise PreflightError(f"libtpu does not compile for {self.accelerator.name}.", f"It does for {known}.")
        return f"{name}:{self.accelerator.topology}"

    def words(self) -> list[str]:
        """Flags of the child that compiles it.

        Raises:
            PreflightError: libtpu compiles for no such generation.
        """
        model = self.model
        return [
            *("--topology", self.topology, "--slices", str(self.slices)),
            *self.mesh.flags(),
            *("--embedding_dimension", str(model.embedding_dimension), "--num_layers", str(model.num_layers)),
            *("--batch_size", str(model.batch_per_device), "--dtype", model.dtype),
        ]

    def key(self, versions: Mapping[str, str]) -> str:
        """Names the outcome: equal inputs, programs and versions give the same."""
        facts = {
            "type": self.accelerator.name,
            "topology": self.accelerator.topology,
            "slices": self.slices,
            "mesh": self.mesh.code(),
            "model": asdict(self.model),
            "programs": _digest(),
            "versions": dict(sorted(versions.items())),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Compilation:
    """What the compiler said of one batch size. Bytes and FLOPs are per device."""

    batch_size: int
    fits: bool
    memory_bytes: float
    """Arguments, outputs and temporaries together; of what doesn't fit, as far as the compiler tells (else 0)."""
    argument_bytes: int = 0
    output_bytes: int = 0
    temp_bytes: int = 0
    flops: float = 0.0
    """The compiler's count."""
    hbm_traffic_bytes: float = 0.0
    sent: tuple[Sent, ...] = ()
    unread: tuple[str, ...] = ()
    """Collectives whose groups could not be read: their bytes are missing."""
    compile_s: float = 0.0
    capacity_bytes: float = 0.0
    """As the compiler told it; 0 when it didn't."""

    def bytes_over(self, network: str) -> float:
        return sum(each.bytes for each in self.sent if each.network == network)


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """The answer."""

    compilation: Compilation
    capacity_bytes: float
    """Of one device."""
    compute_s: float = 0.0
    """Analytic FLOPs over the peak."""
    hbm_s: float = 0.0
    ici_s: float = 0.0
    dcn_s: float = 0.0
    bound: str = ""
    """`compute`, `HBM`, `ICI` or `DCN`; empty when it doesn't fit."""
    tflops_per_device: float = 0.0
    """Predicted, at most."""
    compiler_ratio: float = 0.0
    """The compiler's FLOPs over ours; far from 1 where matmuls were rewritten into forms that it counts once."""
    largest_batch: int | None = None
    """Rows per device; None when it was not searched."""
    versions: Mapping[str, str] = field(default_factory=dict)
    cached: bool = False

    @property
    def fits(self) -> bool:
        return self.compilation.fits

    @property
    def step_time_s(self) -> float:
        """With perfect overlap."""
        return max(self.compute_s, self.hbm_s, self.ici_s, self.dcn_s)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "versions": dict(self.versions), "fits": self.fits, "step_time_s": self.step_time_s}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PreflightReport:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError: It was something else.
        """
        told = dict(value)
        for name in ("fits", "step_time_s"):
            told.pop(name)
        compiled = dict(told.pop("compilation"))
        sent = tuple(Sent(**each) for each in compiled.pop("sent"))
        return cls(Compilation(**{**compiled, "sent": sent, "unread": tuple(compiled.pop("unread"))}), **told)


def read_compilation(told: Mapping[str, Any]) -> Compilation:
    """The child's `compiled` message."""
    if not told["fits"]:
        why = str(told.get("why", ""))
        return Compilation(
            int(told["batch_size"]),
            False,
            _size(_NEEDED, why),
            compile_s=float(told["compile_s"]),
            capacity_bytes=_size(_AVAILABLE, why),
        )
    parts = {name: int(told[name]) for name in ("argument_bytes", "output_bytes", "temp_bytes")}
    return Compilation(
        int(told["batch_size"]),
        True,
        sum(parts.values()) - int(told.get("alias_bytes", 0)),
        **parts,
        flops=float(told["compiler_flops"]),
        hbm_traffic_bytes=float(told["bytes_accessed"]),
        sent=tuple(Sent(**each) for each in told["sent"]),
        unread=tuple(told["unread"]),
        compile_s=float(told["compile_s"]),
    )


def report_of(request: PreflightRequest, compilation: Compilation, versions: Mapping[str, str]) -> PreflightReport:
    """Times and the bound of what was compiled."""
    generation = request.accelerator.generation
    per_chip = generation.devices_per_chip
    capacity = compilation.capacity_bytes or generation.hbm_bytes / per_chip
    if not compilation.fits:
        return PreflightReport(compilation, capacity, versions=dict(versions))
    model = replace(request.model, batch_per_device=compilation.batch_size)
    ici = sum(
        each.bytes / ici_rate(request.accelerator, each.ways) for each in compilation.sent if each.network == "ICI"
    )
    dcn_rate = generation.dcn_bytes_per_s_per_chip / per_chip
    seconds = {
        "compute": model.flops_per_device / (generation.peak_bf16_flops / per_chip),
        "HBM": compilation.hbm_traffic_bytes / (generation.hbm_bytes_per_s / per_chip),
        "ICI": ici,
        "DCN": compilation.bytes_over("DCN") / dcn_rate if dcn_rate else 0.0,
    }
    bound = max(seconds, key=lambda name: seconds[name])
    return PreflightReport(
        compilation,
        capacity,
        seconds["compute"],
        seconds["HBM"],
        seconds["ICI"],
        seconds["DCN"],
        bound,
        model.flops_per_device / seconds[bound] / 1e12,
        compilation.flops / model.flops_per_device,
        versions=dict(versions),
    )


async def preflight(
    request: PreflightRequest,
    *,
    search: bool = False,
    python: str = sys.executable,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> PreflightReport:
    """Compiles, or answers from the cache. Cancelling it ends the child.

    Args:
        search: Also finds the largest batch that fits.
        python: An interpreter with jax and libtpu.
        cache: A folder for answers; made when missing.
        progress: Called with a sentence at each step.

    Raises:
        PreflightError: libtpu is missing, knows no such topology, or the child failed.
    """
    child = Compiler(request.words(), python)
    await child.start()
    try:
        versions = await child.versions()
        file = cache / f"{request.key(versions)}.json" if cache is not None else None
        known = _read_cache(file)
        if known is not None and (not search or known.largest_batch is not None):
            return replace(known, cached=True)
        compilation = read_compilation(await child.compile(request.model.batch_per_device, progress))
        report = report_of(request, compilation, versions)
        if search:
            largest = await _search(request, child, compilation, report.capacity_bytes, progress)
            report = replace(report, largest_batch=largest)
    finally:
        await child.end()
    _write_cache(file, report)
    return report


async def _search(
    request: PreflightRequest,
    child: Compiler,
    first: Compilation,
    capacity: float,
    progress: Callable[[str], None],
) -> int:
    guess = largest_batch(request.accelerator, request.mesh, request.model)
    searching = BatchSearch(0, guess)
    compilation = first
    while True:
        searching.told(
            compilation.batch_size,
            fits=compilation.fits,
            memory_bytes=compilation.memory_bytes,
            capacity_bytes=compilation.capacity_bytes or capacity,
        )
        size = searching.next()
        if size is None:
            return searching.fitting
        compilation = read_compilation(await child.compile(size, progress))


def _size(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    if match is None:
        return 0.0
    number, unit = (part for part in match.groups() if part)
    return float(number) * _UNITS[unit]


def _digest() -> str:
    digest = hashlib.sha256()
    for path in DIGESTED:
        digest.update(resources.files("jobs").joinpath(*path.split("/")).read_bytes())
    return digest.hexdigest()


def _read_cache(file: Path | None) -> PreflightReport | None:
    """A damaged entry is none."""
    if file is None:
        return None
    try:
        return PreflightReport.from_json(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cache(file: Path | None, report: PreflightReport) -> None:
    """An answer that can't be kept is an answer all the same."""
    if file is None:
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(report.to_json()), encoding="utf-8")
        part.replace(file)
