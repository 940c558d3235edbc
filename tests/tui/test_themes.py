"""Themes of the operator: mistakes are sentences with a line, and saving a file shows at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.app import App

from backend.context import Context
from tui.app import SliceTower
from tui.look import Look, default_variables, look_of
from tui.settings import Settings
from tui.themes import DEFAULT_THEME, ThemeStore, parse_theme, user_themes

GOOD = 'name = "mine"\n[colors]\nprimary = "#3366ff"\n[tokens]\nstate-active = "#00ff00"\n'


class Themed(App[None]):
    CSS = "Screen { color: $muted; background: $cursor-background; }"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables(self.current_theme.to_color_system().generate())


@pytest.mark.parametrize(
    ("text", "line", "key", "word"),
    [
        (GOOD.replace("#00ff00", "grren"), 5, "state-active", "no colour"),
        (GOOD.replace('"#00ff00"', "7"), 5, "state-active", "in quotes"),
        (GOOD.replace("#00ff00", "#00ff00 50"), 5, "state-active", "50%"),
        (GOOD.replace("state-active", "state-actve"), 5, "state-actve", "is not one of"),
        (GOOD.replace("primary", "prim"), 3, "prim", "is not one of"),
        (GOOD.replace('primary = "#3366ff"', ""), 2, "primary", "must be given"),
        (GOOD.replace('"mine"', '"My Theme"'), 1, "name", "lower-case"),
        (GOOD.replace('name = "mine"', ""), None, "name", "must be given"),
        (GOOD.replace('name = "mine"', 'name = "mine"\ndark = "yes"'), 2, "dark", "true or false"),
        (GOOD + "[colours]\n", 6, "colours", "not known"),
        (GOOD + "[variables]\nborder = 3\n", 7, "border", "in quotes"),
        (GOOD + '[variables]\nborder = "} Screen { display: none; }"\n', 7, "border", "no colour"),
        (GOOD + '[variables]\nbrder = "red"\n', 7, "brder", "no variable"),
        (GOOD + '[variables]\nlink-style = "loud"\n', 7, "link-style", "must be words"),
        ('name = "mine"\ncolors = 3\n', 2, "colors", "must be a table"),
        ('name = "mine\n', 1, "", "not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int | None, key: str, word: str) -> None:
    theme, failures = parse_theme(text, "mine.toml")
    assert theme is None
    assert (failures[0].line, failures[0].key) == (line, key)
    assert word in failures[0].reason
    assert str(failures[0]).startswith(f"mine.toml:{line}:" if line else "mine.toml:")


def test_what_textual_has_may_be_set() -> None:
    more = '[variables]\nborder = "red 50%"\nlink-style = "bold not underline"\ntext = "auto 87%"\n'
    theme, failures = parse_theme(GOOD + more, "mine.toml")
    assert not failures
    assert theme is not None
    assert theme.variables["text"] == "auto 87%"


def test_all_mistakes_are_named_at_once() -> None:
    _, failures = parse_theme(GOOD.replace("#00ff00", "x").replace("#3366ff", "y"), "mine.toml")
    assert [failure.key for failure in failures] == ["primary", "state-active"]


def test_one_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = 3")
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    (tmp_path / "twin.toml").write_text(GOOD)
    (tmp_path / "note.txt").write_text("no theme")
    loaded, failed = user_themes(tmp_path)
    assert list(loaded) == ["mine"]
    assert {failure.file for failure in failed} == {"bad.toml", "latin.toml", "twin.toml"}


def test_a_missing_folder_holds_no_themes(tmp_path: Path) -> None:
    assert user_themes(tmp_path / "none") == ({}, [])


def save(path: Path, text: str, tick: int) -> None:
    """Writes with a time stamp of its own, as if saved `tick` seconds later."""
    path.write_text(text)
    os.utime(path, (1_000_000 + tick, 1_000_000 + tick))


async def test_saving_the_present_theme_changes_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    save(path, GOOD, 0)
    app, store = Themed(), ThemeStore(tmp_path)
    async with app.run_test() as pilot:
        assert store.install(app) == ()
        app.theme = "mine"
        await pilot.pause()
        before = look_of(app)
        assert str(before.style("state-active")) == "#00ff00"
        assert store.poll(app) is None
        save(path, GOOD.replace("#00ff00", "#0000ff"), 1)
        change = store.poll(app)
        assert change is not None
        assert change.names == ("mine",)
        await pilot.pause()
        assert look_of(app) is not before
        assert str(look_of(app).style("state-active")) == "#0000ff"


async def test_a_broken_save_keeps_the_last_good_form(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    save(path, GOOD, 0)
    app, store = Themed(), ThemeStore(tmp_path)
    async with app.run_test() as pilot:
        store.install(app)
        app.theme = "mine"
        await pilot.pause()
        save(path, GOOD + "oops", 1)
        change = store.poll(app)
        assert change is not None
        assert change.failures
        await pilot.pause()
        assert str(look_of(app).style("state-active")) == "#00ff00"


async def test_removing_an_override_gives_back_the_shipped_theme(tmp_path: Path) -> None:
    path = tmp_path / "dark.toml"
    save(path, GOOD.replace('"mine"', '"tower-dark"'), 0)
    app, store = Themed(), ThemeStore(tmp_path)
    async with app.run_test():
        store.install(app)
        assert app.available_themes["tower-dark"].primary == "#3366ff"
        path.unlink()
        store.poll(app)
        assert app.available_themes["tower-dark"] == store.shipped["tower-dark"]


async def test_every_theme_of_textual_knows_every_token() -> None:
    app = Themed()
    async with app.run_test() as pilot:
        ThemeStore().install(app)
        complete = set(app.available_themes["textual-dark"].to_color_system().generate())
        for name in list(app.available_themes):
            app.theme = name
            await pilot.pause()
            look = look_of(app)
            assert name in ("ansi-dark", "ansi-light") or complete <= set(app.theme_variables), name
            assert look.style("state-failed").color is not None, name
            assert look.style("muted").color is not None, name


@pytest.mark.parametrize("name", ["", *ThemeStore().names])
async def test_the_console_begins_in_the_theme_that_is_set(name: str) -> None:
    app = SliceTower(Context(name="none", project="p", zones=("us-west4-a",)), Settings(theme=name))
    async with app.run_test():
        theme = app.available_themes[name or DEFAULT_THEME]
        assert app.theme == theme.name
        system = theme.to_color_system().generate()
        assert app.theme_variables["background"] == theme.variables.get("background", system["background"])
        assert look_of(app).style("muted") == Look({**app.theme_variables, **system, **theme.variables}).style(
            "muted"
        )
        assert app.stylesheet._variables == app.theme_variables
        assert app.has_class(f"-theme-{theme.name}", "-dark-mode" if theme.dark else "-light-mode")
        assert not app.has_class("-light-mode" if theme.dark else "-dark-mode")
