from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from backend import doctor
from backend.outcomes import ExitCode
from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_request
from tests.simulator import ROOT, SimulatorFactory, own_environment, run_cli


def context_file(folder: Path, cloud: FakeCloud, extra: str = "") -> Path:
    file = folder / "context.toml"
    file.write_text(
        'name = "fake"\nproject = "p"\nzones = ["z"]\ntransport = "insecure"\ncredentials = "none"\n'
        f'endpoint = "{cloud.endpoint}"\nrest_endpoint = "http://127.0.0.1:9"\n{extra}'
    )
    return file


async def examined(folder: Path, cloud: FakeCloud, extra: str = "") -> tuple[int, dict[str, Any]]:
    file = context_file(folder, cloud, extra)
    done = await asyncio.to_thread(
        run_cli, "--context-file", str(file), "doctor", "--format", "json", home=folder / "home"
    )
    return done.returncode, {item["check"]: item for item in map(json.loads, done.stdout.splitlines())}


async def test_a_sound_machine_gets_no_failure(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        cloud.queued[parent()] = [raw_request("a")]
        code, found = await examined(tmp_path, cloud)
    assert code == ExitCode.OK
    assert found["configuration"]["verdict"] == "ok"
    assert "1 queued resources" in found["endpoint"]["what"]
    assert found["credentials"]["verdict"] == "ok"
    assert found["journal"]["verdict"] == "ok"
    assert {item["verdict"] for item in found.values()} <= {"ok", "warn"}


async def test_a_refusing_cloud_is_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        cloud.fail("ListQueuedResources", grpc.StatusCode.UNAUTHENTICATED, "expired")
        code, found = await examined(tmp_path, cloud)
    assert code == ExitCode.CLOUD
    assert found["credentials"]["verdict"] == "fail"
    assert "gcloud auth application-default login" in found["credentials"]["cure"]


async def test_a_missing_ssh_key_of_the_context_is_a_failure(tmp_path: Path) -> None:
    async with fake_cloud() as cloud:
        code, found = await examined(tmp_path, cloud, '[ssh]\nkey = "nowhere"\n')
    assert code == ExitCode.USAGE
    assert found["ssh key"]["verdict"] == "fail"
    assert str(tmp_path / "nowhere") in found["ssh key"]["what"]


def test_an_unconfigured_machine_is_told_what_to_do(tmp_path: Path) -> None:
    done = run_cli("doctor", home=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "fail     configuration" in done.stdout
    assert "slicetower demo" in done.stdout


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    from backend.context import Context, SSHSettings

    key = tmp_path / "key"
    key.write_text("x")
    key.chmod(0o644)
    context = Context("c", "p", ("z",), ssh=SSHSettings(key=key))
    assert doctor._ssh_key(context).verdict == "warn"
    key.chmod(0o600)
    assert doctor._ssh_key(context).verdict == "ok"


def test_a_missing_key_is_made_later_but_never_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.context import Context

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert "It is made" in doctor._ssh_key(Context("c", "p", ("z",))).cure
    assert "not made" in doctor._ssh_key(Context("c", "p", ("z",), read_only=True)).cure


def test_the_user_on_nodes_with_os_login_is_told_where_it_can_be_known() -> None:
    from backend.context import Context, SSHSettings

    assert "set user =" in doctor._ssh_user(Context("c", "p", ("z",)), has_gcloud=False).cure
    assert "gcloud is asked" in doctor._ssh_user(Context("c", "p", ("z",)), has_gcloud=True).what
    given = Context("c", "p", ("z",), ssh=SSHSettings(user="ann"))
    assert doctor._ssh_user(given, has_gcloud=False).what.startswith("ann")


@pytest.mark.parametrize(
    ("items", "account", "verdict", "words"),
    [
        ([], "", "ok", "does not use it; 0 keys"),
        ([{"key": "ssh-keys", "value": "a:K\nb:K\n"}], "", "ok", "does not use it; 2 keys"),
        ([{"key": "enable-oslogin", "value": "TRUE"}], "ann@example.com", "ok", "profile of ann@example.com"),
        ([{"key": "enable-oslogin", "value": "TRUE"}], "", "warn", "whose profile is yours is not known"),
    ],
)
def test_what_the_project_says_about_logins_is_told(
    simulators: SimulatorFactory, tmp_path: Path, items: list[dict[str, str]], account: str, verdict: str, words: str
) -> None:
    simulator = simulators(seed=11)
    request = urllib.request.Request(
        f"{simulator.rest}/compute/v1/projects/{simulator.context.project}/setCommonInstanceMetadata",
        json.dumps({"items": items}).encode(),
        {"Content-Type": "application/json"},
    )
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f"#!/bin/sh\n[ \"$*\" = 'config get account' ] && echo '{account}'\n")
    gcloud.chmod(0o755)
    environment = {**own_environment(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [sys.executable, "-m", "tui.cli.main", "--context-file", str(simulator.context_file), "doctor"]
    try:
        urllib.request.urlopen(request, timeout=60).close()
        done = subprocess.run(
            [*command, "--format", "json"], cwd=ROOT, env=environment, capture_output=True, timeout=120
        )
    finally:
        request.data = b'{"items": []}'
        urllib.request.urlopen(request, timeout=60).close()
    found = {item["check"]: item for item in map(json.loads, done.stdout.splitlines())}
    assert (found["os login"]["verdict"], words in found["os login"]["what"]) == (verdict, True), found["os login"]


@pytest.mark.parametrize(
    ("environment", "encoding", "terminal", "verdicts"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "utf-8", True, ["ok", "ok"]),
        ({"TERM": "xterm-256color"}, "UTF8", True, ["ok", "ok"]),
        ({"TERM": "vt100"}, "utf-8", True, ["ok", "warn"]),
        ({"TERM": "dumb"}, "utf-8", True, ["ok", "fail"]),
        ({}, "ascii", True, ["warn", "fail"]),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "utf-8", True, ["ok", "ok"]),
        ({}, "utf-8", False, ["ok", "ok"]),
    ],
)
def test_the_terminal_is_judged(
    environment: dict[str, str], encoding: str, terminal: bool, verdicts: list[str]
) -> None:
    assert [each.verdict for each in doctor._terminal(environment, encoding, terminal)] == verdicts


def test_a_host_name_that_is_not_loopback_is_cured_by_a_line() -> None:
    def unknown(name: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    assert doctor._own_name("box", lambda name: ["127.0.1.1"]).verdict == "ok"
    for resolve in (unknown, lambda name: ["10.0.0.5"], lambda name: []):
        found = doctor._own_name("box", resolve)
        assert found.verdict == "warn"
        assert "127.0.0.1 box" in found.cure


def test_a_small_limit_of_files_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    assert doctor._open_files().verdict == "warn"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    assert doctor._open_files().verdict == "ok"


def test_gcloud_is_wished_for_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._gcloud().verdict == "warn"
    (tmp_path / "gcloud").write_text("#!/bin/sh\n")
    os.chmod(tmp_path / "gcloud", 0o700)
    assert doctor._gcloud().verdict == "ok"
