"""What the service would refuse is refused here, with the field, the reason and the cure; and nothing else is."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from backend.cloud.requests import CreateRequest, DataDisk, Network
from backend.cloud.validation import problems, warnings
from backend.model import QueuedResource, Tier
from tests.backend.cloud.strategies import EXAMPLES, requests

GOOD = CreateRequest(
    name="train-a",
    project="demo-project",
    zone="us-west4-a",
    accelerator_type="v5litepod-16",
    runtime_version="v2-alpha-tpuv5-lite",
    node_count=2,
    internal_ips=True,
)
ONE = replace(GOOD, node_count=1)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_good_request_has_no_problem_and_no_warning() -> None:
    assert problems(GOOD, now=NOW) == []
    assert warnings(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "field", "what", "cure"),
    [
        ({"accelerator_type": "v2-8", "runtime_version": "tpu-vm-base"}, "node_count", "Multislice needs v4", "v5litepod-16"),
        ({"node_count": 257}, "node_count", "257 slices are too many", "256 or fewer"),
        ({"node_count": 0}, "node_count", "0 slices", "1 to 256"),
        ({"accelerator_type": "v5litepod-17"}, "accelerator_type", "v5litepod-17", "v5litepod-16"),
        ({"accelerator_type": "v5e-16"}, "accelerator_type", "v5e-16", "v5litepod-16"),
        ({"accelerator_type": "banana"}, "accelerator_type", "banana", ""),
        ({"accelerator_type": ""}, "accelerator_type", "No accelerator type", "v5litepod-16"),
        ({"type": "v4", "topology": "2x2x4"}, "accelerator_type", "two ways", "one of the two"),
        ({"accelerator_type": "", "type": "v4"}, "topology", "--type needs --topology", "2x2x4"),
        ({"accelerator_type": "", "topology": "4x4"}, "type", "--topology needs --type", "--type="),
        ({"accelerator_type": "", "type": "v4", "topology": "3x3x3"}, "topology", "3x3x3", ""),
        ({"accelerator_type": "", "type": "v9", "topology": "4x4"}, "type", "v9", ""),
        ({"accelerator_type": "tpu7x-8"}, "accelerator_type", "does not serve TPU 7x", "Compute Engine"),
        ({"runtime_version": "v2-alpha-tpuv6e"}, "runtime_version", "does not fit", "v2-alpha-tpuv5-lite"),
        ({"runtime_version": ""}, "runtime_version", "No runtime", "v2-alpha-tpuv5-lite"),
        ({"name": ""}, "name", "needs an id", "train-a"),
        ({"name": "a/b"}, "name", "'a/b'", "letters"),
        ({"project": ""}, "project", "No project", "context"),
        ({"project": "Not A Project"}, "project", "Not A Project", "lower-case"),
        ({"zone": ""}, "zone", "No zone", "--zone"),
        ({"zone": "us-west4"}, "zone", "'us-west4'", "us-west4-a"),
        ({"node_id": "n"}, "node_id", "one slice, and 2", "--node-prefix"),
        ({"node_count": 1, "node_prefix": "p"}, "node_prefix", "several slices", "--node-id"),
        ({"node_prefix": "a b"}, "node_prefix", "'a b'", "letters"),
        ({"workload_type": "FAST"}, "workload_type", "FAST", "AVAILABILITY_OPTIMIZED"),
        ({"tier": Tier.SPOT, "guaranteed": True}, "guaranteed", "exclude", "one tier"),
        ({"tier": Tier.SPOT, "min_duration_s": 5.0}, "min_duration_s", "guaranteed tier", ""),
        ({"min_duration_s": 0.0}, "min_duration_s", "longer than 0", ""),
        ({"tier": Tier.SPOT, "reservation": "r"}, "reservation", "not of spot", ""),
        ({"tier": Tier.RESERVED, "reservation": "r", "reservation_host": "folders/1"}, "reservation", "exclude", ""),
        ({"tier": Tier.RESERVED, "reservation_host": "team/1"}, "reservation_host", "team/1", "folders/ID"),
        ({"provisioning_model": "magic"}, "provisioning_model", "magic", "flex-start"),
        ({"provisioning_model": "spot"}, "provisioning_model", "exclude", ""),
        ({"tier": Tier.SPOT, "provisioning_model": "flex-start"}, "provisioning_model", "exclude", ""),
        ({"provisioning_model": "reservation-bound"}, "provisioning_model", "needs a reservation", ""),
        ({"tier": Tier.FLEX_START, "max_run_duration_s": 700000.0}, "max_run_duration_s", "7 days", "168h"),
        ({"max_run_duration_s": 0.0}, "max_run_duration_s", "longer than 0", ""),
        ({"valid_until_duration_s": -1.0}, "valid_until_duration_s", "longer than 0", ""),
        ({"valid_until_duration_s": 9.0, "valid_until_time": LATER}, "valid_until_time", "exclude", ""),
        ({"valid_after_duration_s": 9.0, "valid_after_time": LATER}, "valid_after_time", "exclude", ""),
        ({"valid_until_time": datetime(2020, 1, 1, tzinfo=UTC)}, "valid_until_time", "passed", ""),
        ({"valid_after_duration_s": 100.0, "valid_until_duration_s": 50.0}, "valid_until_time", "end before", ""),
        ({"network_configs": (Network("n"),)}, "network_configs", "excludes", ""),
        ({"internal_ips": False, "network_configs": (Network(),)}, "network_configs", "neither", ""),
        ({"cidr_range": "10.0.0"}, "cidr_range", "10.0.0", "/29"),
        ({"service_account": "me"}, "service_account", "'me'", "e-mail"),
        ({"tags": ("Bad Tag",)}, "tags", "Bad Tag", "lower-case"),
        ({"metadata": (("a b", "c"),)}, "metadata", "'a b'", "letters"),
        ({"metadata": (("a", "1"), ("a", "2"))}, "metadata", "twice", "once"),
        ({"metadata": (("a", "x" * 300_000),)}, "metadata", "300,000 bytes", "bucket"),
        ({"metadata_files": (("startup-script", "/nowhere/at/all.sh"),)}, "metadata_files", "/nowhere/at/all.sh", "path"),
        ({"labels": (("Team", "x"),)}, "labels", "Team=x", "lower-case"),
        ({"data_disks": (DataDisk("mydisk"),)}, "data_disks", "mydisk", "projects/"),
        ({"data_disks": (DataDisk("projects/p/zones/z/disks/d", "rw"),)}, "data_disks", "'rw'", "read-write"),
        ({"boot_disk_confidential": True}, "boot_disk_kms_key", "needs kms-key", ""),
    ],
)  # fmt: skip
def test_bad_input_is_refused_naming_field_reason_and_cure(
    changes: dict[str, Any], field: str, what: str, cure: str
) -> None:
    found = problems(replace(GOOD, **changes), now=NOW)
    hits = [item for item in found if item.field == field and what in item.what and cure in item.cure]
    assert len(hits) == 1, found


def test_every_problem_names_a_field_that_a_form_has() -> None:
    names = {field.name for field in fields(CreateRequest)}
    bad = CreateRequest(name="", project="", zone="", node_count=999, node_id="a b", tags=("X",), cidr_range="x")
    found = problems(bad)
    assert len(found) > 5
    assert {item.field for item in found} <= names


def test_a_taken_name_points_to_recreate_and_a_taken_slice_name_is_seen() -> None:
    (taken,) = problems(GOOD, taken_names={"train-a"})
    assert taken.field == "name"
    assert "qr recreate train-a" in taken.cure
    (clash,) = problems(GOOD, taken_node_ids={"train-a-1"})
    assert clash.field == "node_prefix"
    assert "train-a-1" in clash.what


@EXAMPLES
@given(requests())
def test_a_well_formed_request_is_refused_only_over_its_runtime(request_: CreateRequest) -> None:
    found = problems(request_, now=NOW)
    assert {item.field for item in found} <= {"runtime_version"}
    for item in warnings(request_):
        assert item.what.endswith(".")


def test_a_zone_not_known_to_offer_the_type_is_a_warning_and_the_apis_list_wins() -> None:
    here = replace(GOOD, zone="us-central2-b")
    assert problems(here, now=NOW) == []
    assert [item.field for item in warnings(here)] == ["zone"]
    assert warnings(here, zone_types=["v5litepod-16", "v5litepod-32"]) == []
    (missing,) = warnings(GOOD, zone_types=["v4-8", "v5litepod-4"])
    assert "v5litepod-4" in missing.cure


def qr(name: str, state: str, **changes: Any) -> QueuedResource:
    fact = QueuedResource(
        "demo-project", "us-west4-a", name, state, accelerator_type="v5litepod-16", chips_per_slice=16, slice_count=2
    )
    return replace(fact, **changes)


def test_a_second_request_of_one_kind_in_one_zone_is_advised_against() -> None:
    waiting = qr("other", "WAITING_FOR_RESOURCES")
    (item,) = warnings(GOOD, existing=[waiting])
    assert "other waits already" in item.what
    for harmless in (
        replace(waiting, zone="us-east5-a"),
        replace(waiting, tier=Tier.SPOT),
        replace(waiting, state="ACTIVE"),
        replace(waiting, accelerator_type="v5litepod-32"),
        replace(waiting, name="train-a"),
    ):
        assert warnings(GOOD, existing=[harmless]) == []


def test_dead_requests_are_shown_with_the_chips_they_hold() -> None:
    (item,) = warnings(GOOD, existing=[qr("old", "FAILED"), qr("older", "SUSPENDED")])
    assert "old, older are dead and hold the quota" in item.what
    assert "64 chips" in item.what
    other = qr("other", "SUSPENDED", accelerator_type="v6e-16")
    assert warnings(GOOD, existing=[other]) == [], "another generation has a quota of its own"
    unknown = qr("unknown", "SUSPENDED", accelerator_type="v99-16")
    (kept,) = warnings(GOOD, existing=[other, unknown])
    assert "unknown is dead and holds the quota of 32 chips" in kept.what


def test_serving_quota_external_addresses_and_short_runs_are_warned_of() -> None:
    assert "Serving" in warnings(replace(ONE, accelerator_type="v5litepod-8"))[0].what
    (many,) = warnings(replace(GOOD, node_count=3, internal_ips=False))
    assert "12 workers" in many.what
    assert warnings(replace(GOOD, internal_ips=False)) == []
    assert any("documented for flex-start" in item.what for item in warnings(replace(ONE, max_run_duration_s=9000.0)))


def test_a_startup_script_that_exists_is_no_problem(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("true")
    assert problems(replace(GOOD, metadata_files=(("startup-script", str(script)),))) == []
