"""What a compiled program sends: collectives and their groups, read out of XLA's text (HLO).

Groups come in four syntaxes: `{{0,1},{2,3}}`, `[4,2]<=[8]`, `[4,2]<=[2,2,2]T(2,1,0)` and
`mesh['a'=4,'b'=2] {'b'}` (with or without `device_ids=([2,4]T(1,0))`). Ids are positions in the program's device order.
A program for several TPU slices is compiled for one of them (`num_partitions` is then a slice's count, and every
collective stays inside it); what crosses slices is a `send` to the megascale runtime. What can't be read is told, never
guessed: a parser that takes an unknown group for "all devices" calls ICI traffic DCN.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
BYTES.update({"s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16, "s4": 1, "u4": 1})
FLOAT8 = "f8"
COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{\s*$")
_OPERATION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\(")
_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,]*)\]")
_CALLS = re.compile(r"(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CHANNEL = re.compile(r"channel_id=(\d+)")
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="(\w+)"')
_TARGET_PRODUCT = re.compile(r'_xla_megascale_target="\{([\d,]+)\}x\{')
_TARGET_GROUPS = re.compile(r"_xla_megascale_target=\"?\{\{([\d,]+)\}")
_PARTITIONS = re.compile(r"^HloModule .*?\bnum_partitions=(\d+)", re.MULTILINE)
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"replica_groups=@?mesh\[([^\]]*)\],?\s*\{([^}]*)\}")
_MESH_DEVICES = re.compile(r",?\s*\bdevice_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)")
_AXIS = re.compile(r"'([^']+)'=(\d+)")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


class UnreadGroups(ValueError):
    """Replica groups in a syntax that is not known."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One kind of traffic of a step, over one network; bytes are those that one device moves."""

    network: str
    """`ICI` or `DCN`."""
    kind: str
    """`all-gather`, `all-reduce` ..."""
    ways: int
    """Members of a group on this network."""
    count: int
    """How often a step does it."""
    bytes: float
    """Per device and step, all of them together, by ring algorithms."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """All that a step sends."""

    sent: tuple[Sent, ...]
    unread: tuple[str, ...] = ()
    """Operations whose groups could not be read: their bytes are missing above."""

    def bytes_over(self, network: str) -> float:
        return sum(each.bytes for each in self.sent if each.network == network)


def groups_of(text: str, devices: int) -> tuple[tuple[int, ...], ...]:
    """The replica groups of one operation.

    Raises:
        UnreadGroups: An unknown syntax, or ids beyond the devices.
    """
    groups = _groups(text, devices)
    members = [member for group in groups for member in group]
    if not members or max(members) >= devices or len(set(members)) != len(members):
        raise UnreadGroups(text[:200])
    return groups


@cache
def _groups(text: str, devices: int) -> tuple[tuple[int, ...], ...]:
    if "replica_groups={}" in text:
        return (tuple(range(devices)),)
    if match := _LISTED.search(text):
        return tuple(_ints(part) for part in re.findall(r"\{([\d,]*)\}", match[1]))
    if match := _IOTA.search(text):
        count, size = _two(_ints(match[1]), text)
        order = _iota(_ints(match[2]), _ints(match[3]) if match[3] else None, text)
        if len(order) != count * size:
            raise UnreadGroups(text[:200])
        return tuple(order[start : start + size] for start in range(0, len(order), size))
    if match := _MESH.search(_MESH_DEVICES.sub("", text)):
        return _mesh_groups(match, _MESH_DEVICES.search(text), text)
    raise UnreadGroups(text[:200])


def _mesh_groups(match: re.Match[str], devices: re.Match[str] | None, text: str) -> tuple[tuple[int, ...], ...]:
    """Devices that differ on the named axes alone form a group."""
    axes = [(name, int(size)) for name, size in _AXIS.findall(match[1])]
    named = [name.strip().strip("'") for name in match[2].split(",") if name.strip()]
    if not axes or "device_ids" in match[1] or not named or any(name not in dict(axes) for name in named):
        raise UnreadGroups(text[:200])
    sizes = tuple(size for _, size in axes)
    order: tuple[int, ...] = tuple(range(prod(sizes)))
    if devices is not None:
        order = _iota(_ints(devices[1]), _ints(devices[2]) if devices[2] else None, text)
        if len(order) != prod(sizes):
            raise UnreadGroups(text[:200])
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    names = [name for name, _ in axes]
    for position, device in enumerate(order):
        place = _unravel(position, sizes)
        across = tuple(place[names.index(name)] for name in named)
        rest = tuple(value for name, value in zip(names, place, strict=True) if name not in named)
        groups[rest].append((across, device))
    return tuple(tuple(device for _, device in sorted(members)) for members in groups.values())


def _iota(shape: tuple[int, ...], order: tuple[int, ...] | None, text: str) -> tuple[int, ...]:
    """0 to n-1 in `shape`, transposed by `order`, flattened."""
    if order is None:
        return tuple(range(prod(shape)))
    if sorted(order) != list(range(len(shape))):
        raise UnreadGroups(text[:200])
    turned = tuple(shape[axis] for axis in order)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(
        sum(index * strides[axis] for index, axis in zip(_unravel(position, turned), order, strict=True))
        for position in range(prod(shape))
    )


def _unravel(position: int, sizes: Sequence[int]) -> tuple[int, ...]:
    place = []
    for size in reversed(sizes):
        position, index = divmod(position, size)
        place.append(index)
    return tuple(reversed(place))


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _two(values: tuple[int, ...], text: str) -> tuple[int, int]:
    if len(values) != 2:
        raise UnreadGroups(text[:200])
    return values[0], values[1]


def size_of(shape: str) -> int:
    """Bytes of a shape text, tuples summed; layouts in braces are no shapes."""
    total = 0
    for kind, sides in _SHAPE.findall(re.sub(r"\{[^{}]*\}", "", shape)):
        item = 1 if kind.startswith(FLOAT8) else BYTES.get(kind)
        if item is not None:
            total += item * prod(_ints(sides))
    return total


def _elements(shape: str) -> list[str]:
    """The top-level parts of a tuple shape; a plain shape is its own only part."""
    shape = re.sub(r"\{[^{}]*\}|/\*.*?\*/", "", shape).strip()
    if not shape.startswith("("):
        return [shape]
    parts, depth, start = [], 0, 1
    for place, sign in enumerate(shape):
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        if (sign == "," and depth == 1) or (sign == ")" and depth == 0):
            parts.append(shape[start:place].strip())
            start = place + 1
    return [part for part in parts if part]


@dataclass(frozen=True, slots=True)
class _Operation:
    computation: str
    shape: str
    code: str
    line: str


def _operations(text: str) -> Iterator[_Operation]:
    computation = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            match = _COMPUTATION.match(line)
            if match:
                computation = match[1]
                continue
        found = _OPERATION.match(line)
        if found and computation:
            yield _Operation(computation, found[2], found[3], line)


def _multiplicities(text: str, operations: Sequence[_Operation]) -> dict[str, int]:
    """How often a step runs each computation: loops with a known trip count multiply."""
    callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for operation in operations:
        trips = int(found[1]) if (found := _TRIPS.search(operation.line)) else 1
        for role, callee in _CALLS.findall(operation.line):
            callers[callee].append((operation.computation, trips if role == "body" else 1))
        if branches := _BRANCHES.search(operation.line):
            for callee in re.findall(r"%?([\w.\-]+)", branches[1]):
                callers[callee].append((operation.computation, 1))
    entry = re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)
    counts: dict[str, int] = {entry[1]: 1} if entry else {}

    def count(name: str, seen: frozenset[str]) -> int:
        if name not in counts:
            if name in seen:
                return 0
            counts[name] = sum(count(caller, seen | {name}) * times for caller, times in callers.get(name, ()))
        return counts[name]

    return {name: count(name, frozenset()) for name in {operation.computation for operation in operations}}


def traffic_of(text: str, slice_of: Sequence[int]) -> Traffic:
    """What one device sends in a step of this program.

    Args:
        slice_of: The slice of each device, in the program's device order.
    """
    operations = list(_operations(text))
    times = _multiplicities(text, operations)
    slice_of = _partitions(text, slice_of)
    totals: dict[tuple[str, str, int], list[float]] = defaultdict(lambda: [0, 0.0])
    unread: list[str] = []
    # An asynchronous collective appears in the fusions that start, carry and finish it, under one channel.
    seen: dict[tuple[str, str], int] = {}
    for operation in operations:
        kind = operation.code.removesuffix("-start")
        transfer = _TRANSFER.search(operation.line) if operation.code == "send" else None
        if kind not in COLLECTIVES and transfer is None:
            continue
        channel = found[1] if (found := _CHANNEL.search(operation.line)) else operation.line
        runs = times.get(operation.computation, 1)
        fresh = runs - seen.get((kind, channel), 0)
        if fresh <= 0:
            continue
        seen[(kind, channel)] = runs
        try:
            parts = _megascale(operation, transfer[1]) if transfer else _parts(operation, kind, slice_of)
        except UnreadGroups as error:
            unread.append(str(error))
            continue
        for network, name, ways, moved in parts:
            held = totals[(network, name, ways)]
            held[0] += fresh
            held[1] += fresh * moved
    sent = [Sent(network, name, ways, int(count), moved) for (network, name, ways), (count, moved) in totals.items()]
    return Traffic(tuple(sorted(sent, key=lambda each: (each.network, -each.bytes))), tuple(unread))


def _partitions(text: str, slice_of: Sequence[int]) -> Sequence[int]:
    """The slice of each id that this program knows: its own slice alone, where it was compiled for one of several."""
    match = _PARTITIONS.search(text)
    count = int(match[1]) if match else len(slice_of)
    slices = len(set(slice_of))
    return [0] * count if slices > 1 and count * slices == len(slice_of) else slice_of


def _megascale(operation: _Operation, transfer: str) -> list[tuple[str, str, int, float]]:
    """A shard that is handed to the host's runtime, which exchanges it with the other slices of its group."""
    target = _TARGET_PRODUCT.search(operation.line) or _TARGET_GROUPS.search(operation.line)
    if target is None:
        raise UnreadGroups(operation.line.strip()[:200])
    k = len(_ints(target[1]))
    if k < 2:
        return []
    payload = size_of(_elements(operation.shape)[0])
    share = (k - 1) / k
    factor = {"ALL_REDUCE": 2 * share, "ALL_GATHER": k - 1.0, "REDUCE_SCATTER": share, "ALL_TO_ALL": share}
    return [("DCN", transfer.lower().replace("_", "-"), k, factor.get(transfer, 1.0) * payload)]


def _parts(operation: _Operation, kind: str, slice_of: Sequence[int]) -> list[tuple[str, str, int, float]]:
    elements = _elements(operation.shape)
    started = operation.code.endswith("-start") and kind in ("all-gather", "collective-permute")
    result = size_of(elements[1]) if started and len(elements) > 1 else size_of(operation.shape)
    if kind == "collective-permute":
        return _permute(operation.line, result, slice_of)
    groups = groups_of(operation.line, len(slice_of))
    members = max(groups, key=len)
    g = len(members)
    if g == 1:
        return []
    full = float(result)
    if kind == "all-reduce" and "reduce-scatter" in operation.computation:
        kind = "reduce-scatter"
    elif kind == "reduce-scatter":
        full *= g
    passes = 2 if kind == "all-reduce" else 1
    k = len({slice_of[member] for member in members})
    m = max(1, g // k)
    parts = []
    if m > 1:
        parts.append(("ICI", kind, m, passes * full * (m - 1) / m))
    if k > 1:
        parts.append(("DCN", kind, k, passes * full * (k - 1) / k / m))
    return parts


def _permute(line: str, result: int, slice_of: Sequence[int]) -> list[tuple[str, str, int, float]]:
    match = _PAIRS.search(line)
    if match is None:
        raise UnreadGroups(line.strip()[:200])
    pairs = [_ints(part) for part in re.findall(r"\{(\d+,\d+)\}", match[1])]
    if any(max(pair) >= len(slice_of) for pair in pairs):
        raise UnreadGroups(line.strip()[:200])
    moving = [(source, target) for source, target in pairs if source != target]
    crossing = [pair for pair in moving if slice_of[pair[0]] != slice_of[pair[1]]]
    parts = []
    for network, own in (("ICI", len(moving) - len(crossing)), ("DCN", len(crossing))):
        if own:
            # Not every device need send: this is what one moves on average.
            parts.append((network, "collective-permute", 2, result * own / len(slice_of)))
    return parts
