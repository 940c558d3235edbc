"""Every byte that a compiled program sends is counted once, on the right network, or told as unread."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.accelerators import parse
from jobs.hlo import Sent, Traffic, UnreadGroups, groups_of, size_of, traffic_of
from jobs.meshes import Axes, Mesh
from jobs.roofline import Model, predict

HLO = Path(__file__).parent.parent / "fixtures" / "hlo"
MATRIX = 2048 * 512 * 2
"""Bytes of one matrix of the compiled model, of which it has four."""


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, x", ((0, 1), (2, 3))),
        ("replica_groups={}, x", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("replica_groups=[4,2]<=[8], x", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("replica_groups=[4,2]<=[2,2,2]T(2,1,0), x", ((0, 4), (2, 6), (1, 5), (3, 7))),
        ("replica_groups=[2,4]<=[4,2]T(1,0), x", ((0, 2, 4, 6), (1, 3, 5, 7))),
        (
            "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}, use_global_device_ids=true",
            ((0, 1), (2, 3), (4, 5), (6, 7)),
        ),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, x", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'a','c'}, x", ((0, 1, 4, 5), (2, 3, 6, 7))),
        *(
            (text, ((0, 4), (1, 5), (2, 6), (3, 7)))
            for text in (
                "replica_groups=mesh['axis_0'=4,'axis_1'=2, device_ids=([2,4]T(1,0))] {'axis_1'}, x",
                "replica_groups=mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_1'}, x",
                "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}, device_ids=([2,4]T(1,0)), x",
            )
        ),
    ],
)
def test_all_four_syntaxes_of_groups(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert groups_of(text, 8) == groups


@pytest.mark.parametrize(
    "text",
    [
        "no groups",
        "replica_groups={{0,1},{1,2}}",
        "replica_groups={{0,9}}",
        "replica_groups=[4,2]<=[6]",
        "replica_groups=[2,2,2]<=[8]",
        "replica_groups=[4,2]<=[4,2]T(0,3)",
        "replica_groups=mesh['a'=4,'b'=2] {'c'}",
        "replica_groups=mesh['a'=4,'b'=2] {'a':(1)2}",
        "replica_groups=mesh['a'=4, device_ids=(other)] {'a'}",
        "replica_groups=something[new]",
    ],
)
def test_groups_that_are_not_understood_are_never_guessed(text: str) -> None:
    with pytest.raises(UnreadGroups):
        groups_of(text, 8)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda s: st.tuples(st.just(s), st.permutations(range(len(s))))
    )
)
def test_an_iota_with_a_permutation_lists_every_device_once_as_a_transposed_array_would(
    shape_and_order: tuple[list[int], list[int]],
) -> None:
    shape, order = shape_and_order
    count = prod(shape)
    sides, turn = ",".join(map(str, shape)), ",".join(map(str, order))
    (found,) = groups_of(f"replica_groups=[1,{count}]<=[{sides}]T({turn})", count)
    ids = {place: number for number, place in enumerate(product(*(range(side) for side in shape)))}
    expected = []
    for turned in product(*(range(shape[axis]) for axis in order)):
        place = [0] * len(shape)
        for axis, index in zip(order, turned, strict=True):
            place[axis] = index
        expected.append(ids[tuple(place)])
    assert list(found) == expected


def test_sizes_of_shapes() -> None:
    assert size_of("bf16[2048,512]{1,0:T(8,128)(2,1)S(1)}") == MATRIX
    assert size_of("(f32[2,3], u32[]{:S(2)}, token[])") == 28
    assert size_of("f8e4m3fn[16]") == 16
    assert size_of("pred[]") == 1


def read(name: str, slice_of: list[int]) -> Traffic:
    traffic = traffic_of((HLO / f"{name}.hlo").read_text(), slice_of)
    assert traffic.unread == ()
    return traffic


def test_data_over_dcn_and_fsdp_over_ici_on_two_v4_slices() -> None:
    traffic = read("v4_2x2x4_2slices_dd2_if16", [0] * 16 + [1] * 16)
    assert traffic.sent == (
        Sent("DCN", "all-reduce", 2, 5, 4 * MATRIX / 16 + 512),
        Sent("ICI", "all-reduce", 16, 2, 2 * 15 / 16 * (4 * MATRIX + 512)),
        Sent("ICI", "all-gather", 16, 4, 15 / 16 * 4 * MATRIX),
    )


def test_asynchronous_collectives_that_appear_in_several_fusions_are_counted_once() -> None:
    text = (HLO / "v5e_4x4_1slice_if4_it4.hlo").read_text()
    assert text.count(" all-gather(") > 8
    traffic = read("v5e_4x4_1slice_if4_it4", [0] * 16)
    assert [each.count for each in traffic.sent if each.kind == "all-gather"] == [8]
    assert traffic.bytes_over("DCN") == 0


def test_a_program_of_one_slice_keeps_its_collectives_inside_whatever_the_order_of_the_mesh() -> None:
    traffic = read("v5p_2x2x4_2slices_dt2_if16", [0, 1] * 16)
    assert {each.kind for each in traffic.sent if each.network == "DCN"} == {
        "all-gather",
        "reduce-scatter",
        "all-reduce",
    }
    assert {each.kind for each in traffic.sent if each.network == "ICI"} == {
        "all-gather",
        "collective-permute",
        "all-reduce",
    }


def test_groups_of_some_slices_are_told_from_groups_of_all() -> None:
    traffic = read("v6e_4x4_4slices_dd2_df2_if8_it2", [n // 16 for n in range(64)])
    ways = {(each.kind, each.ways): each.count for each in traffic.sent if each.network == "DCN"}
    assert ways == {("all-reduce", 2): 8, ("all-gather", 2): 4, ("all-reduce", 4): 1}


@pytest.mark.parametrize(
    ("name", "kind", "slices", "mesh"),
    [
        ("v4_2x2x4_2slices_dd2_if16", "v4-32", 2, Mesh(Axes(1, 16, 1), Axes(2))),
        ("v5p_2x2x4_2slices_dt2_if16", "v5p-32", 2, Mesh(Axes(1, 16, 1), Axes(1, 1, 2))),
        ("v6e_4x4_4slices_dd2_df2_if8_it2", "v6e-16", 4, Mesh(Axes(1, 8, 2), Axes(2, 2, 1))),
    ],
)
def test_the_roofline_predicts_the_bytes_that_the_compiler_sends_over_dcn(
    name: str, kind: str, slices: int, mesh: Mesh
) -> None:
    devices = parse(kind).devices
    traffic = read(name, [number // devices for number in range(devices * slices)])
    predicted = predict(parse(kind), mesh, Model(512, 2, 512))
    assert predicted.dcn_bytes == pytest.approx(traffic.bytes_over("DCN"), rel=0.01)
    # Over ICI the compiler may keep weights that it gathered, or reduce without scattering.
    assert 0.5 < predicted.ici_bytes / traffic.bytes_over("ICI") < 2


def test_a_program_over_all_devices_splits_its_groups_by_slice() -> None:
    text = """HloModule jit_step, num_partitions=8
ENTRY %main () -> () {
  %a = f32[1024]{0} all-reduce(%x), channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add
  %b = f32[1024]{0} all-reduce(%x), channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %c = f32[1024]{0} all-gather(%x), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}
  %d = (f32[256]{0}, f32[1024]{0}) all-gather-start(%x), channel_id=4, replica_groups=[2,4]<=[8], dimensions={0}
  %e = f32[256]{0} reduce-scatter(%x), channel_id=5, replica_groups=[2,4]<=[8], dimensions={0}
  %f = f32[1024]{0} collective-permute(%x), channel_id=6, source_target_pairs={{0,4},{4,0},{1,1}}
  %g = f32[1024]{0} all-reduce(%x), channel_id=7, replica_groups=new[syntax], to_apply=%add
}
"""
    traffic = traffic_of(text, [0, 0, 0, 0, 1, 1, 1, 1])
    told = {(each.network, each.kind): each.bytes for each in traffic.sent}
    assert told == {
        ("DCN", "all-reduce"): 4096.0,
        ("ICI", "all-reduce"): 2 * 3 / 4 * 4096,
        ("ICI", "all-gather"): 2 * 3 / 4 * 4096,
        ("DCN", "all-gather"): 4096 / 2 / 4,
        ("ICI", "reduce-scatter"): 3 / 4 * 4096,
        ("DCN", "collective-permute"): 4096 * 2 / 8,
    }
    assert len(traffic.unread) == 1


def test_loops_with_a_known_trip_count_multiply() -> None:
    text = """HloModule jit_step, num_partitions=4
%body (p: f32[]) -> f32[] {
  %a = f32[1024]{0} all-gather(%x), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
}
%cond (p: f32[]) -> pred[] {
}
ENTRY %main () -> () {
  %w = f32[] while(%x), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"6"}}
}
"""
    (sent,) = traffic_of(text, [0] * 4).sent
    assert (sent.count, sent.bytes) == (6, 6 * 3 / 4 * 4096)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    body = f"ENTRY %main () -> () {{\n  %a = f32[4] all-reduce(%x), {text}\n}}\n"
    traffic_of(text, [0, 1])
    traffic_of(body, [0, 1])
