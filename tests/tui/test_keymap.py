"""Keys from the configuration: taken, or refused with file, line and key; the rest keeps working."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, console
from tui.actions import ACTIONS, BY_ID
from tui.keymap import Keymap, build, clashes, normal_key
from tui.settings import UI_KEYS, Settings, load_settings


def test_a_key_is_rebound() -> None:
    keymap = build({"describe": "f9"})
    assert keymap.problems == ()
    assert keymap.keys(BY_ID["describe"]) == ("f9",)
    assert keymap.shown(BY_ID["describe"]) == "f9"


def test_two_actions_may_swap_their_keys() -> None:
    keymap = build({"describe": "x", "run-command": "d"})
    assert keymap.problems == ()
    assert clashes(keymap) == []


def test_a_clash_names_file_line_key_and_the_owner(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[ui]\ntheme = "tower-dark"\n\n[keys]\nrefresh = "f7"\ndescribe = "x"\n')
    settings = load_settings(file)
    assert len(settings.problems) == 1
    (problem,) = settings.problems
    assert f"{file}, line 6" in problem
    assert "'x' is 'run-command'" in problem
    assert settings.keymap.keys(BY_ID["describe"]) == BY_ID["describe"].keys
    assert settings.keymap.keys(BY_ID["refresh"]) == ("f7",)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"describ": "f9"}, "there is no such action; near: describe"),
        ({"describe": "ctrl+b"}, "belongs to shells and multiplexers"),
        ({"describe": "hyperspace"}, "'hyperspace' is not a key"),
        ({"describe": 7}, "a key is a text"),
        ({"describe": ""}, "'' is not a key"),
    ],
)
def test_a_mistake_is_a_sentence_and_costs_that_line_alone(table: dict[str, object], words: str) -> None:
    keymap = build({**table, "refresh": "f7"})
    assert len(keymap.problems) == 1
    assert words in keymap.problems[0]
    assert keymap.keys(BY_ID["refresh"]) == ("f7",)


def test_a_broken_file_leaves_the_defaults_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[keys\n")
    settings = load_settings(file)
    assert settings.keymap == Keymap()
    assert "line 1" in settings.problems[0]
    assert str(file) in settings.problems[0]


def test_unknown_and_mistyped_settings_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[ui]\ncolour = "red"\nascii = "yes"\n')
    problems = " ".join(load_settings(file).problems)
    assert "colour" in problems
    assert "ascii" in problems


@pytest.mark.parametrize(
    ("text", "name"),
    [("?", "question_mark"), ("+", "plus"), ("ctrl++", "ctrl+plus"), ("F5", "f5"), ("X", "X"), (" esc ", "escape")],
)
def test_keys_are_read_as_people_write_them(text: str, name: str) -> None:
    assert normal_key(text) == name


@given(
    st.dictionaries(
        st.sampled_from(sorted(BY_ID)), st.sampled_from([*"abcdfgxyzDRXL?", "f5", "f6", "ctrl+r", "enter"])
    )
)
def test_whatever_is_configured_no_screen_has_a_clash(table: dict[str, object]) -> None:
    keymap = build(table)
    assert clashes(keymap) == []
    assert set(keymap.overrides) <= {action.id for action in ACTIONS}


def test_the_documented_settings_of_the_screen_are_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    file = tmp_path / "config.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0])
    settings = load_settings(file)
    assert settings.problems == ()
    assert (settings.theme, settings.plot, list(settings.commands)) == ("high-contrast", "braille", ["devices"])
    assert settings.keymap.shown(BY_ID["delete"]) == "f8"
    assert all(name in page for name in UI_KEYS)


async def test_all_mistakes_of_a_configuration_are_told_where_two_messages_have_room(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistakes = tuple(f"config.toml, line {number}: [keys] k{number}: no such action." for number in range(1, 7))
    settings = Settings(problems=mistakes, theme="nowhere")
    async with console(simulators().context, tmp_path, monkeypatch, size=MEDIUM, settings=settings) as driven:
        await driven.until(lambda: f"{mistakes[0]} And 6 more mistakes: 6 tells all." in driven.toasts())
        await driven.until(lambda: driven.app.tower is not None)
        await driven.press("6")
        await driven.shows(*(f"line {number}: [keys] k{number}" for number in range(1, 7)), "no theme 'nowhere'")
