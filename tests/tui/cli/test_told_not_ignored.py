"""What a command line may say that means nothing: told in a sentence, with nothing sent, and never taken in silence."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.bench.model import BenchState
from backend.bench.store import BenchStore
from backend.cloud.encoding import from_json
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
from tests.simulator import Simulator, SimulatorFactory, run_cli
from tests.tui.cli.test_bench import kept
from tui.cli.bench import _list
from tui.cli.bench_catch_up import catch_up
from tui.cli.main import main


@pytest.fixture(scope="module")
def sim(simulators: SimulatorFactory) -> Simulator:
    """train-a has 2 slices of 4 workers."""
    return simulators(seed=3)


def run(home: Path, sim: Simulator, *arguments: str) -> tuple[int, str, str]:
    done = run_cli("--context-file", str(sim.context_file), *arguments, home=home)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_list_by_a_state_that_does_not_exist_is_no_empty_list(sim: Simulator, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, sim, "qr", "list", "--state", "suspnded")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "'suspnded' is no state; use SUSPENDED" in err
    code, out, err = run(tmp_path, sim, "qr", "list", "--state", "active")
    assert (code, "train-a" in out) == (ExitCode.OK, True)


def test_a_list_by_a_state_that_nothing_is_in_does_not_say_that_nothing_is_there(
    sim: Simulator, tmp_path: Path
) -> None:
    code, out, err = run(tmp_path, sim, "qr", "list", "--state", "DELETING")
    assert (code, out) == (ExitCode.OK, "")
    assert err == "No queued resource is DELETING.\n"


def test_a_dry_run_of_a_copy_looks_at_the_source_as_the_copy_does(sim: Simulator, tmp_path: Path) -> None:
    for more in ((), ("--dry-run",)):
        code, out, err = run(tmp_path, sim, "copy", str(tmp_path / "nothing"), "train-a/0:there", *more)
        assert (code, out) == (ExitCode.USAGE, "")
        assert "There is no file" in err
    (tmp_path / "nothing").write_text("something")
    code, out, _ = run(tmp_path, sim, "copy", str(tmp_path / "nothing"), "train-a/0:there", "--dry-run")
    assert (code, "would copy" in out) == (ExitCode.OK, True)


@pytest.mark.parametrize("more", [(), ("--stream", "--format", "json")])
def test_raw_that_would_change_nothing_is_refused(sim: Simulator, tmp_path: Path, more: tuple[str, ...]) -> None:
    code, out, err = run(tmp_path, sim, "run", "train-a/0/0", "--raw", *more, "--", "true")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "--raw is for --stream" in err
    assert "--stream" in err


def test_a_dry_run_says_how_many_batches_and_of_how_many(sim: Simulator, tmp_path: Path) -> None:
    assert "batches   1, of 8 workers" in run(tmp_path, sim, "run", "train-a", "--dry-run", "--", "true")[1]
    assert (
        "batches   2, of 4, 4 workers"
        in run(tmp_path, sim, "run", "train-a", "--batch-size", "4", "--dry-run", "--", "true")[1]
    )


@pytest.mark.parametrize("verb", ["runs", "bench"])
@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_a_list_of_no_rows_is_refused(sim: Simulator, tmp_path: Path, verb: str, count: str) -> None:
    code, out, err = run(tmp_path, sim, verb, "list", f"--limit={count}")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "is no number of rows" in err


def test_the_last_benchmark_has_a_name_as_the_last_run_has(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    try:
        with pytest.raises(OperatorError, match="No benchmark was run yet"):
            BenchStore(journal).get("last")
    finally:
        journal.close()


def test_a_request_in_a_file_brings_its_zone_and_its_id(sim: Simulator, tmp_path: Path) -> None:
    body = {
        "tpu": {
            "nodeSpec": [
                {
                    "parent": "projects/demo-project/locations/us-west4-a",
                    "nodeId": "node",
                    "node": {"acceleratorType": "v5litepod-16", "runtimeVersion": "v2-alpha-tpuv5-lite"},
                }
            ]
        }
    }
    assert from_json(body).zone == "us-west4-a"
    assert from_json(body, zone="us-east5-a").zone == "us-east5-a"
    (tmp_path / "request.json").write_text(json.dumps(body))
    code, out, err = run(
        tmp_path, sim, "qr", "create", "mine", "--from-file", str(tmp_path / "request.json"), "--dry-run"
    )
    assert code == ExitCode.OK, err
    assert "--zone=us-west4-a" in out
    toml = 'id = "mine"\naccelerator-type = "v5litepod-16"\nruntime_version = "v2-alpha-tpuv5-lite"\nzone = "us-west4-a"\n'
    (tmp_path / "request.toml").write_text(toml)
    code, out, err = run(tmp_path, sim, "qr", "create", "--from-file", str(tmp_path / "request.toml"), "--dry-run")
    assert code == ExitCode.OK, err
    assert "create mine " in out


def test_a_mistyped_option_of_a_file_is_told_with_the_near_ones(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "request.toml").write_text('acceleratr-type = "v5litepod-16"\n')
    code, _, err = run(tmp_path, sim, "qr", "create", "mine", "--from-file", str(tmp_path / "request.toml"))
    assert code == ExitCode.USAGE
    assert "Did you mean accelerator_type" in err
    code, _, err = run(tmp_path, sim, "qr", "create", "mine", "--from-file", str(tmp_path / "none"))
    assert err.splitlines()[0].endswith("none cannot be read: No such file or directory.")


def test_a_detached_benchmark_is_read_on_when_it_is_asked_for(simulators: SimulatorFactory, tmp_path: Path) -> None:
    world = simulators(scenario="empty", fresh=True)
    slices = ("--accelerator-type=v5litepod-8", "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a")
    assert run(tmp_path, world, "qr", "create", "one", *slices, "--wait")[0] == ExitCode.OK
    sizes = ("-if", "8", "-d", "64", "-b", "8", "-n", "1", "--steps", "2")
    code, out, err = run(tmp_path, world, "bench", "shardings", "one", *sizes, "--detach")
    assert code == ExitCode.OK, err
    deadline = time.monotonic() + 90
    while True:
        code, shown, err = run(tmp_path, world, "bench", "show", out.strip())
        assert code == ExitCode.OK, err
        if "state           done" in shown or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert "over 2 steps" in shown
    code, steps, err = run(tmp_path, world, "bench", "read", "last", "--format", "json")
    assert (code, json.loads(steps.splitlines()[-1])["summary"]["source"]) == (ExitCode.OK, "one.0.0"), err


def test_a_list_of_benchmarks_says_which_are_told_as_they_were_last_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benches = [replace(kept("one", 1.0), state=BenchState.STEPPING), replace(kept("two", 1.0), state=BenchState.DONE)]
    assert _list(benches, "table") == ExitCode.OK
    assert capsys.readouterr().err == (
        f"slicetower: {benches[0].id} was {BenchState.STEPPING.value} when it was last seen:"
        f" `slicetower bench show {benches[0].id}` asks its workers\n"
    )


def test_a_benchmark_that_cannot_be_asked_is_shown_as_it_was_last_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    store = BenchStore(journal)
    try:
        store.save(replace(kept("one", 1.0), state=BenchState.STARTING))
        arguments = argparse.Namespace(context=None, context_file=str(tmp_path / "none.toml"), read_only=False)
        catch_up(arguments, store, ["last"])
    finally:
        journal.close()
    assert (
        "was starting when it was last seen, and can't be asked: There is no context file" in capsys.readouterr().err
    )


def test_options_of_all_verbs_that_stand_after_one_are_told_their_place(sim: Simulator, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, sim, "qr", "list", "--read-only")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "stand before the verb" in err
    assert "stand before the verb" not in run(tmp_path, sim, "qr", "list", "--reed-only")[2]


def test_a_source_tree_without_metadata_has_a_version_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert main(["--version"]) == ExitCode.OK
    assert "run from its source" in capsys.readouterr().out


def test_a_maintenance_of_some_slices_says_which_may_be_started(simulators: SimulatorFactory, tmp_path: Path) -> None:
    world = simulators(fresh=True)
    world.inject("maintenance", "train-a/1")
    code, out, err = run(tmp_path, world, "qr", "maintenance", "train-a", "--start", "--yes")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "no maintenance of train-a-0 is announced" in err
    assert "add --slices 1" in err
    code, out, err = run(tmp_path, world, "qr", "maintenance", "train-a", "--start", "--dry-run")
    assert (code, "performMaintenance" in out) == (ExitCode.OK, True)
    assert "without --dry-run it would be refused now: no maintenance of train-a-0 is announced" in err


def test_a_slice_that_is_gone_is_missed_by_whoever_names_the_whole_request(
    simulators: SimulatorFactory, tmp_path: Path
) -> None:
    world = simulators(fresh=True)
    assert "no workers" not in run(tmp_path, world, "run", "train-a", "--dry-run", "--", "true")[2]
    world.inject("lose", "train-a/1")
    config = tmp_path / ".config" / "slicetower" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[groups]\nwhole = ["train-a"]\n')
    for target in ("train-a", "train-a/*/0", "@whole"):
        code, _, err = run(tmp_path, world, "run", target, "--dry-run", "--", "true")
        assert code == ExitCode.OK
        assert "warning: slice 1 has no workers now: train-a is ACTIVE" in err
    assert "slice 1 has no workers now" in run(tmp_path, world, "check", "train-a")[2]
    assert "no workers" not in run(tmp_path, world, "run", "train-a/0", "--dry-run", "--", "true")[2]
    world.inject("lose", "train-a")
    code, out, err = run(tmp_path, world, "run", "train-a", "--", "true")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "'train-a' has no workers now, though it is ACTIVE." in err
    assert "waits until they are there again" in err
