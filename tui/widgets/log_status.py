"""What the last line of a log view says."""

from __future__ import annotations

from dataclasses import dataclass

from tui.durations import format_duration

SILENCE_TOLD_S = 5.0
"""A shorter silence is no news."""


@dataclass(slots=True)
class LogFacts:
    """Everything that the status line may say."""

    title: str = ""
    total: int | None = None
    """Lines of the log; None while there is no log."""
    following: bool = True
    line: int = 0
    """The reader's line, from 1."""
    new_lines: int = 0
    notice: str = ""
    pattern: str = ""
    matches: int = 0
    all_searched: bool = True
    match: int = 0
    """The place of the reader's line among the matches, from 1; 0 if it is none."""
    marks: int = 0
    wrapping: bool = False
    silence_s: float = 0.0
    ended: bool = False
    """Nothing more will come: what wrote the log has ended."""


def log_status(facts: LogFacts) -> list[tuple[str, str, int]]:
    """Parts (text, token, priority) in their order; the lowest priority is dropped first."""
    parts: list[tuple[str, str, int]] = [(facts.title, "title", 7)]
    if facts.total is None:
        return [*parts, ("no log", "muted", 5)]
    if facts.following:
        parts.append(("ended", "muted", 8) if facts.ended else ("following", "outcome-ok", 8))
        parts.append((f"{facts.total:,} lines", "muted", 3))
    else:
        new = f" +{facts.new_lines:,} new" if facts.new_lines else ""
        parts.append((f"paused{new}", "stale", 9))
        parts.append((f"line {facts.line:,} of {facts.total:,}", "muted", 4))
    parts.append((facts.notice, "key", 8))
    if facts.pattern:
        place = f"{facts.match:,}/" if facts.match and facts.all_searched else ""
        more = "" if facts.all_searched else "+"
        parts.append((f"'{facts.pattern}' {place}{facts.matches:,}{more}", "key", 6))
    if facts.marks:
        parts.append((f"{facts.marks} marked", "mark", 5))
    if facts.wrapping:
        parts.append(("wrapped", "muted", 2))
    if facts.silence_s >= SILENCE_TOLD_S and not facts.ended:
        parts.append((f"silent {format_duration(facts.silence_s)}", "stale", 5))
    return parts
