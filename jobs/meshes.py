"""Meshes: how many ways each axis is split inside a slice (ICI) and over slices (DCN), and which splits are legal.

Axes and flag names are those of MaxText's `shardings.py` (https://github.com/AI-Hypercomputer/maxtext): the product of
the ICI axes is the number of devices of a slice, the product of the DCN axes the number of slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

AXIS_NAMES = ("data", "fsdp", "tensor")
SUGGESTIONS = 5
"""Legal choices listed with a refusal."""


@dataclass(frozen=True, slots=True)
class Axes:
    """How often each logical axis is split over one network."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        return (self.data, self.fsdp, self.tensor)

    @property
    def product(self) -> int:
        return self.data * self.fsdp * self.tensor

    def words(self) -> str:
        """`data 2 x fsdp 8`; axes of 1 are left out, and all of them at 1 are `no split`."""
        parts = [f"{name} {size}" for name, size in zip(AXIS_NAMES, self.sizes, strict=True) if size != 1]
        return " x ".join(parts) or "no split"

    def code(self) -> str:
        """`2x8x1`: data x fsdp x tensor."""
        return "x".join(str(size) for size in self.sizes)

    def flags(self, network: str) -> tuple[str, ...]:
        """The upstream flags of these axes; `network` is `ici` or `dcn`. All three are given, for the record."""
        pairs = zip(AXIS_NAMES, self.sizes, strict=True)
        return tuple(part for name, size in pairs for part in (f"--{network}_{name}_parallelism", str(size)))


@dataclass(frozen=True, slots=True)
class Mesh:
    """Both networks' axes together."""

    ici: Axes
    dcn: Axes = Axes()

    @property
    def total(self) -> Axes:
        """Per logical axis, over both networks."""
        return Axes(self.ici.data * self.dcn.data, self.ici.fsdp * self.dcn.fsdp, self.ici.tensor * self.dcn.tensor)

    @property
    def devices(self) -> int:
        return self.ici.product * self.dcn.product

    def words(self) -> str:
        """`ICI fsdp 16, DCN data 2`."""
        if self.dcn.product == 1:
            return f"ICI {self.ici.words()}"
        return f"ICI {self.ici.words()}, DCN {self.dcn.words()}"

    def code(self) -> str:
        """`ici 1x16x1 dcn 2x1x1`: short, unambiguous, data x fsdp x tensor."""
        return f"ici {self.ici.code()} dcn {self.dcn.code()}"

    def short(self) -> str:
        """`1x16x1/2x1x1`: ICI/DCN, each data x fsdp x tensor; as `bench sweep --mesh` takes it."""
        return f"{self.ici.code()}/{self.dcn.code()}"

    def flags(self) -> tuple[str, ...]:
        return self.dcn.flags("dcn") + self.ici.flags("ici")


@cache
def legal_axes(count: int) -> tuple[Axes, ...]:
    """Every way to split `count` over the three axes, fsdp first: fsdp inside a slice is the usual choice."""
    return tuple(sorted(_walk(count), key=lambda axes: (-axes.fsdp, -axes.data, axes.tensor)))


def legal_meshes(chips_per_slice: int, slices: int) -> tuple[Mesh, ...]:
    """Every legal mesh; the usual ones (fsdp over ICI, data over DCN) first."""
    over_dcn = sorted(legal_axes(slices), key=lambda axes: (axes.tensor, axes.fsdp))
    return tuple(Mesh(ici, dcn) for dcn in over_dcn for ici in legal_axes(chips_per_slice))


def default_mesh(chips_per_slice: int, slices: int) -> Mesh:
    """What the Multislice introduction advises: fsdp inside the slice, data over slices."""
    return Mesh(Axes(fsdp=chips_per_slice), Axes(data=slices))


def mesh_problems(
    ici: Axes, dcn: Axes, chips_per_slice: int, slices: int, *, type_name: str = "", devices_per_chip: int = 1
) -> list[str]:
    """Why these axes can't run there, one sentence each, with legal choices; empty when they can.

    Args:
        type_name: Named in the sentence, e.g. `v5litepod-16`.
        devices_per_chip: JAX devices a chip (v2, v3, 7x: 2); the ICI axes split devices.
    """
    problems = []
    for network, axes in (("ici", ici), ("dcn", dcn)):
        for name, size in zip(AXIS_NAMES, axes.sizes, strict=True):
            if size < 1:
                problems.append(f"--{network}_{name}_parallelism is {size}: an axis is split 1 or more times.")
    if problems:
        return problems
    devices = chips_per_slice * devices_per_chip
    where = f"a {type_name} slice" if type_name else "a slice"
    if ici.product != devices:
        chips = f"{chips_per_slice} chip{'s' if chips_per_slice > 1 else ''}"
        has = chips if devices_per_chip == 1 else f"{devices} devices ({chips})"
        note = ""
        if slices > 1 and ici.product == devices * slices:
            note = f" ({ici.product} is the count of all {slices} slices: the ICI axes split one slice)"
        problems.append(
            f"ICI axes {ici.code()} (data x fsdp x tensor) multiply to {ici.product}{note}, but {where} has {has}:"
            f" use e.g. {_choices(ici, devices)}."
        )
    if dcn.product != slices:
        have = f"there are {slices} slices" if slices != 1 else "there is 1 slice"
        use = f"use e.g. {_choices(dcn, slices)}" if slices > 1 else "leave the DCN axes at 1"
        problems.append(f"DCN axes {dcn.code()} (data x fsdp x tensor) multiply to {dcn.product}, but {have}: {use}.")
    return problems


def size_problems(mesh: Mesh, embedding_dimension: int, batch_per_device: int, num_layers: int) -> list[str]:
    """Why this model can't be split so: sizes have to divide. One sentence each."""
    problems = []
    sizes = (
        ("embedding_dimension", embedding_dimension),
        ("batch_size", batch_per_device),
        ("num_layers", num_layers),
    )
    for name, size in sizes:
        if size < 1:
            problems.append(f"--{name} is {size}: it has to be 1 or more.")
    total = mesh.total
    for name, ways in (("fsdp", total.fsdp), ("tensor", total.tensor)):
        if not problems and embedding_dimension % ways:
            near = ways * max(1, round(embedding_dimension / ways))
            problems.append(
                f"--embedding_dimension {embedding_dimension} does not divide by the {ways} ways of the {name} axis:"
                f" use a multiple of {ways}, such as {near}."
            )
    return problems


def advice(mesh: Mesh) -> list[str]:
    """The Multislice introduction's rules of thumb that this mesh goes against; one sentence each."""
    said = []
    if mesh.dcn.tensor > 1:
        said.append(
            f"tensor {mesh.dcn.tensor} over DCN: every layer's activations cross the data-center network and its time"
            " grows with the batch; keep tensor inside a slice and use data over DCN."
        )
    if mesh.dcn.fsdp > 1:
        said.append(
            f"fsdp {mesh.dcn.fsdp} over DCN: the weights are gathered over it too, 1.5 x the bytes of data;"
            " use it only when the weights don't fit otherwise."
        )
    if mesh.ici.data > 1:
        said.append(
            f"data {mesh.ici.data} over ICI: each chip keeps {mesh.ici.data} x the weights that fsdp would leave it,"
            " and the network inside a slice is quick enough for fsdp."
        )
    if mesh.ici.tensor > 1 and mesh.ici.fsdp == 1 and mesh.ici.tensor > 8:
        said.append(
            f"tensor {mesh.ici.tensor} alone over ICI: beyond 8 ways the activations usually bind; mix with fsdp."
        )
    return said


def _choices(asked: Axes, count: int) -> str:
    def distance(axes: Axes) -> tuple[int, int]:
        kept = sum(mine != theirs for mine, theirs in zip(axes.sizes, asked.sizes, strict=True))
        used = sum((mine > 1) != (theirs > 1) for mine, theirs in zip(axes.sizes, asked.sizes, strict=True))
        return (used, kept)

    legal = legal_axes(count)
    nearest = min(legal, key=distance)
    listed = list(dict.fromkeys([nearest, *legal]))[:SUGGESTIONS]
    more = f" ({len(legal)} in all)" if len(legal) > len(listed) else ""
    *first, last = [axes.words() for axes in listed]
    return (f"{', '.join(first)} or {last}" if first else last) + more


def _walk(count: int) -> Iterator[Axes]:
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    for data in divisors:
        for fsdp in divisors:
            if (count // data) % fsdp == 0:
                yield Axes(data, fsdp, count // data // fsdp)
