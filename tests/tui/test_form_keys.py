"""Typing ahead in a form: what follows a tab belongs to the next field, however busy the console is."""

from __future__ import annotations

from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Input

from tui.screens.base import FormScreen


class TwoFields(App[None]):
    """The keys of a form screen around two inputs."""

    BINDINGS = FormScreen.BINDINGS

    def compose(self) -> ComposeResult:
        yield Input(id="first")
        yield Input(id="second")

    def action_next_field(self) -> None:
        self.screen.focus_next()

    def action_previous_field(self) -> None:
        self.screen.focus_previous()


async def test_keys_after_a_tab_go_to_the_next_field() -> None:
    app = TwoFields()
    async with app.run_test() as pilot:
        for key in ("a", "tab", "b", "c"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert app.query_one("#first", Input).value == "a"
        assert app.query_one("#second", Input).value == "bc"
