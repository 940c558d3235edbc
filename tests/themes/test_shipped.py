"""The shipped themes: complete, legible and telling states apart."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from tui.look import TOKENS, Look, contrast
from tui.themes import shipped_themes

SHIPPED, FAILED = shipped_themes()
TRUECOLOR = [theme for theme in SHIPPED.values() if not theme.ansi]
FURNITURE = {"rule", "plot-band", "plot-warmup"}
"""Drawn, not read: 2:1 is enough to see it."""


def test_all_promised_themes_are_shipped_and_valid() -> None:
    assert not FAILED
    assert set(SHIPPED) == {"tower-dark", "tower-light", "high-contrast", "tower-ansi", "colour-blind"}


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=lambda theme: str(theme.name))
def test_every_token_is_set(theme: Theme) -> None:
    assert set(TOKENS) <= set(theme.variables)


@pytest.mark.parametrize("theme", TRUECOLOR, ids=lambda theme: str(theme.name))
def test_text_is_legible_on_every_background_it_meets(theme: Theme) -> None:
    least = 7.0 if theme.name == "high-contrast" else 4.5
    background = Color.parse(theme.background or "")
    for token, value in {**theme.variables, "foreground": theme.foreground or ""}.items():
        if token not in TOKENS and token != "foreground":
            continue
        if token.endswith(("-background", "-foreground")):
            continue
        ratio = contrast(Color.parse(value).rgb, background.rgb)
        assert ratio >= (2.0 if token in FURNITURE else least), f"{token} {value} has {ratio:.1f}:1"


@pytest.mark.parametrize("theme", TRUECOLOR, ids=lambda theme: str(theme.name))
@pytest.mark.parametrize("pair", ["cursor", "match", "match-current", "selection"])
def test_highlights_are_legible_and_differ_from_the_background(theme: Theme, pair: str) -> None:
    foreground = Color.parse(theme.variables[f"{pair}-foreground"])
    background = Color.parse(theme.variables[f"{pair}-background"])
    assert contrast(foreground.rgb, background.rgb) >= 4.5
    assert contrast(background.rgb, Color.parse(theme.background or "").rgb) >= 1.2


@pytest.mark.parametrize("theme", SHIPPED.values(), ids=lambda theme: str(theme.name))
def test_live_waiting_and_dead_states_have_three_colours(theme: Theme) -> None:
    look = Look(theme.variables)
    colors = {
        look.style(token).color for token in ("state-active", "state-waiting", "state-failed", "state-suspended")
    }
    assert len(colors) == 4
