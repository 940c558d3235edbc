"""Keys that come in one burst, as over a slow line or from somebody quick, mean what they would mean one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Key

from backend.context import Context
from tests.simulator import SimulatorFactory
from tests.tui.driving import MEDIUM, Console, console


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


def burst(driven: Console, *keys: str) -> None:
    """Sends keys without waiting for what the first of them does."""
    for key in keys:
        event = Key(key, key if len(key) == 1 else None)
        event.set_sender(driven.app)
        assert driven.app._driver is not None
        driven.app._driver.send_message(event)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("j", "x"), ("run", "old-d")),
        (("j", "x", "l", "s"), ("old-d", "ls")),
        (("j", "b"), ("bench old-d",)),
        (("j", "d"), ("describe old-d",)),
        (("j", "A"), ("create", "slice id", "old-d")),
        (("j", "D"), ("Delete", "old-d")),
        (("space", "j", "space", "D"), ("big-c", "old-d")),
        (("j", "enter"), ("workers old-d",)),
        (("j", "colon", "h", "e", "l", "p", "enter"), ("help",)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
async def test_a_burst_acts_on_the_row_to_which_its_first_keys_went(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], words: tuple[str, ...]
) -> None:
    async with console(context, tmp_path, monkeypatch, size=MEDIUM) as driven:
        await driven.shows("train-a", "8/8")
        await driven.press("home")
        burst(driven, *keys)
        await driven.shows(*words)
        if keys[1] in "xbdA" or keys[1] == "enter":
            await driven.press("escape")
            await driven.until(lambda: "▌ old-d" in driven.text, "the cursor on the row to which it went")
