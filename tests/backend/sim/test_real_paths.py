"""REST at the paths of the real service: those that the client library itself would call, and the document's curl."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.cloud.tpu_v2.services.tpu.transports.rest_base import _BaseTpuRestTransport

from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from tests.backend.sim.sim_world import PARENT, SPEED
from tests.backend.sim.test_rest import DOCUMENT_BODY
from tests.backend.sim.test_rpcs import rpcs_of_library

ALPHA_PATHS = {
    "ListReservations": ("GET", f"{PARENT}/reservations"),
    "SimulateMaintenanceEvent": ("POST", f"{PARENT}/nodes/a:simulateMaintenanceEvent"),
    "PerformMaintenance": ("POST", f"{PARENT}/nodes/a:performMaintenance"),
    "PerformMaintenanceQueuedResource": (
        "POST",
        f"{PARENT}/queuedResources/a:performMaintenanceQueuedResource",
    ),
}
"""Of v2alpha1, for which the library has no REST transport (API reference, REST resources)."""
MIXED = {
    "ListLocations": ("GET", "projects/demo-project/locations"),
    "GetLocation": ("GET", PARENT),
    "ListOperations": ("GET", f"{PARENT}/operations"),
    "GetOperation": ("GET", f"{PARENT}/operations/a"),
    "DeleteOperation": ("DELETE", f"{PARENT}/operations/a"),
    "CancelOperation": ("POST", f"{PARENT}/operations/a:cancel"),
}
NO_SUCH_PATH = re.compile(r"Method not found|The requested URL")
CURL_LIMIT_S = 60.0


@pytest.fixture
async def simulator(tmp_path: Path) -> AsyncIterator[Simulator]:
    async with running(tmp_path / "sim", load("default"), speed=SPEED) as started:
        yield started


def paths_of_library() -> Iterator[tuple[str, str, str]]:
    """(RPC, verb, path without its version) of every call of v2, out of the library's own REST transport."""
    for rpc in rpcs_of_library("v2"):
        base = getattr(_BaseTpuRestTransport, f"_Base{rpc}")
        for option in base._get_http_options():
            path = re.sub(r"\{[a-z_.]+=([^}]+)\}", lambda found: re.sub(r"\*+", "a", found[1]), option["uri"])
            yield (
                rpc,
                option["method"].upper(),
                path.removeprefix("/v2/").replace("projects/a/", "projects/demo-project/"),
            )


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
async def test_every_rpc_has_its_path_in_rest(simulator: Simulator, version: str) -> None:
    calls = [*paths_of_library(), *((rpc, *call) for rpc, call in MIXED.items())]
    assert {rpc for rpc, _, _ in calls} == {*rpcs_of_library("v2"), *MIXED}
    if version == "v2alpha1":
        calls += [(rpc, *call) for rpc, call in ALPHA_PATHS.items()]
        assert {rpc for rpc, _, _ in calls} == {*rpcs_of_library("v2alpha1"), *MIXED}
    async with aiohttp.ClientSession(simulator.rest) as session:
        for rpc, verb, path in calls:
            body = "{}" if verb in ("POST", "PATCH") else None
            async with session.request(verb, f"/{version}/{path}", data=body) as answer:
                said = json.loads(await answer.text())
                message = said.get("error", {}).get("message", "") if isinstance(said, dict) else ""
                assert not NO_SUCH_PATH.match(message), (rpc, verb, path, message)
        if version == "v2":
            for verb, path in ALPHA_PATHS.values():
                async with session.request(verb, f"/v2/{path}", data="{}") as answer:
                    assert answer.status == 404, path
                    assert NO_SUCH_PATH.match((await answer.json())["error"]["message"]), path


@pytest.mark.skipif(shutil.which("curl") is None, reason="not run: there is no curl on this machine")
async def test_the_documents_curl_commands_work_as_they_are_written(simulator: Simulator, tmp_path: Path) -> None:
    """`curl -X POST ... -d @queuedresourcereq.json` and the GET that follows, the host and the project filled in."""
    (tmp_path / "queuedresourcereq.json").write_text(DOCUMENT_BODY)
    place = f"{simulator.rest}/v2alpha1/projects/demo-project/locations/us-east5-a"
    create = (
        'curl -sS -X POST -H "Authorization: Bearer $(echo token)" -H "Content-Type: application/json" '
        f"-d @queuedresourcereq.json {place}/queuedResources\\?queued_resource_id\\=your-queued-resource-id"
    )
    made = await shell(create, tmp_path)
    assert made["done"] is False
    assert made["metadata"]["verb"] == "create"
    get = (
        'YOUR_QR_ID=your-queued-resource-id; curl -sS -X GET -H "Authorization: Bearer $(echo token)" '
        '-H "Content-Type: application/json" '
        f"{simulator.rest}/v2/projects/demo-project/locations/us-east5-a/queuedResources/${{YOUR_QR_ID}}"
    )
    for _ in range(600):
        shown = await shell(get, tmp_path)
        if shown["state"]["state"] == "ACTIVE":
            break
    assert shown["state"]["state"] == "ACTIVE"
    assert shown["name"].endswith("/queuedResources/your-queued-resource-id")
    assert len(shown["tpu"]["nodeSpec"]) == 2


async def shell(command: str, folder: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_shell(
        command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(CURL_LIMIT_S):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors
    answer: dict[str, Any] = json.loads(out)
    return answer


def walked(view: Any, where: str = "") -> Iterator[tuple[str, str, Any]]:
    """(place, last key, value) of everything in a JSON answer, but for maps that are the operator's own."""
    if isinstance(view, dict):
        for key, value in view.items():
            yield f"{where}.{key}", key, value
            if key not in ("labels", "metadata") or "@type" in (value if isinstance(value, dict) else {}):
                yield from walked(value, f"{where}.{key}")
    elif isinstance(view, list):
        for value in view:
            yield from walked(value, where)


async def test_json_is_camel_case_with_long_numbers_as_strings_and_rfc_3339_times(simulator: Simulator) -> None:
    lists = ("queuedResources", "nodes", "operations")
    async with aiohttp.ClientSession(simulator.rest) as session:
        async with session.delete(f"/v2/{PARENT}/queuedResources/old-d") as answer:
            assert answer.status == 200
        for version in ("v2", "v2alpha1"):
            for field in lists:
                async with session.get(f"/{version}/{PARENT}/{field}") as answer:
                    listed = (await answer.json())[field]
                assert listed, field
                for where, key, value in walked(listed):
                    assert re.fullmatch(r"@type|[a-z][A-Za-z0-9]*", key), where
                    assert not (isinstance(value, int) and not isinstance(value, bool) and value >= 2**31), where
                    if key.endswith("Time") and isinstance(value, str):
                        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3,9})?Z", value), (where, value)
                    if isinstance(value, str) and key in ("state", "health", "acceleratorConfig"):
                        assert re.fullmatch(r"[A-Z][A-Z_0-9]*", value), (where, value)
                if field == "nodes":
                    uids = [node["id"] for node in listed if "id" in node]
                    assert uids
                    assert all(re.fullmatch(r"\d{18,19}", uid) for uid in uids)
