"""What the console does until its first frame is painted: counted in a process of its own, never timed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.simulator import ROOT, own_environment

PROBE = """
import gc, json, sys
import tui.themes
from backend.context import load_context
from pathlib import Path
from tui.cli import console as verb
from textual.screen import Screen
from textual.css.stylesheet import Stylesheet
from tui.app import SliceTower
import tui.app

seen = {"themes": [], "layouts": [], "styled": [], "parsed": []}

def count(owner, name, word, say):
    real = getattr(owner, name)
    def counted(*given, **named):
        seen[word].append(say(*given, **named))
        return real(*given, **named)
    setattr(owner, name, counted)

count(tui.themes, "parse_theme", "themes", lambda text, file: file)
count(Screen, "_refresh_layout", "layouts", lambda screen, *_, **__: type(screen).__name__)
count(Stylesheet, "apply", "styled", lambda sheet, node, **_: type(node).__name__)
count(Stylesheet, "_parse_rules", "parsed", lambda sheet, css, read_from, **_: read_from[1])

def first_frame(app):
    seen["collects"] = gc.isenabled()
    seen["screens"] = [type(each).__name__ for each in app.screen_stack]
    seen["text"] = "\\n".join(strip.text for strip in app.screen._compositor.render_strips())
    seen["modules"] = sorted(sys.modules)
    seen["first themes"] = list(seen["themes"])
    real(app)
    seen["collects after"] = gc.isenabled()
    seen["all themes"] = list(app.available_themes)
    app.exit(0)

real = SliceTower.after_first_frame
SliceTower.after_first_frame = first_frame
SliceTower.open_tower = lambda app: None
display = SliceTower._display
def first_display(app, screen, renderable):
    seen.setdefault("layouts until displayed", list(seen["layouts"]))
    seen.setdefault("classes", sorted(screen.classes))
    display(app, screen, renderable)
SliceTower._display = first_display
run = SliceTower.run
SliceTower.run = lambda app: run(app, headless=True, size=(120, 40))
sys.stdin.isatty = sys.stderr.isatty = lambda: True
code = verb.run(load_context(file=Path(sys.argv[1])))
assert code == 0, code
print(json.dumps(seen))
"""
"""The console as its verb starts it; Textual's own headless driver stands in for the terminal."""

CONTEXT = """
name = "first"
project = "demo-project"
zones = ["us-west4-a"]
endpoint = "127.0.0.1:9"
rest_endpoint = "http://127.0.0.1:9"
transport = "insecure"
credentials = "none"
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    file = home / "context.toml"
    file.write_text(CONTEXT)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(file)],
        cwd=ROOT,
        env=own_environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_first_frame_is_the_fleet_with_its_head_and_what_it_waits_for(seen: dict[str, Any]) -> None:
    assert seen["screens"] == ["FleetScreen"]
    for words in ("slicetower", "RW", "queued resources", "NAME", "IN STATE", "Asking demo-project", "? help"):
        assert words in seen["text"]


@pytest.mark.parametrize(
    "module",
    [
        "sqlite3",
        "configparser",
        "importlib.resources",
        "backend.model",
        "backend.inventory",
        "backend.journal",
        "backend.tower",
        "tui.forwards",
        "tui.policies",
        "tui.screens.confirm",
        "tui.screens.entry",
        "tui.screens.fleet_detail",
        "tui.screens.workers",
        "tui.widgets.heat_strip",
        "tui.widgets.state_timeline",
        "tui.widgets.log_view",
        "tui.widgets.throughput_plot",
    ],
)
def test_the_first_frame_does_without(seen: dict[str, Any], module: str) -> None:
    assert module not in seen["modules"]


def test_the_modules_of_the_first_frame_are_told(seen: dict[str, Any]) -> None:
    assert {"tui.app", "tui.screens.fleet", "tui.widgets.live_table"} <= set(seen["modules"])


def test_the_first_frame_reads_one_theme_and_the_others_follow(seen: dict[str, Any]) -> None:
    assert seen["first themes"] == ["tower-dark.toml"]
    assert "tower-light" in seen["all themes"]
    assert "tower-ansi" in seen["all themes"]


def test_the_first_frame_is_laid_out_once_and_for_its_own_size(seen: dict[str, Any]) -> None:
    assert seen["layouts until displayed"] == ["FleetScreen"]
    assert {"-wide", "-high"} <= set(seen["classes"])
    assert set(seen["layouts"]) == {"FleetScreen"}


def test_only_what_is_seen_is_styled(seen: dict[str, Any]) -> None:
    assert "LiveTable" in seen["styled"]
    assert not {"PromptInput", "FleetDetail", "HeatStrip", "Toast", "Screen"} & set(seen["styled"])
    assert not [name for name in seen["parsed"] if name.startswith(("Input.", "FleetDetail.", "PromptInput."))]


def test_collections_wait_for_the_first_frame_and_begin_after_it(seen: dict[str, Any]) -> None:
    assert seen["collects"] is False
    assert seen["collects after"] is True
