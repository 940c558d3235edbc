"""Whatever is typed into whichever field of a form, it is judged in a sentence: no text ends the console."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Input

from backend.cloud.gcloud_flags import parse_duration
from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, Console, console
from tests.tui.test_bench_screens import form as bench_form
from tui.numbers import MOST, whole_number
from tui.screens.create import CreateScreen
from tui.screens.form_screen import FormScreen

NASTY = (
    *(
        "0",
        "00",
        "-1",
        "1e999",
        "nan",
        "9" * 30,
        "9" * 5000,
        "9" * 400 + "s",
        "0s",
        "٣",
        "½",
        "1,,2",
        ",",
        "0x0x0/0x0x0",
    ),
    *(
        "'",
        '"',
        "\\",
        "%",
        "{}",
        "[bold",
        "\x1b[31m",
        "a" * 9000,
        "*",
        "@",
        "/",
        "//",
        "~",
        "~nobody/x",
        "a=~nobody/x",
    ),
    *("train-a/9999999999", "train-a/" + "9" * 5000, "v5litepod-" + "9" * 5000, "train-a/0-", "\u202e", "\x00"),
)


def command(line: str) -> Callable[[Console], Awaitable[object]]:
    return lambda driven: driven.command(line)


async def sweep(driven: Console) -> None:
    await bench_form(driven)
    await driven.press("f6")


async def prune(driven: Console) -> None:
    await driven.press("4", "X")


FORMS: dict[str, Callable[[Console], Awaitable[object]]] = {
    "run": command("run train-a"),
    "copy": command("copy train-a"),
    "setup": command("setup train-a"),
    "keep": command("keep train-a"),
    "prune": prune,
    "bench": bench_form,
    "sweep": sweep,
    "create": command("create"),
}


@pytest.mark.parametrize("name", FORMS)
async def test_whatever_is_typed_into_a_form_is_judged_and_ends_nothing(
    name: str, simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: Context = simulators().context
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.shows("train-a")
        before = driven.app.screen
        await FORMS[name](driven)
        await driven.until(lambda: isinstance(driven.app.screen, FormScreen) and driven.app.screen is not before)
        form = driven.app.screen
        assert isinstance(form, FormScreen)
        await driven.until(lambda: form.focused is not None)
        if isinstance(form, CreateScreen) and (mounted := form.open_further()) is not None:
            await mounted
        for line in form.lines.values():
            if not isinstance(line.control, Input):
                continue
            good = line.value
            for text in NASTY:
                line.value = text
                check(form)
                await asyncio.sleep(0)
            line.value = good
        check(form)
        await driven.press("tab")
        assert driven.app.screen is form


def check(form: FormScreen) -> None:
    """As the form does after each change."""
    if isinstance(form, CreateScreen):
        form._dirty = True
    form.check()  # type: ignore[attr-defined]


@given(st.text(max_size=40) | st.integers().map(str))
def test_a_whole_number_is_read_or_refused(text: str) -> None:
    number = whole_number(text)
    assert number is None or (number == int(text) and 0 <= number <= MOST)


def test_numbers_that_nobody_means_are_none() -> None:
    assert [whole_number(text) for text in ("9" * 5000, str(MOST + 1), "-1", "", "٣", "1.0")] == [None] * 6
    assert [whole_number(text) for text in (" 7 ", "007", str(MOST))] == [7, 7, MOST]
    with pytest.raises(ValueError, match="a hundred years"):
        parse_duration("9" * 400 + "s")
