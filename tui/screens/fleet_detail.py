"""What is known of one queued resource: its history, its slices, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from backend.inventory import LISTED
from backend.model import DEAD_STATES, QueuedResource, Slice, StateSince
from backend.sanitize import plain
from tui.look import state_token
from tui.screens.events import sentence
from tui.screens.fleet_rows import summary
from tui.widgets.heat_strip import HeatSlice, HeatStrip
from tui.widgets.state_timeline import StateTimeline, TimelineSpan
from tui.wording import count, sentences

if TYPE_CHECKING:
    from backend.model import Event, SshWord
    from backend.ssh.roll import Place
    from backend.stays import StateSpan

NOBODY: Mapping[Place, str] = {}
UNHEALTHY = "node-unhealthy"


def slice_token(item: Slice) -> str:
    """What a slice's workers look like."""
    return UNHEALTHY if item.state == "READY" and not item.ready and item.workers else state_token(item.state)


SILENT, ASKED = UNHEALTHY, "node-starting"
"""A worker without ssh, and one that was asked and has not answered yet."""


def worker_tokens(item: Slice, unanswered: Mapping[Place, str]) -> tuple[str, ...]:
    """What each worker of a slice looks like.

    Args:
        item: The slice.
        unanswered: What is said of those on which ssh does not answer.
    """
    token = slice_token(item)
    if not unanswered:
        return (token,) * len(item.workers)
    said = [unanswered.get((item.project, item.zone, item.node_id, worker.index)) for worker in item.workers]
    return tuple(token if text is None else SILENT if text.startswith("no ssh") else ASKED for text in said)


def heat(item: QueuedResource, unanswered: Mapping[Place, str]) -> list[HeatSlice]:
    """One cell a worker; slices without endpoints yet show as many empty cells as they will have."""
    cells = []
    known = {one.index: one for one in item.slices}
    for index in range(max(item.slice_count, max(known, default=-1) + 1)):
        one = known.get(index)
        if one is None or not one.workers:
            cells.append(HeatSlice(f"slice {index}", ("heat-empty",) * max(item.workers_per_slice, 1)))
        else:
            cells.append(HeatSlice(f"slice {index}", worker_tokens(one, unanswered)))
    return cells


def timeline(spans: Sequence[StateSpan], since: StateSince | None, state: str, now: datetime) -> list[TimelineSpan]:
    """The journal's spans, or the present state alone where the journal has none."""
    if spans:
        return [TimelineSpan(span.state, span.seconds(now), span.entered_is_lower_bound) for span in spans]
    if since is None:
        return [TimelineSpan(state, None)]
    return [TimelineSpan(state, (now - since.at).total_seconds(), since.is_lower_bound)]


def past_lines(events: Sequence[Event]) -> list[str]:
    """What happened to a request and its slices, the newest first."""
    lines = []
    for event in reversed(events):
        part = event.subject.partition("/")[2]
        about = f"slice {part}: " if part else ""
        lines.append(f"{event.at:%H:%M:%S} {about}{plain(sentence(event))}")
    return ["what happened (UTC)", *lines] if lines else []


class FleetDetail(Vertical):
    """A strip below the table, or a pane beside it on wide terminals."""

    SCOPED_CSS = False
    DEFAULT_CSS = """
    #detail { height: auto; max-height: 9; border-top: solid $rule; padding: 0 1; }
    #detail-title { color: $title; text-style: bold; height: 1; display: none; }
    #detail-timeline { height: 1; }
    #detail-heat { height: auto; max-height: 3; }
    #detail-text { height: auto; color: $muted; }
    .-vast #detail { width: 42; height: 1fr; max-height: 100%; border-top: none; border-left: solid $rule; }
    .-vast #detail-title { display: block; }
    .-vast #detail-heat { max-height: 50%; margin: 1 0; }
    #detail-past { display: none; height: auto; color: $muted; margin-top: 1; }
    .-vast #detail-past { display: block; }
    .-low #detail { max-height: 6; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._title = Static(id="detail-title", markup=False)
        self._timeline = StateTimeline(id="detail-timeline")
        self._heat = HeatStrip(id="detail-heat")
        self._text = Static(id="detail-text", markup=False)
        self._past = Static(id="detail-past", markup=False)
        self._said: dict[Static, str] = {}

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._timeline
        yield self._heat
        yield self._text
        yield self._past

    def _say(self, widget: Static, text: str) -> None:
        """Updates a text that changed: every update is a layout of the whole screen."""
        if self._said.get(widget) != text:
            before = self._said.get(widget, "")
            self._said[widget] = text
            widget.update(text)
            if text.count("\n") != before.count("\n"):
                # An update that falls into a layout is drawn in the height of the text before.
                self.call_after_refresh(widget.refresh, layout=True)

    def show(
        self,
        item: QueuedResource | Slice | None,
        since: StateSince | None,
        spans: Sequence[StateSpan],
        now: datetime,
        *,
        keys: str,
        stale: str = "",
        notes: Sequence[str] = (),
        ssh: SshWord | None = None,
        unanswered: Mapping[Place, str] = NOBODY,
        past: Sequence[Event] = (),
    ) -> None:
        """Draws what is known of one item; hides itself when there is none.

        Args:
            notes: What this program is to do about it.
            keys: What to press for a dead request.
            stale: Why this is not what is now, but what was last heard; empty while it is fresh.
            ssh: Whether ssh answers on what the cloud calls ready.
            unanswered: What is said of workers on which it does not.
            past: What happened to it, the newest last: shown where there is room.
        """
        self.display = item is not None
        if item is None:
            return
        self._say(self._past, "\n".join(past_lines(past)))
        if isinstance(item, Slice):
            self._show_slice(item, stale, ssh, unanswered)
            return
        self._say(self._title, item.name)
        self._timeline.set_spans(timeline(spans, since, item.state, now))
        self._heat.set_slices(heat(item, unanswered))
        lines = self._facts(item, now) if self.screen.has_class("-vast") else [summary(item, now)]
        if stale:
            lines.insert(0, stale)
        lines += [*([ssh.text] if ssh is not None else []), *sentences(item, since, now, ssh), *notes]
        if item.state in DEAD_STATES:
            lines.append(f"{keys}.")
        self._say(self._text, "\n".join(lines))

    def _facts(self, item: QueuedResource, now: datetime) -> list[str]:
        facts = [
            f"{count(item.slice_count, 'slice')} of {item.accelerator_type or 'an unknown type'}"
            + (f" ({item.topology})" if item.topology else ""),
            summary(item, now),
            f"project {item.project}",
        ]
        if item.valid_until is not None:
            facts.append(f"valid until {item.valid_until:%Y-%m-%d %H:%M} UTC")
        return facts

    def _show_slice(self, item: Slice, stale: str, ssh: SshWord | None, unanswered: Mapping[Place, str]) -> None:
        self._say(self._title, item.node_id)
        self._timeline.set_spans([TimelineSpan(item.state, None)])
        self._heat.set_slices(
            [HeatSlice(f"slice {item.index}", worker_tokens(item, unanswered) or (slice_token(item),))]
        )
        what = "A machine of the inventory" if item.state == LISTED else "A TPU VM made without a queued resource"
        facts = " · ".join(part for part in (what, item.accelerator_type, item.zone) if part)
        self._say(self._text, "\n".join(line for line in (stale, facts, ssh.text if ssh is not None else "") if line))
