"""Every key of every screen, pressed: something must come of it, and nothing may fail inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from backend.journal import Journal
from tests.tui.fixed import facts
from tests.tui.fixed.scenes import (
    Way,
    at_train,
    command,
    copies,
    forwards,
    keys,
    log_search,
    old_runs,
    on_train,
    policies,
    prune,
    run_of,
    sweep,
    tool,
    with_options,
)
from tests.tui.fixed.world import FixedConsole, fixed_console
from tui.action_model import RUN_GROUPS, Action, Group
from tui.actions import ACTIONS, DIALOG, in_scope
from tui.screens.base import Performs

WIDE = (120, 40)
BROKEN = "itself failed"
"""What a toast says of a mistake of the console's own."""


async def groups(driven: FixedConsole) -> None:
    await run_of(driven, facts.RUN_ID)
    await driven.shows("6 workers")


async def dialog(driven: FixedConsole) -> None:
    await driven.shows("old-d")
    driven.app.show_request("old-d")
    await driven.settle()
    await driven.press("D")
    await driven.shows("Type old-d")


def bench(*then: str) -> Way:
    return lambda driven: run_of(driven, facts.BENCH_ID, *then)


async def compared(driven: FixedConsole) -> None:
    await keys("5")(driven)
    await driven.shows("done")
    await driven.press("asterisk", "equals_sign")


async def from_bench_form(driven: FixedConsole, *then: str) -> None:
    await at_train(driven, "b")
    await driven.shows("32 devices on 8 workers")
    await driven.press(*then)


WAYS: Mapping[str, Way] = {
    "fleet": on_train(),
    "workers": on_train("enter"),
    "logs": on_train("l"),
    "runs": keys("4"),
    "run": lambda driven: run_of(driven, facts.LIVE_ID, "V"),
    RUN_GROUPS: groups,
    "benches": keys("5"),
    "bench": bench(),
    "readings": bench("v"),
    "sweep": sweep,
    "sweep form": lambda driven: from_bench_form(driven, "f6"),
    "preflight": lambda driven: from_bench_form(driven, "f5"),
    "answers": tool("answers"),
    "check": tool("check"),
    "free": tool("free"),
    "check form": with_options("check"),
    "free form": with_options("free"),
    "setup form": tool("setup"),
    "copy form": tool("copy"),
    "copies": copies,
    "forwards": forwards,
    "policies": policies,
    "costs": keys("dollar_sign"),
    "cost states": keys("dollar_sign", "enter"),
    "waits": keys("percent_sign", "V"),
    "prune form": old_runs,
    "prune": prune,
    "doctor": command("doctor"),
    "places": command("locate"),
    "describe": on_train("d"),
    "events": keys("6"),
    "help": on_train("question_mark"),
    "operations": keys("8"),
    "log search": log_search,
    "meshes": lambda driven: from_bench_form(driven, "f4"),
    "compare": compared,
    "run plot": lambda driven: run_of(driven, facts.LIVE_ID, "P"),
    "create": keys("C"),
    "run form": command("run train-a -- hostname"),
    "bench form": lambda driven: from_bench_form(driven),
    DIALOG: dialog,
}
"""How each screen is reached."""

ELSEWHERE: Mapping[str, str] = {
    "keep form": "test_policy_screens.py",
    "race form": "test_policy_screens.py",
}
"""Screens whose keys are pressed by other tests: the file."""

BY_WIDGETS = frozenset(
    {"table.left", "table.right", "table.range", "groups.left", "groups.right"}
    | {"groups.half-page-down", "groups.half-page-up"}
)
"""Pressed on larger tables and longer outputs than there are here: widgets/test_live_table.py, test_small_widgets.py."""

FIRST: Mapping[str, tuple[str, ...]] = {
    "back": ("slash", "a", "enter"),
    "table.down": ("home",),
    "table.up": ("end",),
    "table.half-page-up": ("end",),
    "table.page-up": ("end",),
    "table.left": ("right",),
    "log.up": ("G",),
    "log.start": ("G",),
    "log.half-page-up": ("G",),
    "log.page-up": ("G",),
    "table.top": ("end",),
    "table.half-page-down": ("home",),
    "table.page-down": ("home",),
    "table.bottom": ("home",),
    "groups.up": ("j",),
    "groups.bottom": ("g",),
    "groups.top": ("G",),
    "groups.half-page-up": ("G",),
    "log.down": ("g",),
    "log.end": ("g",),
    "log.half-page-down": ("g",),
    "log.page-down": ("g",),
    "log.left": ("right",),
    "log.next-match": ("slash", "s", "t", "e", "p", "enter"),
    "log.previous-match": ("slash", "s", "t", "e", "p", "enter"),
    "log.next-error": ("g",),
    "log.next-warning": ("g",),
    "log.next-mark": ("g", "m", "j"),
    "log.previous-mark": ("g", "m", "j"),
    "next-hit": ("slash", "n", "a", "m", "e", "enter"),
    "previous-hit": ("slash", "n", "a", "m", "e", "enter"),
    "fewer-tiles": ("plus",),
}
"""What is pressed before, so that there is something to do."""


def performed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """(action, whether it was begun), as screens perform them."""
    told: list[tuple[str, bool]] = []
    perform = Performs.perform

    def watch(self: Performs, action: Action) -> bool:
        begun = perform(self, action)
        told.append((action.id, begun))
        return begun

    monkeypatch.setattr(Performs, "perform", watch)
    return told


def look(driven: FixedConsole) -> tuple[object, ...]:
    """All in which an effect can be seen."""
    app = driven.app
    focused = app.screen.focused
    scrolled = [(widget.id, widget.scroll_offset) for widget in app.screen.query("*") if widget.scroll_offset]
    return (
        [type(screen).__name__ for screen in app.screen_stack],
        driven.text,
        driven.toasts(),
        app.clipboard,
        app.theme,
        app.paused,
        focused.id if focused is not None else None,
        scrolled,
    )


async def come_back(driven: FixedConsole, scope: str) -> None:
    """Where the way leads, whatever was pressed."""
    app = driven.app
    app.paused = False
    app.theme = "tower-dark"
    app.clear_notifications()
    app.drafts.clear()
    app.go()
    while len(app.screen_stack) > app.root_depth:
        app.pop_screen()
    await driven.pilot.pause()
    root = app.root()
    if root.prompt.is_open:
        await driven.press("escape")
    root.apply_filter("")
    await WAYS[scope](driven)
    await driven.settle()


EVERYWHERE = frozenset({Group.CONSOLE, Group.GO})
"""What every screen takes from the same place: pressed on the fleet, and from there on not again."""


def keys_of(scope: str) -> list[tuple[Action, str]]:
    """What is pressed on a screen; moving in a table is the same on all of them."""
    found = [(action, key) for action in in_scope(scope) for key in action.keys if action.id not in BY_WIDGETS]
    if scope == "fleet":
        return found
    return [
        (action, key)
        for action, key in found
        if action.group not in EVERYWHERE and not action.id.startswith("table.")
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scope", WAYS)
async def test_every_key_of_a_screen_does_something(
    scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, broken = [], []
    told = performed(monkeypatch)
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        driven.listen(monkeypatch)
        await come_back(driven, scope)
        home = list(driven.app.screen_stack)
        for action, key in keys_of(scope):
            if list(driven.app.screen_stack) != home:
                await come_back(driven, scope)
                home = list(driven.app.screen_stack)
            await driven.press(*FIRST.get(action.id, ()))
            told.clear()
            before = look(driven)
            await driven.pilot.press(key)
            for _ in range(30):
                await driven.pilot.pause(0.02)
                if look(driven) != before or (action.id, True) in told:
                    break
            else:
                silent.append(f"{action.id} ({key})")
            assert driven.app.tower is not None, f"{action.id} ({key}) closed the tower"
            broken += [f"by {action.id} ({key}) at the latest: {said}" for said in driven.told if BROKEN in said]
            driven.told.clear()
    assert not silent, f"keys of {scope} that did nothing"
    assert not broken


AGAIN = {"runs": "4", "benches": "5", "policies": "9"}
"""Keys that lead to a list, whatever the journal says."""
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def drop_tables(journal: Journal) -> None:
    for (name,) in journal.connection.execute(TABLES).fetchall():
        journal.connection.execute(f"DROP TABLE {name}")


def refuse_writes(journal: Journal) -> None:
    journal.connection.execute("PRAGMA query_only = ON")


@pytest.mark.parametrize("failure", [drop_tables, refuse_writes])
@pytest.mark.parametrize("scope", AGAIN)
async def test_no_key_of_a_screen_goes_down_with_the_journal(
    scope: str, failure: Callable[[Journal], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen has its rows, then the journal fails: each key tells it as a sentence."""
    async with fixed_console(tmp_path, monkeypatch, size=WIDE) as driven:
        driven.listen(monkeypatch)
        await come_back(driven, scope)
        home = list(driven.app.screen_stack)
        failure(driven.app.require_tower().journal)
        for action, key in keys_of(scope):
            for press in (key, "enter", "y"):
                # What a question or a form that came of it is answered with goes into the journal too.
                await driven.press(press)
                await driven.pilot.pause(0.05)
            broken = [said for said in driven.told if BROKEN in said]
            assert not broken, f"{action.id} ({key})"
            assert driven.app.tower is not None
            while driven.app.screen not in home:
                driven.app.pop_screen()
                await driven.pilot.pause()
            if driven.app.screen is not home[-1]:
                await driven.press(AGAIN[scope])
                home = list(driven.app.screen_stack)
        assert any(word in driven.toasts() for word in ("is damaged", "can't be written"))


def test_every_screen_of_the_registry_is_reached_here_or_by_its_own_tests() -> None:
    scopes = {scope for action in ACTIONS for scope in action.scopes}
    assert scopes == set(WAYS) | set(ELSEWHERE)
    assert not set(WAYS) & set(ELSEWHERE)
    assert all((Path(__file__).parent / file).exists() for file in ELSEWHERE.values())


def test_every_key_of_the_registry_is_pressed_on_some_screen() -> None:
    pressed = {(action.id, key) for scope in WAYS for action, key in keys_of(scope)}
    asked = {
        (action.id, key)
        for action in ACTIONS
        for key in action.keys
        if action.id not in BY_WIDGETS and not action.scopes <= set(ELSEWHERE)
    }
    assert asked - pressed == set()
