"""Colours of log lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.widgets.sgr import pieces, strip_sgr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", [("plain", "none")]),
        ("", []),
        ("\x1b[31mred\x1b[0m then", [("red", "color(1)"), (" then", "none")]),
        ("\x1b[1;92mok\x1b[m.", [("ok", "bold color(10)"), (".", "none")]),
        ("\x1b[38;5;208mx\x1b[39my", [("x", "color(208)"), ("y", "none")]),
        ("\x1b[38;2;1;2;3mx", [("x", "#010203")]),
        ("\x1b[38:2::1:2:3mx", [("x", "#010203")]),
        ("\x1b[38:5:9mx", [("x", "color(9)")]),
        ("\x1b[48;5;17;4mx", [("x", "underline on color(17)")]),
        ("\x1b[1m\x1b[3ma\x1b[22mb", [("a", "bold italic"), ("b", "italic")]),
        ("\x1b[7;41mx", [("x", "reverse on color(1)")]),
        ("\x1b[8mhidden", [("hidden", "none")]),
        ("\x1b[5mblink", [("blink", "none")]),
        ("\x1b[31;41mtrap", [("trap", "color(1)")]),
        ("\x1b[38;5;999mx", [("x", "none")]),
        ("\x1b[38mx\x1b[38;2;1mx", [("x", "none"), ("x", "none")]),
        ("[red]x[/red]", [("[red]x[/red]", "none")]),
    ],
)
def test_colours_are_read(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(piece, str(style)) for piece, style in pieces(text)] == expected


def test_what_slipped_through_the_gate_is_made_visible() -> None:
    text = "".join(piece for piece, _ in pieces("a\x1b]52;c;x\x07b\x9bc\x7f"))
    assert text.isprintable()


@given(st.text(alphabet=st.sampled_from(list("ab\x1b[0123456789;:m")), max_size=60))
def test_no_input_breaks_the_scanner_or_reaches_the_terminal(text: str) -> None:
    joined = "".join(piece for piece, _ in pieces(text))
    assert "\x1b" not in joined
    assert len(joined) == len(strip_sgr(text))
