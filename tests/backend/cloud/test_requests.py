"""A create request reaches the API whole: encoded for the version and the transport that carry every option."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from backend.cloud.encoding import from_json, parse_timestamp, timestamp, to_json
from backend.cloud.requests import CreateRequest, Transport, carrier
from backend.model import Tier
from backend.outcomes import OperatorError
from tests.backend.cloud.strategies import EXAMPLES, TIMES, requests

API = Path(__file__).parents[2] / "fixtures" / "api"
PLAIN = CreateRequest(
    name="train-a",
    project="demo-project",
    zone="us-west4-a",
    accelerator_type="v5litepod-16",
    runtime_version="v2-alpha-tpuv5-lite",
)


def message(version: str, body: dict[str, Any]) -> Any:
    """The body as the client library's own message; raises where it has no such field."""
    from google.cloud.tpu_v2.types import cloud_tpu as v2
    from google.cloud.tpu_v2alpha1.types import cloud_tpu as v2alpha1
    from google.protobuf import json_format

    kind = {"v2": v2, "v2alpha1": v2alpha1}[version].QueuedResource.pb()
    return json_format.ParseDict(body, kind())


@EXAMPLES
@given(requests())
def test_what_is_said_to_travel_by_grpc_fits_the_client_librarys_messages(request_: CreateRequest) -> None:
    for version in ("v2", "v2alpha1"):
        found = carrier(request_, version=version)
        body = to_json(request_, found.version)
        if found.transport is Transport.GRPC:
            sent = message(found.version, body)
            assert sent.tpu.node_spec[0].node.runtime_version == request_.runtime_version
        else:
            assert found.reasons
            from google.protobuf.json_format import ParseError

            with pytest.raises(ParseError, match="no field named"):
                message(found.version, body)


def test_every_option_is_encoded_or_it_would_be_dropped_in_silence() -> None:
    """Each field of the request, set to something else, changes the body."""
    changed: dict[str, Any] = {
        "accelerator_type": "v5litepod-32",
        "type": "v4",
        "topology": "2x2x4",
        "runtime_version": "other",
        "node_id": "n",
        "node_count": 3,
        "tier": Tier.SPOT,
        "guaranteed": True,
        "min_duration_s": 60.0,
        "reservation": "r",
        "reservation_host": "folders/1",
        "provisioning_model": "standard",
        "max_run_duration_s": 60.0,
        "valid_after_duration_s": 60.0,
        "valid_after_time": datetime(2030, 1, 1, tzinfo=UTC),
        "valid_until_duration_s": 60.0,
        "valid_until_time": datetime(2030, 1, 1, tzinfo=UTC),
        "network": "n",
        "subnetwork": "s",
        "internal_ips": True,
        "service_account": "a@b",
        "scopes": ("x",),
        "tags": ("t",),
        "labels": (("a", "b"),),
        "metadata": (("a", "b"),),
        "description": "d",
        "cidr_range": "10.0.0.0/29",
        "shielded_secure_boot": True,
        "boot_disk_kms_key": "k",
        "boot_disk_confidential": True,
        "autocheckpoint_enabled": True,
        "project": "other",
        "zone": "us-east5-a",
    }
    elsewhere = {"name", "node_prefix", "workload_type", "network_configs", "metadata_files", "data_disks"}
    assert {field.name for field in fields(CreateRequest)} == set(changed) | elsewhere
    plain = to_json(PLAIN)
    for name, value in changed.items():
        assert to_json(replace(PLAIN, **{name: value})) != plain, name


@pytest.mark.parametrize(
    ("changes", "transport", "version", "said"),
    [
        ({}, Transport.GRPC, "v2alpha1", ""),
        ({"tier": Tier.BEST_EFFORT}, Transport.GRPC, "v2alpha1", ""),
        ({"autocheckpoint_enabled": True}, Transport.GRPC, "v2alpha1", ""),
        ({"tier": Tier.FLEX_START}, Transport.REST, "v2alpha1", "provisioningModel"),
        ({"max_run_duration_s": 60.0}, Transport.REST, "v2alpha1", "runDuration"),
        ({"provisioning_model": "standard"}, Transport.REST, "v2alpha1", "provisioningModel"),
    ],
)
def test_the_carrier_of_each_option_is_known(
    changes: dict[str, Any], transport: Transport, version: str, said: str
) -> None:
    found = carrier(replace(PLAIN, **changes))
    assert (found.transport, found.version) == (transport, version)
    assert said in " ".join(found.reasons)
    assert bool(found.reasons) == bool(said)


def test_v2_gives_way_with_the_reason_where_it_lacks_an_option() -> None:
    found = carrier(replace(PLAIN, tier=Tier.BEST_EFFORT), version="v2")
    assert (found.transport, found.version) == (Transport.GRPC, "v2alpha1")
    assert found.reasons == ("API version v2 has no bestEffort.",)
    with pytest.raises(OperatorError, match="bestEffort"):
        to_json(replace(PLAIN, tier=Tier.BEST_EFFORT), "v2")


def test_a_boot_disk_key_in_v2_travels_by_rest_because_the_library_lacks_it() -> None:
    found = carrier(replace(PLAIN, boot_disk_kms_key="k"), version="v2")
    assert (found.transport, found.version) == (Transport.REST, "v2")


def test_both_ends_of_the_wait_become_one_interval() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    request = replace(PLAIN, valid_after_duration_s=60, valid_until_time=datetime(2026, 12, 1, tzinfo=UTC))
    assert to_json(request, now=now)["queueingPolicy"] == {
        "validInterval": {"startTime": "2026-11-30T12:01:00Z", "endTime": "2026-12-01T00:00:00Z"}
    }


def test_a_metadata_file_is_read_when_it_is_sent(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/bash\necho ü\n")
    request = replace(PLAIN, metadata_files=(("startup-script", str(script)),), metadata=(("a", "b"),))
    assert to_json(request)["tpu"]["nodeSpec"][0]["node"]["metadata"] == {
        "a": "b",
        "startup-script": "#!/bin/bash\necho ü\n",
    }
    script.write_bytes(b"\xff")
    with pytest.raises(OperatorError, match="UTF-8"):
        to_json(request)
    script.unlink()
    with pytest.raises(OperatorError, match="cannot be read"):
        to_json(request)


@pytest.mark.parametrize("path", sorted(API.glob("qr_describe_*.json")), ids=lambda path: path.stem)
def test_whatever_the_api_describes_can_be_asked_for_again(path: Path) -> None:
    body = json.loads(path.read_text())
    request = from_json(body)
    assert request.name == body["name"].rsplit("/", 1)[1]
    node = body["tpu"]["nodeSpec"][0]["node"]
    assert request.accelerator_type == node["acceleratorType"]
    assert request.runtime_version == node["runtimeVersion"]
    again = to_json(request)
    assert again["tpu"]["nodeSpec"][0]["node"]["acceleratorType"] == node["acceleratorType"]
    assert ("spot" in again) == ("spot" in body)


def test_slices_that_the_service_numbered_are_counted_back_in_any_order() -> None:
    node = {"acceleratorType": "v4-8", "runtimeVersion": "r"}
    ids = ["pod-10", *(f"pod-{index}" for index in range(10))]
    body = {
        "name": "projects/p/locations/z/queuedResources/q",
        "tpu": {"nodeSpec": [{"nodeId": node_id, "node": node} for node_id in ids]},
    }
    request = from_json(body)
    assert (request.node_count, request.node_prefix, request.node_id) == (11, "pod", "")
    assert request.node_ids == tuple(f"pod-{index}" for index in range(11))


def test_slices_without_a_common_prefix_are_refused_not_renamed() -> None:
    body = {
        "name": "projects/p/locations/z/queuedResources/q",
        "tpu": {"nodeSpec": [{"nodeId": "red", "node": {}}, {"nodeId": "blue", "node": {}}]},
    }
    with pytest.raises(OperatorError, match="red, blue"):
        from_json(body)


def test_the_provisioning_model_that_names_a_tier_is_the_tier() -> None:
    assert replace(PLAIN, provisioning_model="flex-start") == replace(PLAIN, tier=Tier.FLEX_START)
    spot = replace(PLAIN, tier=Tier.SPOT)
    assert replace(spot, provisioning_model="spot") == spot


@EXAMPLES
@given(TIMES)
def test_times_read_back(at: datetime) -> None:
    assert parse_timestamp(timestamp(at)) == at


def test_times_with_nanoseconds_are_read() -> None:
    assert parse_timestamp("2023-11-01T00:17:05.742546311Z") == datetime(2023, 11, 1, 0, 17, 5, 742546, tzinfo=UTC)
