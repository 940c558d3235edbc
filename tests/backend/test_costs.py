"""Chip-hours out of what was seen; what was not seen makes a lower bound, never a number."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.costs import Cost, at_most, cost, cost_seen, shares, spent_since, total
from backend.journal import Journal
from backend.model import QueuedResource, Slice, Worker
from backend.outcomes import OperatorError
from backend.stays import SeenRequest, StateSpan
from tests.simulator import SimulatorFactory

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
ITEM = QueuedResource(
    "p", "z", "a", "ACTIVE", accelerator_type="v5litepod-16", slice_count=2, chips_per_slice=16
)  # fmt: skip


def spans(*stays: tuple[str, float], bound: bool = False) -> list[StateSpan]:
    """States with their hours, the last one until now."""
    at = NOW - timedelta(hours=sum(hours for _, hours in stays))
    found = []
    for place, (state, hours) in enumerate(stays):
        until = at + timedelta(hours=hours)
        last = place == len(stays) - 1
        found.append(StateSpan(state, at, bound and place == 0, None if last else until))
        at = until
    return found


def test_chips_count_while_active_and_only_then() -> None:
    seen = spans(("WAITING_FOR_RESOURCES", 5.0), ("PROVISIONING", 1.0), ("ACTIVE", 2.5))
    found = cost(ITEM, seen, NOW, {"v5e": 1.5}.get)
    assert found == Cost(chip_hours=80.0, is_lower_bound=False, usd=120.0, usd_per_hour=48.0, running_chips=32)
    dead = replace(ITEM, state="SUSPENDED")
    over = cost(dead, spans(("ACTIVE", 2.0), ("SUSPENDING", 0.1), ("SUSPENDED", 9.0)), NOW, {"v5e": 1.5}.get)
    assert over is not None
    assert (over.chip_hours, over.is_lower_bound, over.usd_per_hour) == (64.0, False, 0.0)


def test_without_a_price_there_is_no_money() -> None:
    found = cost(ITEM, spans(("ACTIVE", 1.0)), NOW, {"v4": 3.0}.get)
    assert found is not None
    assert (found.chip_hours, found.usd, found.usd_per_hour) == (32.0, None, None)


@pytest.mark.parametrize("first", ["ACTIVE", "SUSPENDED"])
def test_a_beginning_that_nobody_saw_makes_a_lower_bound(first: str) -> None:
    found = cost(ITEM, spans((first, 1.0), ("ACTIVE", 1.0), bound=True), NOW)
    assert found is not None
    assert found.is_lower_bound
    assert found.bound == ">= "


def test_nothing_seen_is_no_zero() -> None:
    found = cost(ITEM, [], NOW)
    assert found is not None
    assert (found.chip_hours, found.is_lower_bound) == (0.0, True)


def test_slices_that_are_up_under_a_failed_request_make_a_lower_bound() -> None:
    up = Slice("p", "z", "a-0", 0, "READY", health="HEALTHY", workers=(Worker(0, "10.0.0.1"),))
    found = cost(replace(ITEM, state="FAILED", slices=(up,)), spans(("PROVISIONING", 1.0), ("FAILED", 1.0)), NOW)
    assert found is not None
    assert found.is_lower_bound


def test_unknown_chips_have_no_cost() -> None:
    assert cost(replace(ITEM, chips_per_slice=0), spans(("ACTIVE", 1.0)), NOW) is None


def test_a_total_says_what_it_lacks() -> None:
    parts = [Cost(10.0, False, 12.0, 0.0), Cost(2.5, False, None, None)]
    assert total(parts).sentence == "12.5 chip-hours so far, >= 12.00 USD by your prices"
    assert total([*parts, Cost(0.0, True, None, None)]).sentence.startswith(">= 12.5 chip-hours")
    assert total([]).sentence == "0.0 chip-hours so far"


@given(st.lists(st.tuples(st.sampled_from(["ACTIVE", "FAILED", "PROVISIONING"]), st.floats(0, 1e4)), max_size=8))
def test_chip_hours_are_the_chips_times_the_active_hours(stays: list[tuple[str, float]]) -> None:
    found = cost(ITEM, spans(*stays), NOW)
    assert found is not None
    assert found.chip_hours == pytest.approx(32 * sum(hours for state, hours in stays if state == "ACTIVE"), abs=1e-3)


def test_list_and_fleet_show_what_was_spent_with_and_without_prices(simulators: SimulatorFactory) -> None:
    simulator = simulators()
    plain = simulator.cli("qr", "list", "--costs", "--format=json")
    assert plain.returncode == 0, plain.stderr
    rows = {row["name"]: row for row in map(json.loads, plain.stdout.splitlines())}
    assert rows["train-a"]["chip_hours"] >= 0
    assert rows["train-a"]["chip_hours_is_lower_bound"] is True
    assert rows["train-a"]["cost_usd"] is None
    without = simulator.cli("qr", "list", "--format=json")
    assert "chip_hours" not in json.loads(without.stdout.splitlines()[0])
    priced = simulator.context_file.with_name("priced.toml")
    priced.write_text(simulator.context_file.read_text() + "\n[prices]\nv5e = 1.5\n")
    from tests.simulator import run_cli

    table = run_cli("--context-file", str(priced), "qr", "list", "--costs", home=simulator.directory)
    assert table.stdout.splitlines()[0].split()[-3:] == ["CHIP-HOURS", "USD", "NOTE"]
    assert "chip-hours so far, >= " in table.stderr
    once = run_cli("--context-file", str(priced), "fleet", "--once", home=simulator.directory)
    assert "USD by your prices" in once.stdout


def test_what_is_gone_is_counted_from_the_moment_on_that_is_asked_about(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j.db")
    place, begun = ("p", "z"), NOW - timedelta(hours=10)

    def observe(state: str | None, hours: float) -> None:
        at = begun + timedelta(hours=hours)
        item = replace(ITEM, state=state or "", created_at=begun)
        for step in range(3):  # polls that are close together, so that the change counts as seen
            journal.observe(place, [item] if state else [], [], at + timedelta(seconds=step - 60))

    journal.observe(place, [], [], begun - timedelta(seconds=30))
    journal.observe(place, [replace(ITEM, state="CREATING", created_at=begun)], [], begun + timedelta(seconds=1))
    journal.observe(place, [replace(ITEM, state="ACTIVE", created_at=begun)], [], begun + timedelta(seconds=61))
    observe("ACTIVE", 4.0)
    observe(None, 4.01)
    (seen,) = journal.requests_seen(begun - timedelta(days=1))
    assert (seen.name, seen.chips, seen.exists) == ("a", 32, False)
    whole = cost_seen(seen, begun - timedelta(days=1), NOW, {"v5e": 1.5}.get)
    assert whole is not None
    assert whole.chip_hours == pytest.approx(32 * 4.0, rel=0.02)
    assert whole.usd == pytest.approx(1.5 * 32 * 4.0, rel=0.02)
    assert not whole.is_lower_bound
    half = cost_seen(seen, begun + timedelta(hours=2), NOW)
    assert half is not None
    assert half.chip_hours == pytest.approx(32 * 2.0, rel=0.02)
    assert journal.requests_seen(NOW) == []
    journal.close()


def test_a_tpu_vm_that_stands_alone_has_used_at_most_its_age() -> None:
    alone = Slice("p", "z", "vm", 0, "READY", accelerator_type="v5litepod-8", created_at=NOW - timedelta(hours=3))
    assert at_most(alone, NOW - timedelta(days=1), NOW) == pytest.approx(24.0)
    assert at_most(alone, NOW - timedelta(hours=1), NOW) == pytest.approx(8.0)
    assert at_most(replace(alone, created_at=None), NOW, NOW) is None


def seen_request(
    name: str, kind: str = "v5litepod-16", chips: int = 16, hours: float = 2.0, **other: object
) -> SeenRequest:
    facts: dict[str, object] = {"zone": "z", "tier": "spot", "until": None, "bound": False} | other
    begun = NOW - timedelta(hours=hours)
    span = StateSpan("ACTIVE", begun, bool(facts["bound"]), facts["until"])  # type: ignore[arg-type]
    return SeenRequest("p", str(facts["zone"]), name, begun, kind, str(facts["tier"]), chips, (span,))


def test_what_was_spent_is_added_up_by_generation_tier_and_zone_the_dearest_first() -> None:
    seen = [
        seen_request("gone", until=NOW - timedelta(hours=1)),
        seen_request("big", "v5p-128", 64, 3.0, zone="y", tier="reserved", bound=True),
        seen_request("old", chips=0),
        seen_request("odd", "v99-8", 8, 0.5),
    ]
    spent = spent_since(seen, NOW - timedelta(days=1), NOW, {"v5e": 1.5}.get)
    assert [each.seen.name for each in spent] == ["big", "gone", "old", "odd"]
    assert spent[2].cost is None
    generations = shares(spent, "generation")
    assert [(each.name, each.requests, each.unknown) for each in generations] == [
        ("v5p", 1, 0),
        ("v5e", 2, 1),
        ("unknown", 1, 0),
    ]
    dearest, cheap, _ = (each.total for each in generations)
    assert (dearest.chip_hours, dearest.is_lower_bound, dearest.running_chips, dearest.usd) == (192.0, True, 64, None)
    assert (cheap.chip_hours, cheap.is_lower_bound, cheap.running_chips) == (16.0, False, 0)
    assert (cheap.usd, cheap.usd_per_hour) == (24.0, 0.0)
    assert [each.name for each in shares(spent, "tier")] == ["reserved", "spot"]
    assert [(each.name, each.total.chip_hours) for each in shares(spent, "zone")] == [("y", 192.0), ("z", 20.0)]


def test_what_runs_now_is_a_rate_and_what_is_gone_is_none() -> None:
    spent = spent_since([seen_request("runs"), seen_request("gone", until=NOW)], NOW, NOW, {"v5e": 1.5}.get)
    rates = {each.seen.name: (each.cost.running_chips, each.cost.usd_per_hour) for each in spent if each.cost}
    assert rates == {"runs": (16, 24.0), "gone": (0, 0.0)}
    sum_ = total(each.cost for each in spent if each.cost)
    assert (sum_.running_chips, sum_.usd_per_hour) == (16, 24.0)


def test_what_was_seen_is_read_from_any_thread_while_another_console_writes(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    journal = Journal.open(tmp_path / "j.db")
    journal.observe(("p", "z"), [replace(ITEM, created_at=NOW)], [], NOW)
    with journal.transaction() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("UPDATE observed SET at = at")
        (seen,) = pool.submit(journal.requests_seen, NOW - timedelta(days=1)).result(timeout=30)
        assert pool.submit(journal.queue_waits).result(timeout=30) == []
    assert seen.name == "a"
    journal.close()


def test_a_journal_that_was_taken_away_is_told_and_not_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "a folder? #1"
    journal = Journal.open(folder / "j.db")
    assert journal.requests_seen(NOW) == []
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(OperatorError, match="unable to open"):
        journal.requests_seen(NOW)
    assert not list(folder.iterdir())
    journal.close()
