from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from aiohttp import web

from backend.cloud import channel
from backend.cloud.channel import Channel
from backend.cloud.client import CloudClient
from backend.cloud.convert import node
from backend.cloud.credentials import ApplicationDefaultCredentials
from backend.cloud.error_texts import ErrorKind
from backend.cloud.errors import CloudError
from backend.cloud.messages import operations
from backend.cloud.requests import CreateRequest
from backend.context import Context
from backend.model import Operation, Tier
from backend.outcomes import ExitCode, OperatorError
from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_node, raw_request


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as fake:
        yield fake


@pytest.fixture
async def client(cloud: FakeCloud) -> AsyncIterator[CloudClient]:
    made = CloudClient(cloud.context())
    yield made
    await made.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "FIRST_PAUSE_S", 0.001)


async def test_lists_follow_their_pages(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.page_size = 2
    cloud.queued[parent()] = [raw_request(f"r{index}") for index in range(5)]
    assert [item.name for item in await client.list_queued_resources("p", "z")] == ["r0", "r1", "r2", "r3", "r4"]
    assert cloud.calls["ListQueuedResources"] == 3
    assert cloud.metadata["x-goog-request-params"] == "parent=projects%2Fp%2Flocations%2Fz"


async def test_an_answer_beyond_four_mebibytes_is_read(cloud: FakeCloud, client: CloudClient) -> None:
    big = raw_node("big")
    big.description = "x" * 6_000_000
    cloud.nodes[parent()] = [big]
    assert [item.node_id for item in await client.list_nodes("p", "z")] == ["big"]


async def test_a_list_of_another_zone_is_another_list(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.queued[parent("z")] = [raw_request("a")]
    cloud.queued[parent("y")] = [raw_request("b", zone="y")]
    assert [item.key for item in await client.list_queued_resources("p", "y")] == [("p", "y", "b")]
    assert [item.key for item in await client.list_queued_resources("p", "z")] == [("p", "z", "a")]


@pytest.mark.usefixtures("quick")
async def test_a_read_is_sent_again_while_the_service_is_unavailable(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.fail("ListNodes", grpc.StatusCode.UNAVAILABLE, "try later", times=2)
    cloud.nodes[parent()] = [raw_node("a")]
    assert len(await client.list_nodes("p", "z")) == 1
    assert cloud.calls["ListNodes"] == 3


@pytest.mark.usefixtures("quick")
async def test_a_read_that_stays_unavailable_is_an_error_never_an_empty_list(
    cloud: FakeCloud, client: CloudClient
) -> None:
    cloud.fail("ListNodes", grpc.StatusCode.UNAVAILABLE, "try later")
    with pytest.raises(CloudError) as caught:
        await client.list_nodes("p", "z")
    assert caught.value.exit_code == ExitCode.CLOUD
    assert caught.value.transient
    assert cloud.calls["ListNodes"] == channel.ATTEMPTS


@pytest.mark.usefixtures("quick")
async def test_a_delete_is_sent_once(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.fail("DeleteQueuedResource", grpc.StatusCode.UNAVAILABLE, "try later")
    with pytest.raises(CloudError):
        await client.delete_queued_resource("p", "z", "a", force=False)
    assert cloud.calls["DeleteQueuedResource"] == 1


async def test_a_rate_error_carries_the_pause_that_the_service_asks_for(
    cloud: FakeCloud, client: CloudClient
) -> None:
    text = "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'"
    cloud.fail("ListNodes", grpc.StatusCode.RESOURCE_EXHAUSTED, text, retry_delay_s=7)
    with pytest.raises(CloudError) as caught:
        await client.list_nodes("p", "z")
    assert caught.value.retry_after_s == 7
    assert text in caught.value.raw
    assert cloud.calls["ListNodes"] == 1


async def test_an_unauthenticated_call_names_the_curing_command(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.fail("ListNodes", grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")
    with pytest.raises(CloudError) as caught:
        await client.list_nodes("p", "z")
    assert caught.value.kind is ErrorKind.CREDENTIALS
    assert "gcloud auth application-default login" in caught.value.cure


async def test_a_call_that_is_not_answered_ends_at_its_deadline(cloud: FakeCloud) -> None:
    cloud.hold = asyncio.Event()
    way = Channel(cloud.context())
    request = operations().GetOperationRequest(name="projects/p/locations/z/operations/o")
    with pytest.raises(CloudError) as caught:
        await way.call(
            "/google.longrunning.Operations/GetOperation",
            request,
            action="describe",
            subject="o",
            timeout_s=0.05,
            attempts=1,
        )
    assert caught.value.kind is ErrorKind.TIMEOUT
    cloud.hold.set()
    await way.close()


@pytest.mark.usefixtures("quick")
async def test_an_endpoint_where_nobody_listens_is_an_error(cloud: FakeCloud) -> None:
    context = cloud.context()
    object.__setattr__(context, "endpoint", "127.0.0.1:9")
    client = CloudClient(context)
    with pytest.raises(CloudError) as caught:
        await client.list_nodes("p", "z")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    await client.close()


@pytest.mark.parametrize("field", ["endpoint", "rest_endpoint"])
def test_an_insecure_channel_to_elsewhere_is_refused(field: str) -> None:
    context = Context(
        "x",
        "p",
        ("z",),
        transport="insecure",
        credentials="none",
        endpoint="127.0.0.1:1",
        rest_endpoint="http://127.0.0.1:2",
    )
    object.__setattr__(context, field, "http://192.0.2.1:80")
    with pytest.raises(OperatorError, match="not on this machine"):
        Channel(context)


async def test_missing_credentials_name_the_curing_command(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, cloud: FakeCloud
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    client = CloudClient(cloud.context(), credentials=ApplicationDefaultCredentials())
    with pytest.raises(OperatorError) as caught:
        await client.list_nodes("p", "z")
    assert "gcloud auth application-default login" in caught.value.cure
    assert caught.value.exit_code == ExitCode.CLOUD
    assert cloud.calls["ListNodes"] == 0
    await client.close()


class FixedCredentials:
    async def headers(self) -> dict[str, str]:
        return {"authorization": "Bearer not-a-real-token"}

    def refused(self) -> None:
        return

    async def account(self) -> str:
        return "somebody@example.com"


async def test_credentials_travel_with_each_call(cloud: FakeCloud) -> None:
    client = CloudClient(cloud.context(), credentials=FixedCredentials())
    await client.list_nodes("p", "z")
    assert cloud.metadata["authorization"] == "Bearer not-a-real-token"
    await client.close()


@pytest.fixture
async def token_server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """An OAuth token endpoint on this machine, and a made-up service account that asks it."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    state: dict[str, Any] = {"asked": 0, "status": 200}

    async def token(request: web.Request) -> web.Response:
        state["asked"] += 1
        if state["status"] != 200:
            return web.json_response({"error": "invalid_grant"}, status=state["status"])
        answer = {"access_token": f"token-{state['asked']}", "expires_in": 3600, "token_type": "Bearer"}
        return web.json_response(answer)

    application = web.Application()
    application.router.add_post("/token", token)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = {
        "type": "service_account",
        "client_email": "nobody@example.invalid",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "private_key_id": "1",
        "token_uri": f"http://127.0.0.1:{port}/token",
        "project_id": "p",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield state
    await runner.cleanup()


async def test_a_token_is_kept_until_the_service_refuses_it(cloud: FakeCloud, token_server: dict[str, Any]) -> None:
    client = CloudClient(cloud.context(), credentials=ApplicationDefaultCredentials())
    await asyncio.gather(*(client.list_nodes("p", "z") for _ in range(5)))
    assert cloud.metadata["authorization"] == "Bearer token-1"
    cloud.fail("ListNodes", grpc.StatusCode.UNAUTHENTICATED, "expired", times=1)
    with pytest.raises(CloudError):
        await client.list_nodes("p", "z")
    await client.list_nodes("p", "z")
    assert cloud.metadata["authorization"] == "Bearer token-2"
    assert token_server["asked"] == 2
    await client.close()


async def test_revoked_credentials_name_the_curing_command(cloud: FakeCloud, token_server: dict[str, Any]) -> None:
    token_server["status"] = 400
    client = CloudClient(cloud.context(), credentials=ApplicationDefaultCredentials())
    with pytest.raises(OperatorError) as caught:
        await client.list_nodes("p", "z")
    assert "expired or were revoked" in caught.value.what
    assert "gcloud auth application-default login" in caught.value.cure
    assert cloud.calls["ListNodes"] == 0
    await client.close()


async def test_an_answer_that_is_no_message_is_an_error_not_an_empty_list(cloud: FakeCloud) -> None:
    for data in (b"\x0a\x05\xff\xff\xff\xff\xff", b"\x0a\x7f"):
        client = CloudClient(cloud.context())

        async def torn(*arguments: object, data: bytes = data, **options: object) -> bytes:
            return data

        client._channel.call = torn  # type: ignore[method-assign]
        with pytest.raises(OperatorError, match="can't be read") as caught:
            await client.list_nodes("p", "z")
        assert caught.value.exit_code == ExitCode.CLOUD
        await client.close()


async def test_guest_attributes_that_are_switched_off_are_no_keys_but_a_gone_node_is_an_error(
    cloud: FakeCloud, client: CloudClient
) -> None:
    raw = raw_node("a-0")
    cloud.nodes[parent()] = [raw]
    cloud.fail("GetGuestAttributes", grpc.StatusCode.NOT_FOUND, "no guest attributes")
    assert await client.host_keys(node(raw, "p", "z")) == {}
    cloud.nodes.clear()
    with pytest.raises(CloudError) as caught:
        await client.host_keys(node(raw, "p", "z"))
    assert caught.value.kind is ErrorKind.NOT_FOUND


async def test_a_create_carries_its_request_id_and_every_slice(cloud: FakeCloud, client: CloudClient) -> None:
    request = CreateRequest(
        name="train-a",
        project="p",
        zone="z",
        accelerator_type="v5litepod-16",
        runtime_version="v2-alpha-tpuv5-lite",
        node_count=2,
        tier=Tier.SPOT,
    )
    operation = await client.create_queued_resource(request, request_id="11111111-2222-3333-4444-555555555555")
    (method, sent) = cloud.requests[-1]
    assert (method, sent.queued_resource_id) == ("CreateQueuedResource", "train-a")
    assert sent.request_id == "11111111-2222-3333-4444-555555555555"
    spec = sent.queued_resource.tpu.node_spec[0]
    assert (spec.multi_node_params.node_count, spec.node.accelerator_type) == (2, "v5litepod-16")
    assert sent.queued_resource.HasField("spot")
    assert operation.name == "operation-1"


async def test_host_keys_are_by_worker_and_those_without_are_left_out(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.guest = [{"ssh-ed25519": "AAAA0", "ssh-rsa": "AAAAr"}, {}, {"ssh-ed25519": "AAAA2\n"}]
    keys = await client.host_keys(node(raw_node("a-0"), "p", "z"))
    assert keys == {0: ["ssh-ed25519 AAAA0", "ssh-rsa AAAAr"], 2: ["ssh-ed25519 AAAA2"]}


async def test_an_ssh_key_is_added_beside_those_of_others(cloud: FakeCloud, client: CloudClient) -> None:
    raw = raw_node("a-0")
    raw.metadata.update({"ssh-keys": "bob:ssh-rsa B bob", "startup-script": "true"})
    cloud.nodes[parent()] = [raw]
    item = node(raw, "p", "z")
    assert await client.add_ssh_key(item, "alice", "ssh-ed25519 A alice")
    assert raw.metadata["ssh-keys"].splitlines() == ["bob:ssh-rsa B bob", "alice:ssh-ed25519 A alice"]
    assert raw.metadata["startup-script"] == "true"
    assert not await client.add_ssh_key(item, "alice", "ssh-ed25519 A alice")


async def test_a_key_swept_away_by_anothers_patch_is_added_again(cloud: FakeCloud, client: CloudClient) -> None:
    raw = raw_node("a-0")
    cloud.nodes[parent()] = [raw]
    swept = [False]

    def sweep() -> None:
        swept[0] = not swept[0]

    cloud.before_update = sweep
    original = cloud.answer

    async def answer(method: str, request: Any, context: Any) -> Any:
        result = await original(method, request, context)
        if method == "UpdateNode" and swept[0]:
            raw.metadata["ssh-keys"] = "bob:ssh-rsa B bob"
        return result

    cloud.answer = answer  # type: ignore[method-assign]
    assert await client.add_ssh_key(node(raw, "p", "z"), "alice", "ssh-ed25519 A alice")
    assert raw.metadata["ssh-keys"].splitlines() == ["bob:ssh-rsa B bob", "alice:ssh-ed25519 A alice"]


async def test_an_operation_that_ends_with_an_error_raises_it(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.operation.error.code = 8
    cloud.operation.error.message = "There is no more capacity in the zone"
    cloud.fail("GetOperation", grpc.StatusCode.UNAVAILABLE, times=1)
    with pytest.raises(CloudError) as caught:
        await client.wait_operation(Operation("p", "z", "operation-1", target=f"{parent()}/queuedResources/a"), 30)
    assert caught.value.kind is ErrorKind.CAPACITY


async def test_an_operation_that_does_not_end_is_timed_out(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.operation.done = False
    with pytest.raises(OperatorError) as caught:
        await client.wait_operation(Operation("p", "z", "operation-1"), 0.01)
    assert caught.value.exit_code == ExitCode.TIMED_OUT


async def test_small_lists_are_names(cloud: FakeCloud, client: CloudClient) -> None:
    assert await client.accelerator_types("p", "z") == ["v5litepod-8", "v5litepod-16"]
    assert await client.locations("p") == ["us-west4-a"]
    assert [item.name for item in await client.operations("p", "z")] == ["operation-1"]
    await client.cancel_operation("projects/p/locations/z/operations/operation-1")
    assert cloud.calls["CancelOperation"] == 1


async def test_an_unknown_name_is_not_found(cloud: FakeCloud, client: CloudClient) -> None:
    cloud.queued[parent()] = [raw_request("a")]
    assert (await client.get_queued_resource("p", "z", "a")).name == "a"
    with pytest.raises(CloudError) as caught:
        await client.get_queued_resource("p", "z", "b")
    assert caught.value.kind is ErrorKind.NOT_FOUND


Handler = Any


@pytest.fixture
async def rest(cloud: FakeCloud) -> AsyncIterator[tuple[CloudClient, list[web.Request], dict[str, Any]]]:
    seen: list[web.Request] = []
    answer: dict[str, Any] = {"status": 200, "json": {}, "text": None}

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request)
        if answer["text"] is not None:
            return web.Response(status=answer["status"], text=answer["text"])
        return web.json_response(answer["json"], status=answer["status"])

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    context = cloud.context()
    object.__setattr__(context, "rest_endpoint", f"http://127.0.0.1:{port}")
    client = CloudClient(context, credentials=FixedCredentials())
    yield client, seen, answer
    await client.close()
    await runner.cleanup()


Rest = tuple[CloudClient, list[web.Request], dict[str, Any]]


async def test_describe_keeps_fields_that_no_library_knows(rest: Rest) -> None:
    client, seen, answer = rest
    answer["json"] = {"name": "x", "provisioningModel": "FLEX_START"}
    assert (await client.describe("p", "z", "a"))["provisioningModel"] == "FLEX_START"
    assert seen[0].path == "/v2alpha1/projects/p/locations/z/queuedResources/a"
    assert seen[0].headers["authorization"] == "Bearer not-a-real-token"


async def test_an_option_that_grpc_cannot_carry_goes_over_rest(rest: Rest, cloud: FakeCloud) -> None:
    client, seen, answer = rest
    answer["json"] = {"name": "projects/p/locations/z/operations/o-1"}
    request = CreateRequest(
        name="a",
        project="p",
        zone="z",
        accelerator_type="v6e-8",
        runtime_version="v2-alpha-tpuv6e",
        tier=Tier.FLEX_START,
        provisioning_model="flex-start",
        max_run_duration_s=3600,
    )
    operation = await client.create_queued_resource(request, request_id="id-1")
    assert operation.path == "projects/p/locations/z/operations/o-1"
    assert dict(seen[0].query) == {"queuedResourceId": "a", "requestId": "id-1"}
    assert (await seen[0].json())["provisioningModel"] == "FLEX_START"
    assert cloud.calls["CreateQueuedResource"] == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("status", "text", "kind", "asked"),
    [
        (503, '{"error": {"code": 503, "status": "UNAVAILABLE", "message": "later"}}', ErrorKind.UNAVAILABLE, 3),
        (404, '{"error": {"code": 404, "status": "NOT_FOUND", "message": "no x"}}', ErrorKind.NOT_FOUND, 1),
        (401, "<html>login</html>", ErrorKind.CREDENTIALS, 1),
        (200, "<html>a captive portal</html>", ErrorKind.OTHER, 1),
        (302, "moved", ErrorKind.OTHER, 1),
    ],
)
async def test_rest_errors_are_the_same_errors(
    rest: Rest, status: int, text: str, kind: ErrorKind, asked: int
) -> None:
    client, seen, answer = rest
    answer.update(status=status, text=text)
    with pytest.raises(CloudError) as caught:
        await client.describe("p", "z", "a")
    assert caught.value.kind is kind
    assert len(seen) == asked
