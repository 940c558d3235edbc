"""The benchmark measures what it claims, over several processes and slices, and ends when something is wrong."""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.programs import sharding_flags, shardings
from jobs.programs.process import (
    EXIT_STUCK,
    Limits,
    Place,
    ProgramError,
    Watchdog,
    join,
    place,
    wanted_platform,
)
from jobs.readings import ReadingParser
from jobs.roofline import Model
from tests.benchmarks import shardings as plain_comparison
from tests.jobs.programs import gang

SMALL = ("-b", "64", "-n", "2", "--steps", "4")


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    sharding_flags.add_arguments(parser)
    return parser.parse_args(argv)


def test_the_documents_commands_parse_as_written() -> None:
    arguments = parsed("--ici_fsdp_parallelism", "16", "--dcn_data_parallelism", "2", "--batch_size", "131072")
    assert sharding_flags.mesh_of(arguments).code() == "ici 1x16x1 dcn 2x1x1"
    assert parsed("-dd", "2", "-df", "3", "-dt", "5", "-id", "7", "-if", "11", "-it", "13").ici_fsdp_parallelism == 11
    assert vars(parsed()) | {"profiler_path": "", "embedding_dimension": 2048, "num_layers": 4} == vars(parsed())


def test_program_and_planner_count_the_same_flops() -> None:
    arguments, model = parsed("-d", "512", "-b", "64", "-n", "3"), Model(512, 3, 64)
    assert sharding_flags.claimed_flops(arguments) == model.claimed_flops_per_device
    assert sharding_flags.corrected_flops(arguments) == model.flops_per_device


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("-if", "3"), "multiply to 3, but a slice has 4 chips: use e.g. fsdp 4"),
        (("-dd", "2"), "leave the DCN axes at 1"),
        (("-d", "6"), "use a multiple of 4"),
        (("--steps", "0"), "--steps is below 1"),
        (("-b", "0"), "--batch_size is 0"),
    ],
)
def test_what_cannot_run_is_refused_before_jax_is_imported(argv: tuple[str, ...], word: str) -> None:
    with pytest.raises(ProgramError, match=word.replace("(", ".")):
        shardings.check(parsed(*argv), Place("", 0, 1, 0, 1, 4))


def test_the_environment_is_read_strictly() -> None:
    told = {"SLICETOWER_PROCESS_ID": "5", "SLICETOWER_NUM_PROCESSES": "8", "SLICETOWER_NUM_SLICES": "2"}
    assert place(told).process == 5
    for wrong in ({"SLICETOWER_PROCESS_ID": "8"}, {"SLICETOWER_NUM_SLICES": "3"}, {"SLICETOWER_SLICE_ID": "x"}):
        with pytest.raises(ProgramError):
            place({**told, **wrong})


def test_only_an_explicit_cpu_is_cpu() -> None:
    assert wanted_platform({}) == wanted_platform({"JAX_PLATFORMS": ""}) == "tpu"
    assert wanted_platform({"JAX_PLATFORMS": "tpu,cpu"}) == "tpu"
    assert wanted_platform({"JAX_PLATFORMS": "cpu"}) == "cpu"
    with pytest.raises(ProgramError, match="cuda"):
        wanted_platform({"JAX_PLATFORMS": "cuda"})


@pytest.mark.parametrize(("steps", "wanted"), [(20, 5), (4, 5), (1, 5), (7, 3), (5, 0)])
def test_runs_without_communication_are_spread_over_the_steps(steps: int, wanted: int) -> None:
    due = [number for number in range(steps) if shardings._is_due(number, steps, wanted)]
    assert len(due) == min(steps, wanted)


def test_the_watchdog_ends_a_phase_that_is_stuck_and_says_which() -> None:
    code = (
        "import time; from jobs.programs.process import Watchdog; watchdog = Watchdog();"
        " watchdog.enter('compiling', 600); watchdog.enter('step 7', 0.1); time.sleep(600)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=gang.ROOT, capture_output=True, text=True, timeout=120)
    assert shown.returncode == EXIT_STUCK
    error = json.loads(shown.stdout)["error"]
    assert (error["kind"], error["phase"]) == ("stuck", "step 7")
    assert "time.sleep" in shown.stderr or "File" in shown.stderr, "where each thread stood"


def test_a_limit_of_nothing_is_none() -> None:
    code = (
        "import time; from jobs.programs.process import Watchdog; watchdog = Watchdog();"
        " watchdog.enter('step 1', 0.1); watchdog.enter('step 2', 0); time.sleep(2.5); print('went on')"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=gang.ROOT, capture_output=True, text=True, timeout=120)
    assert (shown.returncode, shown.stdout) == (0, "went on\n")


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    """Closed in the end: it would end the process of the tests when the limit of its last phase is over."""
    made = Watchdog()
    yield made
    made.close()


def test_a_closed_watchdog_ends_nothing() -> None:
    code = (
        "import time; from jobs.programs.process import Watchdog; watchdog = Watchdog();"
        " watchdog.enter('step 1', 0.1); watchdog.close(); time.sleep(2.5); print('went on')"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=gang.ROOT, capture_output=True, text=True, timeout=120)
    assert (shown.returncode, shown.stdout) == (0, "went on\n")


@pytest.mark.parametrize(
    ("platforms", "found", "why"),
    [
        ("", "cpu", "The devices are cpu, but tpu is required: jax fell back in silence"),
        ("cpu", "tpu", "The devices are tpu, but cpu is required"),
    ],
)
def test_a_platform_that_was_not_asked_for_is_an_error(
    monkeypatch: pytest.MonkeyPatch, watchdog: Watchdog, platforms: str, found: str, why: str
) -> None:
    silent = SimpleNamespace(devices=lambda: [SimpleNamespace(platform=found)], __version_info__=(0, 10, 2))
    monkeypatch.setitem(sys.modules, "jax", silent)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setenv("JAX_ENABLE_PREEMPTION_SERVICE", "false")
    with pytest.raises(ProgramError, match=why) as raised:
        join(Place("", 0, 1, 0, 1, 0), watchdog, Limits())
    assert raised.value.kind == "platform"


@pytest.mark.parametrize(
    ("expected", "processes", "kind"), [(8, 1, "devices"), (4, 2, "processes")], ids=["devices", "processes"]
)
def test_another_number_than_was_launched_is_an_error(
    monkeypatch: pytest.MonkeyPatch, watchdog: Watchdog, expected: int, processes: int, kind: str
) -> None:
    fewer = SimpleNamespace(
        devices=lambda: [SimpleNamespace(platform="cpu")] * 4,
        process_count=lambda: 1,
        distributed=SimpleNamespace(initialize=lambda **told: None),
        __version_info__=(0, 10, 2),
    )
    monkeypatch.setitem(sys.modules, "jax", fewer)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_ENABLE_PREEMPTION_SERVICE", "false")
    with pytest.raises(ProgramError) as raised:
        join(Place("127.0.0.1:1", 0, processes, 0, 1, expected), watchdog, Limits())
    assert raised.value.kind == kind


def test_memory_is_that_of_the_fullest_device_and_nothing_where_the_runtime_is_silent() -> None:
    def devices(*told: dict[str, int] | None) -> SimpleNamespace:
        return SimpleNamespace(
            local_devices=lambda: [SimpleNamespace(memory_stats=lambda each=each: each) for each in told]
        )

    full = {"bytes_in_use": 7, "peak_bytes_in_use": 9, "bytes_limit": 16, "num_allocs": 1}
    free = {"bytes_in_use": 8, "peak_bytes_in_use": 8, "bytes_limit": 16}
    assert shardings._memory(devices(full, free)) == {
        "hbm_in_use_bytes": 8,
        "hbm_peak_bytes": 9,
        "hbm_limit_bytes": 16,
    }
    assert shardings._memory(devices(None, {})) == {}
    assert shardings._memory(devices({"bytes_in_use": 5})) == {"hbm_in_use_bytes": 5}


@pytest.mark.xdist_group("jax")
class TestOnRealDevices:
    """These start real JAX processes: few, small, one after the other."""

    def test_halving_the_dimension_quarters_the_flops_that_the_compiler_counts(self, tmp_path: Path) -> None:
        (whole,) = gang.run("shardings", [*SMALL, "-d", "256"], tmp_path)
        (half,) = gang.run("shardings", [*SMALL, "-d", "128"], tmp_path)
        assert (whole.code, half.code) == (0, 0), whole.text + half.text
        large, small = whole.message("compiled"), half.message("compiled")
        assert small["flops_per_device"] == large["flops_per_device"] / 4
        assert large["compiler_flops_per_device"] / small["compiler_flops_per_device"] == pytest.approx(4, rel=0.05)
        assert large["compiler_ratio"] == pytest.approx(1, abs=0.08)
        assert len(whole.steps) == 4
        for step in whole.steps:
            rate = large["flops_per_device"] / step["step_time_s"] / 1e12
            assert step["tflops_per_device"] == pytest.approx(rate)
        summary = whole.message("summary")
        assert summary["step_time_s"] == pytest.approx(statistics.median(each["step_time_s"] for each in whole.steps))
        assert summary["no_communication_step_time_s"] > 0
        assert f"TFLOP is {large['claimed_flops_per_device'] / 1e12}" in whole.text, "upstream's line"
        parser = ReadingParser()
        readings = [reading for line in whole.text.splitlines() for reading in parser.feed(line)]
        assert [each.counts for each in readings] == [False, True, True, True, True]
        assert parser.summary == summary

    def test_two_slices_of_two_workers_run_with_every_kind_of_axis(self, tmp_path: Path) -> None:
        axes = ["-dd", "2", "-if", "2", "-it", "2"]
        told = gang.run("shardings", [*SMALL, "-d", "64", *axes], tmp_path, slices=2, workers=2, devices=2)
        assert [each.code for each in told] == [0, 0, 0, 0], told[0].text
        assert [each.message("device")["process"] for each in told] == [0, 1, 2, 3]
        assert [each.message("device")["slice"] for each in told] == [0, 0, 1, 1]
        assert {each.message("device")["devices"] for each in told} == {8}
        assert all(len(each.steps) == 4 for each in told)

    def test_a_killed_worker_ends_the_others_within_the_heartbeat(self, tmp_path: Path) -> None:
        arguments = [*SMALL[:-1], "100000", "-d", "64", "--heartbeat_timeout", "10"]
        processes = gang.start("shardings", arguments, tmp_path, workers=2, devices=2)
        try:
            gang.wait_for_text(processes[1], tmp_path / "1", '"step":3')
            processes[1].send_signal(signal.SIGKILL)
            told = gang.wait(processes, tmp_path)
        finally:
            gang.end(processes)
        assert told[1].code == -signal.SIGKILL
        assert told[0].code not in (0, -signal.SIGKILL), "it neither finished nor had to be killed by us"

    def test_a_profile_is_written_where_it_was_asked_for_and_nowhere_else(self, tmp_path: Path) -> None:
        sizes = [*SMALL[:-1], "2", "-d", "64"]
        (without,) = gang.run("shardings", sizes, tmp_path)
        assert without.code == 0, without.text
        assert list(tmp_path.rglob("*.pb")) == []
        (told,) = gang.run("shardings", [*sizes, "--profiler_path", str(tmp_path / "profile")], tmp_path)
        assert told.code == 0, told.text
        assert len(told.steps) == 2
        (trace,) = (tmp_path / "profile").rglob("*.xplane.pb")
        assert trace.stat().st_size > 1000
        assert b"jit_step" in trace.read_bytes(), "the steps are in it"

    @pytest.mark.heavy
    @pytest.mark.parametrize("alone", [0, 1])
    def test_a_process_whose_others_never_come_ends_by_itself(self, tmp_path: Path, alone: int) -> None:
        arguments = [*SMALL, "-d", "64", "--initialization_timeout", "8"]
        (told,) = gang.run("shardings", arguments, tmp_path, workers=2, devices=2, only=alone)
        assert told.code not in (0, -signal.SIGKILL), told.text
        assert told.steps == []

    @pytest.mark.heavy
    def test_a_step_that_waits_for_a_frozen_peer_is_ended_by_the_watchdog(self, tmp_path: Path) -> None:
        arguments = [*SMALL[:-1], "1000000", "-d", "64", "--heartbeat_timeout", "100", "--stuck_after", "5"]
        processes = gang.start("shardings", arguments, tmp_path, workers=2, devices=2)
        try:
            gang.wait_for_text(processes[1], tmp_path / "1", '"step":3')
            processes[1].send_signal(signal.SIGSTOP)
            (told,) = gang.wait(processes[:1], tmp_path)
        finally:
            gang.end(processes)
        assert told.code == EXIT_STUCK, told.text
        assert told.message("error")["kind"] == "stuck"
        assert told.message("error")["phase"].startswith("step ")

    @pytest.mark.heavy
    def test_a_process_that_is_done_does_not_wait_for_ever_for_one_that_never_will_be(self, tmp_path: Path) -> None:
        arguments = [*SMALL[:-2], "-d", "64", "--no_communication_steps", "0", "--heartbeat_timeout", "20"]
        own = [["--steps", "2"], ["--steps", "1000000", "--stuck_after", "0"]]
        processes = gang.start("shardings", arguments, tmp_path, workers=2, devices=2, own=own)
        try:
            told = gang.wait(processes, tmp_path)
        finally:
            gang.end(processes)
        assert len(told[0].steps) == 2
        assert told[0].message("summary")["steps"] == 2, "what was measured is told before anybody is waited for"
        assert told[0].code not in (0, -signal.SIGKILL), told[0].text
        assert told[1].code not in (0, -signal.SIGKILL), "it ended too, when its peer was gone"

    @pytest.mark.heavy
    def test_the_comparison_with_a_plain_loop_measures_both(self) -> None:
        sizes = ["-d", "64", "-b", "16", "-n", "1", "--ici_fsdp_parallelism", "2", "--dtype", "float32"]
        found = plain_comparison.measure(pairs=2, steps=2, sizes=sizes)
        assert (found["pairs"], found["steps"]) == (2, 2)
        for name in ("wall", "processor"):
            assert all(math.isfinite(each) and each > 0 for each in found[name].values())
        assert found["saying_s"] > 0
        assert found["step_s"] > 0

    def test_devices_are_counted_over_slices(self, tmp_path: Path) -> None:
        told = gang.run("devices", [], tmp_path, slices=2, workers=1, devices=4)
        assert [each.code for each in told] == [0, 0]
        assert told[0].message("check")["devices_by_slice"] == {"0": 4, "1": 4}
        assert told[0].message("check")["expected_devices"] == 8
        assert told[1].message("check")["ok"] is True

    def test_without_a_tpu_nothing_falls_back_to_cpu(self, tmp_path: Path) -> None:
        code = "import os; os.environ.pop('JAX_PLATFORMS', None); from jobs.programs.shardings import main; main([])"
        shown = subprocess.run(
            [sys.executable, "-c", code], cwd=gang.ROOT, capture_output=True, text=True, timeout=120
        )
        assert shown.returncode == 1
        assert '"kind":"platform"' in shown.stdout
