"""One-shot views beside the fleet's own tables: a line for each worker, and what the journal saw."""

from __future__ import annotations

from collections.abc import Sequence

from backend.model import Event, Fleet
from backend.sanitize import plain
from backend.targets import workers_of, workers_of_slice
from backend.timestamps import rfc3339
from tui.cli.output import print_json, print_table


def print_workers(fleet: Fleet, output: str) -> None:
    """One line a worker, by address: the state of its slice, and where it answers."""
    slices = [one for item in fleet.queued_resources for one in item.slices] + list(fleet.standalone)
    states = {(one.project, one.zone, one.node_id): one for one in slices}
    workers = [worker for item in fleet.queued_resources for worker in workers_of(item)]
    workers += [worker for one in fleet.standalone for worker in workers_of_slice(one)]
    rows: list[list[object]] = []
    for worker in workers:
        one = states[worker.project, worker.zone, worker.node_id]
        facts = (worker.address, one.state, one.health, one.node_id, worker.internal_ip, worker.external_ip)
        rows.append(list(facts))
        if output == "json":
            print_json(
                dict(zip(("target", "state", "health", "node_id", "internal_ip", "external_ip"), facts, strict=True))
            )
    if output == "json":
        return
    if not rows:
        print("No worker exists now.")
        return
    print_table(["WORKER", "SLICE", "HEALTH", "NODE", "INTERNAL", "EXTERNAL"], rows)


def print_events(events: Sequence[Event], output: str) -> None:
    """What was seen and done, oldest first."""
    if output == "json":
        for event in events:
            at = rfc3339(event.at)
            facts = {"at": at, "kind": event.kind.value, "subject": event.subject, "zone": event.zone}
            print_json({**facts, "before": event.before, "after": event.after, "text": event.text})
        return
    if not events:
        print("Nothing happened yet that the journal knows of.")
        return
    print_table(
        ["AT (UTC)", "KIND", "ABOUT", "WHAT"],
        [
            [f"{event.at:%Y-%m-%d %H:%M:%S}", event.kind.value, event.subject, plain(event.text or event.after)]
            for event in events
        ],
    )
