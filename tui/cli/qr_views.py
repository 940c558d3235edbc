"""Queued resources on stdout: the stable JSON lines, the table, and one in full."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from backend.cloud.advice import advice
from backend.cloud.equivalents import Equivalent
from backend.cloud.requests import Problem
from backend.costs import Cost, total
from backend.model import Fleet, QueuedResource, SshWord, StateSince
from backend.sanitize import plain
from tui.cli.output import duration, print_json, print_table, timestamp

LINE_LIMIT = 4 << 20
"""Characters of an equivalent command: a startup script may be in it, and a cut one would be another command."""
HEADERS = ("NAME", "ZONE", "STATE", "SLICES", "TYPE", "TIER", "CHIPS", "WORKERS", "AGE", "IN STATE", "NOTE")


def row_json(
    item: QueuedResource, since: StateSince | None, now: datetime, ssh: SshWord | None = None
) -> dict[str, Any]:
    """One line of `qr list --format json` (documented, stable: fields are added, never renamed)."""
    return {
        "name": item.name,
        "zone": item.zone,
        "state": item.state,
        "accelerator_type": item.accelerator_type,
        "slices": item.slice_count,
        "chips": item.chips,
        "workers": item.workers_expected,
        "workers_ready": item.workers_ready,
        "tier": item.tier.value,
        "created_at": timestamp(item.created_at),
        "state_since": timestamp(since.at) if since is not None else None,
        "state_since_is_lower_bound": since.is_lower_bound if since is not None else None,
        "note": advice(item, since, now, ssh).text,
        "project": item.project,
        "topology": item.topology,
        "error": None if item.error is None else {"code": item.error.code, "message": item.error.message},
    }


def row_cells(
    item: QueuedResource,
    since: StateSince | None,
    now: datetime,
    ssh: SshWord | None = None,
    costs: Sequence[object] = (),
) -> list[object]:
    """One row under HEADERS; with the cells of what it has cost before the note."""
    bound = ">= " if since is not None and since.is_lower_bound else ""
    return [
        item.name,
        item.zone,
        item.state,
        item.slice_count,
        item.accelerator_type,
        item.tier.value,
        item.chips or "",
        f"{item.workers_ready}/{item.workers_expected}" if item.workers_expected else "",
        duration((now - item.created_at).total_seconds()) if item.created_at is not None else "",
        f"{bound}{duration((now - since.at).total_seconds())}" if since is not None else "",
        *costs,
        advice(item, since, now, ssh).text,
    ]


def cost_json(spent: Cost | None) -> dict[str, Any]:
    """Fields of `--costs`; null where the chips or the price are not known."""
    return {
        "chip_hours": None if spent is None else round(spent.chip_hours, 4),
        "chip_hours_is_lower_bound": None if spent is None else spent.is_lower_bound,
        "cost_usd": None if spent is None or spent.usd is None else round(spent.usd, 4),
        "usd_per_hour": None if spent is None else spent.usd_per_hour,
    }


def _cost_cells(spent: Cost | None) -> list[object]:
    if spent is None:
        return ["", ""]
    money = "" if spent.usd is None else f"{spent.bound}{spent.usd:,.2f}"
    return [f"{spent.bound}{spent.chip_hours:,.1f}", money]


def print_rows(
    items: Iterable[QueuedResource],
    fleet: Fleet,
    output: str,
    spent: Mapping[tuple[str, str, str], Cost] | None = None,
    *,
    none: str = "No queued resources.",
    ssh: SshWord | None = None,
) -> None:
    """A table, or one JSON line each, or that there are none; with what each has cost where that is given.

    Args:
        ssh: Whether ssh answers, where it was asked; else a note says that ready is the cloud's word.
    """
    now = datetime.now(UTC)
    rows: list[list[object]] = []
    for item in items:
        since = fleet.since.get(item.key)
        if output == "json":
            more = {} if spent is None else cost_json(spent.get(item.key))
            print_json({**row_json(item, since, now, ssh), **more})
            continue
        rows.append(row_cells(item, since, now, ssh, [] if spent is None else _cost_cells(spent.get(item.key))))
    if output != "json" and rows:
        print_table(HEADERS if spent is None else (*HEADERS[:-1], "CHIP-HOURS", "USD", HEADERS[-1]), rows)
        if spent:
            print(total(spent.values()).sentence, file=sys.stderr)
    elif output != "json":
        print(none, file=sys.stderr)


def tell_failing(fleet: Fleet) -> bool:
    """Names the zones that did not answer on stderr; True when there is one."""
    failing = [poll for poll in fleet.polls if poll.error]
    for poll in failing:
        print(f"slicetower: {poll.zone}: {poll.error} {poll.cure}".rstrip(), file=sys.stderr)
    return bool(failing)


def outline(value: object, indent: int = 0) -> list[str]:
    """A JSON value as indented lines, in the manner of gcloud's describe."""
    space = "  " * indent
    if isinstance(value, Mapping):
        lines = []
        for key, item in value.items():
            if isinstance(item, Mapping | list) and item:
                lines += [f"{space}{plain(str(key))}:", *outline(item, indent + 1)]
            else:
                lines.append(f"{space}{plain(str(key))}: {_scalar(item)}")
        return lines
    if isinstance(value, list):
        lines = []
        for item in value:
            inner = outline(item, indent + 1) if isinstance(item, Mapping | list) else [f"{space}  {_scalar(item)}"]
            first = inner[0] if inner else f"{space}  {{}}"
            lines += [f"{space}- {first.lstrip()}", *inner[1:]]
        return lines
    return [f"{space}{_scalar(value)}"]


def _scalar(value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return " \\n ".join(plain(part) for part in value.splitlines())
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return plain(str(value)) if value not in ({}, []) else "{}" if value == {} else "[]"


def slices_json(item: QueuedResource) -> list[dict[str, Any]]:
    """The slices of a request with their workers."""
    return [
        {
            "index": each.index,
            "node_id": each.node_id,
            "uid": each.uid,
            "state": each.state,
            "health": each.health,
            "ready": each.ready,
            "workers": [
                {"index": worker.index, "internal_ip": worker.internal_ip, "external_ip": worker.external_ip}
                for worker in each.workers
            ],
        }
        for each in item.slices
    ]


def equivalent_json(shown: Equivalent) -> dict[str, Any]:
    return {
        "gcloud": shown.gcloud_ga,
        "gcloud_alpha": shown.gcloud_alpha,
        "curl": shown.curl,
        "curl_v2": shown.curl_v2,
        "body": shown.json,
        "body_v2": shown.json_v2,
        "notes": list(shown.notes),
    }


def print_dry_run(action: str, shown: Iterable[Equivalent], output: str, **more: Any) -> None:
    """What would be sent, and how others would send it; nothing is."""
    for each in shown:
        if output == "json":
            print_json({"dry_run": True, "action": action, **more, **equivalent_json(each)})
            continue
        if each.json:
            import json

            print(json.dumps(each.json, indent=2))
        for line in each.lines():
            print(plain(line, limit=LINE_LIMIT))
    print("Dry run: nothing was sent.", file=sys.stderr)


def print_problems(found: Iterable[Problem], *, kind: str) -> None:
    """Refusals or warnings, one a line, on stderr."""
    for item in found:
        print(f"slicetower: {kind}: {plain(str(item))}", file=sys.stderr)
