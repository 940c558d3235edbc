"""Typing ahead in a form: what follows a tab belongs to the next field, however busy the console is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Input

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import console
from tui.actions import CREATE, bindings
from tui.screens.confirm import Question
from tui.screens.create import FURTHER, CreateScreen
from tui.screens.entry import Entry
from tui.screens.form import Further


class TwoFields(App[None]):
    """The keys of a form screen around two inputs."""

    BINDINGS = bindings(CREATE)

    def compose(self) -> ComposeResult:
        yield Input(id="first")
        yield Input(id="second")

    def action_perform(self, action_id: str) -> None:
        assert action_id == "next-field"
        self.screen.focus_next()


async def test_keys_after_a_tab_go_to_the_next_field() -> None:
    app = TwoFields()
    async with app.run_test() as pilot:
        for key in ("a", "tab", "b", "c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert app.query_one("#first", Input).value == "a"
        assert app.query_one("#second", Input).value == "bc"


class OneEntry(App[None]):
    """The console's input alone."""

    def compose(self) -> ComposeResult:
        yield Entry(id="first")


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (("a", "b", "ctrl+u", "c", "d"), "cd"),
        (("a", "b", "backspace", "c"), "ac"),
        (("a", "b", "home", "c"), "cab"),
        (("a", "b", "left", "c", "end", "d"), "acbd"),
        (("a", "b", "home", "delete", "c"), "cb"),
        (("a", "space", "b", "ctrl+w", "c"), "a c"),
        (("a", "b", "home", "ctrl+k", "c"), "c"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
async def test_a_burst_of_keys_edits_in_the_order_of_the_keys(keys: tuple[str, ...], left: str) -> None:
    app = OneEntry()
    async with app.run_test() as pilot:
        for key in keys:
            character = {"space": " "}.get(key, key if len(key) == 1 else None)
            app.post_message(events.Key(key, character))
        await pilot.pause()
        assert app.query_one("#first", Entry).value == left


NOWHERE = Context(
    name="nowhere",
    project="p",
    zones=("us-west4-a",),
    endpoint="127.0.0.1:1",
    rest_endpoint="http://127.0.0.1:1",
    transport="insecure",
    credentials="none",
)


async def test_what_is_typed_right_after_the_key_that_opens_a_form_is_in_the_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(NOWHERE, tmp_path, monkeypatch, loaded=False) as driven:
        await driven.until(lambda: driven.app.screen.focused is not None)
        for key in ("C", "a", "b", "backspace", "c", "tab", "d", "tab", "e"):
            driven.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        await driven.until(lambda: form.focused is not None and form.texts().get("accelerator_type"))
        texts = form.texts()
        assert (texts["name"], texts["zone"], texts["accelerator_type"]) == ("ac", "us-west4-ad", "e")


async def test_a_digit_typed_ahead_answers_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(NOWHERE, tmp_path, monkeypatch, loaded=False) as driven:
        answers: list[str | None] = []
        question = Question("Ask for this capacity?")
        early = events.Key("1", "1")
        driven.app.push_screen(question, answers.append)
        await driven.until(lambda: question.answers(time.monotonic()), "the question")
        driven.app.post_message(early)
        await driven.pilot.pause()
        assert answers == []
        await driven.press("1")
        assert answers == ["yes"]


@pytest.mark.parametrize("no_color", [False, True])
async def test_a_field_that_is_filled_tells_what_may_stand_there(
    no_color: bool, simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        await driven.command("run train-a -- true")
        await driven.shows("command: hostname")
        await driven.press("tab")
        # It holds `all`, so it does not show its hint itself.
        await driven.shows("batch size: all, 4, or 1,5,25%")
        await driven.press("tab")
        await driven.shows("on failure: stop or continue")
        for _ in range(3):
            await driven.press("tab")
        await driven.shows("detached: no or yes")
        assert "on failure: stop" not in driven.text
        await driven.press("escape")
        await driven.command("create")
        await driven.shows("name: a-z, 0-9 and -, such as train-a")
        for _ in range(3):
            await driven.press("tab")
        await driven.shows("slices: 1 to 256; Multislice from 2")


async def test_the_footer_names_a_key_for_help_that_a_text_field_does_not_take_for_a_letter(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "? help")
        await driven.press("C")
        await driven.until(lambda: isinstance(driven.app.screen.focused, Input))
        await driven.shows("f1 help")
        assert "? help" not in driven.text
        await driven.press("f1")
        await driven.shows("help: create")


async def test_tabs_and_texts_typed_while_the_further_options_are_made_reach_their_fields(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        await driven.command("create")
        await driven.until(
            lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused is not None
        )
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        further = form.query_one(Further)
        last = list(form.lines)[-1]
        form.set_focus(form.line(last).control)
        keys = ["tab", "y", "tab", "b", "x", "backspace", "down", "c"]
        for key in keys:
            driven.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driven.until(lambda: not further.is_attached, "the further options")
        await driven.until(lambda: form.line(FURTHER[2].name).value, "the last letter", wait_s=30)
        assert [form.line(field.name).value for field in FURTHER[:3]] == ["yes", "b", "c"]
        assert form.focused is form.line(FURTHER[2].name).control


async def test_what_is_pasted_while_the_further_options_are_made_is_not_lost(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators().context, tmp_path, monkeypatch) as driven:
        await driven.command("create")
        await driven.until(
            lambda: isinstance(driven.app.screen, CreateScreen) and driven.app.screen.focused is not None
        )
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        form.set_focus(form.query_one(Further))
        driven.app.post_message(events.Key("tab", None))
        driven.app.post_message(events.Paste("~/code"))
        name = FURTHER[1].name
        await driven.until(lambda: name in form.lines and form.line(name).value, "the paste", wait_s=30)
        assert form.line(name).value == "~/code"
