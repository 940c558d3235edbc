"""The moving picture of the README: all steps of the journey in their order, small, and at rest for whoever wants that."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.journeys.recording import NAME, SHOWN_S, moving, steps

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 1_000_000


def test_the_readme_moves_through_every_step_of_the_journey() -> None:
    made = (PICTURES / NAME).read_text(encoding="utf-8")
    assert made == moving([file.read_text(encoding="utf-8") for file in steps(PICTURES)]), "make pictures"
    assert len(made.encode()) < MOST_BYTES
    assert f"docs/pictures/{NAME}" in (PICTURES.parents[1] / "README.md").read_text(encoding="utf-8")
    root = ElementTree.fromstring(made)
    assert len([part for part in root if part.tag.endswith("}g")]) == len(steps(PICTURES)) >= 10
    for word in ("<script", "@font-face", "@import", "url(http", "href"):
        assert word not in made, "a picture asks nobody for anything"


def test_each_step_stands_as_long_and_the_last_stays_without_motion() -> None:
    one = '<svg viewBox="0 0 10 20"><!-- made --><text>{}</text></svg>'
    made = moving([one.format(word) for word in ("a", "b", "c")])
    assert re.findall(r">(\w)</text>", made) == ["a", "b", "c"]
    assert f"{3 * SHOWN_S:g}s step-end infinite" in made
    assert f".f2{{animation-delay:{2 * SHOWN_S:g}s}}" in made
    assert ".f2{visibility:visible}" in made
    assert "made" not in made
    with pytest.raises(ValueError, match="2 sizes"):
        moving([one, one.replace("20", "30")])


def test_steps_go_by_number(tmp_path: Path) -> None:
    for name in ("10-end.svg", "2-create.svg", "1-fleet.svg", NAME, "note.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in steps(tmp_path)] == ["1-fleet.svg", "2-create.svg", "10-end.svg"]
