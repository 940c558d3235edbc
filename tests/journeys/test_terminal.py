"""The terminal fixture itself: it shows what a program draws, passes keys on, and says what it saw when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.terminal import ScreenTimeout, Terminal

pytestmark = pytest.mark.journey


def test_keys_go_in_and_the_screen_comes_out(tmp_path: Path) -> None:
    with Terminal(
        tmp_path,
        ["sh", "-c", "printf 'ready? '; read answer; printf '\\033[31mgot %s\\033[0m\\n' \"$answer\"; exit 3"],
    ) as terminal:
        terminal.wait_for(r"ready\?")
        terminal.type("a $HOME; 'b'")
        terminal.press("Enter")
        terminal.wait_for(r"got a \$HOME; 'b'")
        assert terminal.wait_for_exit() == 3
        terminal.picture(tmp_path / "shot.svg")
        assert "got" in (tmp_path / "shot.svg").read_text()


def test_a_wait_in_vain_shows_the_screen(tmp_path: Path) -> None:
    with Terminal(tmp_path, ["sh", "-c", "echo only this; sleep 20"]) as terminal:
        terminal.wait_for("only this")
        with pytest.raises(ScreenTimeout, match="only this"):
            terminal.wait_for("something else", timeout_s=0.3)
