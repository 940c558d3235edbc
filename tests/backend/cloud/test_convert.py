from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud import convert
from backend.cloud.messages import message, operations
from backend.model import QueuedResource, Slice, Tier
from tests.fake_cloud import raw_node, raw_request

API = Path(__file__).parents[2] / "fixtures" / "api"


def fixture(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((API / name).read_text("utf-8"))
    return found


def queued_resource_from_json(body: Mapping[str, Any], project: str = "", zone: str = "") -> QueuedResource:
    """A QueuedResource in the JSON of v2 or v2alpha1; project and zone default to those of its name."""
    mended = dict(body)
    tpu = body.get("tpu") or {}
    specs = [
        {("multiNodeParams" if key == "multisliceParams" else key): value for key, value in spec.items()}
        for spec in tpu.get("nodeSpec", ())
    ]
    mended["tpu"] = {**tpu, "nodeSpec": specs}
    raw = message("QueuedResource")()
    json_format.ParseDict(mended, raw, ignore_unknown_fields=True)
    parts = raw.name.split("/")
    found = convert.queued_resource(raw, project or parts[1], zone or parts[3])
    if body.get("provisioningModel") == "FLEX_START":
        found = replace(found, tier=Tier.FLEX_START)
    state = (body.get("state") or {}).get("state", "")
    return replace(found, state=state) if state and state != found.state else found


def node_from_json(body: Mapping[str, Any], project: str = "", zone: str = "") -> Slice:
    """A Node in the JSON of v1, v2 or v2alpha1."""
    mended = dict(body)
    if not isinstance(mended.get("serviceAccount", {}), dict):
        del mended["serviceAccount"]
    raw = message("Node")()
    json_format.ParseDict(mended, raw, ignore_unknown_fields=True)
    parts = raw.name.split("/")
    return convert.node(raw, project or parts[1], zone or parts[3])


def test_the_pages_own_sample_is_read_although_most_of_it_is_missing() -> None:
    item = queued_resource_from_json(fixture("qr_describe_active_docs.json"))
    assert item.key == ("example-project", "us-east5-a", "your-queued-resource-id")
    assert (item.state, item.accelerator_type, item.slice_count) == ("ACTIVE", "v6e-1", 1)
    assert (item.node_ids, item.tier, item.created_at) == (("your-node-id",), Tier.ON_DEMAND, None)
    assert (item.chips, item.workers_expected) == (1, 1)


@pytest.mark.parametrize("file", sorted(API.glob("qr_*.json")), ids=lambda path: path.stem)
def test_every_recorded_request_is_read_with_its_state_and_reason(file: Path) -> None:
    body = fixture(file.name)
    item = queued_resource_from_json(body)
    assert item.state == body["state"]["state"]
    assert item.state_initiator == body["state"].get("stateInitiator", "")
    error = body["state"].get("failedData", {}).get("error")
    assert (item.error.message if item.error else None) == (error["message"] if error else None)
    assert (item.tier is Tier.SPOT) == ("spot" in body)
    assert item.chips > 0


@pytest.mark.parametrize("file", sorted(API.glob("node_*.json")), ids=lambda path: path.stem)
def test_every_recorded_node_is_read(file: Path) -> None:
    body = fixture(file.name)
    item = node_from_json(body)
    assert item.node_id == body["name"].rpartition("/")[2]
    assert (item.state, item.health) == (body["state"], body.get("health", ""))
    assert [worker.internal_ip for worker in item.workers] == [
        endpoint["ipAddress"] for endpoint in body.get("networkEndpoints", ())
    ]
    assert item.uid == body.get("id", "")


def test_v2s_multislice_parameters_count_the_slices_and_name_them() -> None:
    item = queued_resource_from_json(fixture("qr_describe_waiting_multislice_v2.json"))
    assert (item.slice_count, item.node_ids) == (2, ("demo-ms-0", "demo-ms-1"))
    assert item.valid_until == datetime(2026, 6, 15, 17, 8, 45, tzinfo=UTC)


def test_a_failed_operation_is_read_although_its_metadata_has_an_unknown_type() -> None:
    operation = convert.operation_from_json(fixture("op_create_failed_flexstart.json"))
    assert (operation.verb, operation.done, operation.zone) == ("create", True, "asia-east1-c")
    assert operation.target.endswith("/queuedResources/node-1")
    assert operation.error is not None
    assert operation.error.code == 3
    raw = operations().Operation(name=operation.path, done=True)
    raw.metadata.type_url = "type.googleapis.com/google.cloud.common.OperationMetadata"
    raw.metadata.value = message("OperationMetadata")(verb="create", target=operation.target).SerializeToString()
    assert convert.operation(raw).target == operation.target
    assert convert.operation(raw).path == operation.path


def test_unknown_numbers_keep_their_number() -> None:
    request, node = raw_request("a"), raw_node("a-0", "a")
    request.state.state = 17
    node.state, node.health = 40, 41
    assert convert.queued_resource(request, "p", "z").state == "STATE_17"
    assert convert.node(node, "p", "z").state == "STATE_40"
    assert convert.node(node, "p", "z").health == "HEALTH_41"
    assert not convert.node(node, "p", "z").ready


def test_an_unknown_state_word_in_json_is_kept() -> None:
    body = fixture("qr_describe_active_docs.json")
    body["state"]["state"] = "HIBERNATING"
    assert queued_resource_from_json(body).state == "HIBERNATING"


def test_an_empty_message_is_read() -> None:
    item = convert.queued_resource(message("QueuedResource")(), "p", "z")
    assert (item.name, item.state, item.slice_count, item.chips) == ("", "STATE_UNSPECIFIED", 1, 0)
    assert convert.node(message("Node")(), "p", "z").workers == ()


@pytest.mark.parametrize(
    ("tier", "change"),
    [
        (Tier.SPOT, lambda raw: raw.spot.SetInParent()),
        (Tier.BEST_EFFORT, lambda raw: raw.best_effort.SetInParent()),
        (Tier.RESERVED, lambda raw: setattr(raw.guaranteed, "reserved", True)),
        (Tier.ON_DEMAND, lambda raw: raw.guaranteed.SetInParent()),
        (Tier.RESERVED, lambda raw: setattr(raw, "reservation_name", "projects/p/locations/z/reservations/-")),
        (Tier.SPOT, lambda raw: setattr(raw.tpu.node_spec.add().node.scheduling_config, "preemptible", True)),
        (Tier.ON_DEMAND, lambda raw: None),
    ],
)
def test_the_tier_is_told_by_any_of_its_fields(tier: Tier, change: Any) -> None:
    raw = message("QueuedResource")(name="projects/p/locations/z/queuedResources/a")
    change(raw)
    assert convert.queued_resource(raw, "p", "z").tier is tier


def test_type_and_topology_say_the_same_as_a_type_string() -> None:
    raw = raw_node("a")
    raw.accelerator_type = ""
    raw.accelerator_config.type_ = "V5LITE_POD"
    raw.accelerator_config.topology = "4x4"
    item = convert.node(raw, "p", "z")
    assert (item.accelerator_type, item.topology) == ("v5litepod-16", "4x4")


def test_several_interfaces_are_one_worker_each() -> None:
    raw = raw_node("a", workers=6)
    raw.network_configs.add()
    raw.network_configs.add()
    assert [worker.internal_ip for worker in convert.node(raw, "p", "z").workers] == [
        "10.0.0.0",
        "10.0.0.2",
        "10.0.0.4",
    ]


def joined(requests: list[Any], nodes: list[Any]) -> Any:
    queued = [convert.queued_resource(raw, "p", "z") for raw in requests]
    owned, standalone = convert.owners(queued, [convert.node(raw, "p", "z") for raw in nodes])
    found = [convert.with_slices(item, owned.get(item.name, [])) for item in convert.in_order(queued)]
    return tuple(found), standalone


def test_nodes_are_joined_by_owner_in_numeric_order() -> None:
    nodes = [raw_node(f"a-{index}", "a") for index in (10, 2, 0, 11, 1, 3, 4, 5, 6, 7, 8, 9)]
    (item,), standalone = joined([raw_request("a", slices=12)], nodes)
    assert [each.index for each in item.slices] == list(range(12))
    assert [each.node_id for each in item.slices] == [f"a-{index}" for index in range(12)]
    assert standalone == ()
    assert (item.workers_expected, item.workers_ready, item.ready) == (48, 48, True)


def test_a_missing_slice_leaves_its_number_free() -> None:
    (item,), _ = joined([raw_request("a", slices=3)], [raw_node("a-0", "a"), raw_node("a-2", "a")])
    assert [each.index for each in item.slices] == [0, 2]
    assert item.workers_expected == 12
    assert not item.ready


def test_nodes_without_an_owner_are_joined_by_their_name() -> None:
    (item,), standalone = joined([raw_request("a")], [raw_node("a-0"), raw_node("b")])
    assert [each.queued_resource for each in item.slices] == ["a"]
    assert [each.node_id for each in standalone] == ["b"]


def test_a_node_of_another_owner_is_not_taken_for_its_name() -> None:
    (item,), standalone = joined([raw_request("a")], [raw_node("a-0", "gone")])
    assert item.slices == ()
    assert [each.node_id for each in standalone] == ["a-0"]


def test_two_requests_with_a_common_prefix_keep_their_own() -> None:
    (one, ten), _ = joined(
        [raw_request("a-10"), raw_request("a")], [raw_node("a-10-0", "a-10"), raw_node("a-0", "a")]
    )
    assert (one.name, ten.name) == ("a", "a-10")
    assert [each.node_id for each in one.slices] == ["a-0"]
    assert [each.node_id for each in ten.slices] == ["a-10-0"]


@given(st.permutations(["", "a", "a1", "1a", "a-2", "a-10", "é", "٣"]))
def test_any_names_have_one_order(names: list[str]) -> None:
    assert sorted(names, key=convert.natural) == sorted(sorted(names), key=convert.natural)


def test_two_stands_before_ten() -> None:
    assert sorted(["a-10", "a-2", "a", "b-1"], key=convert.natural) == ["a", "a-2", "a-10", "b-1"]
