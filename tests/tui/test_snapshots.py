"""Every screen at three sizes in a dark and a light theme, to the letter and the colour. `make snapshots` takes them anew.

Facts and clock stand still (tests/tui/fixed), so a picture changes only when the console does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tui.fixed.scenes import SCENES, Scene
from tests.tui.fixed.world import fixed_console
from tests.tui.picture import difference, screen_lines, svg
from tui.settings import Settings

FOLDER = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 40), (160, 50))
THEMES = {"dark": "tower-dark", "light": "tower-light"}
REWRITE = os.environ.get("SLICETOWER_SNAPSHOTS") == "write"
MOST_BYTES = 6_000_000


def check(name: str, found: str) -> str:
    """Compares with the kept picture, or keeps the new one; what differs is a sentence."""
    path = FOLDER / f"{name}.svg"
    if REWRITE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return ""
    if not path.exists():
        return f"{path.name}: there is no such picture yet"
    told = difference(path.read_text(encoding="utf-8"), found)
    return f"{path.name}:\n{told}" if told else ""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.name))
async def test_a_screen_looks_as_it_was_last_found_good(
    scene: Scene, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = []
    async with fixed_console(
        tmp_path,
        monkeypatch,
        size=size,
        settings=Settings(theme=THEMES["dark"]),
        client=scene.client(),
        read_only=scene.read_only,
        loaded=scene.loaded,
    ) as driven:
        await scene.way(driven)
        await driven.shows(*scene.shows)
        for theme, full_name in THEMES.items():
            if scene.again is not None and driven.app.theme != full_name:
                driven.app.theme = full_name
                await scene.again(driven)
            driven.app.theme = full_name
            await driven.settle()
            found = svg(screen_lines(driven.app), size, f"slicetower: {scene.name}")
            assert str(tmp_path) not in found, "a path of this machine is on the screen"
            told = check(f"{scene.name}-{size[0]}x{size[1]}-{theme}", found)
            if told:
                differing.append(told)
    assert not differing, "\n".join(
        [
            f"{scene.name} looks otherwise than it was last found good.",
            *differing,
            "If it is meant so, look at the new pictures and keep them: make snapshots",
        ]
    )


def test_every_picture_belongs_to_a_scene_and_all_are_small() -> None:
    wanted = {
        f"{scene.name}-{width}x{height}-{theme}.svg"
        for scene in SCENES
        for width, height in SIZES
        for theme in THEMES
    }
    if REWRITE:
        for file in FOLDER.glob("*.svg"):
            if file.name not in wanted:
                file.unlink()
        return
    files = list(FOLDER.iterdir())
    assert {file.name for file in files} == wanted
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


def test_a_difference_is_told_by_its_lines() -> None:
    from rich.segment import Segment
    from rich.style import Style

    def drawn(*lines: str, color: str = "red") -> str:
        return svg([[Segment(line, Style.parse(color))] for line in lines], (10, len(lines)), "t")

    kept = drawn("a  b", "same")
    assert difference(kept, drawn("a  b", "same")) == ""
    told = difference(kept, drawn("a  c", "same"))
    assert "line 1: was 'a  b'" in told
    assert "line 1: now 'a  c'" in told
    assert "line 2" not in told
    assert "colours or styles differ" in difference(kept, drawn("a  b", "same", color="blue"))
    assert "it had 2 lines, and has 1" in difference(kept, drawn("a  b"))
