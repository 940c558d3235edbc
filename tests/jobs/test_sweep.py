"""A sweep runs the promising first, skips with a reason, and stops when nothing is to be won."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jobs.accelerators import parse
from jobs.meshes import Axes, Mesh, legal_meshes
from jobs.roofline import Model
from jobs.sweep import Candidate, StopRule, candidates

V5E = parse("v5litepod-16")


def test_all_legal_meshes_times_all_models_are_there_once_in_order() -> None:
    models = [Model(batch_per_device=rows) for rows in (8192, 131072, 262144)]
    found = candidates(V5E, 2, models)
    assert len(found) == 45 * 3
    assert len({(each.mesh, each.model) for each in found}) == len(found)
    runnable = [each for each in found if not each.skip]
    assert found[: len(runnable)] == tuple(runnable)
    rates = [round(each.at_most_tflops, 6) for each in runnable]
    assert rates == sorted(rates, reverse=True)


def test_what_does_not_fit_or_divide_is_skipped_with_the_reason() -> None:
    found = candidates(V5E, 2, [Model(batch_per_device=262144), Model(embedding_dimension=1000)])
    reasons = {each.skip for each in found if each.model.batch_per_device == 262144}
    assert any("GB a device, which has 16.9" in reason for reason in reasons)
    odd = next(each for each in found if each.model.embedding_dimension == 1000 and each.mesh.total.fsdp == 16)
    assert "multiple of 16" in odd.skip
    unlimited = candidates(V5E, 2, [Model(batch_per_device=262144)], check_memory=False)
    assert not any(each.skip for each in unlimited)


def test_only_the_asked_meshes_are_taken() -> None:
    mesh = Mesh(Axes(1, 16, 1), Axes(2))
    assert [each.mesh for each in candidates(V5E, 2, [Model()], meshes=[mesh])] == [mesh]


def reachable(rate: float) -> Candidate:
    (found,) = candidates(V5E, 2, [Model()], meshes=[legal_meshes(16, 2)[0]])
    assert found.prediction is not None
    return replace(found, prediction=replace(found.prediction, tflops_per_device=rate))


def test_it_stops_when_nothing_left_can_beat_the_best() -> None:
    rule = StopRule()
    assert rule.reason([100.0], [reachable(120.0), reachable(90.0)]) == ""
    assert "120 was measured" in rule.reason([120.0, 80.0], [reachable(110.0), reachable(90.0)])
    assert StopRule(use_bound=False).reason([120.0], [reachable(90.0)]) == ""
    assert rule.reason([], [reachable(90.0)]) == ""
    assert rule.reason([120.0], []) == ""


def test_it_stops_after_failures_and_after_patience() -> None:
    assert StopRule().reason([1.0, None], [reachable(9.0)]) == ""
    assert "2 in a row failed" in StopRule().reason([1.0, None, None], [reachable(9.0)])
    patient = StopRule(use_bound=False, patience=2)
    assert patient.reason([5.0, 4.0], [reachable(9.0)]) == ""
    assert "2 in a row were not faster" in patient.reason([5.0, 4.0, 3.0], [reachable(9.0)])


@given(st.lists(st.one_of(st.none(), st.floats(0.1, 200)), max_size=8), st.lists(st.floats(0.1, 200), max_size=5))
def test_the_bound_never_stops_before_what_could_win(measured: list[float | None], left: list[float]) -> None:
    reason = StopRule(failures=0).reason(measured, [reachable(rate) for rate in left])
    best = max((each for each in measured if each is not None), default=0.0)
    if left and max(left) > best:
        assert reason == ""
