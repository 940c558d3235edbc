"""Looks: tokens always resolve, and glyphs are one cell wide in both sets."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.style import Style

from backend.model import NodeState, QueuedResourceState
from backend.outcomes import Outcome
from tui.durations import format_duration
from tui.glyphs import ASCII, UNICODE, GlyphSet
from tui.look import PLAIN, TOKENS, Look, outcome_token, state_token
from tui.themes import shipped_themes

EMOJI_PRESENTATION = range(0x1F000, 0x20000)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: str(glyphs.name))
def test_glyphs_are_one_cell_wide(glyphs: GlyphSet) -> None:
    for token, glyph in glyphs.table.items():
        assert len(glyph) == 1, token
        assert cell_len(glyph) == 1, token
        assert ord(glyph) not in EMOJI_PRESENTATION, token
    assert [cell_len(char) for char in glyphs.eighths] == [1] * 9


def test_the_ascii_set_is_ascii_and_complete() -> None:
    assert set(ASCII.table) == set(UNICODE.table)
    assert "".join(ASCII.table.values()).isascii()
    assert ASCII.eighths.isascii()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda glyphs: str(glyphs.name))
def test_states_of_one_kind_never_share_a_glyph(glyphs: GlyphSet) -> None:
    states = [glyphs[state_token(state)] for state in QueuedResourceState]
    outcomes = [glyphs[outcome_token(outcome)] for outcome in Outcome]
    assert len(set(states)) == len(states)
    assert len(set(outcomes)) == len(outcomes)


def test_every_state_and_outcome_of_the_model_has_a_token() -> None:
    for state in [*QueuedResourceState, *NodeState]:
        assert state_token(state) in TOKENS
        assert state_token(state) != "state-unknown"
    for outcome in Outcome:
        assert outcome_token(outcome) == f"outcome-{outcome.replace('_', '-')}"
    assert state_token("SOMETHING_NEW") == "state-unknown"


def test_without_a_theme_there_are_no_colours() -> None:
    assert all(PLAIN.style(token).color is None for token in TOKENS)
    assert PLAIN.style("cursor").reverse


def test_a_theme_that_sets_little_falls_back_to_its_own_colours() -> None:
    look = Look({"primary": "#112233", "success": "#00aa00", "error": "#aa0000", "state-failed": "#ff0000"})
    assert str(look.style("state-active")) == "#00aa00"
    assert look.style("state-failed").color != look.style("outcome-failed").color


def test_half_transparent_colours_are_mixed_with_the_background() -> None:
    look = Look({"background": "#000000", "muted": "#ffffff 50%"})
    color = look.style("muted").color
    assert color is not None
    assert color.triplet is not None
    assert 120 <= color.triplet.red <= 130


def test_the_terminals_own_colours_are_dimmed_instead_of_mixed() -> None:
    look = Look(shipped_themes()[0]["tower-ansi"].variables)
    assert look.style("muted").dim
    assert not look.style("state-active").dim


def test_a_loop_of_variables_ends() -> None:
    assert Look({"muted": "$rule", "rule": "$muted"}).style("muted").color is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (92, "92s"),
        (119.9, "119s"),
        (120, "2m"),
        (31 * 60 + 59, "31m"),
        (3599, "59m"),
        (3600, "1h"),
        (6660, "1h51m"),
        (3660, "1h01m"),
        (86399, "23h59m"),
        (86400, "1d"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (30 * 86400 + 4 * 3600, "30d"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_durations_read_as_an_operator_writes_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_lower_bound_says_so() -> None:
    assert format_duration(1860, is_lower_bound=True) == ">= 31m"


WHITE, BLACK = Style.parse("#000000 on #ffffff"), Style.parse("#ffffff on #000000")


@pytest.mark.parametrize(
    ("style", "base", "kept"),
    [
        ("white", WHITE, False),
        ("bright_white bold", WHITE, False),
        ("red", WHITE, True),
        ("black", BLACK, False),
        ("white", BLACK, True),
        ("black on yellow", BLACK, True),
        ("bright_yellow on white", BLACK, False),
        ("white", Style.parse("default on default"), True),
        ("bold", WHITE, True),
    ],
)
def test_remote_colours_that_cannot_be_read_are_not_drawn(style: str, base: Style, kept: bool) -> None:
    given = Style.parse(style)
    drawn = Look().legible(given, base)
    assert (drawn == given) is kept
    assert drawn.bold == given.bold


def test_without_colour_remote_text_has_none() -> None:
    assert Look(no_color=True).legible(Style.parse("red on blue bold"), BLACK) == Style.parse("bold")
