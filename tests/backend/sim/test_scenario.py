"""Scenario files: what is packaged loads, and what is wrong is named with its file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from backend.sim import scenario
from tests.backend.sim.sim_world import PARENT, Turned


def test_every_packaged_scenario_loads() -> None:
    assert scenario.packaged() == ("default", "empty", "huge", "large")
    for name in scenario.packaged():
        assert scenario.load(name).name == name


def test_the_huge_world_has_a_different_address_for_each_of_its_16384_workers() -> None:
    world = Turned("huge")
    nodes = world.call("ListNodes", parent=PARENT)["nodes"]
    addresses = [endpoint["ipAddress"] for node in nodes for endpoint in node["networkEndpoints"]]
    assert len(nodes) == 256
    assert len(set(addresses)) == len(addresses) == 16_384
    assert all(address.startswith("127.") and not address.endswith((".0", ".255")) for address in addresses)
    assert not any(address.startswith("127.0.") for address in addresses)
    assert world.machines.running == set(addresses)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("zones = [", "is not valid TOML"),
        ("colour = 1", "unknown key 'colour'"),
        ("[[zones]]\nname = 'a'\ncapacity = { v5e = 4 }", "'v5e' is not a type prefix"),
        ("[[zones]]\nname = 'a'\ncapacity = { v5litepod = 'many' }", "must be a number of chips"),
        (
            "[[requests]]\nid = 'x'\nzone = 'a'\naccelerator_type = 'v5litepod-16'\nstate = 'ACTIVE'",
            "zone 'a' is used",
        ),
        ("[[requests]]\nid = 'x'\nzone = 'a'\naccelerator_type = 'v5litepod-16'\nstate = 'HAPPY'", "'HAPPY'"),
        ("[[requests]]\nid = 'x'\nzone = 'a'\naccelerator_type = 'v5lite-16'\nstate = 'ACTIVE'", "v5litepod-16"),
        ("[[requests]]\nid = 'x'", "the key 'state' is missing"),
        ("[delays]\nwating = 1", "unknown key 'wating' in delays"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(OperatorError) as raised:
        scenario.load(str(file))
    assert part in raised.value.what
    assert str(file) in raised.value.what


def test_an_unknown_scenario_is_told_which_there_are() -> None:
    with pytest.raises(OperatorError, match="Use default, empty, huge, large, or the path"):
        scenario.load("defualt")


def test_own_delays_and_standing_nodes_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "[delays]\nprovisioning = 5\n[[zones]]\nname = 'us-west4-a'\ncapacity = { v5litepod = 64 }\n"
        "[[nodes]]\nid = 'vm'\nzone = 'us-west4-a'\naccelerator_type = 'v5litepod-4'\nstate = 'STOPPED'\n"
    )
    world = Turned(scenario.load(str(file)))
    assert world.node("vm")["state"] == "STOPPED"
    world.create("a")
    world.advance(110)
    assert world.state("a") == "ACTIVE"


@pytest.mark.parametrize(
    ("state", "end"),
    [("CREATING", "ACTIVE"), ("ACCEPTED", "ACTIVE"), ("SUSPENDING", "SUSPENDED"), ("PROVISIONING", "ACTIVE")],
)
def test_what_stands_in_a_passing_state_goes_on_from_there(state: str, end: str) -> None:
    text = (
        "[[zones]]\nname = 'us-west4-a'\ncapacity = { v5litepod = 64 }\n"
        f"[[requests]]\nid = 'a'\nzone = 'us-west4-a'\naccelerator_type = 'v5litepod-16'\nstate = '{state}'\n"
    )
    world = Turned(scenario.parse(text, "passing", "test"))
    assert world.state("a") == state
    world.advance(1000)
    assert world.state("a") == end


def test_a_request_that_stands_in_deleting_goes() -> None:
    text = (
        "[[zones]]\nname = 'us-west4-a'\ncapacity = { v5litepod = 64 }\n"
        "[[requests]]\nid = 'a'\nzone = 'us-west4-a'\naccelerator_type = 'v5litepod-16'\nstate = 'DELETING'\n"
    )
    world = Turned(scenario.parse(text, "passing", "test"))
    assert world.state("a") == "DELETING"
    world.advance(1000)
    assert not world.world.requests
