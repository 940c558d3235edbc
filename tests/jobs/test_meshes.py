"""Legal meshes are found, illegal ones refused with the legal choices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.meshes import Axes, Mesh, advice, default_mesh, legal_axes, legal_meshes, mesh_problems, size_problems


@given(st.integers(1, 512))
def test_legal_axes_are_all_and_only_the_triples_with_that_product(count: int) -> None:
    found = legal_axes(count)
    assert len(set(found)) == len(found)
    assert all(axes.product == count for axes in found)
    expected = sum(
        1 for a in range(1, count + 1) if count % a == 0 for b in range(1, count // a + 1) if (count // a) % b == 0
    )
    assert len(found) == expected


def test_two_slices_of_sixteen_have_forty_five_meshes_with_the_advised_one_first() -> None:
    meshes = legal_meshes(16, 2)
    assert len(meshes) == 45
    assert meshes[0] == default_mesh(16, 2) == Mesh(Axes(1, 16, 1), Axes(2, 1, 1))
    assert all(mesh.devices == 32 and not mesh_problems(mesh.ici, mesh.dcn, 16, 2) for mesh in meshes)


def test_a_wrong_ici_product_is_refused_with_legal_choices() -> None:
    (said,) = mesh_problems(Axes(1, 4, 1), Axes(), 16, 1, type_name="v5litepod-16")
    assert said.startswith(
        "ICI axes 1x4x1 (data x fsdp x tensor) multiply to 4, but a v5litepod-16 slice has 16 chips: use e.g. fsdp 16,"
    )
    assert "fsdp 8 x tensor 2" in said
    assert "data 2 x fsdp 8" in said


def test_choices_begin_with_the_one_nearest_to_what_was_asked() -> None:
    (said,) = mesh_problems(Axes(1, 4, 2), Axes(), 16, 1)
    assert "use e.g. fsdp 8 x tensor 2, fsdp 16" in said


def test_ici_axes_over_all_slices_are_recognised() -> None:
    problems = mesh_problems(Axes(1, 32, 1), Axes(2), 16, 2)
    assert len(problems) == 1
    assert "32 is the count of all 2 slices: the ICI axes split one slice" in problems[0]


def test_a_wrong_dcn_product_is_refused() -> None:
    (said,) = mesh_problems(Axes(1, 16, 1), Axes(), 16, 2)
    assert "DCN axes 1x1x1" in said
    assert "there are 2 slices: use e.g. data 2, fsdp 2 or tensor 2" in said.replace(
        "fsdp 2, data 2", "data 2, fsdp 2"
    )
    (said,) = mesh_problems(Axes(1, 16, 1), Axes(2), 16, 1)
    assert "there is 1 slice: leave the DCN axes at 1" in said


def test_axes_below_one_are_refused_by_flag_name() -> None:
    assert mesh_problems(Axes(0, -4, 1), Axes(), 16, 1) == [
        "--ici_data_parallelism is 0: an axis is split 1 or more times.",
        "--ici_fsdp_parallelism is -4: an axis is split 1 or more times.",
    ]


def test_two_devices_a_chip_are_said() -> None:
    assert not mesh_problems(Axes(1, 8, 1), Axes(), 4, 1, devices_per_chip=2)
    (said,) = mesh_problems(Axes(1, 4, 1), Axes(), 4, 1, type_name="v3-8", devices_per_chip=2)
    assert "8 devices (4 chips)" in said


def test_sizes_have_to_divide() -> None:
    mesh = Mesh(Axes(1, 16, 1), Axes(1, 1, 2))
    assert size_problems(mesh, 2048, 8, 4) == []
    (said,) = size_problems(mesh, 1000, 8, 4)
    assert "does not divide by the 16 ways of the fsdp axis: use a multiple of 16, such as 992" in said
    assert len(size_problems(mesh, 0, -1, 0)) == 3


def test_rules_of_thumb_are_advice() -> None:
    assert advice(default_mesh(16, 2)) == []
    assert "tensor 2 over DCN" in advice(Mesh(Axes(1, 16, 1), Axes(1, 1, 2)))[0]
    assert "data 16 over ICI" in advice(Mesh(Axes(16, 1, 1), Axes(2)))[0]
    assert "1.5 x the bytes" in advice(Mesh(Axes(1, 16, 1), Axes(1, 2, 1)))[0]


def test_words_and_flags() -> None:
    mesh = Mesh(Axes(1, 8, 2), Axes(2))
    assert mesh.words() == "ICI fsdp 8 x tensor 2, DCN data 2"
    assert mesh.code() == "ici 1x8x2 dcn 2x1x1"
    assert Mesh(Axes()).words() == "ICI no split"
    assert mesh.flags()[:2] == ("--dcn_data_parallelism", "2")
    assert mesh.flags()[-4:] == ("--ici_fsdp_parallelism", "8", "--ici_tensor_parallelism", "2")
