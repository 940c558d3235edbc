"""Every glyph that the console draws, by token, with an ASCII twin. All are one cell wide; none is an emoji."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_TABLE: dict[str, tuple[str, str]] = {
    # states of queued resources
    "state-creating": ("○", "o"),
    "state-accepted": ("◔", "a"),
    "state-waiting": ("◌", "."),
    "state-provisioning": ("◐", "~"),
    "state-active": ("●", "*"),
    "state-failed": ("✗", "x"),
    "state-suspending": ("◒", "s"),
    "state-suspended": ("⊘", "S"),
    "state-deleting": ("⊖", "-"),
    "state-unknown": ("?", "?"),
    # states of nodes
    "node-ready": ("●", "*"),
    "node-starting": ("◐", "~"),
    "node-repairing": ("◑", "r"),
    "node-stopped": ("○", "o"),
    "node-preempted": ("⊗", "p"),
    "node-unhealthy": ("!", "!"),
    # outcomes
    "outcome-pending": ("◌", "."),
    "outcome-ok": ("✓", "+"),
    "outcome-failed": ("✗", "x"),
    "outcome-signalled": ("↯", "s"),
    "outcome-timed-out": ("◷", "t"),
    "outcome-unreachable": ("⊘", "u"),
    "outcome-unknown": ("?", "?"),
    "outcome-not-started": ("–", "-"),
    # logs
    "log-error": ("✗", "E"),
    "log-warning": ("!", "!"),
    # furniture
    "cursor": ("▌", ">"),
    "mark": ("◆", "#"),
    "separator": ("·", "|"),
    "rule": ("─", "-"),
    "bar": ("│", "|"),
    "corner": ("└", "+"),
    "tick": ("┤", "+"),
    "arrow": ("›", ">"),
    "ellipsis": ("…", "~"),
    "more-left": ("‹", "<"),
    "more-right": ("›", ">"),
    "sort-up": ("▲", "^"),
    "sort-down": ("▼", "v"),
    "collapsed": ("▸", ">"),
    "expanded": ("▾", "v"),
    "heat": ("■", "#"),
    "heat-empty": ("□", "."),
    "dashed": ("╌", "-"),
    "dotted": ("┈", "."),
    "bar-full": ("█", "#"),
    "bar-empty": ("░", ":"),
}

_EIGHTHS = (" ▏▎▍▌▋▊▉█", " ---====#")
"""Nine widths from empty to full, for the end of a bar."""


@dataclass(frozen=True, slots=True)
class GlyphSet:
    """One complete set of glyphs; `glyphs["cursor"]` never fails for a known token."""

    name: str
    table: Mapping[str, str]
    braille: bool
    """Whether braille dots may be drawn."""
    eighths: str = _EIGHTHS[0]
    """Nine characters from empty to full, that fill a cell from its left."""

    def __getitem__(self, token: str) -> str:
        return self.table[token]

    def get(self, token: str, default: str = "?") -> str:
        return self.table.get(token, default)


UNICODE = GlyphSet("unicode", MappingProxyType({token: pair[0] for token, pair in _TABLE.items()}), True)
ASCII = GlyphSet("ascii", MappingProxyType({token: pair[1] for token, pair in _TABLE.items()}), False, _EIGHTHS[1])
