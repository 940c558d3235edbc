"""The catalogue says what the field's own tables say."""

from __future__ import annotations

import subprocess
import sys
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import accelerators
from jobs.accelerators import UnknownAccelerator, all_types, find, from_topology, near_names, parse


@pytest.mark.parametrize(
    ("name", "chips", "workers", "chips_per_worker", "topology"),
    [
        ("v2-8", 4, 1, 4, "2x2"),
        ("v2-512", 256, 64, 4, "16x16"),
        ("v3-2048", 1024, 256, 4, "32x32"),
        ("v4-8", 4, 1, 4, "2x2x1"),
        ("v4-16", 8, 2, 4, "2x2x2"),
        ("v4-384", 192, 48, 4, "4x4x12"),
        ("v4-4096", 2048, 512, 4, "8x16x16"),
        ("v5litepod-1", 1, 1, 1, "1x1"),
        ("v5litepod-4", 4, 1, 4, "2x2"),
        ("v5litepod-8", 8, 1, 8, "2x4"),
        ("v5litepod-16", 16, 4, 4, "4x4"),
        ("v5litepod-256", 256, 64, 4, "16x16"),
        ("v5p-8", 4, 1, 4, "2x2x1"),
        ("v5p-1024", 512, 128, 4, "8x8x8"),
        ("v5p-8192", 4096, 1024, 4, "16x16x16"),
        ("v5p-12288", 6144, 1536, 4, "16x16x24"),
        ("v6e-8", 8, 1, 8, "2x4"),
        ("v6e-64", 64, 16, 4, "8x8"),
        ("tpu7x-2", 1, 1, 1, "1x1x1"),
        ("tpu7x-128", 64, 16, 4, "4x4x4"),
    ],
)
def test_sizes_are_those_of_the_tables(
    name: str, chips: int, workers: int, chips_per_worker: int, topology: str
) -> None:
    found = parse(name)
    assert (found.chips, found.workers, found.chips_per_worker, found.topology) == (
        chips,
        workers,
        chips_per_worker,
        topology,
    )


@pytest.mark.parametrize(
    ("cores", "topology"),
    [
        (640, "4x4x20"),
        (1152, "4x12x12"),
        (3072, "8x12x16"),
        (6912, "12x12x24"),
        (8448, "8x12x44"),
        (11520, "12x20x24"),
    ],
)
def test_default_topology_of_an_unlisted_size_follows_the_rule_of_the_listed_ones(cores: int, topology: str) -> None:
    assert parse(f"v5p-{cores}").topology == topology


def test_every_listed_type_is_consistent() -> None:
    assert len(all_types()) > 70
    assert len({each.name for each in all_types()}) == len(all_types())
    for each in all_types():
        assert prod(each.dimensions) == each.chips == each.workers * each.chips_per_worker
        assert parse(each.name) == each
        assert from_topology(each.generation.name, each.topology) == each
        assert each.chips <= each.generation.maximum_chips
        counted = each.chips if each.generation.counts == "chips" else each.chips * each.generation.cores_per_chip
        assert each.name == f"{each.generation.type_prefix}-{counted}"


def test_devices_are_counted_as_jax_counts_them() -> None:
    assert parse("v3-8").devices == 8
    assert parse("v4-8").devices == 4
    assert parse("v5litepod-16").devices == 16
    assert parse("tpu7x-8").devices == 8


def test_only_7x_is_not_served_and_only_v2_and_v3_know_no_multislice() -> None:
    assert [each.name for each in accelerators.GENERATIONS if not each.served] == ["7x"]
    assert [each.name for each in accelerators.GENERATIONS if not each.multislice] == ["v2", "v3"]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("v5e-16", "v5litepod-16"),
        ("v5litpod-16", "v5litepod-16"),
        ("v5litepod-17", "v5litepod-16"),
        ("V5LITEPOD-16", "v5litepod-16"),
        ("v4-9", "v4-8"),
        ("v5p-100", "v5p-128"),
        ("v6e16", "v6e-16"),
        ("7x-8", "tpu7x-8"),
    ],
)
def test_an_unknown_type_is_refused_with_near_names(wrong: str, near: str) -> None:
    with pytest.raises(UnknownAccelerator) as caught:
        parse(wrong)
    assert near in caught.value.near
    assert wrong in str(caught.value)
    assert near in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "-", "v4-", "v4-08", "v4-0", "h100-8", "16", "v5p-999999", " v4-8", "v4-8\n"])
def test_nonsense_is_refused(wrong: str) -> None:
    assert find(wrong) is None
    with pytest.raises(UnknownAccelerator):
        parse(wrong)


@given(st.text(max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    found = find(text)
    assert found is None or found.name == text
    near_names(text)


def test_topologies_of_any_type() -> None:
    assert from_topology("V5LITE_POD", "4x4").name == "v5litepod-16"
    assert from_topology("v5litepod", "2x4").workers == 1
    wide = from_topology("v4", "4x4x16")
    assert (wide.name, wide.chips, wide.workers) == ("v4-512", 256, 64)
    assert parse("v4-512").topology == "4x8x8"


@pytest.mark.parametrize(
    ("type_", "topology"),
    [("v5e", "3x3"), ("v5e", "4x4x4"), ("v4", "4x4"), ("v4", "8x4x4"), ("v4", "2x2x16"), ("v4", "ab"), ("v9", "4x4")],
)
def test_a_topology_that_does_not_exist_is_refused(type_: str, topology: str) -> None:
    with pytest.raises(UnknownAccelerator):
        from_topology(type_, topology)


def test_wraparound_decides_what_an_axis_can_carry() -> None:
    assert parse("v5litepod-16").wrapped_axes == (False, False)
    assert parse("v5litepod-128").wrapped_axes == (False, True)
    assert parse("v5p-64").wrapped_axes == (False, False, False)
    assert parse("v5p-128").wrapped_axes == (True, True, True)


@pytest.mark.parametrize(
    ("generation", "version", "fits"),
    [
        ("v5e", "v2-alpha-tpuv5-lite", True),
        ("v5e", "v2-alpha-tpuv5", False),
        ("v5p", "v2-alpha-tpuv5", True),
        ("v5p", "v2-alpha-tpuv5-lite", False),
        ("v6e", "tpu-ubuntu2204-base", False),
        ("v4", "tpu-ubuntu2204-base", True),
        ("v4", "v2-alpha-tpuv6e", False),
        ("v5e", "tpu-vm-tf-2.17.0-pjrt", None),
        ("v5e", "my-own-image", None),
    ],
)
def test_runtime_versions_fit_their_generation(generation: str, version: str, fits: bool | None) -> None:
    found = accelerators.generation(generation)
    assert found is not None
    assert found.runtime_fits(version) is fits


def test_importing_the_catalogue_brings_nothing_heavy() -> None:
    heavy = "{'jax', 'numpy', 'google', 'asyncio'}"
    code = f"import sys, jobs.accelerators; print(sorted(m for m in sys.modules if m.split('.')[0] in {heavy}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout.strip() == "[]"
