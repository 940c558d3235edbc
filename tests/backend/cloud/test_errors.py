"""Each known error says what it means and what to do, keeps the original text, and is never taken for another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cloud.error_texts import Code, ErrorKind
from backend.cloud.errors import details_from_grpc, eid, explain, from_http, near_names
from backend.outcomes import ExitCode
from tests.backend.cloud.strategies import EXAMPLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES: list[tuple[int, str, ErrorKind, str]] = [
    (8, "Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region us-central2",
     ErrorKind.QUOTA, "cleanup"),
    (8, "Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI,TPUV2sPodPerProjectPerZoneForTPUAPI' has been exceeded. "
     "Limit: 0,0 in region us-central1, zone us-central1-a", ErrorKind.NEVER_GRANTED, "Ask for that quota"),
    (8, "Quota limit 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 4 in zone us-east5-a.",
     ErrorKind.SERVING_QUOTA, "v5litepod-4"),
    (8, "Quota exceeded for quota metric 'Maximum number of CreateNode requests per minute' and limit ...",
     ErrorKind.RATE, "60 a minute"),
    (8, 'There is no more capacity in the zone "us-east5-a"; you can try in another zone [EID: 0x0123]',
     ErrorKind.CAPACITY, "another zone"),
    (8, "Insufficient reserved capacity. Contact customer support to increase your reservation. [EID: 0xab]",
     ErrorKind.RESERVATION, "--spot"),
    (5, "Reservation not found", ErrorKind.RESERVATION, "--spot"),
    (8, "You have reached IN_USE_ADDRESSES limit. [EID: 0x0123456789abcdef]", ErrorKind.ADDRESSES, "--internal-ips"),
    (8, "something nobody has seen", ErrorKind.QUOTA, "its words"),
    (13, "an internal error has occurred", ErrorKind.INTERNAL, "smaller slice"),
    (7, "Cloud TPU API has not been used in project 123 before or it is disabled.", ErrorKind.API_DISABLED,
     "gcloud services enable"),
    (7, "The caller does not have permission", ErrorKind.PERMISSION, "roles/tpu.admin"),
    (7, "Read access to project 'other' was denied", ErrorKind.PERMISSION, "gcloud config list"),
    (7, "This API method requires billing to be enabled. NO_VALID_BILLING_ACCOUNT", ErrorKind.BILLING, "billing"),
    (16, "Request had invalid authentication credentials.", ErrorKind.CREDENTIALS, "application-default login"),
    (5, "Resource 'projects/p/locations/z/nodes/n' was not found", ErrorKind.NOT_FOUND, "Check name"),
    (6, "Resource 'projects/p/locations/z/nodes/n' already exists", ErrorKind.ALREADY_EXISTS, "recreate"),
    (9, "DeleteQueuedResource is not supported when state is ACTIVE (must be one of [ACCEPTED FAILED])",
     ErrorKind.STATE_GATE, "--force"),
    (9, "DeleteQueuedResource is not supported when state is PROVISIONING (must be one of [ACCEPTED FAILED])",
     ErrorKind.STATE_GATE, "Not even --force"),
    (9, "ResetQueuedResource is not supported when state is SUSPENDED", ErrorKind.STATE_GATE, "recreate"),
    (3, 'FLEX_START provisioning model is not supported for accelerator type "v6e-1" in location "asia-east1-c"',
     ErrorKind.FLEX, "another zone"),
    (3, 'Cloud TPU received a bad request. The requested zone "asia-northeast1-a" is not supported. [EID: 0x01]',
     ErrorKind.ZONE, "locations list"),
    (3, 'The requested accelerator configuration for accelerator type, "v6e-1", could not be found in the zonal '
     'accelerator configurations for "asia-east1-a".', ErrorKind.TYPE_IN_ZONE, "accelerator-types list"),
    (3, "Accelerator type v2-512 as preemptible (false) and reserved (false) is not available in zone us-central1-a, "
     "please contact support.", ErrorKind.TYPE_IN_ZONE, "another"),
    (3, "Cloud TPU was unable to complete the operation. Please try again, or contact support if the problem "
     "persists. [EID: 0x7]", ErrorKind.BAD_REQUEST, "v4 or later"),
    (14, "failed to connect to all addresses", ErrorKind.UNAVAILABLE, "try again"),
    (4, "Deadline Exceeded", ErrorKind.TIMEOUT, "Look before"),
    (12, "Method not found.", ErrorKind.UNIMPLEMENTED, "endpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "message", "kind", "cure"), CASES, ids=lambda value: str(value)[:40])
def test_each_known_text_has_its_meaning_and_its_cure(code: int, message: str, kind: ErrorKind, cure: str) -> None:
    error = explain(code, message, action="create", subject="train-a")
    assert error.kind is kind
    assert cure in error.cure
    assert "train-a" in error.what
    assert message in error.raw
    assert error.exit_code == ExitCode.CLOUD
    assert "{" not in error.what + error.cure


def test_the_quota_its_limit_and_its_place_are_named() -> None:
    error = explain(8, CASES[0][1], action="create", subject="x")
    assert "TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI" in error.what
    assert "limit 20800 in us-central2" in error.what


def test_a_limit_that_only_begins_with_zero_is_not_never_granted() -> None:
    error = explain(8, "Quota limit 'TPUV6E' has been exceeded. Limit: 64 in zone z.", action="create", subject="x")
    assert error.kind is ErrorKind.QUOTA
    assert "limit 64 in z" in error.what


@pytest.mark.parametrize(
    ("name", "kind", "state"),
    [
        ("err_400_delete_active_without_force", ErrorKind.STATE_GATE, "ACTIVE"),
        ("err_400_delete_provisioning", ErrorKind.STATE_GATE, "PROVISIONING"),
        ("err_404_node", ErrorKind.NOT_FOUND, ""),
        ("err_409_already_exists", ErrorKind.ALREADY_EXISTS, ""),
        ("err_429_quota_zone", ErrorKind.SERVING_QUOTA, ""),
    ],
)
def test_answers_of_the_rest_api_are_read_by_their_status_not_by_http(name: str, kind: ErrorKind, state: str) -> None:
    body = (FIXTURES / "api" / f"{name}.json").read_bytes()
    error = from_http(json.loads(body)["error"]["code"], body, action="delete", subject="demo")
    assert (error.kind, error.state) == (kind, state)
    assert error.code == Code[json.loads(body)["error"]["status"]]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (503, "<html>bad gateway</html>", ErrorKind.UNAVAILABLE),
        (401, "", ErrorKind.CREDENTIALS),
        (500, '{"error": "text"}', ErrorKind.INTERNAL),
        (418, "[1]", ErrorKind.OTHER),
    ],
)
def test_an_answer_that_is_no_google_error_is_still_explained(status: int, body: str, kind: ErrorKind) -> None:
    assert from_http(status, body, action="list", subject="zone z").kind is kind


def test_retry_info_and_error_info_are_heard() -> None:
    error = explain(
        8,
        "Quota exceeded.",
        action="create",
        subject="x",
        details=[
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"},
        ],
    )
    assert error.kind is ErrorKind.RATE
    assert error.transient
    assert error.retry_after_s == 12.5
    assert "12.5 s" in error.cure


def test_details_come_out_of_grpc_trailing_metadata() -> None:
    from google.protobuf import any_pb2, duration_pb2
    from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

    known, unknown = any_pb2.Any(), any_pb2.Any(type_url="type.googleapis.com/no.such.Type", value=b"x")
    known.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=7)))
    status = status_pb2.Status(code=8, message="slow down", details=[unknown, known])
    (found,) = details_from_grpc([("other", "x"), ("grpc-status-details-bin", status.SerializeToString())])
    assert explain(8, "m", action="a", subject="s", details=[found]).retry_after_s == 7


def test_not_found_offers_near_names() -> None:
    assert near_names("trian-a", ["train-a", "sweep-b"]) == ("train-a",)
    assert near_names("train", ["train-a", "train-b", "zzz"]) == ("train-a", "train-b")
    error = explain(5, "was not found", action="describe", subject="trian-a", near=("train-a",))
    assert error.cure == "Near: train-a."


def test_the_eid_is_kept_for_support() -> None:
    error = explain(13, "an internal error has occurred [EID: 0x4fe8a2]", action="create", subject="x")
    assert error.eid == "0x4fe8a2"
    assert eid("no id here") == ""
    assert "0x4fe8a2" in error.raw


@EXAMPLES
@given(st.integers(-5, 40), st.text(max_size=200))
def test_any_status_is_explained_in_a_sentence_that_names_the_action(code: int, message: str) -> None:
    error = explain(code, message, action="create", subject="train-a")
    assert "create" in error.what
    assert "train-a" in error.what
    assert message in error.raw
