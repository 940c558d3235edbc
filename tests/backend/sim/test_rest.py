"""REST as curl and gcloud speak it: paths, names, bodies, errors, pages; and that gRPC says the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport as TransportV2
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport
from google.protobuf import json_format

from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from tests.backend.sim.sim_world import PARENT, SPEED, request_body, until

FIXTURES = Path(__file__).parents[2] / "fixtures" / "api"
# The overview document's request, as it is written there but for the comma after "tags" and the values to fill in.
DOCUMENT_BODY = """{
"guaranteed": { "reserved": true },
"tpu": {
    "node_spec": [
    {
    "parent": "projects/123456789012/locations/us-east5-a",
        "node": {
        "accelerator_type": "v5p-16",
        "runtime_version": "v2-alpha-tpuv5",
        "network_config": {
            "network": "your-network-name",
            "subnetwork": "your-subnetwork-name",
            "enable_external_ips": true
        },
        "tags" : ["example-tag-1"],
        "metadata": {
            "startup-script": "echo started_by_curl"
        }
    },
    "multi_node_params": {
        "node_count": 2,
        "node_id_prefix": "your-queued-resource-id"
    }
    }
    ]
}
}"""


class Rest:
    def __init__(self, session: aiohttp.ClientSession, simulator: Simulator) -> None:
        self.session = session
        self.simulator = simulator

    async def call(self, verb: str, path: str, body: Any = None, *, status: int = 200) -> dict[str, Any]:
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        async with self.session.request(verb, path, data=data, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == status, text
            parsed: dict[str, Any] = json.loads(text)
            return parsed

    async def state(self, name: str) -> str:
        shown = await self.call("GET", f"/v2/{name}")
        return str(shown["state"]["state"])


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with (
        running(tmp_path / "sim", load("default"), speed=SPEED) as started,
        aiohttp.ClientSession(started.rest) as session,
    ):
        yield Rest(session, started)


async def test_the_request_of_the_overview_document_is_accepted_as_it_is_written(rest: Rest) -> None:
    place = "projects/demo-project/locations/us-east5-a"
    url = f"/v2alpha1/{place}/queuedResources?queued_resource_id=your-queued-resource-id"
    operation = await rest.call("POST", url, DOCUMENT_BODY)
    assert operation["name"].startswith(f"{place}/operations/operation-")
    metadata = operation["metadata"]
    assert metadata["@type"] == "type.googleapis.com/google.cloud.common.OperationMetadata"
    assert metadata["target"] == f"{place}/queuedResources/your-queued-resource-id"
    assert {key: metadata[key] for key in ("verb", "cancelRequested", "apiVersion")} == {
        "verb": "create",
        "cancelRequested": False,
        "apiVersion": "v2alpha1",
    }
    assert operation["done"] is False
    shown = await rest.call("GET", f"/v2/{place}/queuedResources/your-queued-resource-id")
    node = shown["tpu"]["nodeSpec"][1]["node"]
    assert node["tags"] == ["example-tag-1"]
    assert node["metadata"] == {"startup-script": "echo started_by_curl"}
    assert shown["guaranteed"] == {}
    newer = await rest.call("GET", f"/v2alpha1/{place}/queuedResources/your-queued-resource-id")
    assert newer["guaranteed"] == {"reserved": True}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"tpu": {"node_specs": []}}, "Unknown name \"node_specs\" at 'queued_resource.tpu': Cannot find field."),
        ({"bestEfort": {}}, "Unknown name \"bestEfort\" at 'queued_resource'"),
        ("{not json", "Invalid JSON payload received."),
        ({"tpu": {"nodeSpec": [{"node": {"tags": "one"}}]}}, "Invalid JSON payload received."),
        ({"tpu": {"nodeSpec": ["x"]}}, "Invalid value at 'queued_resource.tpu.node_spec[0]'"),
    ],
)
async def test_a_body_that_the_service_cannot_read_is_refused_with_its_place(
    rest: Rest, body: Any, text: str
) -> None:
    answer = await rest.call("POST", f"/v2alpha1/{PARENT}/queuedResources?queuedResourceId=a", body, status=400)
    assert text in answer["error"]["message"]
    assert answer["error"]["status"] == "INVALID_ARGUMENT"


async def test_each_version_refuses_the_others_names(rest: Rest) -> None:
    url = f"{PARENT}/queuedResources?queuedResourceId=a"
    body = request_body("a")
    answer = await rest.call("POST", f"/v2/{url}", body, status=400)
    assert "multiNodeParams" in answer["error"]["message"]
    await rest.call("GET", f"/v2/{PARENT}/reservations", status=404)
    await rest.call("GET", f"/v2alpha1/{PARENT}/reservations")
    await rest.call("GET", f"/v3/{PARENT}/nodes", status=404)
    answer = await rest.call("GET", f"/v2/{PARENT}/nodes?colour=red", status=400)
    assert "colour" in answer["error"]["message"]


async def test_fields_that_the_library_does_not_know_are_kept_and_shown(rest: Rest) -> None:
    body = request_body("flex", 1, accelerator="v6e-8", runtime="v2-alpha-tpuv6e")
    body |= {"provisioningModel": "FLEX_START", "runDuration": {"maxRunDuration": "7200s"}}
    place = "projects/demo-project/locations/us-east5-a"
    await rest.call("POST", f"/v2alpha1/{place}/queuedResources?queuedResourceId=flex", body)
    shown = await rest.call("GET", f"/v2alpha1/{place}/queuedResources/flex")
    assert shown["provisioningModel"] == "FLEX_START"
    assert shown["runDuration"]["maxRunDuration"] == "7200s"


async def test_pages_hold_everything_once_and_in_order(rest: Rest) -> None:
    seen: list[str] = []
    token = ""
    for _ in range(20):
        answer = await rest.call("GET", f"/v2/{PARENT}/nodes?pageSize=2&pageToken={token}")
        assert len(answer["nodes"]) <= 2
        seen.extend(node["name"].rsplit("/", 1)[-1] for node in answer["nodes"])
        token = answer.get("nextPageToken", "")
        if not token:
            break
    assert seen == ["notebook", *(f"sweep-b-{index}" for index in range(4)), "train-a-0", "train-a-1"]
    answer = await rest.call("GET", f"/v2/{PARENT}/nodes?pageToken=bogus", status=400)
    assert answer["error"]["message"] == "The page token is invalid."


async def test_all_zones_may_be_listed_at_once_for_nodes_alone(rest: Rest) -> None:
    answer = await rest.call("GET", "/v2/projects/123456789012/locations/-/nodes")
    assert {node["name"].split("/")[3] for node in answer["nodes"]} == {"us-west4-a"}
    await rest.call("GET", "/v2/projects/demo-project/locations/-/queuedResources", status=403)


async def test_what_a_zone_offers_is_listed_and_filtered(rest: Rest) -> None:
    locations = await rest.call("GET", "/v1/projects/demo-project/locations")
    assert [item["locationId"] for item in locations["locations"]] == ["us-east5-a", "us-west4-a"]
    types = await rest.call("GET", f"/v2/{PARENT}/acceleratorTypes?filter=type%3Dv5litepod-16")
    assert types["acceleratorTypes"] == [
        {
            "name": f"{PARENT}/acceleratorTypes/v5litepod-16",
            "type": "v5litepod-16",
            "acceleratorConfigs": [{"type": "V5LITE_POD", "topology": "4x4"}],
        }
    ]
    assert await rest.call("GET", f"/v2/{PARENT}/acceleratorTypes/v5litepod-16") == types["acceleratorTypes"][0]
    await rest.call("GET", f"/v2/{PARENT}/acceleratorTypes/v4-8", status=404)
    versions = await rest.call("GET", f"/v2/{PARENT}/runtimeVersions")
    assert "v2-alpha-tpuv5-lite" in [item["version"] for item in versions["runtimeVersions"]]
    identity = await rest.call("POST", f"/v2/{PARENT}:generateServiceIdentity", {})
    assert "@" in identity["identity"]["email"]


async def test_operations_are_listed_cancelled_and_deleted(rest: Rest) -> None:
    url = f"/v2alpha1/{PARENT}/queuedResources?queuedResourceId=a"
    operation = await rest.call("POST", url, request_body("a"))
    name = operation["name"]
    await rest.call("POST", f"/v2alpha1/{name}:cancel", {})

    async def done() -> bool:
        return bool((await rest.call("GET", f"/v2alpha1/{name}"))["done"])

    await until(done, "done")
    ended = await rest.call("GET", f"/v2/{name}")
    assert ended["response"]["name"].endswith("/queuedResources/a")
    listed = await rest.call("GET", f"/v2/{PARENT}/operations")
    assert [item["name"] for item in listed["operations"]] == [name]
    await rest.call("DELETE", f"/v2/{name}")
    await rest.call("GET", f"/v2/{name}", status=404)


async def test_a_mask_in_either_spelling_patches_a_node(rest: Rest) -> None:
    name = f"{PARENT}/nodes/notebook"
    body = {"network_config": {"enable_external_ips": False}, "labels": {"my_label": "kept_as_is"}}
    await rest.call("PATCH", f"/v2/{name}?updateMask=network_config.enable_external_ips,labels", body)
    node = await rest.call("GET", f"/v2/{name}")
    assert node["labels"] == {"my_label": "kept_as_is"}
    assert "accessConfig" not in node["networkEndpoints"][0]
    await rest.call("PATCH", f"/v2/{name}?update_mask=labels", {})
    assert "labels" not in await rest.call("GET", f"/v2/{name}")


async def test_delete_takes_force_from_the_query(rest: Rest) -> None:
    name = f"{PARENT}/queuedResources/train-a"
    answer = await rest.call("DELETE", f"/v2/{name}?force=false", status=400)
    assert answer == json.loads((FIXTURES / "err_400_delete_active_without_force.json").read_text())
    await rest.call("DELETE", f"/v2/{name}?force=true")

    async def gone() -> bool:
        async with rest.session.get(f"/v2/{name}") as shown:
            return shown.status == 404

    await until(gone, "gone")


def _known_to_library(view: Any) -> Any:
    """A REST view without what google-cloud-tpu 1.28 does not know."""
    if isinstance(view, list):
        return [_known_to_library(item) for item in view]
    if not isinstance(view, dict):
        return view
    unknown = ("bootDisk", "useTpuVm")
    return {key: _known_to_library(value) for key, value in view.items() if key not in unknown}


async def test_grpc_and_rest_say_the_same_in_both_versions(rest: Rest) -> None:
    channel = grpc.insecure_channel(rest.simulator.grpc)
    older: Any = tpu_v2.TpuClient(transport=TransportV2(channel=channel))
    newer: Any = tpu_v2alpha1.TpuClient(transport=TpuGrpcTransport(channel=channel))
    for version, client, types in (("v2", older, tpu_v2), ("v2alpha1", newer, tpu_v2alpha1)):
        for kind, field in (("queued_resources", "queuedResources"), ("nodes", "nodes")):
            over_rest = (await rest.call("GET", f"/{version}/{PARENT}/{field}"))[field]
            ask = client.list_queued_resources if kind == "queued_resources" else client.list_nodes
            pager = await asyncio.to_thread(ask, parent=PARENT)
            message = types.QueuedResource if kind == "queued_resources" else types.Node
            over_grpc = [json_format.MessageToDict(message.pb(item)) for item in pager]
            stripped = _known_to_library(over_rest)
            reparsed = [
                json_format.MessageToDict(
                    json_format.ParseDict(item, message.pb(message()), ignore_unknown_fields=True)
                )
                for item in stripped
            ]
            assert over_grpc == reparsed
            assert len(over_grpc) == (3 if kind == "queued_resources" else 7)


async def test_views_have_the_shape_of_the_recorded_payloads(rest: Rest) -> None:
    def missing(recorded: Any, shown: Any, where: str = "") -> list[str]:
        if isinstance(recorded, dict):
            lacking = [f"{where}.{key}" for key in recorded if not isinstance(shown, dict) or key not in shown]
            below = [missing(recorded[key], shown[key], f"{where}.{key}") for key in recorded if key in shown]
            return lacking + [item for part in below for item in part]
        if isinstance(recorded, list) and recorded:
            return missing(recorded[0], shown[0], f"{where}[0]")
        return [] if type(recorded) is type(shown) else [f"{where}: {type(shown)}"]

    pairs = {
        "node_ready_healthy.json": f"{PARENT}/nodes/train-a-0",
        "node_creating_sparse.json": f"{PARENT}/nodes/sweep-b-3",
        "qr_describe_active_docs.json": f"{PARENT}/queuedResources/train-a",
        "qr_describe_failed_code13.json": f"{PARENT}/queuedResources/old-d",
        "qr_describe_suspended_service.json": "projects/demo-project/locations/us-east5-a/queuedResources/taken-e",
    }
    for fixture, name in pairs.items():
        recorded = json.loads((FIXTURES / fixture).read_text())
        shown = await rest.call("GET", f"/v2alpha1/{name}")
        lacking = [item for item in missing(recorded, shown) if item != ".schedulingConfig.spot"]
        assert lacking == [], fixture


async def test_the_compute_call_of_gclouds_ssh_is_answered(rest: Rest) -> None:
    project = await rest.call("GET", "/compute/v1/projects/demo-project")
    assert project["commonInstanceMetadata"]["items"] == []
    await rest.call("GET", "/compute/v1/projects/other", status=404)


async def test_the_versions_of_old_are_listed_by_v1_alone(rest: Rest) -> None:
    place = "projects/demo-project/locations/us-west4-a/tensorflowVersions"
    listed = await rest.call("GET", f"v1/{place}")
    assert {"name": f"{place}/2.17.0", "version": "2.17.0"} in listed["tensorflowVersions"]
    first = await rest.call("GET", f"v1/{place}?pageSize=1")
    rest_of_them = await rest.call("GET", f"v1/{place}?pageToken={first['nextPageToken']}")
    assert first["tensorflowVersions"] + rest_of_them["tensorflowVersions"] == listed["tensorflowVersions"]
    assert (await rest.call("GET", f"v1/{place}/2.17.0"))["version"] == "2.17.0"
    await rest.call("GET", f"v1/{place}/0.1", status=404)
    await rest.call("GET", f"v2/{place}", status=404)
