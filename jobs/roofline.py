"""What a sharding benchmark can reach: time of each resource per step, the bound, and where it stops binding.

The model is MaxText's `shardings.py`: L layers of two (4D, D) matrices, forward, backward and update. The arithmetic is
that of jax-ml/scaling-book (`training.md`), kept apart for the forward pass (a third of the FLOPs) and the backward
pass, because gradients can only hide behind the latter. Predictions are bounds under the stated assumptions: perfect
overlap, ring collectives, hierarchical over slices. They were never validated on hardware by us.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from jobs.accelerators import Accelerator
from jobs.meshes import Mesh, mesh_problems, size_problems

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
FEED_FORWARD = 4
"""F = 4 D."""

ASSUMPTIONS = (
    "communication overlaps perfectly with computing of the same pass (forward or backward)",
    "ring collectives over both directions of an axis; axes without wraparound carry half",
    "over slices, each chip sends only its own shard (hierarchical collectives)",
    "bf16 peak of the catalogue; no compiler or launch overhead",
)


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes of the benchmark's model. `batch_per_device` is in rows, as upstream's `--batch_size`."""

    embedding_dimension: int = 2048
    num_layers: int = 4
    batch_per_device: int = 131072
    dtype: str = "bfloat16"

    @property
    def itemsize(self) -> int:
        return BYTES[self.dtype]

    @property
    def feed_forward(self) -> int:
        return FEED_FORWARD * self.embedding_dimension

    @property
    def parameters(self) -> int:
        return 2 * self.embedding_dimension * self.feed_forward * self.num_layers

    @property
    def parameter_bytes(self) -> int:
        return self.parameters * self.itemsize

    @property
    def claimed_flops_per_device(self) -> float:
        """Upstream's count per device and step: 6 x parameters x rows. One matmul too many."""
        return 6.0 * self.parameters * self.batch_per_device

    @property
    def flops_per_device(self) -> float:
        """The corrected count: the gradient towards the input of the first matmul is never computed."""
        one = 2.0 * self.batch_per_device * self.embedding_dimension * self.feed_forward
        return self.claimed_flops_per_device - one


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one chip moves over one network in one pass: a part that is fixed, and a part per row and chip."""

    fixed: float = 0.0
    per_row: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.fixed + other.fixed, self.per_row + other.per_row)


@dataclass(frozen=True, slots=True)
class Memory:
    """Estimated HBM of one device in bytes."""

    weights: float
    """Weights, gradients and updated weights: nothing is donated upstream."""
    gathered: float
    """Weights of the layer at work and the next, gathered over fsdp."""
    activations: float
    """Kept for the backward pass, with the input and one gradient of the widest activation."""

    @property
    def total(self) -> float:
        return self.weights + self.gathered + self.activations


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds per step by resource, and what follows."""

    mesh: Mesh
    model: Model
    compute_s: float
    hbm_s: float
    ici_s: float
    dcn_s: float
    step_time_s: float
    """With perfect overlap: a lower bound."""
    serial_step_time_s: float
    """Without any overlap: an upper bound of the same model."""
    bound: str
    """`compute`, `HBM`, `ICI` or `DCN`: what the step waits for."""
    tflops_per_device: float
    ici_bytes: float
    """Per chip and step."""
    dcn_bytes: float
    rows_per_chip_ici: float
    """Rows per chip from which ICI no longer binds; 0 when it never does, inf when more rows don't help."""
    rows_per_chip_dcn: float
    memory: Memory
    fits: bool
    assumptions: tuple[str, ...]

    def rows_per_slice_dcn(self, chips_per_slice: int) -> float:
        return self.rows_per_chip_dcn * chips_per_slice


def problems(accelerator: Accelerator, slices: int, mesh: Mesh, model: Model) -> list[str]:
    """Why a mesh is none for the slices of a type, or else why the sizes are none for the mesh; empty when all is well."""
    return mesh_problems(
        mesh.ici,
        mesh.dcn,
        accelerator.chips,
        slices,
        type_name=accelerator.name,
        devices_per_chip=accelerator.generation.devices_per_chip,
    ) or size_problems(mesh, model.embedding_dimension, model.batch_per_device, model.num_layers)


def memory_estimate(mesh: Mesh, model: Model) -> Memory:
    """HBM of one device: checked against the compiler (2 x v5e:4x4, D 2048, 131072 rows: 13.6 against 13.7 GB)."""
    total = mesh.total
    ways = total.fsdp * total.tensor
    rows = model.batch_per_device * mesh.devices / (total.data * total.fsdp)
    d, f, size = model.embedding_dimension, model.feed_forward, model.itemsize
    row = rows * size / total.tensor
    kept = row * ((d + f) * model.num_layers + d)
    gathered = 4.0 * d * f * size / total.tensor if total.fsdp > 1 else 0.0
    return Memory(3.0 * model.parameter_bytes / ways, gathered, kept + row * f)


def largest_batch(accelerator: Accelerator, mesh: Mesh, model: Model) -> int:
    """Rows per device that fit by the estimate, 0 when not even one does."""
    one = memory_estimate(mesh, Model(model.embedding_dimension, model.num_layers, 1, model.dtype))
    free = accelerator.generation.hbm_bytes / accelerator.generation.devices_per_chip - one.weights - one.gathered
    return max(0, int(free // one.activations))


def predict(accelerator: Accelerator, mesh: Mesh, model: Model) -> Prediction:
    """Bounds of one step of `model` on `mesh` over slices of `accelerator`; per device, see ASSUMPTIONS."""
    generation = accelerator.generation
    rows = model.batch_per_device
    per_chip = generation.devices_per_chip
    peak = generation.peak_bf16_flops / per_chip
    compute = (model.claimed_flops_per_device / 3 / peak, 0.0)
    compute = (compute[0], model.flops_per_device / peak - compute[0])
    hbm = _hbm_bytes(mesh, model) / (generation.hbm_bytes_per_s / per_chip)
    dcn_rate = generation.dcn_bytes_per_s_per_chip / per_chip
    step = serial = 0.0
    totals = {"compute": sum(compute), "HBM": hbm, "ICI": 0.0, "DCN": 0.0}
    excess = {"HBM": 0.0, "ICI": 0.0, "DCN": 0.0}
    ici_bytes = dcn_bytes = rows_ici = rows_dcn = 0.0
    for index, passes in enumerate(_passes(mesh, model)):
        ici_s = dcn_s = 0.0
        ici_fixed = ici_row = 0.0
        for ways, traffic in passes.ici:
            rate = ici_rate(accelerator, ways)
            ici_fixed += traffic.fixed / rate
            ici_row += traffic.per_row / rate
            ici_bytes += traffic.fixed + traffic.per_row * rows
        ici_s = ici_fixed + ici_row * rows
        across = passes.dcn
        dcn_bytes += across.fixed + across.per_row * rows
        moved = across.fixed + across.per_row * rows
        dcn_s = moved / dcn_rate if dcn_rate else (inf if moved else 0.0)
        compute_row = compute[index] / rows
        rows_ici = max(rows_ici, _rows_until_hidden(ici_fixed, ici_row, compute_row))
        if dcn_rate:
            hidden = _rows_until_hidden(across.fixed / dcn_rate, across.per_row / dcn_rate, compute_row)
            rows_dcn = max(rows_dcn, hidden)
        hbm_s = hbm * (1 / 3 if index == 0 else 2 / 3)
        step += max(compute[index], hbm_s, ici_s, dcn_s)
        serial += max(compute[index], hbm_s) + ici_s + dcn_s
        totals["ICI"] += ici_s
        totals["DCN"] += dcn_s
        for name, seconds in (("HBM", hbm_s), ("ICI", ici_s), ("DCN", dcn_s)):
            excess[name] += max(0.0, seconds - compute[index])
    worst = max(excess, key=lambda name: excess[name])
    memory = memory_estimate(mesh, model)
    return Prediction(
        mesh,
        model,
        compute_s=totals["compute"],
        hbm_s=hbm,
        ici_s=totals["ICI"],
        dcn_s=totals["DCN"],
        step_time_s=step,
        serial_step_time_s=serial,
        bound=worst if excess[worst] > 0 else "compute",
        tflops_per_device=model.flops_per_device / step / 1e12,
        ici_bytes=ici_bytes,
        dcn_bytes=dcn_bytes,
        rows_per_chip_ici=rows_ici * per_chip,
        rows_per_chip_dcn=rows_dcn * per_chip,
        memory=memory,
        fits=memory.total <= generation.hbm_bytes / per_chip,
        assumptions=ASSUMPTIONS,
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    ici: tuple[tuple[int, Traffic], ...]
    """(ways of the group, what one chip moves in it)."""
    dcn: Traffic


def _passes(mesh: Mesh, model: Model) -> tuple[_Pass, _Pass]:
    """Traffic of the forward and of the backward pass."""
    ici, dcn, total = mesh.ici, mesh.dcn, mesh.total
    weights = model.parameter_bytes / total.tensor
    gradients = model.parameter_bytes / (total.tensor * total.fsdp)
    # A row's activations between layers, gathered over the tensor axis: rows of a group are those of its chips together.
    row = model.embedding_dimension * model.itemsize * total.tensor * model.num_layers
    gather_ici = (ici.fsdp - 1) / ici.fsdp * weights
    gather_dcn = (dcn.fsdp - 1) / dcn.fsdp * weights / ici.fsdp
    reduce_ici = 2 * (ici.data - 1) / ici.data * gradients
    reduce_dcn = 2 * (dcn.data - 1) / dcn.data * gradients / ici.data
    act_ici = (ici.tensor - 1) / ici.tensor * row
    act_dcn = (dcn.tensor - 1) / dcn.tensor * row / ici.tensor
    forward = _Pass(
        ((ici.fsdp, Traffic(gather_ici)), (ici.tensor, Traffic(per_row=2 * act_ici))),
        Traffic(gather_dcn, 2 * act_dcn),
    )
    # Backward: gather the weights again and scatter their gradients; the first layer passes no gradient on to its input.
    back = 2 - 1 / model.num_layers
    backward = _Pass(
        (
            (ici.fsdp, Traffic(2 * gather_ici)),
            (ici.data, Traffic(reduce_ici)),
            (ici.tensor, Traffic(0.0, back * act_ici)),
        ),
        Traffic(2 * gather_dcn + reduce_dcn, back * act_dcn),
    )
    return forward, backward


def ici_rate(accelerator: Accelerator, ways: int) -> float:
    """Bytes/s of one device in a group of `ways`: as many torus axes as it takes, half where the ends are not joined."""
    generation = accelerator.generation
    chips = max(1, ways // generation.devices_per_chip)
    rate, covered = 0.0, 1
    axes = sorted(zip(accelerator.dimensions, accelerator.wrapped_axes, strict=True), reverse=True)
    for side, wrapped in axes:
        if side == 1 or (covered >= chips and rate):
            continue
        whole = wrapped and chips >= covered * side
        rate += generation.ici_bytes_per_s_per_axis * (1.0 if whole else 0.5)
        covered *= side
    return (rate or generation.ici_bytes_per_s_per_axis) / generation.devices_per_chip


def _hbm_bytes(mesh: Mesh, model: Model) -> float:
    """Each of the six matmuls of a layer reads two operands and writes one, once."""
    total = mesh.total
    rows = model.batch_per_device * mesh.devices / (total.data * total.fsdp)
    d, f = model.embedding_dimension, model.feed_forward
    return 6.0 * model.num_layers * model.itemsize * (rows * (d + f) + d * f) / total.tensor


def _rows_until_hidden(fixed_s: float, per_row_s: float, compute_per_row_s: float) -> float:
    if fixed_s == 0.0 and per_row_s <= compute_per_row_s:
        return 0.0
    return fixed_s / (compute_per_row_s - per_row_s) if compute_per_row_s > per_row_s else inf
