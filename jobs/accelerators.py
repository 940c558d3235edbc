"""The accelerator catalogue: what a type string means, and what a chip of it can do.

Real endpoints always win over this table: before a slice is provisioned it is the best that is known, afterwards the
number of workers is `len(node.networkEndpoints)`.

Sources: sizes and topologies from AI-Hypercomputer/maxtext `accelerator_to_spec_map.py`, AI-Hypercomputer/xpk
`system_characteristics.py` and the page `regions-zones` below https://docs.cloud.google.com/tpu/docs; one worker of 8
for the 8-chip sizes of v5e and v6e from the pages `v5e` and `v6e` there. Figures per chip: `jobs.generations`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod

from jobs.generations import GENERATIONS, V2, V3, V4, V5E, V5P, V6E, V7X, Generation

__all__ = [
    "GENERATIONS",
    "V2",
    "V3",
    "V4",
    "V5E",
    "V5P",
    "V6E",
    "V7X",
    "Accelerator",
    "Generation",
    "UnknownAccelerator",
]
__all__ += ["all_types", "find", "from_topology", "generation", "near_names", "parse"]

CHIPS_PER_WORKER = 4
"""Chips of a TPU VM of a multi-host slice, for every generation."""
MAXIMUM_SLICES = 256
"""Slices of one queued resource at most (Multislice introduction)."""
NEAR_NAMES = 4
"""Near names offered with an unknown type."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One type (and topology) of slice."""

    name: str
    """The API's type string: `v5litepod-16`."""
    generation: Generation
    chips: int
    workers: int
    chips_per_worker: int
    topology: str
    """In chips: `4x4`, `2x2x4`."""

    @property
    def devices(self) -> int:
        """JAX devices of a slice."""
        return self.chips * self.generation.devices_per_chip

    @property
    def dimensions(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self.topology.split("x"))

    @property
    def wrapped_axes(self) -> tuple[bool, ...]:
        """Per axis of the topology, whether its ends are joined (v4, v5p, 7x: multiples of 4; v5e, v6e: 16)."""
        if self.generation.ici_axes == 3:
            whole = all(side % 4 == 0 for side in self.dimensions)
            return tuple(whole for _ in self.dimensions)
        if self.generation.name in ("v2", "v3"):
            return tuple(side >= 16 for side in self.dimensions)
        return tuple(side == 16 for side in self.dimensions)


class UnknownAccelerator(ValueError):
    """No such type or topology. `near` has the names that may have been meant, nearest first."""

    def __init__(self, what: str, near: tuple[str, ...] = ()) -> None:
        hint = f" Did you mean {_either(near)}?" if near else ""
        super().__init__(f"{what}{hint}")
        self.what = what
        self.near = near


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


_FLAT = {
    "v2": {8: "2x2", 32: "4x4", 128: "8x8", 256: "8x16", 512: "16x16"},
    "v3": {8: "2x2", 32: "4x4", 64: "4x8", 128: "8x8", 256: "8x16", 512: "16x16", 1024: "16x32", 2048: "32x32"},
    "v5e": {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
    "v6e": {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
}
"""Generation -> number of the type string -> topology, for the two-dimensional ones: nothing else exists."""
_SMALL = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}
"""Chips -> topology below one cube of 4x4x4; from 64 chips on, every side is a multiple of 4."""
_LISTED_CHIPS = {
    "v4": (4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 2048),
    "v5p": (
        4,
        8,
        16,
        32,
        64,
        128,
        192,
        256,
        320,
        384,
        448,
        512,
        576,
        640,
        768,
        896,
        1024,
        1152,
        1280,
        1536,
        1728,
        1792,
        2048,
        2304,
        2560,
        2688,
        3072,
        3456,
        3584,
        3840,
        4096,
        4608,
        5120,
        5376,
        6144,
    ),
    "7x": (1, 4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 9216),
}
"""Sizes that lists offer; every other multiple of 64 is understood too."""
_ALIASES = {
    "v5e": "v5litepod",
    "v5lite": "v5litepod",
    "v5litepod": "v5litepod",
    "v5": "v5p",
    "7x": "tpu7x",
    "v7x": "tpu7x",
}
"""What people write for a prefix of the API: offered as near names, never taken in silence."""
_NAME = re.compile(r"([a-z0-9]+?)-(\d{1,6})")
_TOPOLOGY = re.compile(r"\d{1,4}(x\d{1,4}){1,2}")


def generation(name: str) -> Generation | None:
    """By the field's name, the type prefix or the API's enum (`v5e`, `v5litepod`, `V5LITE_POD`)."""
    wanted = name.strip().lower()
    for item in GENERATIONS:
        if wanted in (item.name, item.type_prefix, item.type_enum.lower()) and wanted:
            return item
    return None


def parse(name: str) -> Accelerator:
    """The accelerator of an API type string such as `v5litepod-16`.

    Raises:
        UnknownAccelerator: There is no such type; `near` says what may have been meant.
    """
    found = find(name)
    if found is None:
        raise UnknownAccelerator(_why_unknown(name), near_names(name))
    return found


@cache
def find(name: str) -> Accelerator | None:
    """As `parse`, but None for an unknown name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number = int(match[2])
    for item in GENERATIONS:
        if item.type_prefix == match[1] and str(number) == match[2]:
            return _of_number(item, number)
    return None


def from_topology(type_: str, topology: str) -> Accelerator:
    """The accelerator of gcloud's `--type` and `--topology`, e.g. ("v5p", "4x4x8"), or the API's enum.

    Raises:
        UnknownAccelerator: Unknown type, or a topology that it does not have.
    """
    item = generation(type_)
    if item is None:
        enums = tuple(each.type_enum.lower().replace("_", "") for each in GENERATIONS if each.type_enum)
        raise UnknownAccelerator(
            f"'{type_}' is not a TPU type.", tuple(difflib.get_close_matches(type_.lower(), enums, NEAR_NAMES))
        )
    wanted = topology.strip().lower()
    if not _TOPOLOGY.fullmatch(wanted):
        raise UnknownAccelerator(
            f"'{topology}' is not a topology: write the sides in chips, such as {_example(item)}."
        )
    sides = [int(side) for side in wanted.split("x")]
    chips = prod(sides)
    if not 0 < chips <= item.maximum_chips:
        raise UnknownAccelerator(
            f"A {item.name} slice has 1 to {item.maximum_chips} chips, and {wanted} are {chips}."
        )
    number = chips * (item.cores_per_chip if item.counts == "cores" else 1)
    flat = _FLAT.get(item.name)
    if flat is not None:
        if flat.get(number) != wanted:
            raise UnknownAccelerator(
                f"{item.name} has no topology {wanted}.", _near_topologies(tuple(flat.values()), chips)
            )
    elif wanted not in _small(item).values() and (
        len(sides) != 3 or sides != sorted(sides) or any(s % 4 for s in sides)
    ):
        known = (*_small(item).values(), *(each.topology for each in all_types() if each.generation is item))
        raise UnknownAccelerator(
            f"{item.name} has no topology {wanted}: the sides are"
            f" {', '.join(_small(item).values())}, or three multiples of 4 in rising order.",
            _near_topologies(known, chips),
        )
    return _make(item, number, chips, wanted)


@cache
def all_types() -> tuple[Accelerator, ...]:
    """Every listed type, by generation and size (7x included: look at `generation.served`)."""
    return tuple(_walk())


def near_names(name: str) -> tuple[str, ...]:
    """Type strings that may have been meant by `name`, nearest first; types that the API does not serve come last."""
    wanted = name.strip().lower().replace("_", "-")
    match = re.fullmatch(r"(.*?)-?(\d+)", wanted)
    prefix, number = (match[1], int(match[2][:9])) if match else (wanted, 0)
    if match and not match[1] and wanted.isdigit():
        return ()
    prefixes = [item.type_prefix for item in GENERATIONS]
    if prefix in _ALIASES:
        prefix = _ALIASES[prefix]
    elif prefix not in prefixes:
        close = difflib.get_close_matches(prefix, [*prefixes, *_ALIASES], 1, 0.5)
        prefix = _ALIASES.get(close[0], close[0]) if close else ""
    exact = find(f"{prefix}-{number}")
    if exact is not None:
        return (exact.name,)
    own = [each.name for each in all_types() if each.generation.type_prefix == prefix]
    own.sort(key=lambda each: (abs(int(each.rsplit("-", 1)[1]) - number), each))
    return tuple(own[:NEAR_NAMES])


def _walk() -> Iterator[Accelerator]:
    for item in GENERATIONS:
        if item.name in _FLAT:
            numbers: tuple[int, ...] = tuple(_FLAT[item.name])
        else:
            numbers = tuple(chips * item.cores_per_chip for chips in _LISTED_CHIPS[item.name])
        for number in numbers:
            found = _of_number(item, number)
            if found is not None:
                yield found


def _small(item: Generation) -> dict[int, str]:
    return {1: "1x1x1", **_SMALL} if item is V7X else _SMALL


def _of_number(item: Generation, number: int) -> Accelerator | None:
    flat = _FLAT.get(item.name)
    if flat is not None:
        topology = flat.get(number, "")
    else:
        topology = "" if number % item.cores_per_chip else _cuboid(item, number // item.cores_per_chip)
    if not topology:
        return None
    return _make(item, number, prod(int(side) for side in topology.split("x")), topology)


def _make(item: Generation, number: int, chips: int, topology: str) -> Accelerator:
    single = (item.counts == "chips" and chips <= 8) or chips < CHIPS_PER_WORKER
    per_worker = chips if single else CHIPS_PER_WORKER
    return Accelerator(f"{item.type_prefix}-{number}", item, chips, chips // per_worker, per_worker, topology)


@cache
def _cuboid(item: Generation, chips: int) -> str:
    """The default topology: sides in multiples of 4 with the smallest sum, which is how all listed ones are made."""
    if chips in _small(item):
        return _small(item)[chips]
    cubes, rest = divmod(chips, 64)
    if rest or not cubes or chips > item.maximum_chips:
        return ""
    best = (1, 1, cubes)
    for a in range(1, round(cubes ** (1 / 3)) + 1):
        if cubes % a:
            continue
        for b in range(a, int((cubes // a) ** 0.5) + 1):
            c, remainder = divmod(cubes // a, b)
            if not remainder and a + b + c < sum(best):
                best = (a, b, c)
    return "x".join(str(4 * side) for side in best)


def _near_topologies(known: tuple[str, ...], chips: int) -> tuple[str, ...]:
    def distance(topology: str) -> int:
        return abs(prod(int(side) for side in topology.split("x")) - chips)

    return tuple(sorted(dict.fromkeys(known), key=distance)[:NEAR_NAMES])


def _example(item: Generation) -> str:
    return "4x4x4" if item.ici_axes == 3 else "4x4"


def _why_unknown(name: str) -> str:
    match = _NAME.fullmatch(name)
    item = next((each for each in GENERATIONS if match and each.type_prefix == match[1]), None)
    if item is None:
        return f"There is no accelerator type '{name}'."
    return f"There is no accelerator type '{name}': {item.name} has other sizes (it counts {item.counts})."
