"""The commands that we show do what we would do: read back, quoted, in both tracks and versions."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud import equivalents
from backend.cloud.encoding import from_json, to_json
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.requests import CreateRequest, alpha_only
from backend.model import QueuedResource, Slice, Tier
from backend.targets import WorkerRef
from tests.backend.cloud.strategies import EXAMPLES, requests

PLAIN = CreateRequest(
    name="train-a",
    project="demo-project",
    zone="us-west4-a",
    accelerator_type="v5litepod-16",
    runtime_version="v2-alpha-tpuv5-lite",
    node_count=2,
    tier=Tier.SPOT,
)
QR = QueuedResource("demo-project", "us-west4-a", "train-a", "ACTIVE")


def curl_parts(command: str) -> tuple[str, str, dict[str, str]]:
    """(method, url, {option: last value}) of a curl line; what the shell would hand over."""
    words = shlex.split(command)
    assert words[0] == "curl"
    options = {words[index]: words[index + 1] for index in range(1, len(words) - 1, 2)}
    return options["-X"], words[-1], options


@EXAMPLES
@given(requests())
def test_the_alpha_command_asks_for_the_very_same_request(request_: CreateRequest) -> None:
    shown = equivalents.create(request_)
    assert shown.gcloud_alpha is not None
    assert from_gcloud(shown.gcloud_alpha) == request_
    assert from_gcloud(equivalents.wrap(shown.gcloud_alpha)) == request_


@EXAMPLES
@given(requests())
def test_the_ga_command_asks_for_the_very_same_request_or_is_not_shown(request_: CreateRequest) -> None:
    shown = equivalents.create(request_)
    if shown.gcloud_ga is None:
        assert any("alpha alone" in note for note in shown.notes)
    else:
        assert from_gcloud(shown.gcloud_ga) == request_


@EXAMPLES
@given(requests())
def test_the_body_of_curl_is_the_request_and_reads_back(request_: CreateRequest) -> None:
    shown = equivalents.create(request_, request_id="11111111-2222-3333-4444-555555555555")
    assert shown.curl is not None
    method, url, options = curl_parts(shown.curl)
    assert method == "POST"
    assert json.loads(options["-d"]) == shown.json == to_json(request_, "v2alpha1")
    query = parse_qs(urlsplit(url).query)
    assert query["queuedResourceId"] == [request_.name]
    assert query["requestId"] == ["11111111-2222-3333-4444-555555555555"]
    assert shown.json is not None
    assert from_json(shown.json, name=request_.name, project=request_.project, zone=request_.zone) == request_


@EXAMPLES
@given(requests())
def test_version_v2_is_shown_exactly_when_it_has_every_option(request_: CreateRequest) -> None:
    shown = equivalents.create(request_)
    assert (shown.json_v2 is None) == bool(alpha_only(request_))
    if shown.json_v2 is not None:
        assert "multiNodeParams" not in json.dumps(shown.json_v2)
        back = from_json(shown.json_v2, name=request_.name, project=request_.project, zone=request_.zone)
        assert back == request_


def test_reserved_is_a_flag_in_v2alpha1_and_a_reservation_name_in_v2() -> None:
    shown = equivalents.create(replace(PLAIN, tier=Tier.RESERVED))
    assert shown.json is not None
    assert shown.json_v2 is not None
    assert shown.json["guaranteed"] == {"reserved": True}
    assert "reservationName" not in shown.json
    assert shown.json_v2["reservationName"] == "projects/demo-project/locations/us-west4-a/reservations/-"
    assert "guaranteed" not in shown.json_v2


def test_several_slices_are_multi_node_params_in_v2alpha1_and_multislice_params_in_v2() -> None:
    shown = equivalents.create(replace(PLAIN, node_prefix="pod"))
    assert shown.json is not None
    assert shown.json_v2 is not None
    assert shown.json["tpu"]["nodeSpec"][0]["multiNodeParams"] == {"nodeCount": 2, "nodeIdPrefix": "pod"}
    assert shown.json_v2["tpu"]["nodeSpec"][0]["multisliceParams"] == {"nodeCount": 2, "nodeIdPrefix": "pod"}


def test_ga_gcloud_is_not_shown_for_a_generation_that_its_type_flag_lacks() -> None:
    shown = equivalents.create(replace(PLAIN, accelerator_type="", type="v6e", topology="4x4"))
    assert shown.gcloud_ga is None
    assert shown.notes[0] == "gcloud has --type=v6e in alpha alone."
    assert equivalents.create(replace(PLAIN, accelerator_type="", type="v4", topology="2x2x4")).gcloud_ga is not None


def test_alpha_spot_says_the_model_because_alpha_would_mark_it_standard() -> None:
    shown = equivalents.create(PLAIN)
    assert shown.gcloud_alpha is not None
    assert shown.gcloud_ga is not None
    assert "--provisioning-model=spot" in shlex.split(shown.gcloud_alpha)
    assert "--provisioning-model=spot" not in shlex.split(shown.gcloud_ga)


def test_a_startup_script_survives_two_layers_of_quoting() -> None:
    script = "#!/bin/bash\necho \"it's $HOME\" | tr ',' ';'\n"
    shown = equivalents.create(replace(PLAIN, metadata=(("startup-script", script), ("a", "b"))))
    assert shown.gcloud_ga is not None
    assert dict(from_gcloud(shown.gcloud_ga).metadata) == {"startup-script": script, "a": "b"}
    assert shown.curl is not None
    body = json.loads(curl_parts(shown.curl)[2]["-d"])
    assert body["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"] == script


def test_the_token_is_asked_for_by_the_shell_and_left_out_where_none_is_wanted() -> None:
    google = equivalents.describe(QR)
    local = equivalents.describe(QR, equivalents.Rest("http://127.0.0.1:9", authorised=False))
    assert google.curl == (
        'curl -X GET -H "Authorization: Bearer $(gcloud auth print-access-token)" '
        "https://tpu.googleapis.com/v2alpha1/projects/demo-project/locations/us-west4-a/queuedResources/train-a"
    )
    assert local.curl_v2 == (
        "curl -X GET http://127.0.0.1:9/v2/projects/demo-project/locations/us-west4-a/queuedResources/train-a"
    )


@pytest.mark.parametrize(("force", "flags"), [(False, []), (True, ["--force"])])
def test_delete_forces_only_when_asked(force: bool, flags: list[str]) -> None:
    shown = equivalents.delete(QR, force=force)
    assert shown.gcloud_ga is not None
    assert shown.curl is not None
    assert [word for word in shlex.split(shown.gcloud_ga) if word == "--force"] == flags
    assert ("force=true" in shown.curl) == force
    assert curl_parts(shown.curl)[0] == "DELETE"


def test_reset_posts_an_empty_body() -> None:
    shown = equivalents.reset(QR)
    assert shown.curl is not None
    method, url, options = curl_parts(shown.curl)
    assert (method, options["-d"]) == ("POST", "{}")
    assert url.endswith("/queuedResources/train-a:reset")


def test_maintenance_exists_in_alpha_alone() -> None:
    shown = equivalents.perform_maintenance(QR, ["train-a-0", "train-a-1"])
    assert shown.gcloud_ga is None
    assert shown.gcloud_alpha is not None
    assert "--node-names=train-a-0,train-a-1" in shlex.split(shown.gcloud_alpha)
    assert shown.json == {"nodeNames": ["train-a-0", "train-a-1"]}


def test_operations_have_no_gcloud_command() -> None:
    shown = equivalents.operation("projects/p/locations/z/operations/operation-1", cancel=True)
    assert shown.gcloud_ga is None
    assert shown.curl is not None
    assert curl_parts(shown.curl)[1].endswith("operations/operation-1:cancel")


def worker(slice_index: int, index: int, name: str = "train-a") -> WorkerRef:
    return WorkerRef("p", "us-west4-a", name, slice_index, index, f"{name}-{slice_index}", "1")


def test_ssh_selects_exactly_the_same_workers() -> None:
    chosen = [worker(0, 0), worker(0, 1), worker(1, 0), worker(1, 1), worker(2, 3)]
    shown = equivalents.ssh(chosen, "echo 'a b'; hostname", batch_size=4)
    assert shown.gcloud_ga is not None
    first, second = (shlex.split(line) for line in shown.gcloud_ga.splitlines())
    assert [word for word in first if word.startswith(("--node", "--worker"))] == ["--node=0-1", "--worker=0-1"]
    assert [word for word in second if word.startswith(("--node", "--worker"))] == ["--node=2", "--worker=3"]
    assert "--command=echo 'a b'; hostname" in first
    assert "--batch-size=4" in second


@EXAMPLES
@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1))
def test_the_commands_of_ssh_cover_each_worker_once(chosen: set[tuple[int, int]]) -> None:
    shown = equivalents.ssh([worker(*each) for each in sorted(chosen)], "true")
    assert shown.gcloud_alpha is not None
    reached: list[tuple[int, int]] = []
    for line in shown.gcloud_alpha.splitlines():
        options = dict(word.split("=", 1) for word in shlex.split(line) if word.startswith("--"))
        reached += [(n, w) for n in numbers(options["--node"]) for w in numbers(options["--worker"])]
    assert sorted(reached) == sorted(chosen)


def numbers(selector: str) -> list[int]:
    """gcloud's own reading of a selector: ranges must rise strictly."""
    out: list[int] = []
    for part in selector.split(","):
        first, dash, last = part.partition("-")
        assert not dash or int(first) < int(last)
        out += range(int(first), int(last or first) + 1)
    return out


def test_a_shell_is_gcloud_tpu_vm_ssh_on_one_worker_alone() -> None:
    one = equivalents.ssh([worker(1, 2)], route="iap")
    assert one.gcloud_ga is None
    assert one.gcloud_alpha is not None
    assert one.gcloud_alpha.startswith("gcloud alpha compute tpus tpu-vm ssh train-a-1 --worker=2 ")
    assert equivalents.ssh([worker(0, 0), worker(0, 1)]).gcloud_alpha is None


def test_a_gang_beyond_gclouds_cap_is_told() -> None:
    shown = equivalents.ssh([worker(index // 4, index % 4) for index in range(100)], "true")
    assert shown.notes == ("gcloud runs at most 64 workers at once: a gang of 100 would wait forever.",)


def test_nodes_are_described_and_deleted_by_tpu_vm() -> None:
    item = Slice("p", "us-west4-a", "lone", 0, "READY")
    shown = equivalents.describe_node(item)
    assert shown.gcloud_ga == "gcloud compute tpus tpu-vm describe lone --zone=us-west4-a --project=p"
    assert equivalents.delete_node(item).gcloud_ga == (
        "gcloud compute tpus tpu-vm delete lone --zone=us-west4-a --project=p --quiet"
    )
