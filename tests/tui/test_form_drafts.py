"""Forms are patient: every mistake is told beside its field, and what was typed outlives leaving by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import Console, console
from tui.screens.create import CreateScreen
from tui.screens.form_screen import FormScreen
from tui.screens.run_form import RunFormScreen, read_form


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


async def opened(driven: Console, key: str, kind: type[FormScreen]) -> FormScreen:
    await driven.press(key)
    await driven.until(lambda: isinstance(driven.app.screen, kind) and driven.app.screen.focused is not None)
    assert isinstance(driven.app.screen, FormScreen)
    return driven.app.screen


def test_every_mistake_of_the_run_form_is_found() -> None:
    _, wrong = read_form({"command": "echo 'open", "timeout": "soon", "environment": "A=1 =nothing"})
    assert set(wrong) == {"command", "timeout", "environment"}


async def test_the_run_form_tells_each_mistake_beside_its_field(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        driven.app.show_request("train-a")
        form = await opened(driven, "x", RunFormScreen)
        for name, text in (("command", "hostname"), ("batch", "x"), ("max_failures", "many"), ("timeout", "soon")):
            form.line(name).value = text
        text = await driven.shows("'soon' is no duration", "'x'", "'many'")
        lines = text.split("\n")
        for label, word in (("batch size", "'x'"), ("failures allowed", "'many'"), ("timeout", "'soon'")):
            place = next(number for number, line in enumerate(lines) if line.strip().startswith(label))
            assert word in lines[place + 1], text


@pytest.mark.parametrize(
    ("key", "kind", "field"), [("C", CreateScreen, "name"), ("x", RunFormScreen, "command")], ids=["create", "run"]
)
async def test_what_was_typed_is_there_again_when_the_form_was_left_and_is_opened_anew(
    context: Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    kind: type[FormScreen],
    field: str,
) -> None:
    async with console(context, tmp_path, monkeypatch) as driven:
        await driven.shows("train-a")
        driven.app.show_request("train-a")
        await opened(driven, key, kind)
        await driven.write("precious")
        await driven.press("escape")
        await driven.until(lambda: not isinstance(driven.app.screen, kind))
        assert "kept" in driven.toasts()
        form = await opened(driven, key, kind)
        assert form.line(field).value == "precious"
