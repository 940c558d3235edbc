"""The create form without a screen: its fields are gcloud's flags, read by the same parser as the command line's.

A form is a mapping of field name to text. `read` turns it into a request and says what cannot be understood, by field;
`write` turns a request back into texts, which is how a pasted gcloud command or an existing request fills the form.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from backend.cloud.gcloud_flags import add_create_flags, request_of
from backend.cloud.gcloud_writer import join_list, join_pairs, seconds
from backend.cloud.requests import PROVISIONING_MODELS, CreateRequest, Network, Problem
from backend.model import Tier
from backend.outcomes import OperatorError
from backend.timestamps import rfc3339
from jobs import accelerators
from tui.wording import count


class Kind(StrEnum):
    """How a field is edited."""

    TEXT = "text"
    CHOICE = "choice"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form."""

    name: str
    """The field of CreateRequest, and the key of the form."""
    label: str
    flag: str = ""
    """gcloud's flag; empty for what is no flag (name, zone, tier)."""
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()
    hint: str = ""
    """Shown while the field is empty."""
    more: bool = False
    """Among the further options."""
    repeats: bool = False
    """Several values, separated by blanks, each a flag of its own."""


TIERS = tuple(tier.value for tier in (Tier.SPOT, Tier.ON_DEMAND, Tier.RESERVED, Tier.FLEX_START, Tier.BEST_EFFORT))
MODELS = tuple(model for model in PROVISIONING_MODELS if model != "flex-start")

FIELDS: tuple[Field, ...] = (
    Field("name", "name", hint="a-z, 0-9 and -, such as train-a"),
    Field("zone", "zone"),
    Field("accelerator_type", "type", "--accelerator-type", hint="such as v5litepod-16"),
    Field("node_count", "slices", "--node-count", hint="1 to 256; Multislice from 2"),
    Field("runtime_version", "runtime", "--runtime-version", hint="suggested by the type"),
    Field("tier", "tier", kind=Kind.CHOICE, choices=TIERS),
    Field("reservation", "reservation", "--reservation", hint="for the reserved tier; empty: any that fits"),
    Field("valid_until_duration_s", "give up after", "--valid-until-duration", hint="such as 6h; empty: never"),
    Field("metadata_files", "metadata files", "--metadata-from-file", hint="startup-script=boot.sh,..."),
    Field("internal_ips", "internal IPs only", "--internal-ips", Kind.FLAG),
    Field("network", "network", "--network", hint="default", more=True),
    Field("subnetwork", "subnetwork", "--subnetwork", more=True),
    Field("labels", "labels", "--labels", hint="team=llm,owner=ana", more=True),
    Field("tags", "network tags", "--tags", hint="ssh,tpu", more=True),
    Field("metadata", "metadata", "--metadata", hint="key=value,...", more=True),
    Field("service_account", "service account", "--service-account", hint="name@project.iam...", more=True),
    Field("scopes", "scopes", "--scopes", more=True),
    Field("node_prefix", "slice prefix", "--node-prefix", hint="the name", more=True),
    Field("node_id", "slice id", "--node-id", hint="one slice only; the name", more=True),
    Field("type", "generation", "--type", hint="v4, with a topology instead of a type", more=True),
    Field("topology", "topology", "--topology", hint="such as 2x2x4", more=True),
    Field("max_run_duration_s", "run at most", "--max-run-duration", hint="flex-start, such as 2d", more=True),
    Field("provisioning_model", "provisioning model", "--provisioning-model", Kind.CHOICE, ("", *MODELS), more=True),
    Field("guaranteed", "guaranteed", "--guaranteed", Kind.FLAG, more=True),
    Field("min_duration_s", "at least", "--min-duration", hint="guaranteed for, such as 1h", more=True),
    Field("valid_until_time", "give up at", "--valid-until-time", hint="2026-12-01T08:00:00Z", more=True),
    Field("valid_after_duration_s", "not before, in", "--valid-after-duration", hint="such as 30m", more=True),
    Field("valid_after_time", "not before", "--valid-after-time", hint="2026-12-01T08:00:00Z", more=True),
    Field("reservation_host", "reservation host", hint="projects/ID, folders/ID or organizations/ID", more=True),
    Field(
        "network_configs",
        "interfaces",
        "--network-config",
        hint="network=...,subnetwork=...",
        more=True,
        repeats=True,
    ),
    Field("cidr_range", "address range", "--range", more=True),
    Field("data_disks", "data disks", "--data-disk", hint="source=...,mode=read-only", more=True, repeats=True),
    Field("workload_type", "workload type", "--workload-type", hint="availability-optimized", more=True),
    Field("shielded_secure_boot", "secure boot", "--shielded-secure-boot", Kind.FLAG, more=True),
    Field("boot_disk_kms_key", "boot disk key", hint="projects/.../cryptoKeys/...", more=True),
    Field("boot_disk_confidential", "confidential boot disk", kind=Kind.FLAG, more=True),
    Field("autocheckpoint_enabled", "autocheckpoint", "--autocheckpoint-enabled", Kind.FLAG, more=True),
    Field("description", "description", "--description", more=True),
)
FIELD_HINTS = {field.name: field.hint for field in FIELDS}
ON = "yes"
"""The text of a flag that is set; an empty text is one that is not."""


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    add_create_flags(parser)
    return parser


def _arguments(field: Field, text: str) -> list[str]:
    if field.kind is Kind.FLAG:
        return [field.flag]
    values = text.split() if field.repeats else [text]
    return [f"{field.flag}={value}" for value in values]


def _problem(field: Field, text: str) -> Problem | None:
    """Why the text of one field cannot be read, in the parser's words without the flag's name."""
    try:
        _parser().parse_args(_arguments(field, text))
    except argparse.ArgumentError as error:
        return Problem(field.name, f"{field.label}: {error.message}.")
    return None


def read(texts: Mapping[str, str], *, project: str) -> tuple[CreateRequest, list[Problem]]:
    """The request of a form. Fields that cannot be read are left out of it and named.

    Args:
        texts: Field name -> text; missing fields are empty.
        project: Where the request goes.
    """
    found: list[Problem] = []
    arguments: list[str] = []
    for field in FIELDS:
        text = texts.get(field.name, "").strip()
        if not field.flag or not text:
            continue
        problem = _problem(field, text)
        if problem is None:
            arguments += _arguments(field, text)
        else:
            found.append(problem)
    given = _parser().parse_args(arguments)
    tier = Tier(texts.get("tier") or Tier.ON_DEMAND)
    name, zone = texts.get("name", "").strip(), texts.get("zone", "").strip()
    try:
        request = request_of(given, name, project=project, zone=zone)
    except OperatorError as error:
        return CreateRequest(name, project, zone), [*found, Problem("tier", error.what, error.cure)]
    request = replace(
        request,
        tier=tier,
        reservation_host=texts.get("reservation_host", "").strip(),
        boot_disk_kms_key=texts.get("boot_disk_kms_key", "").strip(),
        boot_disk_confidential=bool(texts.get("boot_disk_confidential")),
    )
    return request, found


def _network_text(item: Network) -> str:
    pairs = [
        ("network", item.network),
        ("subnetwork", item.subnetwork),
        ("external-ips", str(item.external_ips).lower()),
    ]
    return join_pairs([(key, value) for key, value in pairs if value])


_WRITERS: dict[str, Callable[[Any], str]] = {
    "labels": join_pairs,
    "metadata": join_pairs,
    "metadata_files": join_pairs,
    "tags": join_list,
    "scopes": join_list,
    "network_configs": lambda items: " ".join(_network_text(item) for item in items),
    "data_disks": lambda items: " ".join(
        join_pairs([("source", item.source), ("mode", item.mode)]) for item in items
    ),
    "valid_until_time": rfc3339,
    "valid_after_time": rfc3339,
    "tier": str,
}


def write(request: CreateRequest) -> dict[str, str]:
    """The texts of a form that `read` turns into the same request."""
    texts: dict[str, str] = {}
    for field in FIELDS:
        value = getattr(request, field.name)
        if value in ("", None, False, ()):
            texts[field.name] = ""
        elif field.name in _WRITERS:
            texts[field.name] = _WRITERS[field.name](value)
        elif field.kind is Kind.FLAG:
            texts[field.name] = ON
        elif field.name.endswith("_s"):
            texts[field.name] = seconds(value)
        else:
            texts[field.name] = str(value)
    return texts


def suggested_runtime(request: CreateRequest) -> str:
    """The runtime that is recommended for the type; empty for an unknown one."""
    found = accelerators.find(request.accelerator_type)
    generation = found.generation if found is not None else accelerators.generation(request.type)
    return generation.runtime_versions[0] if generation is not None and generation.runtime_versions else ""


def size_words(request: CreateRequest) -> str:
    """What is asked for, in chips and workers: `2 slices × 16 chips = 32 chips on 8 workers`."""
    found = accelerators.find(request.accelerator_type)
    if found is None:
        return ""
    slices = max(request.node_count, 1)
    total = f"{count(found.chips * slices, 'chip')} on {count(found.workers * slices, 'worker')}"
    return total if slices == 1 else f"{slices} slices × {found.chips} chips = {total}"


def type_names(zone: str, offered: tuple[str, ...] | None) -> tuple[str, ...]:
    """Types to suggest: what the API lists for the zone, else what the catalogue knows of it."""
    if offered is not None:
        return offered
    every = [item for item in accelerators.all_types() if item.generation.served]
    return tuple(item.name for item in every if not zone or zone in item.generation.zones) or tuple(
        item.name for item in every
    )


def type_words(name: str) -> str:
    """A type in a few words: `16 chips 4x4, 4 workers, Multislice`; empty for an unknown one."""
    found = accelerators.find(name)
    if found is None:
        return ""
    multislice = ", Multislice" if found.generation.multislice else ""
    return f"{count(found.chips, 'chip')} {found.topology}, {count(found.workers, 'worker')}{multislice}"


def generations() -> tuple[str, ...]:
    """Names for `--type`."""
    return tuple(dict.fromkeys(item.generation.name for item in accelerators.all_types() if item.generation.served))


def topologies(generation: str) -> tuple[str, ...]:
    """Legal topologies of a generation, or of all."""
    known = [item for item in accelerators.all_types() if generation in ("", item.generation.name)]
    return tuple(dict.fromkeys(item.topology for item in known if item.topology))
