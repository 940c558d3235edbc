"""`CREATING 1s > ACCEPTED 4s > WAITING 7m > PROVISIONING 92s > ACTIVE >= 31m`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.durations import format_duration
from tui.look import Look, look_of, state_token
from tui.widgets.table_paint import fit

SHORT = {"WAITING_FOR_RESOURCES": "WAITING"}
"""States whose full word is longer than the line can bear."""
ARROW = " > "


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """One state and how long it lasted, as far as it was seen."""

    state: str
    duration_s: float | None
    """None when nothing is known of it."""
    is_lower_bound: bool = False
    """The beginning was not seen: it lasted at least this long."""


def timeline_line(spans: Sequence[TimelineSpan], width: int, look: Look, base: Style | None = None) -> Strip:
    """The spans on one line, the present one last and with its glyph; the earliest are cut when it is too narrow."""
    ground = base if base is not None else Style.null()
    muted = ground + look.style("muted")
    if not spans:
        return Strip([Segment(fit("no history yet", width), muted)])
    pieces: list[tuple[str, str]] = []
    for index, span in enumerate(spans):
        token = state_token(span.state)
        text = SHORT.get(span.state, span.state)
        if index == len(spans) - 1:
            text = f"{look.glyph(token)} {text}"
        if span.duration_s is not None:
            text += " " + format_duration(span.duration_s, is_lower_bound=span.is_lower_bound)
        pieces.append((text, token))
    cut = 0
    ellipsis = look.glyph("ellipsis")

    def needed() -> int:
        shown = pieces[cut:]
        lead = cell_len(ellipsis + ARROW) if cut else 0
        return lead + sum(cell_len(text) for text, _ in shown) + len(ARROW) * (len(shown) - 1)

    while needed() > width and cut < len(pieces) - 1:
        cut += 1
    segments: list[Segment] = []
    if cut:
        segments.append(Segment(ellipsis + ARROW, muted))
    for text, token in pieces[cut:]:
        if segments and segments[-1].text != ellipsis + ARROW:
            segments.append(Segment(ARROW, muted))
        segments.append(Segment(text, ground + look.style(token)))
    return Strip(segments).adjust_cell_length(width, ground)


class StateTimeline(Widget):
    """The states a queued resource went through, on one line."""

    DEFAULT_CSS = """
    StateTimeline {
        background: $background;
        color: $foreground;
        height: 1;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.spans: tuple[TimelineSpan, ...] = ()

    def set_spans(self, spans: Sequence[TimelineSpan]) -> None:
        """Shows another history; repaints only if it reads differently."""
        fresh = tuple(spans)
        changed = fresh != self.spans
        self.spans = fresh
        if changed:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        if y:
            return Strip.blank(self.size.width, base)
        return timeline_line(self.spans, self.size.width, look_of(self), base)
