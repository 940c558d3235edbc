"""A pasted gcloud command becomes the request it means, or a sentence that names what is wrong with it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud.gcloud_flags import parse_duration, split_list, split_pairs
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.gcloud_writer import join_list, join_pairs
from backend.cloud.requests import DataDisk, Network
from backend.model import Tier
from backend.outcomes import OperatorError
from tests.backend.cloud.strategies import EXAMPLES

GROUP = "gcloud compute tpus queued-resources create"
ALPHA = "gcloud alpha compute tpus queued-resources create"


def test_the_multislice_command_of_the_overview_with_its_values_written_in() -> None:
    request = from_gcloud(
        r"""$ gcloud compute tpus queued-resources \
       create your-qr \
       --project=demo-project \
       --zone=us-central1-a \
       --node-count=4 \
       --accelerator-type=V5LITEPOD-16 \
       --runtime-version=v2-alpha-tpuv5-lite \
       --network=net \
       --subnetwork=sub \
       --tags=tag-1,tag-2 \
       --metadata=startup-script="#!/bin/bash\n" \
       --reserved"""
    )
    assert request.name == "your-qr"
    assert (request.project, request.zone, request.node_count) == ("demo-project", "us-central1-a", 4)
    assert request.accelerator_type == "v5litepod-16"
    assert request.tags == ("tag-1", "tag-2")
    assert request.metadata == (("startup-script", "#!/bin/bash\\n"),)
    assert request.tier is Tier.RESERVED
    assert (request.network, request.subnetwork) == ("net", "sub")


def test_every_other_flag_is_read() -> None:
    request = from_gcloud(
        f"{ALPHA} q --node-id n --type v4 --topology=2X2x4 --runtime-version r --zone z-a1-b --async --quiet "
        "--provisioning-model=FLEX_START --max-run-duration=4h --valid-until-duration=P1DT2H --internal-ips "
        "--service-account=a@b --scopes=x,y --labels=a=b,c= --data-disk source=projects/p/zones/z/disks/d "
        "--data-disk=source=projects/p/zones/z/disks/e,mode=read-only --description='two words' --range=10.0.0.0/29 "
        "--boot-disk=kms-key=k,confidential-compute=True --shielded-secure-boot --autocheckpoint-enabled "
        "--metadata-from-file=startup-script=s.sh --format=json",
        project="p",
    )
    assert (request.tier, request.provisioning_model, request.max_run_duration_s) == (Tier.FLEX_START, "", 14400.0)
    assert request.valid_until_duration_s == 93600.0
    assert (request.type, request.topology, request.node_id) == ("v4", "2x2x4", "n")
    assert request.data_disks == (
        DataDisk("projects/p/zones/z/disks/d"),
        DataDisk("projects/p/zones/z/disks/e", "read-only"),
    )
    assert request.labels == (("a", "b"), ("c", ""))
    assert request.scopes == ("x", "y")
    assert (request.boot_disk_kms_key, request.boot_disk_confidential) == ("k", True)
    assert request.shielded_secure_boot
    assert request.autocheckpoint_enabled
    assert request.internal_ips
    assert (request.description, request.cidr_range) == ("two words", "10.0.0.0/29")
    assert request.metadata_files == (("startup-script", "s.sh"),)
    assert request.project == "p"


def test_networks_times_and_a_full_resource_name() -> None:
    request = from_gcloud(
        f"{ALPHA} projects/other/locations/us-west4-a/queuedResources/q --node-count=2 --node-prefix=pod "
        "--accelerator-type=v5p-8 --runtime-version=v2-alpha-tpuv5 --valid-after-time=2027-01-01T00:00:00+01:00 "
        "--network-config network=a,external-ips=true --network-config=network=b,subnetwork=c "
        "--reservation-host-folder=77"
    )
    assert (request.project, request.zone, request.name) == ("other", "us-west4-a", "q")
    assert request.network_configs == (Network("a", "", True), Network("b", "c", False))
    assert request.valid_after_time == datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert (request.tier, request.reservation_host) == (Tier.RESERVED, "folders/77")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "nothing"),
        ("kubectl create x", "kubectl"),
        ("gcloud beta compute tpus queued-resources create q", "beta"),
        ("gcloud compute tpus tpu-vm create q", "tpu-vm"),
        ("gcloud compute tpus queued-resources delete q", "delete"),
        (f"{GROUP} ${{QR_ID}} --spot", "${QR_ID}"),
        (f'{GROUP} q --metadata=startup-script="${{S}}"', "${S}"),
        (f"{GROUP} q --zone=$(gcloud config get compute/zone)", "$("),
        (f"{GROUP} q [--reserved|--spot]", "[--reserved|--spot]"),
        (f"{GROUP} q --acelerator-type=v4-8", "--acelerator-type"),
        (f"{GROUP} q --spot --reserved", "--spot and --reserved"),
        (f"{GROUP} q --spot --provisioning-model=flex-start", "flex-start"),
        (f"{GROUP} q --node-count=two", "--node-count"),
        (f"{GROUP} q --metadata=novalue", "--metadata"),
        (f"{GROUP} q --valid-until-duration=soon", "--valid-until-duration"),
        (f"{GROUP} q --valid-until-time=tomorrow", "--valid-until-time"),
        (f"{GROUP} q --data-disk=mode=read-only", "--data-disk"),
        (f"{GROUP} q --network-config=internal-ips=true", "internal-ips"),
        (f"{GROUP} q --boot-disk=size=4", "size"),
        (f"{GROUP} q --account=a@b", "--account"),
        (f"{GROUP} q r", "'r'"),
        (f"{GROUP} --spot", "names no queued resource"),
        (f"{GROUP} q --description='open", "quot"),
        (f"{GROUP} q --reservation-host-folder=1 --reservation-host-project=p", "reservation hosts"),
        (f"{GROUP} q --zone", "--zone"),
    ],
)
def test_a_command_that_cannot_be_taken_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(OperatorError) as refused:
        from_gcloud(text)
    assert named in refused.value.what
    assert "\n" not in refused.value.what


def test_a_misspelt_flag_gets_near_names() -> None:
    with pytest.raises(OperatorError) as refused:
        from_gcloud(f"{GROUP} q --acelerator-type=v4-8")
    assert "--accelerator-type" in refused.value.cure


def test_a_dollar_in_single_quotes_is_literal() -> None:
    request = from_gcloud(f"{GROUP} q --metadata='startup-script=echo $HOME `date`' --zone=us-west4-a")
    assert request.metadata == (("startup-script", "echo $HOME `date`"),)


@EXAMPLES
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    with contextlib.suppress(OperatorError):
        assert from_gcloud(f"{GROUP} {text}").name


@EXAMPLES
@given(st.lists(st.text(min_size=1), min_size=1))
def test_lists_read_back(items: list[str]) -> None:
    assert split_list(join_list(items)) == items


@EXAMPLES
@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="="), min_size=1), st.text()), min_size=1))
def test_pairs_read_back(pairs: list[tuple[str, str]]) -> None:
    assert split_pairs(join_pairs(pairs)) == pairs


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45m", 2700), ("1h30m", 5400), ("2d", 172800), ("PT1H", 3600), ("3600s", 3600), ("1.5s", 1.5), ("1w", 604800)],
)
def test_durations_as_gcloud_reads_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "-5m", "5 m", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)
