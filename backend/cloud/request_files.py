"""A request that is written down: in a file, or pasted."""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from backend.cloud.encoding import from_json
from backend.cloud.gcloud_flags import parse_duration
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.requests import CreateRequest, DataDisk, Network
from backend.model import Tier
from backend.outcomes import OperatorError
from backend.sanitize import plain

FILE_LIMIT = 1 << 20
"""Characters; a request is far smaller."""


def pasted(text: str, *, project: str, zone: str) -> CreateRequest:
    """What was pasted: the path of a file, or the request itself.

    Raises:
        OperatorError: It cannot be understood; it says where.
    """
    line = text.strip()
    if line.startswith(("/", "~", "./", "../")) and "\n" not in line:
        return from_file(line, project=project, zone=zone)
    return from_text(line, "what was pasted", project=project, zone=zone)


def from_file(name: str, *, project: str, zone: str) -> CreateRequest:
    """The request that a file holds.

    Raises:
        OperatorError: It cannot be read or understood; it says where.
    """
    try:
        text = Path(name).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise OperatorError(f"{plain(name)} cannot be read: {why}.", "Correct the path.") from error
    return from_text(text, plain(name), project=project, zone=zone)


def from_text(text: str, name: str, *, project: str, zone: str) -> CreateRequest:
    """A request as JSON of the API, as TOML, or as a gcloud command.

    Args:
        text: What is read.
        name: Of what it was read from, for sentences.
        project: Where the request goes, unless it says so.
        zone: Likewise.

    Raises:
        OperatorError: It cannot be understood; it says where.
    """
    if len(text) > FILE_LIMIT:
        raise OperatorError(f"{name} has over {FILE_LIMIT:,} characters.", "A request is far smaller.")
    if text.lstrip().startswith("{"):
        try:
            body = json.loads(text)
        except ValueError as error:
            raise OperatorError(f"{name} is no JSON: {error}.", "Correct it there.") from error
        return from_json(_camel(body), project=project, zone=zone)
    if "gcloud" in text.split("=", 1)[0]:
        return from_gcloud(text, project=project, zone=zone)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OperatorError(f"{name} is neither JSON, nor TOML, nor a gcloud command: {error}.") from error
    return _from_table(table, name, project, zone)


def _camel(value: Any) -> Any:
    """The API takes snake_case too (the overview's own example has it)."""
    if isinstance(value, dict):
        keep = {"metadata", "labels"}
        return {_camel_key(key): item if key in keep else _camel(item) for key, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list) else value


def _camel_key(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.title() for part in rest)


def _from_table(table: dict[str, Any], name: str, project: str, zone: str) -> CreateRequest:
    known = {item.name for item in fields(CreateRequest)}
    values: dict[str, Any] = {"name": "", "project": project, "zone": zone}
    for key, value in table.items():
        field = "name" if key == "id" else key.replace("-", "_")
        if field not in known:
            near = difflib.get_close_matches(field, known, n=3)
            cure = f"Did you mean {' or '.join(near)}?" if near else f"Options: {', '.join(sorted(known))}."
            raise OperatorError(f"{name}: there is no option '{key}'.", cure)
        values[field] = _option(field, value, name)
    return CreateRequest(**values)


def _option(field: str, value: Any, name: str) -> Any:
    """A TOML value as the field holds it."""
    try:
        if field == "tier":
            return Tier(value)
        if field in ("labels", "metadata", "metadata_files"):
            return tuple((str(key), str(item)) for key, item in value.items())
        if field == "data_disks":
            return tuple(DataDisk(**item) for item in value)
        if field == "network_configs":
            return tuple(Network(**item) for item in value)
        if field.endswith("_s"):
            return parse_duration(value) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise OperatorError(f"{name}: {field}: {error}.", "Correct it there.") from error
    sort: type | tuple[type, ...]
    if field in (
        "guaranteed",
        "internal_ips",
        "shielded_secure_boot",
        "boot_disk_confidential",
        "autocheckpoint_enabled",
    ):
        sort = bool
    else:
        sort = datetime if field.endswith("_time") else int if field == "node_count" else str
    if field in ("tags", "scopes"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise OperatorError(f"{name}: {field} must be a list of texts.", "Correct it there.")
        return tuple(value)
    if not isinstance(value, sort) or (sort is int and isinstance(value, bool)):
        raise OperatorError(f"{name}: {field} has the wrong kind of value: {value!r}.", "Correct it there.")
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value
