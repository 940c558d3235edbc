"""The create screen: judged while it is typed, seen before it is sent, and sent only when it is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, SMALL, Console, console
from tui.screens.confirm import Question
from tui.screens.create import CreateScreen
from tui.screens.fleet import FleetScreen

COMMAND = (
    "gcloud alpha compute tpus queued-resources create pasted --node-count 2 --accelerator-type v5litepod-16"
    " --runtime-version v2-alpha-tpuv5-lite --zone us-west4-a --spot"
)


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


def screen_of(driven: Console) -> CreateScreen:
    assert isinstance(driven.app.screen, CreateScreen)
    return driven.app.screen


async def opened(driven: Console) -> CreateScreen:
    await driven.shows("train-a")
    await driven.press("C")
    await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
    await driven.until(lambda: driven.app.screen.focused is not None)
    return screen_of(driven)


async def fill(driven: Console, name: str, type_name: str, slices: str) -> None:
    """Types the three fields that matter, by keyboard alone."""
    await driven.write(name)
    await driven.press("down", "down")
    await driven.write(type_name)
    await driven.press("down", "ctrl+u")
    await driven.write(slices)


async def test_a_request_is_created_by_keyboard_alone_and_the_cursor_finds_it(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(simulators(fresh=True).context, tmp_path, monkeypatch, size=SMALL) as driven:
        await opened(driven)
        await fill(driven, "fresh-a", "v5litepod-16", "2")
        await driven.shows("2 slices × 16 chips = 32 chips on 8 workers", "ctrl+r sends it", "v2-alpha-tpuv5-lite")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.shows("Ask for this capacity?", "fresh-a", "`:cleanup`")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, FleetScreen))
        await driven.until(lambda: driven.app.fleet.find("fresh-a"), "the new request")
        fleet = driven.app.screen
        assert isinstance(fleet, FleetScreen)
        key = driven.app.fleet.find("fresh-a")[0].key
        await driven.until(lambda: (row := fleet.table.cursor_row) is not None and row.key == key)


@pytest.mark.parametrize(
    ("name", "type_name", "slices", "words"),
    [
        ("two", "v2-8", "2", "v4"),
        ("many", "v5litepod-16", "257", "256"),
        ("odd", "v5litepod-17", "2", "v5litepod-16"),
        ("bad/name", "v5litepod-16", "2", "name"),
        ("train-a", "v5litepod-16", "2", "train-a"),
    ],
)
async def test_a_mistake_is_told_beside_its_field_and_nothing_is_sent(
    context: Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    type_name: str,
    slices: str,
    words: str,
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        before = {item.name for item in driven.app.fleet.queued_resources}
        screen = await opened(driven)
        await fill(driven, name, type_name, slices)
        await driven.until(lambda: screen.found, "a problem")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was sent" in driven.toasts())
        problems = " ".join(str(problem) for problem in screen.found)
        assert words in problems
        assert isinstance(driven.app.screen, CreateScreen)
        assert {item.name for item in driven.app.fleet.queued_resources} <= before | {"fresh-a"}


async def test_a_pasted_command_fills_the_form_in_any_field(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from textual.events import Paste

    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await opened(driven)
        focused = screen.focused
        assert isinstance(focused, Input)
        focused.post_message(Paste(COMMAND))
        await driven.until(lambda: screen.texts()["name"] == "pasted")
        texts = screen.texts()
        assert texts["node_count"] == "2"
        assert texts["tier"] == "spot"
        assert texts["accelerator_type"] == "v5litepod-16"


async def test_a_pasted_command_that_cannot_be_read_is_told_and_changes_nothing(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from textual.events import Paste

    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await opened(driven)
        await driven.write("mine")
        focused = screen.focused
        assert focused is not None
        focused.post_message(Paste("gcloud compute tpus queued-resources create x --no-such-flag 3"))
        await driven.until(lambda: "--no-such-flag" in driven.toasts())
        assert screen.texts()["name"] == "mine"


async def test_the_preview_goes_through_json_gcloud_and_curl(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await opened(driven)
        await fill(driven, "shown", "v5litepod-16", "2")
        await driven.shows('"tpu"')
        await driven.press("f3")
        await driven.shows("gcloud alpha compute tpus queued-resources create shown")
        await driven.press("f3")
        await driven.shows("gcloud compute tpus queued-resources create shown")
        await driven.press("f3")
        await driven.shows("curl -X POST", "queuedResourceId=shown")


async def test_at_80_columns_the_preview_comes_by_key(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await opened(driven)
        assert '"tpu"' not in driven.text
        await driven.press("f3")
        await driven.shows('"tpu"')
        await driven.press("f3", "f3", "f3", "f3")
        await driven.until(lambda: '"tpu"' not in driven.text and "curl" not in driven.text)


async def test_the_suggested_runtime_follows_the_type_until_it_is_edited(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await opened(driven)
        await fill(driven, "a", "v5litepod-16", "1")
        await driven.until(lambda: screen.texts()["runtime_version"] == "v2-alpha-tpuv5-lite")
        await driven.press("up", "ctrl+u")
        await driven.write("v4-16")
        await driven.until(lambda: screen.texts()["runtime_version"] not in ("", "v2-alpha-tpuv5-lite"))
        await driven.press("down", "down", "ctrl+u")
        await driven.write("mine")
        await driven.press("up", "up", "ctrl+u")
        await driven.write("v5litepod-8")
        await driven.pilot.pause(0.6)
        assert screen.texts()["runtime_version"] == "mine"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("request.toml", 'id = "pasted"\naccelerator-type = "v5litepod-16"\nnode-count = 2\n'),
        (
            "request.json",
            '{"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "pasted"},'
            ' "node": {"acceleratorType": "v5litepod-16"}}]}}',
        ),
        ("request.sh", COMMAND),
    ],
)
async def test_a_request_is_read_from_a_file_or_pasted_whole(
    name: str, text: str, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from textual.widgets import TextArea

    (tmp_path / name).write_text(text)
    async with console(context, tmp_path, monkeypatch) as driven:
        screen = await opened(driven)
        for given in (f"{tmp_path}/none.toml", "]", str(tmp_path / name)):
            await driven.press("f4")
            await driven.until(lambda: driven.app.screen.query("#paste"))
            driven.app.screen.query_one("#paste", TextArea).text = given
            await driven.press("ctrl+r")
            await driven.until(lambda: driven.app.screen is screen)
        await driven.until(lambda: screen.texts()["node_count"] == "2")
        assert screen.texts()["accelerator_type"] == "v5litepod-16"
        assert "none.toml cannot be read" in driven.toasts()
        assert "what was pasted is neither JSON, nor TOML, nor a gcloud command" in driven.toasts()
