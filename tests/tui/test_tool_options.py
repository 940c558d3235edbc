"""The options of check and free in the console: read, refused beside their field, and handed to the tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.tools.check import NETWORK, Outside
from tests.tui.fixed import tools
from tests.tui.fixed.scenes import tool
from tests.tui.fixed.world import fixed_console
from tui.screens.check import CheckScreen
from tui.screens.describe import DescribeScreen
from tui.screens.free import FreeScreen
from tui.screens.run_form import read_form as read_run
from tui.screens.run_form import write_form as write_run
from tui.screens.setup import read_form as read_setup
from tui.screens.tool_options import (
    CheckFormScreen,
    CheckOptions,
    FreeFormScreen,
    FreeOptions,
    read_check,
    read_free,
    write_check,
)

EVERYTHING = CheckOptions(
    Outside((*NETWORK, "https://mirror/simple"), ("gs://data",), ("us-docker.pkg.dev",), ("code", "my data")),
    "/opt/python",
    9999,
    "/host",
)


@pytest.mark.parametrize("options", [CheckOptions(), EVERYTHING], ids=["nothing", "everything"])
def test_a_form_that_was_written_reads_back_the_same(options: CheckOptions) -> None:
    assert read_check(write_check(options)) == (options, {})


@pytest.mark.parametrize(
    ("texts", "field", "words"),
    [
        ({"reach": "mirror.internal"}, "reach", "is no URL"),
        ({"buckets": "--all"}, "buckets", "names nothing"),
        ({"folders": "'my code"}, "folders", "Close the quotes"),
        ({"port": "70000"}, "port", "is no port"),
        ({"port": "x"}, "port", "is no port"),
    ],
)
def test_a_mistake_of_a_check_stands_beside_its_field(texts: dict[str, str], field: str, words: str) -> None:
    assert words in read_check(texts)[1][field]


def test_a_grace_is_a_duration_within_an_hour() -> None:
    assert read_free({"grace": "45"}) == (FreeOptions(45.0), {})
    assert read_free({"grace": "2m", "root": "/host", "python": "python3.12"})[0] == FreeOptions(
        120.0, "python3.12", "/host"
    )
    assert "grace" in read_free({"grace": "soon"})[1]
    assert "hour" in read_free({"grace": "2h"})[1]["grace"]


def test_a_run_has_a_title_and_a_setup_its_wait_for_apt() -> None:
    request, wrong = read_run({"command": "python3 train.py", "title": "nightly"})
    assert (request.title, wrong) == ("nightly", {})
    assert read_run(write_run(request))[0] == request
    assert read_run({"command": "hostname"})[0].title == "hostname"
    wanted, mistakes = read_setup({"apt_wait": "20m", "root": "/host"})
    assert (wanted.apt_wait_s, wanted.root, mistakes) == (1200, "/host", {})
    assert "apt_wait" in read_setup({"apt_wait": "some"})[1]
    assert "86400" in read_setup({"apt_wait": "2d"})[1]["apt_wait"]


async def test_a_check_is_asked_with_its_options_and_shows_what_a_worker_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    async def check(tower: object, workers: object, **more: Any) -> object:
        asked.append(more)
        return tools.REPORT

    async with fixed_console(tmp_path, monkeypatch, size=(80, 24)) as driven:
        driven.listen(monkeypatch)
        monkeypatch.setattr("backend.tools.check.check", check)
        await tool("check")(driven)
        await driven.shows("process 4711")
        await driven.press("w")
        await driven.until(lambda: isinstance(driven.app.screen, CheckFormScreen))
        await driven.shows("nothing beyond what every check looks at")
        form = driven.app.screen
        assert isinstance(form, CheckFormScreen)
        form.line("reach").value = "mirror"
        await driven.shows("'mirror' is no URL")
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was looked at." in driven.toasts())
        form.line("reach").value = "https://mirror"
        form.line("folders").value = "code"
        form.line("targets").value = "train-a/0"
        await driven.shows("4 workers: train-a/0/0-3", "also: https://mirror, equal code")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, CheckScreen) and len(asked) == 2)
        await driven.shows("also https://mirror, equal code", "check train-a/0")
        assert asked[0]["outside"] == Outside()
        assert asked[1]["outside"] == Outside(("https://mirror",), (), (), ("code",))
        await driven.press("home", "d")
        await driven.until(lambda: isinstance(driven.app.screen, DescribeScreen))
        await driven.shows("jax", "0.10.2")


async def test_a_free_is_asked_with_its_grace_and_stops_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    async def free(tower: object, workers: Any, **more: Any) -> object:
        asked.append(more)
        return await tools.free(tower, workers, dry_run=more["dry_run"])

    async with fixed_console(tmp_path, monkeypatch, size=(120, 40)) as driven:
        driven.listen(monkeypatch)
        monkeypatch.setattr("backend.tools.free.free", free)
        await tool("free")(driven)
        await driven.shows("4711")
        await driven.press("w")
        await driven.until(lambda: isinstance(driven.app.screen, FreeFormScreen))
        form = driven.app.screen
        assert isinstance(form, FreeFormScreen)
        form.line("grace").value = "never"
        await driven.press("ctrl+r")
        await driven.until(lambda: "Nothing was looked at." in driven.toasts())
        form.line("grace").value = "2m"
        await driven.shows("KILL 120 s later")
        await driven.press("ctrl+r")
        await driven.until(lambda: isinstance(driven.app.screen, FreeScreen) and len(asked) == 2)
        await driven.shows("4711")
        await driven.press("S")
        await driven.shows("TERM first, KILL 120 s later")
        await driven.write("train-a")
        await driven.press("enter")
        await driven.until(lambda: len(asked) == 3)
        assert [(each["dry_run"], each["grace_s"]) for each in asked] == [(True, 10.0), (True, 120.0), (False, 120.0)]
