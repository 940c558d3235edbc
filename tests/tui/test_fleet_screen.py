"""The fleet: rows at every size, detail, danger asked for, the command line, and what is said when nothing works."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from backend.context import Context
from backend.model import EventKind, QueuedResourceState
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui.actions import FLEET, in_scope
from tui.keymap import build
from tui.screens.base import ConsoleScreen
from tui.screens.confirm import Question, TypedConfirmation
from tui.screens.create import CreateScreen
from tui.screens.describe import DescribeScreen
from tui.screens.events import EventsScreen
from tui.screens.fleet import FleetScreen
from tui.screens.help import HelpScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.same import SameDialog
from tui.screens.workers import WorkersScreen
from tui.settings import Settings


def names(driven: Console) -> set[str]:
    """What exists now."""
    return {item.name for item in driven.app.fleet.queued_resources}


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


@pytest.mark.parametrize("size", [SMALL, MEDIUM, WIDE], ids=["80x24", "120x40", "200x60"])
async def test_every_size_shows_name_state_type_workers_and_the_detail(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=size) as driven:
        text = await driven.shows("train-a", "ACTIVE", "v5litepod-16", "8/8")
        assert max(len(line) for line in text.split("\n")) <= size[0]
        assert "RW" in text
        assert "simulated" in text
        driven.app.show_request("train-a")
        await driven.shows("slice 0", "slice 1")


async def test_a_dead_request_says_what_to_do_with_the_keys_that_are_in_force(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(keymap=build({"delete": "f8"}))
    async with console(context, tmp_path, monkeypatch, size=WIDE, settings=settings) as driven:
        await driven.shows("FAILED", "f8 delete, R recreate")


async def test_delete_wants_the_exact_name_and_sends_nothing_otherwise(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = simulators(fresh=True).context
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d")
        driven.app.show_request("old-d")
        await driven.press("D")
        await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
        await driven.write("old")
        await driven.press("enter")
        await driven.shows("'old' is not old-d: nothing was sent.")
        assert driven.app.fleet.find("old-d")[0].state == QueuedResourceState.FAILED
        await driven.write("-d")
        await driven.press("enter")
        await driven.until(lambda: not driven.app.fleet.find("old-d"), "old-d is gone")


async def test_clean_up_lists_the_dead_and_keeps_the_living(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = simulators(fresh=True).context
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d")
        await driven.press("X")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("old-d", "taken-e", "never come back")
        await driven.press("1")
        await driven.until(lambda: not {"old-d", "taken-e"} & names(driven), "the dead are gone")
        assert {"train-a", "sweep-b", "big-c"} <= names(driven)


async def test_clean_up_takes_nodes_whose_request_is_gone(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    await asyncio.to_thread(simulator.inject, "orphan", "train-a")
    async with console(simulator.context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d", "notebook")
        await driven.press("X")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("train-a-1", "node without its request train-a")
        await driven.press("1")
        await driven.until(
            lambda: [item.node_id for item in driven.app.fleet.standalone] == ["notebook"], "the orphans are gone"
        )
        await driven.until(lambda: not {"old-d", "taken-e"} & names(driven), "the dead are gone")


@pytest.mark.parametrize(
    ("key", "screen"),
    [
        ("enter", WorkersScreen),
        ("x", RunFormScreen),
        ("d", DescribeScreen),
        ("C", CreateScreen),
        ("g", SameDialog),
        ("6", EventsScreen),
        ("question_mark", HelpScreen),
        ("7", CreateScreen),
        ("2", WorkersScreen),
    ],
)
async def test_a_key_leads_where_the_registry_says_and_escape_leads_back(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, screen: type
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        driven.app.show_request("train-a")
        await driven.press(key)
        await driven.until(lambda: isinstance(driven.app.screen, screen), screen.__name__)
        await driven.press("escape")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen), "back on the fleet")


async def test_read_only_refuses_every_action_that_changes_something(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(replace(context, read_only=True), tmp_path, monkeypatch, size=MEDIUM) as driven:
        text = await driven.shows("train-a", "RO")
        assert "delete" not in text.split("\n")[-1]
        changing = [action for action in in_scope(FLEET) if action.changes and action.keys]
        assert changing
        for action in changing:
            await driven.press(*action.keys[:1])
            assert isinstance(driven.app.screen, FleetScreen), action.id
        assert driven.toasts().count("This console is read-only") == len(changing)


async def test_the_command_line_goes_places_and_says_what_it_does_not_know(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.command("w train-a/0")
        await driven.shows("train-a/0/3")
        assert "train-a/1/0" not in driven.text
        await driven.command("qr train")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        await driven.until(lambda: "sweep-b" not in driven.text, "filtered")
        await driven.press("escape")
        await driven.shows("sweep-b")
        await driven.command("wrokers")
        await driven.until(lambda: "Near: workers" in driven.toasts())
        await driven.command("describe nobody")
        await driven.until(lambda: "no queued resource 'nobody'" in driven.toasts())


async def test_escape_never_quits_and_q_at_the_root_asks_with_what_still_costs(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        await driven.press("escape", "escape", "escape")
        assert isinstance(driven.app.screen, FleetScreen)
        await driven.press("q")
        await driven.shows("Quit slicetower?", "ACTIVE and costing: train-a", "holding quota")
        await driven.press("2")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        assert driven.app._exit is False


async def test_an_api_that_does_not_answer_is_told_and_never_read_as_an_empty_fleet(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(context, endpoint="127.0.0.1:1")
    async with console(gone, tmp_path, monkeypatch, loaded=False) as driven:
        await driven.until(lambda: any(poll.error for poll in driven.app.fleet.polls), "the failure")
        text = await driven.shows("us-west4-a")
        assert "No queued resource" not in text


async def test_the_cursor_stays_on_its_request_over_every_size_and_an_empty_filter(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.shows("train-a", "ACTIVE")
        driven.app.show_request("train-a")
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)

        def at() -> str:
            row = screen.table.cursor_row
            return str(row.key) if row is not None else ""

        for size in (MEDIUM, SMALL, WIDE, SMALL):
            await driven.pilot.resize_terminal(*size)
            await driven.until(lambda small=size == SMALL: (len(screen.table.columns) == 5) == small and at())  # type: ignore[misc]
            assert "train-a" in at(), size
        screen.apply_filter("no such thing")
        assert at() == ""
        screen.apply_filter("")
        assert "train-a" in at()


async def test_an_outage_under_a_full_fleet_says_why_and_since_when(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = simulators(fresh=True)
    async with console(simulator.context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.shows("sweep-b", "PROVISIONING")
        driven.app.show_request("train-a")
        simulator.inject("error", "List*", "UNAVAILABLE", "the service is out", "--for", "600")
        text = await driven.shows("as last heard", "PROVISIONING ?", "ACTIVE ?")
        assert "simulated" in text.split("\n")[0]
        assert "us-" in text.split("\n")[0], "the header does not say where"


async def test_a_broken_journal_is_told_and_can_be_tried_again(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "state" / "slicetower" / "journal.db"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"this is no database, and never was one" * 100)
    async with console(context, tmp_path, monkeypatch, loaded=False) as driven:
        await driven.shows("tries again")
        journal.unlink()
        await driven.press("r")
        await driven.shows("train-a", "ACTIVE")


async def test_marked_requests_are_deleted_together_after_their_number_was_typed(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators(fresh=True).context, tmp_path, monkeypatch) as driven:
        await driven.shows("old-d", "taken-e")
        for name in ("old-d", "taken-e"):
            driven.app.show_request(name)
            await driven.press("space")
        await driven.press("D")
        await driven.shows("Delete 2 queued resources?", "old-d", "taken-e", "Type delete 2")
        await driven.press("escape")
        assert driven.app.fleet.find("old-d")


async def test_lists_are_opened_with_a_filter_in_force(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        for word, crumb in (("runs", "runs"), ("benches", "benchmarks"), ("operations", "operations")):
            await driven.command(f"{word} state=failed")
            await driven.until(lambda crumb=crumb: crumb in driven.app.crumbs(), crumb)  # type: ignore[misc]
            screen = driven.app.screen
            assert isinstance(screen, ConsoleScreen)
            await driven.until(lambda screen=screen: screen.filter_text() == "state=failed")  # type: ignore[misc]
        await driven.command("runs (")
        await driven.until(lambda: "is no filter" in driven.toasts())


async def test_the_widest_terminals_tell_beside_the_fleet_what_happened_to_the_request_of_the_cursor(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a", "old-d")
        driven.app.note(EventKind.ACTION, "was looked after", subject="train-a")
        driven.app.note(EventKind.NODE_HEALTH, "is unwell", subject="train-a/1")
        driven.app.show_request("train-a")
        text = await driven.shows("what happened (UTC)", "was looked after", "slice 1: is unwell")
        assert text.index("is unwell") < text.index("was looked after"), "the newest first"
        driven.app.show_request("old-d")
        await driven.until(lambda: "was looked after" not in driven.text, "the past of another")
