"""What a verb may import, proved by running it: the headless side stays light, the console starts before grpc is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator import ROOT, own_environment

HEAVY = ("textual", "rich", "grpc", "jax", "google.cloud", "google.protobuf", "asyncssh", "aiohttp")

PROBE = """
import sys
{action}
print("loaded:", *sorted(set(sys.argv[1:]) & set(sys.modules)))
"""

RUN = """
from tui.cli.main import main
try:
    main({arguments!r})
except SystemExit:
    pass
"""


def loaded(action: str, home: Path, modules: tuple[str, ...] = HEAVY) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(action=action), *modules],
        cwd=ROOT,
        env=own_environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(done.stdout.rsplit("loaded:", 1)[1].split())


@pytest.mark.parametrize(
    "arguments", [["locate"], ["--help"], ["qr", "list", "--help"], ["fleet", "--help"], ["doctor", "--help"]]
)
def test_help_and_plain_verbs_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    assert loaded(RUN.format(arguments=arguments), tmp_path) == set()


@pytest.mark.parametrize("module", ["backend.tower", "backend.cloud.client", "backend.cloud.watch"])
def test_the_cloud_side_costs_nothing_until_it_is_used(module: str, tmp_path: Path) -> None:
    assert loaded(f"import {module}", tmp_path) == set()


def test_the_console_starts_without_grpc_and_never_needs_jax(tmp_path: Path) -> None:
    assert loaded("import tui.app", tmp_path, ("grpc", "google.cloud", "jax", "asyncssh")) == set()


def test_the_probe_can_fail(tmp_path: Path) -> None:
    assert loaded("import asyncssh", tmp_path) == {"asyncssh"}


def test_the_message_classes_are_the_librarys_own_and_come_without_its_clients(tmp_path: Path) -> None:
    action = """
from backend.cloud.messages import message
message("Node"), message("Node", "v2")
assert not [name for name in sys.modules if name.startswith("google.cloud.tpu_v2alpha1.services")]
from google.cloud import tpu_v2, tpu_v2alpha1
assert tpu_v2alpha1.Node.pb() is message("Node")
assert tpu_v2.Node.pb() is message("Node", "v2")
assert message("Node") is not message("Node", "v2")
assert tpu_v2alpha1.TpuAsyncClient
"""
    assert "grpc" in loaded(action, tmp_path)
