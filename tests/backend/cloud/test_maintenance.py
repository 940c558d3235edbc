"""Maintenance that may be started by hand, and what may not be, by the service's rules and on the simulator."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from backend.cloud.maintenance import why_not
from backend.model import Maintenance, Slice
from tests.simulator import SimulatorFactory

PENDING = Maintenance("SCHEDULED", "PENDING", can_reschedule=True)
GOOD = Slice("p", "z", "a-0", 0, "READY", accelerator_type="v5litepod-16", maintenance=PENDING)


@pytest.mark.parametrize("kind", ["v4-8", "v5p-8", "v5litepod-8", "v5litepod-256", "v6e-8", "a-type-of-tomorrow", ""])
def test_what_the_service_starts_by_hand_is_not_refused(kind: str) -> None:
    assert why_not(replace(GOOD, accelerator_type=kind)) == ""


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (replace(GOOD, maintenance=None), "is announced"),
        (replace(GOOD, maintenance=replace(PENDING, status="ONGOING")), "ONGOING, not PENDING"),
        (replace(GOOD, maintenance=replace(PENDING, can_reschedule=False)), "can_reschedule"),
        (replace(GOOD, state="REPAIRING"), "REPAIRING, not READY"),
        (replace(GOOD, accelerator_type="v5litepod-4"), "from 2x4 (8 chips) on"),
        (replace(GOOD, accelerator_type="v6e-4"), "from 2x4 (8 chips) on"),
        (replace(GOOD, accelerator_type="v3-32"), "not on v3"),
    ],
)
def test_the_reason_of_a_refusal_is_the_one_that_holds(item: Slice, words: str) -> None:
    assert words in why_not(item)


def test_announced_maintenance_is_shown_by_node_and_started_for_the_slices_that_are_named(
    simulators: SimulatorFactory,
) -> None:
    simulator = simulators(fresh=True)
    simulator.inject("maintenance", "train-a/1")
    shown = simulator.cli("qr", "maintenance", "train-a", "--format=json")
    (row,) = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (row["slice"], row["node_id"], row["status"], row["may_start"]) == (1, "train-a-1", "PENDING", True)
    assert row["window_start"] < row["window_end"]
    table = simulator.cli("qr", "maintenance", "train-a").stdout
    assert "train-a-1" in table
    assert "PENDING" in table

    refused = simulator.cli("qr", "maintenance", "train-a", "--start", "--slices", "0-1", "--yes")
    assert refused.returncode == 2
    assert "no maintenance of train-a-0 is announced" in refused.stderr
    assert json.loads(simulator.cli("qr", "maintenance", "train-a", "--format=json").stdout)["status"] == "PENDING"
    for wrong, words in (("7", "no slice 7"), ("x", "no index")):
        done = simulator.cli("qr", "maintenance", "train-a", "--start", "--slices", wrong, "--yes")
        assert done.returncode == 2
        assert words in done.stderr

    dry = simulator.cli("qr", "maintenance", "train-a", "--start", "--slices", "1", "--dry-run", "--format=json")
    assert json.loads(dry.stdout)["body"] == {"nodeNames": ["train-a-1"]}
    unasked = simulator.cli("qr", "maintenance", "train-a", "--start", "--slices", "1")
    assert unasked.returncode == 2, "not confirmed, and there is no terminal"
    started = simulator.cli("qr", "maintenance", "train-a", "--start", "--slices", "1", "--yes")
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout)["done"] is True
    after = simulator.cli("qr", "maintenance", "train-a", "--format=json")
    assert after.stdout == ""
