"""Which benchmarks a sweep runs, in which order, and when it can stop: pure arithmetic on the catalogue and the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from jobs.accelerators import Accelerator
from jobs.meshes import Mesh, legal_meshes, size_problems
from jobs.roofline import Model, Prediction, predict


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of a sweep."""

    mesh: Mesh
    model: Model
    prediction: Prediction | None
    """None where the sizes don't divide."""
    skip: str = ""
    """Why it is not run; empty when it is."""

    @property
    def at_most_tflops(self) -> float:
        """Per device: no run of it can be faster than this, as far as the roofline is right."""
        return self.prediction.tflops_per_device if self.prediction else 0.0


def candidates(
    accelerator: Accelerator,
    slices: int,
    models: Iterable[Model],
    *,
    meshes: Sequence[Mesh] | None = None,
    check_memory: bool = True,
) -> tuple[Candidate, ...]:
    """All combinations: the most promising first, those that can't run last, each with its reason.

    Args:
        meshes: Only these; all legal ones when left out.
        check_memory: Skip what does not fit the chip's HBM by the estimate (not for CPU workers).
    """
    chosen = legal_meshes(accelerator.devices, slices) if meshes is None else meshes
    found = [_candidate(accelerator, mesh, model, check_memory) for mesh, model in product(chosen, models)]
    return tuple(sorted(found, key=_order))


def _candidate(accelerator: Accelerator, mesh: Mesh, model: Model, check_memory: bool) -> Candidate:
    problems = size_problems(mesh, model.embedding_dimension, model.batch_per_device, model.num_layers)
    if problems:
        return Candidate(mesh, model, None, problems[0])
    prediction = predict(accelerator, mesh, model)
    if check_memory and not prediction.fits:
        have = accelerator.generation.hbm_bytes / accelerator.generation.devices_per_chip
        why = f"needs about {prediction.memory.total / 1e9:.1f} GB a device, which has {have / 1e9:.1f}"
        return Candidate(mesh, model, prediction, why)
    return Candidate(mesh, model, prediction)


def _order(candidate: Candidate) -> tuple[bool, float, float]:
    serial = candidate.prediction.serial_step_time_s if candidate.prediction else 0.0
    flops = candidate.model.flops_per_device
    # Where the bound is equal, the one that has less to hide.
    return (bool(candidate.skip), -round(candidate.at_most_tflops, 6), serial / flops if serial else 0.0)


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a sweep is over before its list is.

    The bound rule is exact as far as the roofline is: what can at most reach less than the best has nothing to win.
    """

    use_bound: bool = True
    """Stop when nothing that is left could beat the best; for TPU alone, since a CPU has no roofline here."""
    patience: int = 0
    """Stop after so many in a row that did not beat the best; 0: never."""
    failures: int = 2
    """Stop after so many failures in a row; 0: never."""

    def reason(self, measured: Sequence[float | None], left: Sequence[Candidate]) -> str:
        """Why to stop now, or empty.

        Args:
            measured: TFLOP/s per device of those that were run, in order; None for failures.
            left: What would still be run.
        """
        if not left:
            return ""
        if (
            self.failures
            and len(measured) >= self.failures
            and all(each is None for each in measured[-self.failures :])
        ):
            return f"{self.failures} in a row failed"
        rates = [each for each in measured if each is not None]
        if not rates:
            return ""
        best = max(rates)
        reachable = max(each.at_most_tflops for each in left)
        if self.use_bound and reachable < best:
            return f"the rest can reach {reachable:.4g} TFLOP/s a device at most, and {best:.4g} was measured"
        since = next((n for n, each in enumerate(reversed(measured)) if each == best), 0)
        if self.patience and since >= self.patience:
            return f"{self.patience} in a row were not faster"
        return ""
