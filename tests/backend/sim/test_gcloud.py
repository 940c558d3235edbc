"""The real gcloud on the simulator. Without a gcloud on this machine these are skipped, which is said: not run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from tests.backend.sim.sim_world import ZONE

GCLOUD = shutil.which("gcloud")
COMMAND_LIMIT_S = 90.0
SPEED = 400.0

pytestmark = pytest.mark.skipif(GCLOUD is None, reason="not run: there is no gcloud on this machine")


class Gcloud:
    """gcloud with a configuration of its own, pointed at a simulator."""

    def __init__(self, simulator: Simulator, home: Path) -> None:
        self.simulator = simulator
        self.home = home
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "GOOGLE_"))},
            "HOME": str(home),
            "CLOUDSDK_CONFIG": str(home / "gcloud"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{simulator.rest}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{simulator.rest}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "demo-project",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        }

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        assert GCLOUD is not None
        process = await asyncio.create_subprocess_exec(
            GCLOUD,
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(COMMAND_LIMIT_S):
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def ok(self, *arguments: str) -> str:
        code, out, err = await self.run(*arguments)
        assert code == 0, err
        return out

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.ok(*arguments, "--format", "json"))


@pytest.fixture
async def gcloud(tmp_path: Path) -> AsyncIterator[Gcloud]:
    async with running(tmp_path / "sim", load("default"), speed=SPEED) as simulator:
        home = tmp_path / "home"
        await asyncio.to_thread(home.mkdir)
        yield Gcloud(simulator, home)


QUEUED = ("compute", "tpus", "queued-resources")


async def test_gcloud_lists_describes_creates_resets_and_deletes(gcloud: Gcloud) -> None:
    table = await gcloud.ok(*QUEUED, "list", "--zone", ZONE)
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["NAME", "ZONE", "NODE_COUNT", "ACCELERATOR_TYPE", "TYPE", "TOPOLOGY", "STATE"]
    assert ["train-a", ZONE, "2", "v5litepod-16", "ACTIVE"] in rows
    shape = ["--accelerator-type", "v5litepod-16", "--runtime-version", "v2-alpha-tpuv5-lite", "--zone", ZONE]
    await gcloud.ok(*QUEUED, "create", "ms", "--node-count", "2", "--node-prefix", "node", *shape, "--spot")
    shown = await gcloud.json(*QUEUED, "describe", "ms", "--zone", ZONE)
    assert [spec["nodeId"] for spec in shown["tpu"]["nodeSpec"]] == ["node-0", "node-1"]
    while shown["state"]["state"] != "ACTIVE":
        assert shown["state"]["state"] in ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
        shown = await gcloud.json(*QUEUED, "describe", "ms", "--zone", ZONE)
    await gcloud.ok(*QUEUED, "reset", "ms", "--zone", ZONE)
    code, _, err = await gcloud.run(*QUEUED, "delete", "ms", "--zone", ZONE, "--quiet")
    assert code == 1
    assert "FAILED_PRECONDITION: DeleteQueuedResource is not supported when state is ACTIVE" in err
    await gcloud.ok(*QUEUED, "delete", "ms", "--zone", ZONE, "--quiet", "--force")
    code, _, err = await gcloud.run(*QUEUED, "describe", "ms", "--zone", ZONE)
    assert code == 1
    assert "NOT_FOUND: Resource 'projects/demo-project/locations/us-west4-a/queuedResources/ms' was not found" in err


@pytest.mark.heavy
async def test_gcloud_alpha_creates_reserved_and_asynchronously(gcloud: Gcloud) -> None:
    shape = ["--accelerator-type", "v5p-16", "--runtime-version", "v2-alpha-tpuv5", "--zone", "us-east5-a"]
    labels = ["--labels", "team=a", "--metadata", "startup-script=true"]
    await gcloud.ok("alpha", *QUEUED, "create", "two", "--node-count", "2", *shape, *labels, "--reserved", "--async")
    shown = await gcloud.json("alpha", *QUEUED, "describe", "two", "--zone", "us-east5-a")
    assert shown["guaranteed"] == {"reserved": True}
    assert shown["tpu"]["nodeSpec"][0]["node"]["labels"] == {"team": "a"}
    await gcloud.ok("alpha", *QUEUED, "list", "--zone", "us-east5-a")


@pytest.mark.heavy
async def test_gcloud_shows_what_a_zone_has(gcloud: Gcloud) -> None:
    nodes = await gcloud.json("compute", "tpus", "tpu-vm", "list", "--zone", ZONE)
    assert {node["name"].rsplit("/", 1)[-1] for node in nodes} >= {"train-a-0", "train-a-1", "notebook"}
    assert len(await gcloud.json("compute", "tpus", "tpu-vm", "list", "--zone", "-")) == len(nodes)
    types = await gcloud.json("compute", "tpus", "accelerator-types", "list", "--zone", ZONE)
    assert "v5litepod-16" in [item["type"] for item in types]
    locations = await gcloud.json("compute", "tpus", "locations", "list")
    assert [item["locationId"] for item in locations] == ["us-east5-a", "us-west4-a"]
    versions = await gcloud.json("compute", "tpus", "tpu-vm", "versions", "list", "--zone", ZONE)
    assert "v2-alpha-tpuv5-lite" in [item["version"] for item in versions]
    old = await gcloud.json("compute", "tpus", "versions", "list", "--zone", ZONE)
    assert "2.17.0" in [item["version"] for item in old]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="not run: there is no ssh on this machine")
async def test_gcloud_reaches_workers_by_ssh(gcloud: Gcloud) -> None:
    """gcloud puts its key into the node's metadata, waits for that, and runs a command on every worker."""
    folder = gcloud.home / ".ssh"
    await asyncio.to_thread(folder.mkdir, 0o700)
    key = asyncssh.generate_private_key("ssh-rsa", comment="gcloud")
    await asyncio.to_thread(key.write_private_key, str(folder / "google_compute_engine"))
    await asyncio.to_thread((folder / "google_compute_engine").chmod, 0o600)
    await asyncio.to_thread(key.write_public_key, str(folder / "google_compute_engine.pub"))
    target = ["train-a", "--zone", ZONE, "--node", "all", "--worker", "all"]
    ssh = ["--ssh-flag", f"-p {gcloud.simulator.ssh_port}", "--ssh-key-file", str(folder / "google_compute_engine")]
    out = await gcloud.ok("alpha", *QUEUED, "ssh", *target, *ssh, "--command", "hostname")
    names = sorted(line for line in out.splitlines() if line.startswith("t1v-"))
    assert len(names) == 8, (out, sys.executable)
    assert [name[-4:] for name in names] == ["-w-0", "-w-1", "-w-2", "-w-3"] * 2
