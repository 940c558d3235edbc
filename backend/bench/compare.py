"""Benchmarks side by side, and out of the house: comparison against a baseline with its noise, CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from backend.bench.model import BenchRecord
from backend.timestamps import rfc3339

CSV_COLUMNS = (
    *("bench", "target", "accelerator_type", "slices", "mesh"),
    *("embedding_dimension", "batch_size", "num_layers", "dtype"),
    *("step", "workers", "step_time_s", "step_time_low_s", "step_time_high_s"),
    *("tflops_per_device", "tflops_low", "tflops_high", "set_aside"),
)
"""One row per step; documented, only ever appended to."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One benchmark against the baseline, which is the first of those compared."""

    record: BenchRecord
    ratio: float | None
    """Its TFLOP/s per device over the baseline's; None without figures."""
    noise: float | None
    """Half the 10 to 90 % bands of both together, as a share of the baseline."""
    differences: tuple[str, ...]
    """What else differs: sizes, mesh, type, versions."""

    @property
    def verdict(self) -> str:
        """`baseline` is told by the caller; else `same`, `faster` or `slower`, `same` meaning within the noise."""
        if self.ratio is None or self.noise is None:
            return "no figures"
        if abs(self.ratio - 1) <= self.noise:
            return "same"
        return "faster" if self.ratio > 1 else "slower"


def regressions(told: Sequence[Comparison]) -> list[str]:
    """Why a gate should stay shut: a sentence for each that is slower than the first beyond the noise, or has no figures."""
    said = []
    for each in told[1:]:
        if each.verdict == "slower" and each.ratio is not None and each.noise is not None:
            said.append(
                f"{each.record.id} is {1 - each.ratio:.1%} slower than {told[0].record.id}; the noise is {each.noise:.1%}."
            )
        elif each.verdict == "no figures":
            said.append(f"{each.record.id} can't be compared: it or {told[0].record.id} has no figures.")
    return said


def compare(records: Sequence[BenchRecord]) -> list[Comparison]:
    """Each against the first."""
    if not records:
        return []
    base = records[0]
    return [
        Comparison(each, _ratio(each, base), _noise(each, base), tuple(_differences(each, base))) for each in records
    ]


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One slice count of a weak scaling series: the same work per device."""

    slices: int
    tflops_total: float
    efficiency: float
    """Against the smallest slice count scaled up linearly."""
    record: BenchRecord


def weak_scaling(records: Sequence[BenchRecord]) -> list[ScalingPoint]:
    """The best benchmark of each slice count, by slices. Records of other sizes than the first's are left out."""
    best: dict[int, BenchRecord] = {}
    for each in records:
        if each.summary.tflops_per_device is None or each.request.model != records[0].request.model:
            continue
        held = best.get(each.slices)
        if held is None or (held.summary.tflops_per_device or 0) < each.summary.tflops_per_device:
            best[each.slices] = each
    if not best:
        return []
    first = best[min(best)].summary.tflops_per_device or 0.0
    return [
        ScalingPoint(slices, rate * each.devices, rate / first, each)
        for slices, each in sorted(best.items())
        if (rate := each.summary.tflops_per_device)
    ]


def to_csv(records: Sequence[BenchRecord]) -> str:
    """One row per step, with what is needed to tell the rows apart."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for each in records:
        request = each.request
        head = [each.id, each.target, each.accelerator_type, each.slices, request.mesh.code()]
        head += [request.embedding_dimension, request.batch_size, request.num_layers, request.dtype]
        for point in each.points:
            writer.writerow([*head, *asdict(point).values()])
    return buffer.getvalue()


def to_json_lines(records: Sequence[BenchRecord]) -> Iterator[str]:
    """Per benchmark one line that describes it (with the command that repeats it), then one per step."""
    for each in records:
        yield json.dumps({"bench": describe(each)})
        for point in each.points:
            yield json.dumps({"bench_id": each.id, **asdict(point)})


def describe(record: BenchRecord) -> dict[str, object]:
    """Everything but the steps, in plain JSON types."""
    return {
        "id": record.id,
        "command": record.command,
        "target": record.target,
        "project": record.project,
        "zone": record.zone,
        "accelerator_type": record.accelerator_type,
        "topology": record.topology,
        "slices": record.slices,
        "devices": record.devices,
        "platform": record.platform,
        "mesh": record.request.mesh.code(),
        "state": record.state.value,
        "context": record.context,
        "started_at": rfc3339(record.started_at),
        "ended_at": rfc3339(record.ended_at) if record.ended_at else None,
        "program_digest": record.program_digest,
        "versions": dict(record.versions),
        "request": record.request.to_json(),
        "summary": record.summary.to_json(),
        "errors": [asdict(error) for error in record.errors],
        "peak_tflops_per_device": record.peak_tflops_per_device,
        "predicted_tflops_per_device": record.predicted_tflops_per_device,
        "note": record.note,
    }


def _ratio(one: BenchRecord, base: BenchRecord) -> float | None:
    mine, theirs = one.summary.tflops_per_device, base.summary.tflops_per_device
    return mine / theirs if mine is not None and theirs else None


def _noise(one: BenchRecord, base: BenchRecord) -> float | None:
    total = 0.0
    for each in (one.summary, base.summary):
        if each.tflops_p10 is None or each.tflops_p90 is None or not each.tflops_per_device:
            return None
        total += (each.tflops_p90 - each.tflops_p10) / 2 / each.tflops_per_device
    return total


def _differences(one: BenchRecord, base: BenchRecord) -> Iterator[str]:
    if one.accelerator_type != base.accelerator_type or one.slices != base.slices:
        yield f"{one.slices} x {one.accelerator_type}"
    if one.topology and base.topology and one.topology != base.topology:
        yield f"topology {one.topology}"
    if one.request.mesh != base.request.mesh:
        yield one.request.mesh.words()
    for name in ("embedding_dimension", "batch_size", "num_layers", "dtype"):
        if getattr(one.request, name) != getattr(base.request, name):
            yield f"{name} {getattr(one.request, name)}"
    for name in sorted({*one.versions, *base.versions}):
        if one.versions.get(name) != base.versions.get(name):
            yield f"{name} {one.versions.get(name, 'unknown')}"
    if one.program_digest != base.program_digest:
        yield f"program {one.program_digest[:8]}"
