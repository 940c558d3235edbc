"""Bounds follow the arithmetic of the scaling book, and memory that of the compiler."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.accelerators import parse
from jobs.meshes import Axes, Mesh, default_mesh, legal_meshes
from jobs.roofline import Model, largest_batch, memory_estimate, predict

V5E = parse("v5litepod-16")


def test_upstream_counts_one_matmul_too_many() -> None:
    model = Model(num_layers=4)
    assert model.flops_per_device / model.claimed_flops_per_device == pytest.approx(1 - 1 / 24)
    assert Model(num_layers=1).flops_per_device / Model(num_layers=1).claimed_flops_per_device == pytest.approx(5 / 6)


def test_upstream_defaults_on_two_slices_are_bound_by_computing() -> None:
    prediction = predict(V5E, default_mesh(16, 2), Model())
    assert prediction.bound == "compute"
    assert prediction.fits
    assert prediction.tflops_per_device == pytest.approx(197, rel=0.001)
    assert prediction.step_time_s == pytest.approx(prediction.compute_s)


def test_memory_is_that_of_the_compiler() -> None:
    """The compiler says 13.7 GB of 15.75 GiB for the document's sizes on 2 x v5e:4x4."""
    memory = memory_estimate(default_mesh(16, 2), Model())
    assert memory.total == pytest.approx(13.7e9, rel=0.03)
    assert not predict(V5E, default_mesh(16, 2), replace(Model(), batch_per_device=262144)).fits


def test_largest_batch_fits_and_one_more_does_not() -> None:
    mesh = default_mesh(16, 2)
    rows = largest_batch(V5E, mesh, Model())
    assert predict(V5E, mesh, Model(batch_per_device=rows)).fits
    assert not predict(V5E, mesh, Model(batch_per_device=rows + 1)).fits
    assert largest_batch(V5E, Mesh(Axes(16)), Model(embedding_dimension=65536)) == 0


@pytest.mark.parametrize(
    ("name", "rows_per_slice"),
    [("v4-32", 44_000), ("v5litepod-16", 63_000), ("v5p-32", 73_400), ("v6e-16", 73_400), ("tpu7x-32", 184_600)],
)
def test_data_over_many_slices_needs_the_rows_of_the_scaling_book(name: str, rows_per_slice: int) -> None:
    accelerator = parse(name)
    mesh = Mesh(Axes(1, accelerator.devices, 1), Axes(256))
    prediction = predict(accelerator, mesh, Model(num_layers=1000))
    assert prediction.rows_per_slice_dcn(accelerator.chips) == pytest.approx(rows_per_slice, rel=0.01)


def test_below_those_rows_dcn_binds_and_above_it_does_not() -> None:
    mesh = Mesh(Axes(1, 16, 1), Axes(256))
    rows = predict(V5E, mesh, Model()).rows_per_chip_dcn
    few = predict(V5E, mesh, Model(batch_per_device=int(rows / 2), embedding_dimension=8192))
    many = predict(V5E, mesh, Model(batch_per_device=int(rows * 2), embedding_dimension=8192))
    assert few.bound == "DCN"
    assert many.bound == "compute"
    assert few.tflops_per_device < many.tflops_per_device


def test_fsdp_over_dcn_moves_half_as_much_again_as_data() -> None:
    data = predict(V5E, Mesh(Axes(1, 16, 1), Axes(2)), Model())
    fsdp = predict(V5E, Mesh(Axes(1, 16, 1), Axes(1, 2, 1)), Model())
    assert fsdp.dcn_bytes == pytest.approx(1.5 * data.dcn_bytes)


def test_bytes_over_dcn_are_those_measured() -> None:
    """research: 2 slices x 4, D 512, L 4, fsdp 4 x data 2: 4.2 MB a chip in bf16 (8.4 as the CPU widens to f32)."""
    model = Model(512, 4, 512)
    assert predict(V5E, Mesh(Axes(1, 4, 1), Axes(2)), model).dcn_bytes == pytest.approx(4.2e6, rel=0.01)
    assert predict(V5E, Mesh(Axes(1, 4, 1), Axes(1, 2, 1)), model).dcn_bytes == pytest.approx(6.3e6, rel=0.01)


def test_more_rows_do_not_help_tensor_over_dcn() -> None:
    prediction = predict(V5E, Mesh(Axes(1, 16, 1), Axes(1, 1, 2)), Model())
    assert prediction.bound == "DCN"
    assert prediction.rows_per_chip_dcn == inf


@given(st.sampled_from(legal_meshes(16, 2)), st.integers(1, 1 << 18), st.sampled_from([256, 2048, 16384]))
def test_no_prediction_beats_the_peak(mesh: Mesh, rows: int, dimension: int) -> None:
    prediction = predict(V5E, mesh, Model(dimension, 4, rows))
    assert 0 < prediction.tflops_per_device <= 197 * (1 + 1e-9)
    assert prediction.step_time_s <= prediction.serial_step_time_s * (1 + 1e-9)
    assert (prediction.bound == "compute") == (prediction.step_time_s <= prediction.compute_s * (1 + 1e-9))
