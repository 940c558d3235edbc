from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import grpc

from backend.outcomes import ExitCode
from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_node, raw_request
from tests.simulator import run_cli


async def fleet(folder: Path, cloud: FakeCloud, *arguments: str, zones: str = '"z"') -> CompletedProcess[str]:
    file = folder / "context.toml"
    file.write_text(
        f'name = "fake"\nlabel = "pretended"\nproject = "p"\nzones = [{zones}]\ntransport = "insecure"\n'
        f'credentials = "none"\nendpoint = "{cloud.endpoint}"\nrest_endpoint = "http://127.0.0.1:9"\n'
    )
    return await asyncio.to_thread(run_cli, "--context-file", str(file), "fleet", "--once", *arguments, home=folder)


def fill(cloud: FakeCloud) -> None:
    dead = raw_request("old-d", "FAILED", slices=2)
    dead.state.failed_data.error.message = "an internal error\x1b[2J has occurred"
    cloud.queued[parent()] = [raw_request("train-a", slices=2), dead, raw_request("big-c", "WAITING_FOR_RESOURCES")]
    cloud.nodes[parent()] = [
        raw_node("train-a-0", "train-a"),
        raw_node("train-a-1", "train-a", "REPAIRING"),
        raw_node("vm"),
    ]


async def test_the_fleet_is_one_table_of_requests_and_one_of_slices(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        fill(cloud)
        done = await fleet(tmp_path, cloud)
    assert done.returncode == ExitCode.OK, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "fake (pretended): p, z; chips: active 32 · waiting 16 · dead 32"
    row = next(line for line in lines if line.startswith("train-a "))
    assert row.split()[:8] == ["train-a", "z", "ACTIVE", "2", "v5litepod-16", "spot", "32", "4/8"]
    assert row.endswith("slice 1: REPAIRING")
    assert ">= 0s" in row
    assert any(line.startswith("vm ") for line in lines)
    assert "\x1b" not in done.stdout


async def test_json_lines_have_the_agreed_fields(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        fill(cloud)
        done = await fleet(tmp_path, cloud, "--format", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("name", row.get("node_id")) for row in rows] == ["big-c", "old-d", "train-a", "vm"]
    agreed = (
        "name zone state accelerator_type slices chips workers workers_ready tier created_at state_since "
        "state_since_is_lower_bound note"
    )
    assert set(agreed.split()) <= set(rows[0])
    assert rows[0]["state_since_is_lower_bound"] is True
    assert [len(node["workers"]) for node in rows[2]["nodes"]] == [4, 4]


async def test_one_failing_zone_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        fill(cloud)
        cloud.fail("ListNodes", grpc.StatusCode.PERMISSION_DENIED, "denied", parent=parent("y"))
        done = await fleet(tmp_path, cloud, zones='"z", "y"')
    assert done.returncode == ExitCode.CLOUD
    assert "train-a" in done.stdout
    assert "y:" in done.stderr


async def test_an_error_is_never_shown_as_an_empty_fleet(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        cloud.fail("ListNodes", grpc.StatusCode.PERMISSION_DENIED, "denied")
        done = await fleet(tmp_path, cloud)
        assert (done.returncode, done.stdout) == (ExitCode.CLOUD, "")
        cloud.heal()
        done = await fleet(tmp_path, cloud)
        assert done.returncode == ExitCode.OK
        assert "No queued resources and no TPU VMs." in done.stdout


async def test_workers_and_events_are_plain_views_too(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        fill(cloud)
        done = await fleet(tmp_path, cloud, "--plain", "--workers")
        told = await fleet(tmp_path, cloud, "--workers", "--format", "json")
        cloud.queued[parent()].pop()
        await fleet(tmp_path, cloud)
        seen = await fleet(tmp_path, cloud, "--events", "50")
        newest = await fleet(tmp_path, cloud, "--events", "1", "--format", "json")
        none = await fleet(tmp_path, cloud, "--events", "0")
    assert done.returncode == ExitCode.OK, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["WORKER", "SLICE", "HEALTH", "NODE", "INTERNAL", "EXTERNAL"]
    assert lines[1].split()[0] == "train-a/0/0"
    assert any(line.startswith("train-a/1/0") and "REPAIRING" in line for line in lines)
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert [row["target"] for row in rows] == [line.split()[0] for line in lines[1:]]
    assert "big-c is gone" in seen.stdout
    assert len(newest.stdout.splitlines()) == 1
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text("utf-8")
    for option, found in (("`fleet --workers`", rows[0]), ("`fleet --events`", json.loads(newest.stdout))):
        told_there = next(line for line in page.splitlines() if option in line)
        assert list(found) == re.findall(r"`([a-z_]+)`", told_there), option
    assert none.returncode == ExitCode.USAGE
    assert "--events 0" in none.stderr
