"""Typing ahead in a form: what follows a tab belongs to the next field, however busy the console is."""

from __future__ import annotations

from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Input

from tui.actions import CREATE, bindings


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
