"""With NO_COLOR the console says the same in greys, with the ASCII set in ASCII; a mouse is welcome, never needed."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from textual import events

from tests.tui.fixed.scenes import SCENES, Scene
from tests.tui.fixed.world import fixed_console
from tests.tui.picture import Line, screen_lines, text_of
from tests.tui.test_snapshots import FOLDER
from tui.ascii_filter import TABLE
from tui.screens.entry import Entry
from tui.screens.fleet import FleetScreen
from tui.settings import Settings
from tui.widgets.live_table import LiveTable

SIZE = (120, 40)
SHOWN = [
    scene
    for scene in SCENES
    if scene.name in {"fleet", "workers", "logs-merged", "run", "bench", "help", "costs", "waits-now", "doctor"}
]
BRAILLE = {chr(0x2800 + dots) for dots in range(256)}
"""Of plots, which are drawn otherwise with the ASCII set: test_throughput_plot.py, and the screen `bench` here."""


def colours(lines: Iterable[Line]) -> set[str]:
    """All that is drawn in a colour and not in a grey; what the terminal's owner chose for plain text is neither."""
    styles = [segment.style for line in lines for segment in line if segment.style is not None]
    drawn = [color for style in styles for color in (style.color, style.bgcolor) if color is not None]
    return {color.name for color in drawn if color.is_default is False and len(set(color.get_truecolor())) > 1}


@pytest.mark.parametrize("scene", SHOWN, ids=lambda scene: str(scene.name))
async def test_no_color_means_greys_and_loses_no_word(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = []
    for no_color in (False, True):
        async with fixed_console(
            tmp_path / str(no_color), monkeypatch, size=SIZE, client=scene.client(), no_color=no_color
        ) as driven:
            await scene.way(driven)
            await driven.shows(*scene.shows)
            await driven.settle()
            lines = screen_lines(driven.app)
            words.append(text_of(lines))
            assert bool(colours(lines)) is not no_color
    assert words[0] == words[1]


@pytest.mark.parametrize("scene", SHOWN, ids=lambda scene: str(scene.name))
async def test_the_ascii_set_draws_whole_screens_in_ascii(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(ascii=True)
    async with fixed_console(tmp_path, monkeypatch, size=SIZE, settings=settings, client=scene.client()) as driven:
        await scene.way(driven)
        await driven.shows(*(word for word in scene.shows if word.isascii()))
        await driven.settle()
        strange = sorted({sign for line in text_of(screen_lines(driven.app)) for sign in line if not sign.isascii()})
        assert not strange


def test_nothing_that_any_screen_draws_is_left_over_by_the_ascii_set() -> None:
    left: dict[str, set[str]] = {}
    for picture in FOLDER.glob("*.svg"):
        words = html.unescape(re.sub(r"<[^>]*>", "", picture.read_text(encoding="utf-8")))
        for sign in words.translate(TABLE):
            if not sign.isascii() and sign not in BRAILLE:
                left.setdefault(sign, set()).add(picture.stem)
    assert not left
    assert any("◐" in picture.read_text(encoding="utf-8") for picture in FOLDER.glob("fleet-*.svg"))


async def test_a_click_chooses_a_wheel_scrolls_and_a_second_click_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixed_console(tmp_path, monkeypatch, size=(80, 12)) as driven:
        await driven.shows("big-c")
        await driven.settle()
        screen = driven.app.screen
        assert isinstance(screen, FleetScreen)

        def at() -> str:
            row = screen.table.cursor_row
            return str(row.key[2]) if row is not None else ""  # type: ignore[index]

        await driven.pilot.click(LiveTable, offset=(5, 2))
        await driven.settle()
        assert at() == "lame-f"
        before = screen.table.scroll_offset
        await driven.pilot._post_mouse_events([events.MouseScrollDown], LiveTable, offset=(5, 2), button=0)
        await driven.settle()
        assert screen.table.scroll_offset != before
        await driven.pilot.click(LiveTable, offset=(5, 2), times=2)
        await driven.until(lambda: driven.app.screen is not screen, "what was clicked is open")


@pytest.mark.parametrize("no_color", [False, True])
async def test_without_colours_a_hint_stands_in_brackets_so_that_it_looks_like_nothing_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    scene = next(scene for scene in SCENES if scene.name == "confirm-delete")
    async with fixed_console(tmp_path, monkeypatch, size=SIZE, client=scene.client(), no_color=no_color) as driven:
        await scene.way(driven)
        await driven.shows(*scene.shows)
        await driven.settle()
        assert ("(old-d)" in "\n".join(text_of(screen_lines(driven.app)))) is no_color
        typed = driven.app.screen.query_one(Entry)
        await driven.press("o")
        assert typed.value == "o"
        typed.placeholder = "(is it?)"
        assert typed.placeholder == "(is it?)"
