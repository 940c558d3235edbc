"""docs/coverage.md maps what was asked to the tests that show it; a test that is gone or renamed fails here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COVERAGE = ROOT / "docs" / "coverage.md"
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)`")


def named_tests() -> list[tuple[str, str]]:
    return TEST_ID.findall(COVERAGE.read_text("utf-8"))


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_named_test_exists() -> None:
    named = named_tests()
    assert named, "docs/coverage.md names no test"
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or name not in functions_of(ROOT / path)
    ]
    assert missing == []


@pytest.mark.parametrize("heading", ["Cloud", "Simulator", "Runs", "Benchmarks", "Console"])
def test_every_bullet_names_a_test_or_says_what_is_missing(heading: str) -> None:
    text = COVERAGE.read_text("utf-8")
    section = re.search(rf"^## {heading}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/coverage.md has no section {heading}"
    bullets = re.findall(r"^- (.+(?:\n  .+)*)", section.group(), re.MULTILINE)
    assert bullets
    bare = [bullet[:60] for bullet in bullets if not TEST_ID.search(bullet) and "NOT YET" not in bullet]
    assert bare == []
