"""What strangers tripped over (docs/stumbles.md), each as the keys that showed it."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from textual import events
from textual.command import CommandPalette
from textual.keys import _character_to_key as character_to_key

from backend.bench.manager import BenchManager
from backend.bench.model import Survey
from backend.context import Context
from backend.model import Event, EventKind, QueuedResource
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, WIDE, Console, console
from tui import toasts
from tui.app import SliceTower
from tui.command_line import in_console, parse
from tui.screens.bench_form import BenchFormScreen
from tui.screens.confirm import Question, TypedConfirmation
from tui.screens.create import EVERY, FURTHER, CreateScreen
from tui.screens.events import sentence
from tui.screens.setup import SetupFormScreen
from tui.screens.workers import WorkersScreen
from tui.settings import Settings
from tui.widgets.live_table import LiveTable
from tui.widgets.table_filter import cell_text

GOOD = {"name": "asked", "zone": "us-west4-a", "accelerator_type": "v5litepod-16", "tier": "spot", "node_count": "1"}


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def test_keys_after_ctrl_r_neither_change_the_form_nor_answer_its_question(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        driven.app.push_screen(CreateScreen(GOOD))
        await driven.shows("ctrl+r sends it")
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        for key in ("ctrl+r", "x", "1", "backspace", "enter"):
            driven.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("Ask for this capacity?")
        await driven.press("escape")
        await driven.until(lambda: driven.app.screen is form)
        assert form.texts()["name"] == "asked"
        await driven.press("z")
        assert form.texts()["name"] == "askedz"
    assert not [item for item in driven.app.fleet.queued_resources if item.name.startswith("asked")]


async def test_messages_are_two_at_most_and_go_with_the_first_key_after_they_could_be_read(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        # What notices say of the fleet by themselves is another matter.
        driven.app.workers.cancel_group(driven.app, "notices")
        for number in range(5):
            driven.app.say(f"message {number}")
        driven.app.say("message 4")
        await driven.pilot.pause()
        assert [note.message for note in driven.app._notifications] == ["message 3", "message 4"]
        await driven.press("j")
        assert len(driven.app._notifications) == 2
        monkeypatch.setattr(toasts, "READ_S", 0.0)
        await driven.press("j")
        assert len(driven.app._notifications) == 0


async def test_further_options_are_made_when_they_are_gone_to_and_keep_what_is_typed_ahead(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.press("C")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        await driven.shows(f"{len(FURTHER)} further options")
        assert set(form.lines) == {field.name for field in EVERY if not field.more}
        form.line("job_command").control.focus()
        await driven.pilot.pause()
        for key in ("tab", "y"):
            driven.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driven.until(lambda: form.texts().get("job_shell") == "yes", "the first further option")
        assert set(form.lines) == {field.name for field in EVERY}
        assert not form.query("#further")


async def test_a_further_option_that_is_given_is_seen_from_the_start_and_when_it_is_pasted(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        driven.app.push_screen(CreateScreen({**GOOD, "labels": "team=llm"}))
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        form = driven.app.screen
        assert isinstance(form, CreateScreen)
        await driven.until(lambda: form.texts().get("labels") == "team=llm")
        await driven.press("escape")
        driven.app.drafts.clear()
        driven.app.push_screen(CreateScreen())
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        pasted = driven.app.screen
        assert isinstance(pasted, CreateScreen)
        await driven.shows("further options")
        pasted.fill_from(
            "gcloud compute tpus queued-resources create q --node-id=n --zone=us-west4-a "
            "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --labels=a=b --description=words"
        )
        await driven.until(lambda: not pasted.query("#further"))
        texts = pasted.texts()
        assert (texts["name"], texts["labels"], texts["description"], texts["node_id"]) == ("q", "a=b", "words", "n")
        await driven.until(lambda: pasted.request is not None and pasted.request.description == "words")


async def test_the_palette_goes_with_one_escape(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.press("ctrl+p")
        await driven.until(lambda: isinstance(driven.app.screen, CommandPalette))
        await driven.write("work")
        await driven.shows("workers")
        await driven.press("escape")
        await driven.until(lambda: not isinstance(driven.app.screen, CommandPalette))


async def test_a_question_shows_its_own_keys_in_the_footer(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=SMALL) as driven:
        await driven.press("q")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("1-2 answers", "esc back")
        assert "describe" not in driven.text.splitlines()[-1]
        await driven.press("escape")
        driven.app.show_request("old-d")
        await driven.press("D")
        await driven.until(lambda: isinstance(driven.app.screen, TypedConfirmation))
        await driven.shows("enter delete", "f2 gcloud", "esc back")


def test_a_change_of_state_is_said_once() -> None:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    event = Event(
        at,
        EventKind.STATE,
        subject="a",
        before="PROVISIONING",
        after="FAILED",
        text="a: PROVISIONING -> FAILED (by the service): no capacity",
    )
    assert sentence(event) == "PROVISIONING → FAILED (by the service): no capacity"
    assert sentence(replace(event, text="")) == "PROVISIONING → FAILED"


async def test_the_bench_form_offers_setup_where_jax_is_missing_and_asks_again_afterwards(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = BenchManager.platform_of

    async def without_jax(self: BenchManager, item: QueuedResource) -> tuple[Survey, dict[str, int]]:
        survey, sizes = await real(self, item)
        asked.append(item.name)
        return {name: replace(each, jax="") for name, each in survey.items()} if len(asked) == 1 else survey, sizes

    monkeypatch.setattr(BenchManager, "platform_of", without_jax)
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.command("bench train-a")
        await driven.until(lambda: isinstance(driven.app.screen, BenchFormScreen))
        await driven.shows("8 workers without jax: f7 sets them up")
        await driven.press("f7")
        await driven.until(lambda: isinstance(driven.app.screen, SetupFormScreen))
        await driven.shows("train-a")
        await driven.press("escape")
        await driven.until(lambda: len(asked) == 2, "the second look")
        await driven.until(lambda: "without jax" not in driven.text)


async def test_no_key_with_a_name_ends_the_console(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual calls whatever an application or a screen holds as `key_NAME`: `@` is called `at`."""
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        for key in string.punctuation:
            driven.app.post_message(events.Key(character_to_key(key), key))
            await driven.pilot.pause()
        assert driven.app.is_running
        assert not [name for name in vars(driven.app) if name.startswith(("key_", "_key_"))]


async def test_a_filter_says_how_much_it_leaves_out_as_long_as_it_does(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a", "sweep-b")
        await driven.press("slash")
        await driven.write("train")
        await driven.press("enter")
        total = driven.app.screen.query_one(LiveTable).row_count
        assert total > 1
        await driven.shows(f"queued resources · 1 of {total} match 'train'")
        await driven.press("escape")
        await driven.until(lambda: "match" not in driven.text)
        await driven.shows("sweep-b")


async def test_a_message_is_shown_to_its_last_word(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    app = SliceTower(context, Settings(), console_log=tmp_path / "console.log")
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        try:
            driven = Console(app, pilot)
            await driven.shows("train-a")
            app.workers.cancel_group(app, "notices")
            app.clear_notifications()
            # As many columns as fit in one line of a message by one reckoning of Textual's, and too many by the other.
            app.say("There is no command 'xyzzy'. Press ? for all of them.")
            await driven.shows("for all of them.")
        finally:
            await app.close_tower()


async def test_the_lowest_terminal_shows_the_row_of_the_cursor(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=(40, 10)) as driven:
        await driven.shows("slice 0")
        for _ in range(4):
            await driven.press("down")
        row = driven.app.screen.query_one(LiveTable).cursor_row
        assert row is not None
        name = cell_text(row.cells[0])
        await driven.until(lambda: f"▌ {name}" in driven.text, f"the row of {name}")


def test_many_workers_are_few_words_in_the_crumbs() -> None:
    assert (
        WorkersScreen(["train-a/0/0", "train-a/0/1", "train-a/1/0", "train-a/1/1"]).crumb == "workers train-a/0-1/0-1"
    )
    assert WorkersScreen(["train-a", "b/0/1"]).crumb == "workers train-a b/0/1"


async def test_escape_takes_back_a_range_that_is_being_marked_and_nothing_else(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        driven.app.show_request("train-a")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, WorkersScreen))
        screen = driven.app.screen
        assert isinstance(screen, WorkersScreen)
        table = screen.table
        await driven.until(lambda: table.row_count == 8)
        await driven.press("space", "v", "j", "j")
        assert len(table.marks) == 4
        await driven.press("escape")
        assert driven.app.screen is screen
        assert len(table.marks) == 1
        await driven.press("j")
        assert len(table.marks) == 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("Delete it first: `slicetower qr cleanup`.", "Delete it first: `:cleanup`."),
        ("`slicetower free TARGET` removes it.", "`:free TARGET` removes it."),
        ("`slicetower runs list` shows them.", "`:runs` shows them."),
        ("`slicetower bench list` shows them.", "`:benches` shows them."),
        ("`slicetower run TARGET -- ps aux --sort=-rss` shows", "`:run TARGET -- ps aux --sort=-rss` shows"),
        ("`slicetower run TARGET --sync DIR` ships", "`slicetower run TARGET --sync DIR` ships"),
        ("`slicetower qr keep a` goes on", "`slicetower qr keep a` goes on"),
        ("`slicetower runs stop ID`", "`slicetower runs stop ID`"),
        ("`slicetower fleet --once`", "`slicetower fleet --once`"),
        ("`slicetower qr wait a` waits", "`slicetower qr wait a` waits"),
        ("`slicetower bench shardings TARGET`", "`slicetower bench shardings TARGET`"),
    ],
)
def test_advice_names_the_consoles_own_command_where_it_takes_the_same_words(told: str, said: str) -> None:
    assert in_console(told) == said
    if said.startswith("`:"):
        line = parse(said[1 : said.index("`", 1)])
        assert line is not None


async def test_the_create_form_says_how_the_console_cleans_up(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("old-d")
        driven.app.push_screen(CreateScreen(GOOD))
        await driven.shows("is dead and holds the quota", "`:cleanup`")
        assert "slicetower qr cleanup" not in driven.text
