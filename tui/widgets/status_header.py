"""The header line: where we are, whether we may change anything, how fresh it is, and what still costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.durations import format_duration
from tui.look import Look, look_of
from tui.widgets.priority_line import Part, priority_line

STALE_S = 30.0
"""An age of the last good poll that is pointed out."""


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """Everything the header says."""

    context: str
    project: str = ""
    zones: tuple[str, ...] = ()
    label: str = ""
    """E.g. `simulated`."""
    read_only: bool = False
    api_age_s: float | None = None
    """Seconds since the last good poll of the zone that is worst off; None before the first."""
    api_error: str = ""
    """Short, e.g. `us-east5-a: no answer`; empty while all is well."""
    ssh_answering: int = 0
    ssh_asked: int = 0
    """Workers on which ssh answers, of those that the cloud calls ready and that are asked."""
    active_chips: int = 0
    waiting_chips: int = 0
    dead_chips: int = 0
    """Held by FAILED and SUSPENDED requests."""
    notes: tuple[str, ...] = ()
    """Further words of alarm, e.g. `2 deletes pending`."""
    ssh_open: int = 0
    """Workers with an open connection."""


def header_line(facts: HeaderFacts, width: int, look: Look, base: Style | None = None) -> Strip:
    """The header in `width` cells; what matters least is shortened, then dropped.

    In order of weight: the badge, what goes wrong, what costs, how old the figures are, where we are.
    """
    ground = base if base is not None else Style.null()
    dot = f" {look.glyph('separator')} "
    parts = [
        Part(
            ((f" slicetower{dot}", "muted"), (facts.context, "title")),
            75,
            short=((f" {facts.context}", "title"),),
            shrinks_at=5,
        )
    ]
    if facts.label:
        parts.append(Part(((facts.label, "simulated"),), 65))
    if facts.project and facts.project != facts.context:
        parts.append(Part(((facts.project, ""),), 20))
    if facts.zones:
        many = f"{len(facts.zones)} zones" if len(facts.zones) > 1 else facts.zones[0]
        parts.append(Part(((" ".join(facts.zones), ""),), 10, short=((many, ""),), shrinks_at=6))
    badge = ("RO", "badge-read-only") if facts.read_only else ("RW", "badge-read-write")
    parts.append(Part((badge,), 100, right=True))
    parts.append(_api(facts))
    if facts.ssh_asked or facts.ssh_open:
        parts.append(_ssh(facts))
    parts.extend(Part(((note, "stale"),), 85, right=True) for note in facts.notes)
    parts.append(_chips(facts, dot))
    return priority_line(parts, width, look, ground)


def _api(facts: HeaderFacts) -> Part:
    age = "API -" if facts.api_age_s is None else f"API {format_duration(facts.api_age_s)}"
    stale = facts.api_age_s is not None and facts.api_age_s >= STALE_S
    if facts.api_error:
        short = ((f"{age} !", "log-error"),)
        texts = ((f"{age} ", "log-error"), (facts.api_error, "log-error"))
        return Part(texts, 90, short=short, shrinks_at=45, right=True, elastic=True)
    return Part(((f"{age} old" if stale else age, "stale" if stale else ""),), 90 if stale else 50, right=True)


def _ssh(facts: HeaderFacts) -> Part:
    """How many answer, and how many connections are open."""
    token = "" if facts.ssh_answering == facts.ssh_asked else "stale"
    answering = (f"ssh {facts.ssh_answering:,}/{facts.ssh_asked:,}", token) if facts.ssh_asked else ("ssh", "")
    if not facts.ssh_open:
        return Part((answering,), 40, right=True)
    return Part(
        (answering, (f" {facts.ssh_open:,} open", "muted")), 40, short=(answering,), shrinks_at=15, right=True
    )


def _chips(facts: HeaderFacts, dot: str) -> Part:
    """What runs, what waits, what is held by the dead: the last only when there is any."""
    counts = [
        ("active", "up", facts.active_chips, "state-active"),
        ("waiting", "wait", facts.waiting_chips, "state-waiting"),
    ]
    if facts.dead_chips:
        counts.append(("dead", "dead", facts.dead_chips, "state-failed"))
    texts: list[tuple[str, str]] = []
    short: list[tuple[str, str]] = []
    for word, short_word, count, token in counts:
        if texts:
            texts.append((dot, "muted"))
            short.append((" ", "muted"))
        texts.append((f"{word} {count:,}", token if count else "muted"))
        short.append((f"{count:,} {short_word}", token if count else "muted"))
    return Part((*texts, (" chips ", "")), 80, short=(*short, (" ", "")), shrinks_at=30, right=True)


class StatusHeader(Widget):
    """One line on top of every screen. The app's clock calls `set_facts`."""

    DEFAULT_CSS = """
    StatusHeader {
        dock: top;
        height: 1;
        background: $panel;
        color: $foreground;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.facts = HeaderFacts("")
        self._line: Strip | None = None

    def set_facts(self, facts: HeaderFacts, *, second: bool = True) -> None:
        """Shows other facts; repaints only when the line reads differently.

        Args:
            second: Ages are drawn anew now; else what is only older waits for the next time.
        """
        if facts == self.facts or (not second and replace(facts, api_age_s=self.facts.api_age_s) == self.facts):
            return
        self.facts = facts
        if not self.is_attached or self._line is None or self._draw() != self._line:
            self.refresh()

    def _draw(self) -> Strip:
        return header_line(self.facts, self.size.width, look_of(self), self.rich_style)

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width, self.rich_style)
        self._line = self._draw()
        return self._line
