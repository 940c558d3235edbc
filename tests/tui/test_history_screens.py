"""Costs and waits on screen: what was used, gone or not, and how long capacity took; by keys, and when the journal fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.outcomes import OperatorError
from backend.tower import Tower
from tests.tui.driving import MEDIUM, SMALL, WIDE
from tests.tui.fixed import facts
from tests.tui.fixed.world import FixedClient, FixedConsole, fixed_console
from tui.screens.costs import CostsScreen, CostStatesScreen, period_of
from tui.screens.events import EventsScreen
from tui.screens.fleet import FleetScreen
from tui.screens.waits import WaitsScreen
from tui.widgets.live_table import LiveTable


def table(driven: FixedConsole) -> LiveTable:
    return driven.app.screen.query_one("#table", LiveTable)


def keys(driven: FixedConsole) -> list[str]:
    """Names of the rows in their order."""
    return [str(row.key[2] if isinstance(row.key, tuple) else row.key) for row in table(driven).visible_rows]


def name_at(driven: FixedConsole) -> str:
    """The name in the row of the cursor."""
    row = table(driven).cursor_row
    assert row is not None
    assert isinstance(row.key, tuple)
    return str(row.key[2])


async def costs(driven: FixedConsole) -> None:
    await driven.settle()
    await driven.press("dollar_sign")
    await driven.shows("lame-f", "chip-hours")
    await driven.settle()


async def test_costs_count_what_is_there_and_what_is_gone_the_dearest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FixedClient()
    client.fleet = tuple(item for item in facts.FLEET if item.name != "train-a")
    async with fixed_console(tmp_path, monkeypatch, size=WIDE, client=client) as driven:
        await costs(driven)
        assert keys(driven)[:2] == ["lame-f", "train-a"]
        rows = {row.key[2]: row for row in table(driven).visible_rows if isinstance(row.key, tuple)}
        said = [cell if isinstance(cell, str) else cell.text for cell in rows["train-a"].cells]
        # 1h51m ACTIVE with 32 chips, at 1.20 USD a chip-hour; it is in the journal alone.
        assert "gone" in said
        assert "59.2" in said
        assert "71.04" in said
        assert rows["old-d"].cells[8].text == ">= 0.0"  # type: ignore[union-attr]
        assert "the last 30 days: >= 219.2 chip-hours, >= 263.06 USD by your prices" in driven.text
        assert "6 requests, 1 of them gone" in driven.text
        assert "now 32 chip-hours with every hour, 38.40 USD" in driven.text


async def test_without_prices_there_are_chip_hours_and_no_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tui.fixed import world

    monkeypatch.setattr(world, "CONTEXT", replace(world.CONTEXT, prices=()))
    async with fixed_console(tmp_path, monkeypatch, size=SMALL) as driven:
        await costs(driven)
        assert "USD" not in driven.text
        await driven.press("V")
        await driven.shows("generation", "219.2")
        assert "USD" not in driven.text


async def test_totals_lead_to_their_requests_and_these_to_their_states_and_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        await costs(driven)
        await driven.press("V")
        await driven.shows("generation", "zone")
        assert [row.key for row in table(driven).visible_rows] == [
            ("generation", "v5e"),
            ("generation", "v5p"),
            ("tier", "spot"),
            ("tier", "on-demand"),
            ("tier", "reserved"),
            ("zone", "us-west4-a"),
            ("zone", "us-east5-a"),
        ]
        await driven.press("j", "enter")
        await driven.settle()
        assert keys(driven) == ["big-c"]
        assert table(driven).filter_text == "gen=v5p"
        await driven.press("escape", "home")
        assert len(keys(driven)) == 6
        table(driven).move_to(next(row.key for row in table(driven).visible_rows if "train-a" in row.key))  # type: ignore[operator]
        await driven.press("enter")
        await driven.shows("WAITING_FOR_RESOURCES", "lasts", "59.2 chip-hours")
        assert isinstance(driven.app.screen, CostStatesScreen)
        assert [row.cells[3].text for row in table(driven).visible_rows] == ["7m", "2m", "1h51m"]  # type: ignore[union-attr]
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, EventsScreen))
        await driven.shows("PROVISIONING → ACTIVE")
        assert "lame-f" not in driven.text
        await driven.press("escape", "escape", "escape", "escape")
        assert isinstance(driven.app.screen, FleetScreen)


async def test_the_time_that_is_counted_is_changed_by_key_and_by_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await costs(driven)
        for key, words in (
            ("right_square_bracket", "all that the journal knows: >= 219.2"),
            ("left_square_bracket", "the last 30 days: >= 219.2"),
            ("left_square_bracket", "the last 7 days: >= 219.2"),
            ("left_square_bracket", "the last day: >= 219.2"),
        ):
            await driven.press(key)
            await driven.shows(words)
        await driven.press("left_square_bracket")
        assert "no shorter one" in driven.toasts()
        # Half an hour of 64 chips.
        await driven.command("costs 30m")
        await driven.shows("the last 30m: 32.0 chip-hours, 38.40 USD")
        await driven.press("right_square_bracket")
        await driven.shows("the last day: >= 219.2")
        await driven.command("costs soon")
        assert "'soon' is no time to count. Write 7d, 12h or all." in driven.toasts()


def test_a_time_to_count_is_a_duration_or_all() -> None:
    assert period_of("all") is None
    assert period_of("12h") == 43200
    for text in ("", "0s", "-1d", "7 parsecs"):
        with pytest.raises(OperatorError, match="no time to count"):
            period_of(text)


async def break_journal(driven: FixedConsole) -> None:
    """The file loses what the screens read: as it does when it is damaged."""
    with driven.app.require_tower().journal.transaction() as connection:
        connection.execute("ALTER TABLE spans RENAME TO lost")


async def mend_journal(driven: FixedConsole) -> None:
    with driven.app.require_tower().journal.transaction() as connection:
        connection.execute("ALTER TABLE lost RENAME TO spans")


@pytest.mark.parametrize(
    ("key", "screen", "words"), [("dollar_sign", CostsScreen, "219.2"), ("percent_sign", WaitsScreen, "MEDIAN")]
)
async def test_a_journal_that_fails_is_told_once_and_asked_again_by_key(
    key: str, screen: type, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.settle()
        await break_journal(driven)
        await driven.press(key)
        await driven.shows("no such table: spans", "r tries again")
        assert isinstance(driven.app.screen, screen)
        driven.app.screen.tick()  # type: ignore[attr-defined]
        driven.app.screen.tick()  # type: ignore[attr-defined]
        await driven.pilot.pause()
        assert driven.toasts().count("no such table: spans") == 1
        await mend_journal(driven)
        await driven.press("r")
        await driven.shows(words)
        await driven.settle()
        assert "tries again" not in driven.text


async def test_before_the_context_is_open_costs_and_waits_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.settle()
        tower: Tower | None = driven.app.require_tower()
        driven.app.tower = None
        for key in ("dollar_sign", "percent_sign"):
            await driven.press(key)
            await driven.shows("Opening the journal")
        driven.app.tower = tower


async def test_waits_are_told_by_type_zone_and_tier_with_what_waits_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FixedClient()
    client.fleet = (*facts.FLEET, facts.LATE)
    async with fixed_console(tmp_path, monkeypatch, size=WIDE, client=client) as driven:
        await driven.settle()
        await driven.press("percent_sign")
        await driven.shows("2 waits seen", "2 requests waiting now, 1 of them longer than any of its kind")
        said = {
            row.key[2:]: [cell if isinstance(cell, str) else cell.text for cell in row.cells]  # type: ignore[index]
            for row in table(driven).visible_rows
        }
        assert said["v5litepod-16", "spot"][3:7] == ["1", "7m", "7m", "7m"]
        assert said["v5litepod-16", "spot"][-1] == "1, for 30m: longer than any seen"
        assert said["v5p-128", "reserved"][3:] == ["0", "-", "-", "-", "-", "-", "1, for 31m"]
        await driven.press("V")
        await driven.shows("longer than all of 1 wait seen", "none of its kind was seen yet")
        assert keys(driven) == ["big-c", "late-g"]
        await driven.press("j")
        await driven.shows(
            "late-g has waited 30m: longer than all of 1 wait seen (shortest 7m, median 7m, longest 7m)"
        )
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        row = table(driven).cursor_row
        assert row is not None
        assert row.key == facts.LATE.key


async def test_a_kind_that_waits_leads_to_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.settle()
        await driven.press("percent_sign")
        await driven.shows("v5p-128")
        await driven.press("G", "enter")
        await driven.settle()
        assert keys(driven) == ["big-c"]
        assert table(driven).filter_text == "type=v5p-128 zone=us-east5-a tier=reserved"


async def test_costs_from_the_fleet_are_at_the_request_of_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        for line in ("", "costs 30d"):
            driven.app.go()
            await driven.settle()
            driven.app.show_request("big-c")
            await (driven.command(line) if line else driven.press("dollar_sign"))
            await driven.shows("chip-hours")
            await driven.settle()
            assert name_at(driven) == "big-c"
        await driven.press("home")
        first = name_at(driven)
        assert first != "big-c"
        driven.app.screen.read_anew()  # type: ignore[attr-defined]
        await driven.settle()
        assert name_at(driven) == first, "the cursor stays where it was put"


@pytest.mark.parametrize("key", ["1", "4", "5", "6", "9", "dollar_sign", "percent_sign"])
async def test_no_screen_goes_down_with_the_journal(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every table of it is gone: what can't be read is told once, and the fleet is shown on."""
    async with fixed_console(tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.listen(monkeypatch)
        await driven.settle()
        connection = driven.app.require_tower().journal.connection
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in tables:
            if not name.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {name}")
        await driven.press(key, "enter", "l", "g")
        for _ in range(3):
            driven.app.screen._tick()  # type: ignore[attr-defined]
            await driven.pilot.pause()
        await driven.press("1")
        await driven.shows("train-a", "lame-f")
        told = [line for line in driven.told if "is damaged" in line]
        assert len(told) == len(set(told))
        await driven.press("6")
        assert driven.app.tower is not None
