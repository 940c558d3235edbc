"""`slicetower qr keep`, `race`, `cleanup` and `waits` as an operator types them, against the simulator."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.requests import CreateRequest
from backend.journal import Journal
from backend.model import QueuedResource, Tier
from backend.outcomes import ExitCode
from tests.simulator import ROOT, Simulator, SimulatorFactory, own_environment
from tests.tui.cli.qr_world import GOOD, Run, sent

ZONES = ("us-west4-a", "us-east5-a")


def test_cleanup_deletes_the_dead_alone(run: Run, simulators: SimulatorFactory) -> None:
    world = simulators(fresh=True)
    done = run(world, "qr", "cleanup", "--yes", "--format=json")
    assert done.code == ExitCode.OK, done.err
    assert "2 dead requests hold the quota of 48 chips" in done.err
    assert {line["name"] for line in done.lines if line["deleted"]} == {"old-d", "taken-e"}
    left = run(world, "qr", "list", "--format=json").lines
    assert {line["name"] for line in left} == {"train-a", "sweep-b", "big-c"}
    again = run(world, "qr", "cleanup", "--yes")
    assert again.code == ExitCode.OK
    assert "Nothing is dead" in again.err


def test_cleanup_deletes_nodes_whose_request_is_gone_and_no_others(run: Run, simulators: SimulatorFactory) -> None:
    world = simulators(fresh=True)
    before = {line["node_id"] for line in nodes(run, world)}
    world.inject("orphan", "train-a")
    shown = run(world, "qr", "cleanup", "--dry-run", "--format=json").lines
    assert sum("/nodes/train-a-" in line["curl"] for line in shown) == 2
    assert {line["node_id"] for line in nodes(run, world)} == before, "a dry run deletes nothing"
    done = run(world, "qr", "cleanup", "--yes", "--format=json")
    assert done.code == ExitCode.OK, done.err
    assert "node without its request train-a" in done.err
    assert {line["name"] for line in done.lines} == {"old-d", "taken-e", "train-a-0", "train-a-1"}
    left = {line["node_id"] for line in nodes(run, world)}
    assert left == before - {"train-a-0", "train-a-1"}
    assert "notebook" in left, "a TPU VM made by itself is nobody's orphan"


def nodes(run: Run, world: Simulator) -> list[dict[str, Any]]:
    """Every node that exists."""
    lines = run(world, "fleet", "--once", "--format=json").lines
    return [node for line in lines for node in line.get("nodes", [line])]


def test_an_async_delete_that_is_refused_now_is_kept_and_cleanup_goes_on_with_it(
    run: Run, simulators: SimulatorFactory
) -> None:
    world = simulators(fresh=True)
    refused = run(world, "qr", "delete", "sweep-b", "--force", "--yes", "--async", "--format=json")
    assert refused.code == ExitCode.CLOUD
    assert refused.lines[0]["accepted"] is False
    assert "sweep-b is PROVISIONING" in refused.err
    assert "The wish is kept" in refused.err
    done = run(world, "qr", "cleanup", "--yes")
    assert done.code == ExitCode.OK, done.err
    assert "sweep-b" in done.err
    assert {line["name"] for line in run(world, "qr", "list", "--format=json").lines} == {"train-a", "big-c"}


def test_keep_and_race_refuse_what_makes_no_sense_and_dry_run(run: Run, default: Simulator) -> None:
    before = sent(run, default)
    one = run(default, "qr", "race", "r", "--accelerator-type=v5litepod-16", "--zones=us-west4-a")
    assert (one.code, "no race" in one.err) == (ExitCode.USAGE, True)
    wrong = run(default, "qr", "race", "r", "--accelerator-types=v5litepod-16,v9-1", "--node-count=2")
    assert wrong.code == ExitCode.USAGE
    assert "v9-1" in wrong.err
    dry = run(
        default, "qr", "race", "r", "--accelerator-types=v5litepod-16,v6e-16", "--spot", "--dry-run", "--format=json"
    )
    bodies = [line["body"]["tpu"]["nodeSpec"][0] for line in dry.lines]
    assert {(body["nodeId"], body["node"]["runtimeVersion"]) for body in bodies} == {
        ("r-v5litepod-16", "v2-alpha-tpuv5-lite"),
        ("r-v6e-16", "v2-alpha-tpuv6e"),
    }
    assert len(bodies) == 4
    assert run(default, "qr", "keep", "train-a").code == ExitCode.USAGE
    assert run(default, "qr", "keep", "train-a", "--failures=-1", "--yes").code == ExitCode.USAGE
    kept = run(default, "qr", "keep", "train-a", "--dry-run", "--format=json").lines
    assert [line["curl"].split()[2] for line in kept] == ["DELETE", "POST"]
    assert "Nothing is kept" in run(default, "qr", "keep").err
    assert sent(run, default) == before


def test_a_race_ended_by_ctrl_c_exits_130_and_leaves_nothing(
    run: Run, simulators: SimulatorFactory, tmp_path: Path
) -> None:
    world = simulators(scenario="empty", fresh=True)
    for zone in ("us-west4-a", "us-east5-a"):
        world.inject("capacity", zone, "v5litepod", "0")
    command = ["qr", "race", "r", "--zones=us-west4-a,us-east5-a", *GOOD[:2]]
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", "--context-file", str(world.context_file), *command],
        cwd=ROOT,
        env=own_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while len(run(world, "qr", "list", "--format=json").lines) < 2:
            assert time.monotonic() < deadline, "the race asked for nothing"
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == ExitCode.INTERRUPTED, errors
    assert run(world, "qr", "list", "--format=json").out == ""


def test_a_race_that_was_killed_is_listed_and_taken_up_by_another_process(
    run: Run, simulators: SimulatorFactory, tmp_path: Path
) -> None:
    world = simulators(scenario="empty", fresh=True)
    for zone in ZONES:
        world.inject("capacity", zone, "v5litepod", "0")
    command = ["qr", "race", "runner", f"--zones={','.join(ZONES)}", *GOOD[:2]]
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli.main", "--context-file", str(world.context_file), *command],
        cwd=ROOT,
        env={**own_environment(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while len(run(world, "qr", "list", "--format=json").lines) < 2:
            assert time.monotonic() < deadline, "the race asked for nothing"
            assert process.poll() is None
        early = run(world, "qr", "race", "--resume", "1")
        assert (early.code, "run by another process" in early.err) == (ExitCode.USAGE, True), early.err
    finally:
        process.kill()
        process.wait()
    made = {line["zone"]: line["created_at"] for line in run(world, "qr", "list", "--format=json").lines}
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    with journal.transaction() as connection:
        connection.execute("UPDATE races SET alive_at = alive_at - 60, ends_at = ends_at - 60")
    journal.close()
    (listed,) = run(world, "qr", "race", "--format=json").lines
    assert (listed["race"], listed["running"]) == (1, False)
    assert [entry["zone"] for entry in listed["entries"]] == list(ZONES)
    assert "`slicetower qr race --resume 1` takes it up" in run(world, "qr", "race").err
    refused = run(world, "qr", "race", "again", "--resume", "1")
    assert (refused.code, "as it was begun" in refused.err) == (ExitCode.USAGE, True)
    while {line["state"] for line in run(world, "qr", "list", "--format=json").lines} != {"WAITING_FOR_RESOURCES"}:
        assert time.monotonic() < deadline, "the requests are not queued"
    dry = run(world, "qr", "race", "--resume", "1", "--dry-run")
    assert (dry.code, "runner in us-east5-a: WAITING_FOR_RESOURCES" in dry.err) == (ExitCode.OK, True), dry.err
    world.inject("capacity", "us-east5-a", "v5litepod", "1000")
    done = run(world, "qr", "race", "--resume", "1", "--format=json")
    assert done.code == ExitCode.OK, done.err
    (winner,) = done.lines
    assert (winner["zone"], winner["state"]) == ("us-east5-a", "ACTIVE")
    left = run(world, "qr", "list", "--format=json").lines
    assert [(line["zone"], line["created_at"]) for line in left] == [("us-east5-a", made["us-east5-a"])]
    assert run(world, "qr", "race", "--resume", "1").code == ExitCode.USAGE
    assert run(world, "qr", "race", "--resume", "7").code == ExitCode.USAGE


def test_a_keep_that_no_process_carries_out_is_ended_and_a_living_one_is_not(
    run: Run, default: Simulator, tmp_path: Path
) -> None:
    before = sent(run, default)
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    key = ("demo-project", "us-west4-a", "train-a")
    store = PolicyStore(journal)
    assert store.start_keep(Keep(*key, 5, 2))
    living = run(default, "qr", "keep", "train-a", "--end")
    assert (living.code, "Another process keeps train-a" in living.err) == (ExitCode.USAGE, True), living.err
    store.release_keep(key, end=False)
    unknown = run(default, "qr", "keep", "gone", "--end")
    assert (unknown.code, "gone is not kept. " in unknown.err.replace("\n", " ")) == (ExitCode.USAGE, True)
    assert "Kept: train-a." in unknown.err
    assert run(default, "qr", "keep", "train-a", "--end", before=("--read-only",)).code == ExitCode.USAGE
    assert run(default, "qr", "keep", "train-a", "--end", "--dry-run").code == ExitCode.OK
    assert [each.name for each in store.keeps()] == ["train-a"]
    ended = run(default, "qr", "keep", "train-a", "--end")
    assert (ended.code, "train-a is kept no more" in ended.err) == (ExitCode.OK, True), ended.err
    assert not store.keeps()
    journal.close()
    assert sent(run, default) == before, "the request stays as it is"


def test_cleanup_finds_what_a_killed_race_left_waiting(
    run: Run, simulators: SimulatorFactory, tmp_path: Path
) -> None:
    world = simulators(scenario="empty", fresh=True)
    world.inject("capacity", "us-west4-a", "v5litepod", "0")
    assert run(world, "qr", "create", "zombie", *GOOD).code == ExitCode.OK
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    entry = CreateRequest("zombie", "demo-project", "us-west4-a", "v5litepod-16")
    store = PolicyStore(journal, clock=lambda: time.time() - 3600)
    assert store.ask_entry(store.start_race([entry]), store.races()[0].parts[0])
    journal.close()
    done = run(world, "qr", "cleanup", "--yes", "--format=json")
    assert done.code == ExitCode.OK, done.err
    assert "of a race that nobody runs any more" in done.err
    assert [line["name"] for line in done.lines] == ["zombie"]
    assert run(world, "qr", "list", "--format=json").out == ""
    assert "Nothing is dead" in run(world, "qr", "cleanup", "--yes").err


def test_cleanup_spares_what_a_race_has_that_waits_for_a_process(
    run: Run, simulators: SimulatorFactory, tmp_path: Path
) -> None:
    world = simulators(scenario="empty", fresh=True)
    world.inject("capacity", "us-west4-a", "v5litepod", "0")
    assert run(world, "qr", "create", "racer", *GOOD).code == ExitCode.OK
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    store = PolicyStore(journal)
    race = store.start_race([CreateRequest("racer", "demo-project", "us-west4-a", "v5litepod-16")])
    assert store.ask_entry(race, store.races()[0].parts[0])
    store.release_race(race)
    spared = run(world, "qr", "cleanup", "--yes", "--format=json")
    assert (spared.code, spared.lines) == (ExitCode.OK, [])
    assert f"racer in us-west4-a is an entry of race {race}, which waits: kept." in spared.err
    assert f"`slicetower qr race --resume {race}` takes it up" in spared.err
    assert store.races(ended=0), "the race is still to be taken up"
    done = run(world, "qr", "cleanup", "--waiting-races", "--yes", "--format=json")
    assert [line["name"] for line in done.lines] == ["racer"]
    assert store.races(ended=0) == []
    journal.close()


def test_waits_are_told_by_type_zone_and_tier_once_they_were_seen_whole(
    run: Run, default: Simulator, tmp_path: Path
) -> None:
    nothing = run(default, "qr", "waits")
    assert (nothing.code, nothing.out) == (ExitCode.OK, "")
    assert nothing.err.startswith("No wait was seen")
    begun = datetime.now(UTC)
    asked = QueuedResource(
        "demo-project", "us-west4-a", "w", "WAITING_FOR_RESOURCES", "v5litepod-16", tier=Tier.SPOT, created_at=begun
    )
    at_once = replace(asked, name="x", state="PROVISIONING")
    journal = Journal.open(tmp_path / "state" / "slicetower" / "journal.db")
    place = ("demo-project", "us-west4-a")
    journal.observe(place, [], [], begun)
    journal.observe(place, [asked, at_once], [], begun + timedelta(seconds=5))
    journal.observe(place, [replace(asked, state="PROVISIONING"), at_once], [], begun + timedelta(seconds=65))
    journal.close()
    (line,) = run(default, "qr", "waits", "--format=json").lines
    assert (line["accelerator_type"], line["zone"], line["tier"]) == ("v5litepod-16", "us-west4-a", "spot")
    assert (line["count"], line["median_s"]) == (1, 65.0)
    assert run(default, "qr", "waits", "--type=v6e-8").out == ""
    assert run(default, "qr", "waits").out.splitlines()[1].split()[:5] == [
        "v5litepod-16", "us-west4-a", "spot", "1", "1m05s",
    ]  # fmt: skip
