"""A served simulator, as clients meet it: the plain google-cloud-tpu client over a socket, REST over another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncssh
import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport as TransportV2
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport

from backend.sim import faults
from backend.sim.api import Api
from backend.sim.scenario import load
from backend.sim.served import Simulator, running
from tests.backend.sim.sim_world import LIMIT_S, PARENT, SPEED, request_body, until


@pytest.fixture
async def simulator(tmp_path: Path) -> AsyncIterator[Simulator]:
    async with running(tmp_path / "sim", load("empty"), speed=SPEED) as started:
        yield started


def client_of(simulator: Simulator) -> Any:
    return tpu_v2alpha1.TpuClient(transport=TpuGrpcTransport(channel=grpc.insecure_channel(simulator.grpc)))


def documented_journey(simulator: Simulator) -> list[str]:
    """What the library's own documentation shows: create, wait for the operation, list, get, delete, wait."""
    client = client_of(simulator)
    seen = []
    queued_resource = tpu_v2alpha1.QueuedResource(
        tpu=tpu_v2alpha1.QueuedResource.Tpu(
            node_spec=[
                tpu_v2alpha1.QueuedResource.Tpu.NodeSpec(
                    parent=PARENT,
                    multi_node_params=tpu_v2alpha1.QueuedResource.Tpu.NodeSpec.MultiNodeParams(
                        node_count=2, node_id_prefix="ms"
                    ),
                    node=tpu_v2alpha1.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite"),
                )
            ]
        ),
        spot=tpu_v2alpha1.QueuedResource.Spot(),
    )
    operation = client.create_queued_resource(
        parent=PARENT, queued_resource=queued_resource, queued_resource_id="train"
    )
    created = operation.result(timeout=LIMIT_S)
    seen.append(created.name)
    while client.get_queued_resource(name=created.name).state.state.name != "ACTIVE":
        pass
    seen.extend(item.name for item in client.list_queued_resources(parent=PARENT))
    for node in client.list_nodes(parent=PARENT):
        seen.append(f"{node.name.rsplit('/', 1)[-1]} {node.state.name} {len(node.network_endpoints)}")
    try:
        client.delete_queued_resource(name=created.name)
    except exceptions.FailedPrecondition as error:
        seen.append(error.message)
    forced = tpu_v2alpha1.DeleteQueuedResourceRequest(name=created.name, force=True)
    client.delete_queued_resource(request=forced).result(timeout=LIMIT_S)
    seen.extend(item.name for item in client.list_queued_resources(parent=PARENT))
    try:
        client.get_queued_resource(name=created.name)
    except exceptions.NotFound as error:
        seen.append(error.message)
        seen.append(str(error.details[0].resource_name))
    return seen


async def test_the_plain_client_creates_lists_gets_and_deletes_and_awaits_the_operation(simulator: Simulator) -> None:
    name = f"{PARENT}/queuedResources/train"
    assert await asyncio.to_thread(documented_journey, simulator) == [
        name,
        name,
        "ms-0 READY 4",
        "ms-1 READY 4",
        "DeleteQueuedResource is not supported when state is ACTIVE"
        " (must be one of [ACCEPTED WAITING_FOR_RESOURCES SUSPENDED FAILED])",
        f"Resource '{name}' was not found",
        name,
    ]


async def test_a_request_made_over_v2_is_seen_by_v2alpha1_and_over_rest(simulator: Simulator) -> None:
    def make() -> tuple[str, int, int]:
        client = tpu_v2.TpuClient(transport=TransportV2(channel=grpc.insecure_channel(simulator.grpc)))
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
            parent=PARENT,
            multislice_params=tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(node_count=3),
            node=tpu_v2.Node(accelerator_type="v5litepod-16", runtime_version="v2-alpha-tpuv5-lite"),
        )
        body = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        operation = client.create_queued_resource(parent=PARENT, queued_resource=body, queued_resource_id="two")
        made: Any = operation.result(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        newer = client_of(simulator).get_queued_resource(name=made.name)
        return made.name, len(made.tpu.node_spec), len(newer.tpu.node_spec)

    name, count, newer = await asyncio.to_thread(make)
    assert (count, newer) == (3, 3)
    async with aiohttp.ClientSession(simulator.rest) as session, session.get(f"/v2/{name}") as answer:
        shown = await answer.json()
    assert [spec["nodeId"] for spec in shown["tpu"]["nodeSpec"]] == ["two-0", "two-1", "two-2"]


async def test_a_worker_of_an_active_request_runs_a_command_over_ssh_with_the_key_and_host_key_that_are_served(
    simulator: Simulator,
) -> None:
    body = {
        "tpu": {
            "nodeSpec": [
                {
                    "nodeId": "one",
                    "node": {"acceleratorType": "v5litepod-16", "runtimeVersion": "v2-alpha-tpuv5-lite"},
                }
            ]
        }
    }
    async with aiohttp.ClientSession(simulator.rest) as session:
        url = f"/v2alpha1/{PARENT}/queuedResources?queuedResourceId=one"
        async with session.post(url, json=body) as answer:
            assert answer.status == 200

        async def active() -> bool:
            async with session.get(f"/v2alpha1/{PARENT}/queuedResources/one") as shown:
                return bool((await shown.json())["state"]["state"] == "ACTIVE")

        await until(active, "ACTIVE")
        async with session.get(f"/v2alpha1/{PARENT}/nodes/one") as shown:
            node = await shown.json()
        url = f"/v2alpha1/{PARENT}/nodes/one:getGuestAttributes"
        async with session.post(url, json={"queryPath": "hostkeys/"}) as shown:
            attributes = (await shown.json())["guestAttributes"]
        assert len(attributes) == 4
        item = attributes[2]["queryValue"]["items"][0]
        address = node["networkEndpoints"][2]["ipAddress"]
        known = f"[{address}]:{simulator.ssh_port} {item['key']} {item['value']}\n"
        async with asyncssh.connect(
            address,
            simulator.ssh_port,
            username="operator",
            client_keys=[str(simulator.directory / "id_ed25519")],
            known_hosts=known.encode(),
            config=None,
        ) as connection:
            ran = await connection.run("hostname; echo $JAX_NUM_CPU_DEVICES", check=True)
        assert str(ran.stdout).split() == [f"t1v-n-{int(node['id']) % 2**32:08x}-w-2", "4"]


async def test_a_repair_runs_the_startup_scripts_again_on_kept_and_on_new_disks(simulator: Simulator) -> None:
    turned = simulator.world
    body = request_body("a", 2, startup_script="echo up >> ~/boots")
    api = Api(turned)
    api.answer(
        "CreateQueuedResource",
        "v2alpha1",
        {"parent": PARENT, "queuedResourceId": "a", "queuedResource": body},
        rest=True,
    )
    request = turned.request("demo-project", "us-west4-a", "a")

    async def up() -> bool:
        return request.state == "ACTIVE" and all(node.state == "READY" for node in turned.nodes_of(request))

    async def boots() -> list[int]:
        homes = [simulator.host.home(address) for node in turned.nodes_of(request) for address in node.addresses]
        files = [home / "boots" for home in homes]
        return [len(file.read_text().split()) if file.exists() else 0 for file in files]

    async def booted_once() -> bool:
        return await up() and await boots() == [1] * 8

    async def booted_again() -> bool:
        return await up() and await boots() == [2] * 4 + [1] * 4

    await until(booted_once, "every startup script ran")
    faults.apply(turned, "repair", {"target": "a/1"})
    assert not await up()
    await until(booted_again, "startup scripts ran again, on slice 0 with its old disk")


async def test_the_context_file_and_the_ready_line_say_the_same(simulator: Simulator) -> None:
    ready = json.loads(simulator.ready_line())
    assert ready["ready"] is True
    text = await asyncio.to_thread(Path(ready["context_file"]).read_text)
    assert f'endpoint = "{ready["grpc"]}"' in text
    assert f'rest_endpoint = "{ready["rest"]}"' in text
    mode = (await asyncio.to_thread(Path(ready["context_file"]).stat)).st_mode
    assert mode & 0o777 == 0o600
