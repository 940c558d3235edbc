"""The flags of `gcloud compute tpus queued-resources create`, alpha and GA: read into a request.

`slicetower qr create` takes the same flags. The syntax of lists, dictionaries and durations is gcloud's own
(`gcloud topic escaping`, `gcloud topic datetimes`); `gcloud_writer` goes the other way.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from backend.cloud.requests import RESERVATION_HOST_KINDS, CreateRequest, DataDisk, Network
from backend.model import Tier
from backend.outcomes import OperatorError

_UNIT_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])")


def split_list(text: str) -> list[str]:
    """gcloud's list syntax: `a,b`, or `^:^a:b` with another delimiter.

    Raises:
        ValueError: the alternative delimiter is empty.
    """
    delimiter = ","
    if text.startswith("^") and "^" in text[1:]:
        delimiter, text = text[1:].split("^", 1)
        if not delimiter:
            raise ValueError("the delimiter between ^ and ^ is empty")
    if not text:
        return []
    return text.removesuffix(delimiter).split(delimiter)


def split_pairs(text: str) -> list[tuple[str, str]]:
    """gcloud's dictionary syntax: `k=v,k2=v2`, or `^:^k=v:k2=v2`.

    Raises:
        ValueError: an item has no `=`, or nothing before it.
    """
    pairs = []
    for item in split_list(text):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ValueError(f"'{item}' is not KEY=VALUE")
        pairs.append((key, value))
    return pairs


LONGEST_S = 100 * 366 * 86400.0


def parse_duration(text: str) -> float:
    """Seconds of `45m`, `1h30m`, `2d`, `P1DT2H` or `3600s`.

    Raises:
        ValueError: the text is no duration.
    """
    wanted = text.strip().lower().removeprefix("p").replace("t", "")
    if not _DURATION.fullmatch(wanted):
        raise ValueError(f"'{text}' is no duration; write it as 45m, 1h30m or 3600s")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(wanted))
    if seconds > LONGEST_S:
        raise ValueError("nothing here lasts longer than a hundred years")
    return seconds


def parse_time(text: str) -> datetime:
    """An absolute time: ISO 8601; without an offset it is the local time, as for gcloud.

    Raises:
        ValueError: the text is no time.
    """
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text.strip())
    try:
        parsed = datetime.fromisoformat(trimmed)
    except ValueError:
        raise ValueError(f"'{text}' is no time; write it as 2026-12-01T08:00:00Z") from None
    return parsed.astimezone(UTC)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _list(text: str) -> list[str]:
    try:
        return split_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return split_pairs(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number")
    return int(text)


def _of_keys(allowed: Sequence[str], text: str) -> dict[str, str]:
    pairs = dict(_pairs(text))
    unknown = [key for key in pairs if key not in allowed]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no key '{unknown[0]}'; there are {', '.join(allowed)}")
    return pairs


def _true(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
    return text.lower() in ("true", "yes", "1")


def _network(text: str) -> Network:
    pairs = _of_keys(("network", "subnetwork", "external-ips"), text)
    return Network(pairs.get("network", ""), pairs.get("subnetwork", ""), _true(pairs.get("external-ips", "false")))


def _disk(text: str) -> DataDisk:
    pairs = _of_keys(("source", "mode"), text)
    if not pairs.get("source"):
        raise argparse.ArgumentTypeError("it needs source=DISK")
    return DataDisk(pairs["source"], pairs.get("mode", "read-write"))


def _boot_disk(text: str) -> dict[str, str]:
    return _of_keys(("kms-key", "confidential-compute"), text)


def add_create_flags(parser: argparse.ArgumentParser) -> None:
    """Adds every flag of gcloud's alpha and GA create to `parser`; `request_of` reads what it parsed."""
    flag, toggle = argparse.BooleanOptionalAction, parser.add_argument
    slices = parser.add_argument_group("slices")
    slices.add_argument("--node-id", default="", metavar="ID", help="the name of the only slice")
    slices.add_argument("--node-count", type=_count, default=1, metavar="N", help="slices, 2 to 256 for Multislice")
    slices.add_argument("--node-prefix", default="", metavar="PREFIX", help="slices are PREFIX-0, PREFIX-1, ...")
    slices.add_argument("--workload-type", default="", metavar="TYPE", help="AVAILABILITY_OPTIMIZED (v2alpha1)")
    what = parser.add_argument_group("what a slice is")
    what.add_argument("--accelerator-type", type=str.lower, default="", metavar="TYPE", help="such as v5litepod-16")
    what.add_argument("--type", type=str.lower, default="", help="v2 v3 v4 v5litepod v5p v6e, with --topology")
    what.add_argument("--topology", type=str.lower, default="", help="in chips, such as 4x4 or 2x2x4")
    what.add_argument("--runtime-version", default="", metavar="VERSION", help="such as v2-alpha-tpuv5-lite")
    tier = parser.add_argument_group("tier (on-demand when none is given)")
    tier.add_argument("--spot", action=flag, default=False, help="may be preempted")
    tier.add_argument("--reserved", action=flag, default=False, help="from a reservation")
    tier.add_argument("--best-effort", action=flag, default=False, help="v2alpha1")
    tier.add_argument("--guaranteed", action=flag, default=False, help="say explicitly what is the default")
    tier.add_argument(
        "--provisioning-model", default="", metavar="MODEL", help="standard spot reservation-bound flex-start"
    )
    tier.add_argument(
        "--max-run-duration", type=_duration, metavar="DURATION", help="with flex-start: 7 days at most"
    )
    tier.add_argument("--min-duration", type=_duration, metavar="DURATION", help="of guaranteed capacity")
    tier.add_argument("--reservation", default="", metavar="NAME", help="which reservation")
    for kind in RESERVATION_HOST_KINDS:
        single = kind.removesuffix("s")
        tier.add_argument(
            f"--reservation-host-{single}", default="", metavar="ID", help=f"any that this {single} shares"
        )
    queue = parser.add_argument_group("how long it waits")
    for end, meaning in (("after", "not before"), ("until", "given up after")):
        queue.add_argument(
            f"--valid-{end}-duration", type=_duration, metavar="DURATION", help=f"{meaning}, from now: 45m"
        )
        queue.add_argument(f"--valid-{end}-time", type=_time, metavar="TIME", help=f"{meaning}: 2026-12-01T08:00:00Z")
    network = parser.add_argument_group("network")
    network.add_argument("--network", default="", help="default: default")
    network.add_argument("--subnetwork", default="")
    network.add_argument("--internal-ips", action=flag, default=False, help="no external addresses")
    network.add_argument(
        "--network-config", type=_network, action="append", metavar="network=,subnetwork=,external-ips="
    )
    network.add_argument("--range", default="", metavar="CIDR", help="a /29 range")
    network.add_argument("--tags", type=_list, action="append", metavar="TAG,...")
    machine = parser.add_argument_group("machine")
    machine.add_argument("--service-account", default="", metavar="EMAIL")
    machine.add_argument("--scopes", type=_list, action="append", metavar="SCOPE,...")
    machine.add_argument(
        "--metadata", type=_pairs, action="append", metavar="KEY=VALUE,...", help="startup-script=..."
    )
    machine.add_argument("--metadata-from-file", type=_pairs, action="append", metavar="KEY=FILE,...")
    machine.add_argument("--labels", type=_pairs, action="append", metavar="KEY=VALUE,...")
    machine.add_argument("--description", default="", metavar="TEXT")
    machine.add_argument("--data-disk", type=_disk, action="append", metavar="source=,mode=")
    machine.add_argument("--boot-disk", type=_boot_disk, default={}, metavar="kms-key=,confidential-compute=")
    machine.add_argument("--shielded-secure-boot", action=flag, default=False)
    machine.add_argument("--autocheckpoint-enabled", action=flag, default=False, help="v2alpha1")
    toggle("--zone", default="", help="default: the only zone of the context")
    toggle("--project", default="", help="default: the project of the context")


def _tier_of(given: argparse.Namespace, host: str) -> Tier:
    chosen = [
        tier
        for tier, is_set in (
            (Tier.SPOT, given.spot),
            (Tier.RESERVED, given.reserved),
            (Tier.BEST_EFFORT, given.best_effort),
        )
        if is_set
    ]
    if len(chosen) > 1:
        flags = " and ".join(f"--{tier}" for tier in chosen)
        raise OperatorError(f"{flags} exclude each other: they are tiers.", "Choose one; none at all is on-demand.")
    if chosen:
        if given.provisioning_model == "flex-start":
            raise OperatorError(
                f"--{chosen[0]} and --provisioning-model=flex-start exclude each other: they are tiers.",
                "Choose one.",
            )
        return chosen[0]
    if given.reservation or host:
        return Tier.RESERVED
    return Tier.SPOT if given.provisioning_model == "spot" else Tier.ON_DEMAND


def request_of(given: argparse.Namespace, name: str, *, project: str = "", zone: str = "") -> CreateRequest:
    """The request that parsed flags ask for.

    Args:
        given: What a parser with `add_create_flags` has parsed.
        name: Id of the queued resource.
        project: Used where --project was not given.
        zone: Used where --zone was not given.

    Raises:
        OperatorError: two tiers, or two reservation hosts.
    """
    hosts = [
        f"{kind}/{value}"
        for kind in RESERVATION_HOST_KINDS
        if (value := getattr(given, f"reservation_host_{kind.removesuffix('s')}"))
    ]
    if len(hosts) > 1:
        raise OperatorError(
            "Two reservation hosts are given.", "Only one of project, folder and organization may be."
        )
    host = hosts[0] if hosts else ""
    return CreateRequest(
        name=name,
        project=given.project or project,
        zone=given.zone or zone,
        accelerator_type=given.accelerator_type,
        type=given.type,
        topology=given.topology,
        runtime_version=given.runtime_version,
        node_id=given.node_id,
        node_count=given.node_count,
        node_prefix=given.node_prefix,
        workload_type=given.workload_type,
        tier=_tier_of(given, host),
        guaranteed=given.guaranteed,
        min_duration_s=given.min_duration,
        reservation=given.reservation,
        reservation_host=host,
        provisioning_model=given.provisioning_model.lower().replace("_", "-"),
        max_run_duration_s=given.max_run_duration,
        valid_after_duration_s=given.valid_after_duration,
        valid_after_time=given.valid_after_time,
        valid_until_duration_s=given.valid_until_duration,
        valid_until_time=given.valid_until_time,
        network="" if given.network == "default" else given.network,
        subnetwork=given.subnetwork,
        internal_ips=given.internal_ips,
        network_configs=tuple(given.network_config or ()),
        service_account=given.service_account,
        scopes=_flat(given.scopes),
        tags=_flat(given.tags),
        labels=_flat(given.labels),
        metadata=_flat(given.metadata),
        metadata_files=_flat(given.metadata_from_file),
        description=given.description,
        cidr_range=given.range,
        data_disks=tuple(given.data_disk or ()),
        shielded_secure_boot=given.shielded_secure_boot,
        boot_disk_kms_key=given.boot_disk.get("kms-key", ""),
        boot_disk_confidential=_is_true(given.boot_disk.get("confidential-compute", "false")),
        autocheckpoint_enabled=given.autocheckpoint_enabled,
    )


def _is_true(text: str) -> bool:
    try:
        return _true(text)
    except argparse.ArgumentTypeError as error:
        raise OperatorError(f"--boot-disk: confidential-compute: {error}.", "Say true or false.") from None


def _flat(lists: Sequence[Sequence[object]] | None) -> tuple:  # type: ignore[type-arg]
    return tuple(item for part in lists or () for item in part)
