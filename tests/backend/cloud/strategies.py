"""Random create requests: any that the service would take as far as form goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st

from backend.cloud.requests import CreateRequest, DataDisk, Network
from backend.cloud.validation import FLEX_START_MAXIMUM_S
from backend.model import Tier

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=40)
VALUE = st.text(
    st.one_of(
        st.sampled_from(" \n\t,:;=^'\"\\$`#|~@!&+%"), st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
    ),
    max_size=60,
)
KEY = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
TIMES = st.datetimes(datetime(2027, 1, 1), datetime(2035, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001
SECONDS = st.integers(1, 10**7).map(float)


EXAMPLES = settings(deadline=None, max_examples=40)
"""Encoding imports the client library once, which takes longer than a deadline."""


def pairs(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return st.dictionaries(KEY, values, max_size=3).map(lambda found: tuple(found.items()))


@st.composite
def requests(draw: st.DrawFn) -> CreateRequest:
    """A request whose every option may be set; exclusive ones are kept apart."""
    request = CreateRequest(
        name=draw(LABEL),
        project=draw(LABEL),
        zone=draw(st.sampled_from(["us-west4-a", "us-central2-b", "europe-west4-a"])),
        runtime_version=draw(st.sampled_from(["v2-alpha-tpuv5-lite", "tpu-ubuntu2204-base"])),
        subnetwork=draw(st.one_of(st.just(""), LABEL)),
        service_account=draw(st.sampled_from(["", "who@example.iam.gserviceaccount.com"])),
        scopes=tuple(draw(st.lists(LABEL, max_size=2))),
        tags=tuple(draw(st.lists(LABEL, max_size=3))),
        labels=tuple(draw(st.dictionaries(LABEL, LABEL | st.just(""), max_size=3)).items()),
        metadata=draw(pairs(VALUE)),
        description=draw(st.one_of(st.just(""), TEXT)),
        cidr_range=draw(st.sampled_from(["", "192.168.0.0/29"])),
        data_disks=tuple(
            DataDisk(f"projects/p/zones/z/disks/{name}", mode)
            for name, mode in draw(
                st.lists(st.tuples(LABEL, st.sampled_from(["read-only", "read-write"])), max_size=2)
            )
        ),
        shielded_secure_boot=draw(st.booleans()),
        boot_disk_kms_key=draw(st.sampled_from(["", "projects/k/locations/l/keyRings/r/cryptoKeys/c"])),
        autocheckpoint_enabled=draw(st.booleans()),
    )
    if request.boot_disk_kms_key:
        request = replace(request, boot_disk_confidential=draw(st.booleans()))
    if draw(st.booleans()):
        request = replace(request, node_id=draw(LABEL))
    else:
        prefix = draw(LABEL.filter(lambda found: found != request.name) | st.just(""))
        workload = draw(st.sampled_from(["", "AVAILABILITY_OPTIMIZED"]))
        request = replace(request, node_count=draw(st.integers(2, 256)), node_prefix=prefix, workload_type=workload)
    if draw(st.booleans()):
        request = replace(request, accelerator_type=draw(st.sampled_from(["v5litepod-16", "v4-8", "v6e-256"])))
    else:
        shape = draw(st.sampled_from([("v4", "2x2x4"), ("v5litepod", "4x4"), ("v5p", "4x4x4")]))
        request = replace(request, type=shape[0], topology=shape[1])
    tier = draw(st.sampled_from([each for each in Tier if each is not Tier.UNSURE]))
    request = replace(request, tier=tier)
    if tier is Tier.ON_DEMAND:
        request = replace(request, provisioning_model=draw(st.sampled_from(["", "standard"])))
        if draw(st.booleans()):
            request = replace(request, guaranteed=True)
        elif draw(st.booleans()):
            request = replace(request, min_duration_s=draw(SECONDS))
    if tier is Tier.RESERVED:
        chosen = draw(st.sampled_from(["", "name", "full", "host"]))
        request = replace(
            request,
            reservation={"name": "mine", "full": "projects/q/locations/z/reservations/r"}.get(chosen, ""),
            reservation_host="folders/123" if chosen == "host" else "",
        )
    if tier is Tier.FLEX_START:
        longest = st.integers(1, int(FLEX_START_MAXIMUM_S)).map(float)
        request = replace(request, max_run_duration_s=draw(st.one_of(st.none(), longest)))
    match draw(st.sampled_from(["", "after", "until", "after-time", "until-time"])):
        case "after":
            request = replace(request, valid_after_duration_s=draw(SECONDS))
        case "until":
            request = replace(request, valid_until_duration_s=draw(SECONDS))
        case "after-time":
            request = replace(request, valid_after_time=draw(TIMES))
        case "until-time":
            request = replace(request, valid_until_time=draw(TIMES))
    if draw(st.booleans()):
        return replace(
            request,
            network=draw(st.one_of(st.just(""), LABEL.filter(lambda each: each != "default"))),
            internal_ips=draw(st.booleans()),
        )
    networks = draw(st.lists(st.builds(Network, LABEL, LABEL | st.just(""), st.booleans()), min_size=2, max_size=3))
    return replace(request, subnetwork="", network_configs=tuple(networks))
