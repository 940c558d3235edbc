"""The create form reads what gcloud's flags would, and says by field what it cannot read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.requests import CreateRequest, DataDisk, Network
from backend.model import Tier
from tui.screens.create_form import FIELDS, read, size_words, suggested_runtime, type_names, write

FULL = CreateRequest(
    name="train-a",
    project="demo",
    zone="us-west4-a",
    accelerator_type="v5litepod-16",
    runtime_version="v2-alpha-tpuv5-lite",
    node_count=2,
    node_prefix="slice",
    tier=Tier.RESERVED,
    guaranteed=True,
    min_duration_s=3600.0,
    reservation="res-1",
    valid_until_duration_s=5400.0,
    valid_after_time=datetime(2026, 12, 1, 8, tzinfo=UTC),
    network_configs=(Network("net-a", "sub-a", True), Network("net-b")),
    service_account="runner@demo.iam.gserviceaccount.com",
    scopes=("cloud-platform",),
    tags=("ssh", "tpu"),
    labels=(("team", "llm"),),
    metadata=(("startup", "a,b=c"),),
    metadata_files=(("startup-script", "boot.sh"),),
    description="two words",
    data_disks=(DataDisk("projects/p/disks/d", "read-only"),),
    shielded_secure_boot=True,
    boot_disk_kms_key="projects/p/k",
    autocheckpoint_enabled=True,
)


def test_every_option_of_a_request_is_on_the_form() -> None:
    unedited = {"project", "reservation_host"}
    names = set(CreateRequest.__dataclass_fields__) - unedited
    assert names <= {field.name for field in FIELDS}


def test_a_form_written_from_a_request_reads_as_the_same_request() -> None:
    request, problems = read(write(FULL), project="demo")
    assert problems == []
    assert request == FULL


def test_a_pasted_command_fills_the_form() -> None:
    command = (
        "gcloud alpha compute tpus queued-resources create train-a --node-count 2 --node-prefix train"
        " --accelerator-type v5litepod-16 --runtime-version v2-alpha-tpuv5-lite --zone us-west4-a --spot"
    )
    texts = write(from_gcloud(command, project="demo"))
    assert texts["node_count"] == "2"
    assert texts["tier"] == "spot"
    assert texts["accelerator_type"] == "v5litepod-16"
    assert texts["name"] == "train-a"


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("node_count", "two", "'two' is no whole number"),
        ("valid_until_duration_s", "soon", "no duration"),
        ("labels", "team", "not KEY=VALUE"),
        ("data_disks", "mode=read-only", "source=DISK"),
    ],
)
def test_what_cannot_be_read_is_told_by_field_and_left_out(field: str, text: str, words: str) -> None:
    request, problems = read({"name": "a", "zone": "us-west4-a", field: text}, project="demo")
    assert [problem.field for problem in problems] == [field]
    assert words in problems[0].what
    assert getattr(request, field) == getattr(CreateRequest("a", "demo", "us-west4-a"), field)


def test_the_size_is_said_in_chips_and_workers() -> None:
    assert size_words(FULL) == "2 slices × 16 chips = 32 chips on 8 workers"


def test_the_runtime_is_suggested_by_the_type() -> None:
    assert suggested_runtime(FULL) == "v2-alpha-tpuv5-lite"
    assert suggested_runtime(CreateRequest("a", "demo", "z", accelerator_type="nonsense")) == ""


def test_types_are_what_the_zone_offers() -> None:
    assert type_names("us-west4-a", ("v5litepod-16",)) == ("v5litepod-16",)
    known = type_names("us-west4-a", None)
    assert "v5litepod-16" in known
    assert "v4-8" not in known
