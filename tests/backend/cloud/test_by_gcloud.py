"""The real gcloud, pointed at a listener, sends what we say it sends. Not run where no gcloud is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from backend.cloud import equivalents
from backend.cloud.requests import CreateRequest, DataDisk, Network
from backend.model import QueuedResource, Slice, Tier
from tests.backend.cloud.test_equivalents import curl_parts

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="not run: no gcloud on this machine")
TIMEOUT_S = 120.0
QR = QueuedResource("demo-project", "us-west4-a", "train-a", "ACTIVE")
PLAIN = CreateRequest(
    name="train-a",
    project="demo-project",
    zone="us-west4-a",
    accelerator_type="v5litepod-16",
    runtime_version="v2-alpha-tpuv5-lite",
    node_count=2,
    tier=Tier.SPOT,
)
RICH = replace(
    PLAIN,
    node_prefix="pod",
    tags=("a", "b"),
    labels=(("k", "v"), ("e", "")),
    metadata=(("startup-script", "#!/bin/bash\necho \"a,b\" 'c' $HOME; x=1\n"), ("k", "^v^,:;|#~@!&+")),
    description="two words, comma",
    network="net",
    subnetwork="sub",
    internal_ips=True,
    service_account="who@example.com",
    scopes=("x", "y"),
    cidr_range="10.0.0.0/29",
    data_disks=(
        DataDisk("projects/p/zones/z/disks/d", "read-only"),
        DataDisk("projects/p/zones/z/disks/e"),
    ),
    shielded_secure_boot=True,
    valid_until_duration_s=2700.0,
)


@dataclass
class Listener:
    """Takes every call, answers with an operation, and keeps what came."""

    endpoint: str
    calls: list[tuple[str, str, Any]] = field(default_factory=list)

    def gcloud(self, command: str, home: Path) -> tuple[str, str, Any]:
        """(method, path with query, body) of the last call that the command made."""
        self.calls.clear()
        environment = {
            **os.environ,
            "HOME": str(home),
            "CLOUDSDK_CONFIG": str(home),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{self.endpoint}/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        }
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert self.calls, f"gcloud sent nothing: {done.stderr[-2000:]}"
        return self.calls[-1]


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

        def answer(self) -> None:
            size = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(size) or b"null")
            found.calls.append((self.command, self.path, body))
            text = json.dumps({"name": "projects/p/locations/z/operations/operation-1", "done": False}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Listener(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def without_defaults(body: dict[str, Any], *, alpha: bool) -> dict[str, Any]:
    """The body without what gcloud always says: empty messages, and in alpha two defaults."""
    out = json.loads(json.dumps(body))
    node = out["tpu"]["nodeSpec"][0]["node"]
    for key in ("serviceAccount", "metadata"):
        if node.get(key) == {}:
            del node[key]
    if alpha:
        if node.get("autocheckpointEnabled") is False:
            del node["autocheckpointEnabled"]
        if out.get("provisioningModel") in ("STANDARD", "SPOT"):
            del out["provisioningModel"]
    found: dict[str, Any] = out
    return found


@pytest.mark.parametrize(
    ("request_", "alpha"),
    [
        (RICH, False),
        (RICH, True),
        (replace(PLAIN, tier=Tier.RESERVED), False),
        (replace(PLAIN, tier=Tier.RESERVED, reservation="mine", workload_type="AVAILABILITY_OPTIMIZED"), True),
        (replace(PLAIN, tier=Tier.FLEX_START, max_run_duration_s=14400.0, node_count=1, node_id="n"), True),
    ],
    ids=["rich-ga", "rich-alpha", "reserved-ga", "reservation-alpha", "flex-alpha"],
)
def test_the_shown_create_command_makes_gcloud_send_our_body(
    listener: Listener, tmp_path: Path, request_: CreateRequest, alpha: bool
) -> None:
    shown = equivalents.create(request_, run_async=True)
    command, ours = (shown.gcloud_alpha, shown.json) if alpha else (shown.gcloud_ga, shown.json_v2)
    assert command is not None
    assert ours is not None
    method, path, body = listener.gcloud(command, tmp_path)
    assert method == "POST"
    assert parse_qs(urlsplit(path).query)["queuedResourceId"] == ["train-a"]
    assert without_defaults(body, alpha=alpha) == ours


def test_network_configs_arrive_as_they_are_meant(listener: Listener, tmp_path: Path) -> None:
    request = replace(PLAIN, network_configs=(Network("a", "s", True), Network("b")))
    shown = equivalents.create(request, run_async=True)
    assert shown.gcloud_alpha is not None
    _, _, body = listener.gcloud(shown.gcloud_alpha, tmp_path)
    sent = body["tpu"]["nodeSpec"][0]["node"]["networkConfigs"]
    assert [item.get("enableExternalIps", False) for item in sent] == [True, False]


@pytest.mark.parametrize(
    "shown",
    [
        equivalents.delete(QR, force=True, run_async=True),
        equivalents.reset(QR, run_async=True),
        equivalents.describe(QR),
        equivalents.list_("demo-project", "us-west4-a"),
        equivalents.perform_maintenance(QR, ["train-a-0", "train-a-1"]),
        equivalents.describe_node(Slice("demo-project", "us-west4-a", "lone", 0, "READY")),
        equivalents.list_nodes("demo-project", "us-west4-a"),
    ],
    ids=["delete", "reset", "describe", "list", "maintenance", "describe-node", "list-nodes"],
)
def test_the_shown_commands_make_the_shown_calls(
    listener: Listener, tmp_path: Path, shown: equivalents.Equivalent
) -> None:
    command, curl = (shown.gcloud_ga, shown.curl_v2) if shown.gcloud_ga else (shown.gcloud_alpha, shown.curl)
    assert command is not None
    assert curl is not None
    if shown.gcloud_ga is None:
        command += " --async"
    method, url, options = curl_parts(curl)
    wanted_method, wanted_path = method, urlsplit(url).path
    found = next(
        (
            call
            for call in [listener.gcloud(command, tmp_path), *listener.calls]
            if (call[0], urlsplit(call[1]).path) == (wanted_method, wanted_path)
        ),
        None,
    )
    assert found is not None, listener.calls
    query = parse_qs(urlsplit(found[1]).query)
    for key, values in parse_qs(urlsplit(url).query).items():
        assert [value.lower() for value in query[key]] == values
    if "-d" in options:
        assert (found[2] or {}) == json.loads(options["-d"])
