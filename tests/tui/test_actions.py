"""The registry: nothing clashes, everything is explained, every action has somebody who performs it."""

from __future__ import annotations

import pytest

from tui.action_model import FORMS, Action
from tui.actions import (
    ACTIONS,
    BY_ID,
    DIALOG,
    EVERY,
    FLEET,
    LOGS,
    RESERVED_KEYS,
    bindings,
    hints,
    in_scope,
    key_name,
    key_names,
    refusal,
)
from tui.app import SliceTower
from tui.keymap import Keymap, clashes
from tui.look import PLAIN
from tui.screens.base import ConsoleScreen
from tui.screens.check import CheckScreen
from tui.screens.copies import CopiesScreen, CopyFormScreen
from tui.screens.create import CreateScreen
from tui.screens.describe import DescribeScreen
from tui.screens.events import EventsScreen
from tui.screens.fleet import FleetScreen
from tui.screens.forwards import ForwardsScreen
from tui.screens.free import FreeScreen
from tui.screens.help import HelpScreen, render, sections
from tui.screens.log_search import LogSearchScreen
from tui.screens.logs import LogsScreen
from tui.screens.operations import OperationsScreen
from tui.screens.policies import PoliciesScreen
from tui.screens.policy_forms import KeepFormScreen, RaceFormScreen
from tui.screens.run import RunScreen
from tui.screens.run_form import RunFormScreen
from tui.screens.runs import RunsScreen
from tui.screens.setup import SetupFormScreen
from tui.screens.tool_options import CheckFormScreen, FreeFormScreen
from tui.screens.workers import WorkersScreen

SCREENS: list[type[ConsoleScreen]] = [
    CheckFormScreen,
    CheckScreen,
    CopiesScreen,
    CopyFormScreen,
    ForwardsScreen,
    FreeFormScreen,
    FreeScreen,
    KeepFormScreen,
    PoliciesScreen,
    RaceFormScreen,
    SetupFormScreen,
    CreateScreen,
    DescribeScreen,
    EventsScreen,
    FleetScreen,
    HelpScreen,
    LogSearchScreen,
    LogsScreen,
    OperationsScreen,
    RunFormScreen,
    RunScreen,
    RunsScreen,
    WorkersScreen,
]


def test_no_key_means_two_things_on_one_screen() -> None:
    assert clashes(Keymap()) == []


def test_ids_are_unique_and_every_action_is_explained() -> None:
    assert len(BY_ID) == len(ACTIONS)
    for action in ACTIONS:
        assert action.title, action.id
        assert action.help.endswith("."), action.id
        assert action.scopes, action.id
        assert action.scopes <= EVERY, action.id


def test_no_default_uses_a_key_that_multiplexers_own() -> None:
    assert not {key for action in ACTIONS for key in action.keys} & RESERVED_KEYS


def test_no_verb_of_a_form_or_dialog_is_a_letter_that_is_typed_there() -> None:
    typed = {
        (action.id, key)
        for action in ACTIONS
        for scope in action.scopes & (FORMS - {DIALOG})
        for key in action.keys
        if len(key) == 1 or key == "space"
    }
    assert not typed


def test_everything_that_can_destroy_asks_first() -> None:
    dangerous = [action for action in ACTIONS if action.group.name == "DANGER"]
    assert dangerous
    for action in dangerous:
        assert action.changes, action.id
        assert action.confirm.name != "NONE", action.id


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.SCOPE)
def test_every_action_of_a_screen_has_a_method_that_performs_it(screen: type[ConsoleScreen]) -> None:
    missing = []
    for action in in_scope(screen.SCOPE):
        name = f"do_{action.id.replace('.', '_').replace('-', '_')}"
        if not action.by_widget and not hasattr(screen, name) and not hasattr(SliceTower, name):
            missing.append(action.id)
    assert missing == []


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.SCOPE)
def test_bindings_carry_the_ids_of_the_registry(screen: type[ConsoleScreen]) -> None:
    bound = {binding.id for binding in bindings(screen.SCOPE) if not isinstance(binding, tuple)}
    assert bound == {action.id for action in in_scope(screen.SCOPE) if action.keys and not action.by_widget}


def test_read_only_withholds_what_changes_and_nothing_else() -> None:
    for action in ACTIONS:
        assert bool(refusal(action, read_only=True)) == action.changes, action.id
        assert refusal(action, read_only=False) == "", action.id
    shown = {action.id for action in hints(FLEET, read_only=True)}
    assert "delete" not in shown
    assert "create" not in shown
    assert "describe" in shown


def test_the_help_of_a_screen_has_every_action_that_works_there() -> None:
    told = {title for _, lines in sections(FLEET, Keymap(), read_only=False) for _, title, _ in lines}
    assert {action.title for action in in_scope(FLEET)} <= told


def test_the_help_shows_rebound_keys_and_names_what_read_only_withholds() -> None:
    pages = sections(LOGS, Keymap({"filter": "f7"}), read_only=True)
    keys = {keys for _, lines in pages for keys, _, _ in lines}
    assert "f7" in keys
    assert "/" not in keys
    assert "shell" in pages[-1][1][0][1]


@pytest.mark.parametrize(
    ("key", "shown"), [("question_mark", "?"), ("ctrl+p", "ctrl+p"), ("x", "x"), ("escape", "esc"), ("plus", "+")]
)
def test_keys_are_shown_as_people_write_them(key: str, shown: str) -> None:
    assert key_name(key) == shown


def test_several_keys_are_named_in_their_order() -> None:
    assert key_names(Action("a", ("question_mark", "f1"), "", "", EVERY).keys) == "? f1"


@pytest.mark.parametrize("scope", sorted({scope for action in ACTIONS for scope in action.scopes}))
def test_the_help_keeps_titles_and_sentences_apart(scope: str) -> None:
    keymap = Keymap()
    text = render(scope, keymap, PLAIN, read_only=False).plain
    for _, lines in sections(scope, keymap, read_only=False):
        for keys, title, sentence in lines:
            if keys and title and sentence:
                assert f"{title}{sentence[:6]}" not in text
                assert f"{title}  " in text, title
