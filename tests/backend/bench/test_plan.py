"""What would go wrong is refused before anything is sent, in a sentence that says what would be right."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.bench.model import CPU_SIZES, BenchRequest, WorkerSurvey
from backend.bench.plan import SHIPPED, plan_bench, platform_of, programs, suggested_sizes
from backend.interpreter import launcher
from backend.targets import workers_of
from jobs.programs import sharding_flags
from tests.backend.bench.bench_world import CPU, TPU, resource, survey_of

DOCUMENT = BenchRequest(dcn_data_parallelism=2, ici_fsdp_parallelism=16)
SMALL = replace(DOCUMENT, embedding_dimension=256, batch_size=64, num_layers=2)


def test_the_documents_run_on_two_slices_is_planned() -> None:
    train = resource()
    plan = plan_bench(train, DOCUMENT, survey=survey_of(workers_of(train), TPU))
    assert plan.refusals == ()
    assert plan.warnings == ()
    assert plan.advice == ()
    assert plan.devices == 32
    assert plan.coordinator == "127.0.0.1:8476"
    assert plan.platform == "tpu"
    assert plan.prediction is not None
    assert plan.prediction.bound == "compute"
    assert plan.peak_tflops_per_device == 197
    run = plan.run_request
    assert run.argv[:6] == (*launcher("python3"), "-m", "jobs.programs.shardings")
    assert run.is_gang
    assert run.supervised
    places = [run.worker_environment[worker.address] for worker in plan.workers]
    assert [each["SLICETOWER_PROCESS_ID"] for each in places] == [str(number) for number in range(8)]
    assert [each["SLICETOWER_SLICE_ID"] for each in places] == ["0"] * 4 + ["1"] * 4
    assert {each["SLICETOWER_NUM_SLICES"] for each in places} == {"2"}
    assert {each["SLICETOWER_SLICE_DEVICES"] for each in places} == {"16"}


def test_the_programs_are_shipped_with_all_that_they_import() -> None:
    paths = [file.path for file in programs().files]
    assert "jobs/programs/shardings.py" in paths
    assert "jobs/meshes.py" in paths
    assert "jobs/accelerators.py" not in paths


def test_what_is_shipped_is_written_for_the_pythons_of_workers() -> None:
    """Images have Python 3.10; what is only asked may meet 3.8."""
    for path in SHIPPED:
        ast.parse(Path(path).read_text(), feature_version=(3, 10))
    ast.parse(Path("jobs/programs/environment.py").read_text(), feature_version=(3, 8))


def test_the_flags_are_those_of_the_program() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    sharding_flags.add_arguments(parser)
    request = replace(DOCUMENT, dtype="float32", steps=7, stuck_after=60.0, no_communication_steps=0)
    arguments = parser.parse_args(list(request.flags))
    assert sharding_flags.mesh_of(arguments) == request.mesh
    for name in ("embedding_dimension", "batch_size", "num_layers", "steps", "warmup", "dtype", "stuck_after"):
        assert getattr(arguments, name) == getattr(request, name)
    assert arguments.no_communication_steps == 0
    defaults = vars(parser.parse_args([]))
    assert defaults == {name: getattr(BenchRequest(), name) for name in defaults}, "no flag is dropped in silence"
    changed: dict[str, Any] = {
        name: 7 if isinstance(value, int) else 7.5
        for name, value in defaults.items()
        if value not in ("", "bfloat16")
    }
    carried = vars(parser.parse_args(list(replace(BenchRequest(), **changed).flags)))
    assert {name: carried[name] for name in changed} == changed


def test_a_request_survives_the_journal() -> None:
    request = replace(DOCUMENT, environment=(("A", "b"),), peak_tflops=100.0)
    assert BenchRequest.from_json({**request.to_json(), "of_a_later_release": 1}) == request


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            BenchRequest(),
            "ICI axes 1x4x1 (data x fsdp x tensor) multiply to 4, but a v5litepod-16 slice has 16 chips",
        ),
        (BenchRequest(), "DCN axes 1x1x1 (data x fsdp x tensor) multiply to 1, but there are 2 slices: use e.g."),
        (replace(DOCUMENT, embedding_dimension=1000), "use a multiple of 16"),
        (replace(DOCUMENT, steps=0), "--steps is 0"),
        (replace(DOCUMENT, port=0), "--port is 0"),
        (replace(DOCUMENT, batch_size=262144), "--batch_size 1"),
    ],
)
def test_axes_and_sizes_are_refused_with_what_would_be_right(request_: BenchRequest, words: str) -> None:
    refusals = plan_bench(resource(), request_).refusals
    assert any(words in each for each in refusals), refusals


def test_an_estimate_can_be_overruled_and_then_warns() -> None:
    plan = plan_bench(resource(), replace(DOCUMENT, batch_size=262144, force=True))
    assert plan.refusals == ()
    assert "27." in plan.warnings[0]


def test_a_request_that_is_not_ready_is_refused() -> None:
    assert "is PROVISIONING" in plan_bench(resource(state="PROVISIONING"), DOCUMENT).refusals[0]
    train = resource()
    sick = replace(train, slices=(train.slices[0], replace(train.slices[1], health="UNHEALTHY_MAINTENANCE")))
    assert "Slice 1 of train-a is UNHEALTHY_MAINTENANCE" in plan_bench(sick, DOCUMENT).refusals[0]
    short = replace(train, slices=train.slices[:1])
    assert "1 of the 2 slices of train-a are not there yet" in plan_bench(short, DOCUMENT).refusals[0]


def test_part_of_a_slice_is_refused_and_one_slice_of_several_is_for_cpu_alone() -> None:
    train = resource()
    everybody = workers_of(train)
    part = plan_bench(train, DOCUMENT, everybody[:7])
    assert "Slice 1 has 4 workers and 3 are selected" in part.refusals[0]
    alone = replace(SMALL, dcn_data_parallelism=1)
    assert "waits for all" in plan_bench(train, alone, everybody[:4]).refusals[0]
    second = plan_bench(train, alone, everybody[4:], survey_of(everybody[4:], CPU))
    assert second.refusals == ()
    assert second.slices == 1
    assert second.run_request.worker_environment["train-a/1/0"]["SLICETOWER_SLICE_ID"] == "0"


def test_an_unknown_type_is_refused() -> None:
    strange = replace(resource(), accelerator_type="", slices=())
    assert "not in the catalogue" in plan_bench(strange, DOCUMENT).refusals[-1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (replace(TPU, jax=""), "no jax for python3: `slicetower setup train-a`"),
        (replace(TPU, jax="0.9.0"), "jax differs between workers (0.10.2 on 7, 0.9.0 on 1)"),
        (WorkerSurvey(error="it did not answer within 45 s."), "train-a/1/2 can't be asked: it did not answer"),
        (replace(TPU, jax_platforms="cpu"), "JAX_PLATFORMS=cpu is set on train-a/1/2 (1 of 8 workers)"),
    ],
)
def test_what_one_worker_says_can_refuse_the_gang(answer: WorkerSurvey, words: str) -> None:
    train = resource()
    answers = {**survey_of(workers_of(train), TPU), "train-a/1/2": answer}
    assert any(words in each for each in plan_bench(train, DOCUMENT, survey=answers).refusals)


def test_a_taken_port_of_the_coordinator_is_refused_where_firewalls_name_it() -> None:
    train = resource()
    taken = replace(TPU, port="taken", free_port=40001)
    answers = {**survey_of(workers_of(train), TPU), "train-a/0/0": taken}
    refusals = plan_bench(train, DOCUMENT, survey=answers).refusals
    assert refusals[0].startswith("Port 8476 of train-a/0/0 is taken")


def test_between_cpu_workers_a_free_port_is_taken_instead() -> None:
    train = resource()
    answers = {**survey_of(workers_of(train), CPU), "train-a/0/0": replace(CPU, port="taken", free_port=40001)}
    plan = plan_bench(train, SMALL, survey=answers)
    assert plan.refusals == ()
    assert plan.coordinator == "127.0.0.1:40001"
    assert "so 40001 is used" in plan.warnings[0]
    asked = plan_bench(train, replace(SMALL, port=9000), survey=answers)
    assert asked.refusals[0].startswith("Port 9000")


def test_cpu_workers_get_no_prediction_no_peak_and_are_suggested_small_sizes() -> None:
    train = resource()
    answers = survey_of(workers_of(train), CPU)
    assert platform_of(answers) == "cpu"
    assert suggested_sizes(answers) == CPU_SIZES
    assert suggested_sizes(survey_of(workers_of(train), TPU)) == {}
    plan = plan_bench(train, SMALL, survey=answers)
    assert plan.refusals == ()
    assert plan.prediction is None
    assert plan.peak_tflops_per_device is None


def test_sizes_that_cpu_workers_of_one_machine_cannot_hold_are_refused_with_smaller_ones() -> None:
    train = resource()
    (said,) = plan_bench(train, DOCUMENT, survey=survey_of(workers_of(train), CPU)).refusals
    assert "about 435 GB on a machine that 8 of the workers share, and it has 20 GB" in said
    assert "--embedding_dimension 256" in said
    roomy = replace(CPU, memory_available=10**12)
    (slow,) = plan_bench(train, DOCUMENT, survey=survey_of(workers_of(train), roomy)).refusals
    assert "A step would take about" in slow


def test_a_machine_whose_name_has_no_address_is_refused_with_the_cure() -> None:
    train = resource()
    answers = survey_of(workers_of(train), replace(CPU, machine_address=""))
    (said,) = plan_bench(train, SMALL, survey=answers).refusals
    assert "'127.0.0.1 vm' to its /etc/hosts" in said
