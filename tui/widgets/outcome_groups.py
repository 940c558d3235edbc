"""What became of a run, grouped: workers with the same outcome and the same output stand together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tui.look import Look, look_of, outcome_token
from tui.widgets.drawing import draw_selection
from tui.widgets.sgr import pieces
from tui.wording import count, size

LINES_SHOWN = 200
"""Lines of a group's output that can be unfolded, its last ones, where errors are; the log has all of them."""
SIDEWAYS = 16
_ORDER = ("failed", "signalled", "timed_out", "unreachable", "unknown", "not_started", "pending", "ok")


@dataclass(frozen=True, slots=True)
class OutcomeGroup:
    """Workers that ended alike."""

    outcome: str
    """A `backend.outcomes.Outcome`."""
    count: int
    members: str
    """Folded addresses, e.g. `train-a/0/0-3`."""
    detail: str = ""
    """E.g. `exit 1`, `SIGABRT`."""
    lines: tuple[str, ...] = ()
    """Their common output, through the gate, with SGR."""
    is_first_failure: bool = False
    folded: int = 0
    """Workers whose failure merely follows from the first one, counted under it."""
    first_member: str = ""
    """The address to open when the group is activated."""
    cut_bytes: int = 0
    """Bytes of output before `lines` that were left out."""
    rule: str = ""
    """Folded addresses whose output is the rule from which this one differs."""
    differs: tuple[str, ...] = ()
    """Lines of a diff from the rule to this one, plain."""

    @property
    def identity(self) -> tuple[str, str, tuple[str, ...]]:
        """What makes it the same group as members join."""
        return (self.outcome, self.detail, self.lines)


def sort_groups(groups: Sequence[OutcomeGroup]) -> list[OutcomeGroup]:
    """The first failure, then what is worst, then what most workers share."""

    def weight(group: OutcomeGroup) -> tuple[bool, int, int]:
        rank = _ORDER.index(group.outcome) if group.outcome in _ORDER else 0
        return (not group.is_first_failure, rank, -group.count)

    return sorted(groups, key=weight)


def group_lines(
    group: OutcomeGroup, look: Look, base: Style, *, unfolded: bool, cursor: bool, focused: bool
) -> list[Strip]:
    """The head of a group, and its output when it is unfolded; uncropped."""
    token = outcome_token(group.outcome)
    ground = base + look.style("cursor" if focused else "cursor-blurred") if cursor else base
    word = group.outcome.replace("_", " ") + (f" ({group.detail})" if group.detail else "")
    workers = f"{group.count:,} worker" + ("" if group.count == 1 else "s")
    fold = " " if not group.lines else look.glyph("expanded" if unfolded else "collapsed")
    own = ground if cursor and focused else ground + look.style(token)
    segments = [
        Segment(f"{look.glyph('cursor') if cursor else ' '}{fold} ", ground),
        Segment(f"{look.glyph(token)} {word}", own),
        Segment(f"  {workers}  {group.members}", ground),
    ]
    if not unfolded and len(group.lines) == 1:
        # Muted is made for the ground of the screen: on the cursor it may be no more than a shadow.
        quiet = ground if cursor and focused else ground + look.style("muted")
        segments.append(Segment(f"  {''.join(text for text, _ in pieces(group.lines[0]))}", quiet))
    if group.is_first_failure:
        segments.append(Segment("  failed first", ground if cursor and focused else ground + look.style("log-error")))
    strips = [Strip(segments)]
    muted = base + look.style("muted")
    if group.folded:
        follow = "1 other failure follows" if group.folded == 1 else f"{group.folded:,} other failures follow"
        strips.append(Strip([Segment(f"     {follow} from it", muted)]))
    if unfolded:
        lead = Segment(f"   {look.glyph('bar')} ", muted)
        earlier = max(0, len(group.lines) - LINES_SHOWN)
        left_out = [
            *([f"{size(group.cut_bytes)}"] if group.cut_bytes else []),
            *([f"{count(earlier, 'line')}"] if earlier else []),
        ]
        if left_out:
            strips.append(Strip([lead, Segment(f"{' and '.join(left_out)} before this: the log has them", muted)]))
        for line in group.lines[earlier:]:
            body = [
                Segment(text, base + look.legible(style, base) if style else base) for text, style in pieces(line)
            ]
            strips.append(Strip([lead, *body]))
        if group.differs:
            strips.append(Strip([lead, Segment(f"differs from {group.rule} (-) in:", muted)]))
            strips += [Strip([lead, Segment(f"  {line}", muted)]) for line in group.differs[:LINES_SHOWN]]
    return strips


class OutcomeGroups(ScrollView, can_focus=True):
    """Groups, worst first; enter opens and closes the output of one. Failures are open from the start."""

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    OutcomeGroups {
        background: $background;
        color: $foreground;
        height: 1fr;
        scrollbar-size-horizontal: 0;
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "next group", show=False, id="groups.down"),
        Binding("up,k", "move(-1)", "previous group", show=False, id="groups.up"),
        Binding("g,home", "move(-9999)", "first group", show=False, id="groups.top"),
        Binding("G,end", "move(9999)", "last group", show=False, id="groups.bottom"),
        Binding("ctrl+d", "half_page(1)", "half a page down", show=False, id="groups.half-page-down"),
        Binding("ctrl+u", "half_page(-1)", "half a page up", show=False, id="groups.half-page-up"),
        Binding("left", "sideways(-1)", "to the left", show=False, id="groups.left"),
        Binding("right", "sideways(1)", "to the right", show=False, id="groups.right"),
        Binding("enter,space", "fold", "open or close", show=False, id="groups.toggle"),
        Binding("l", "activate", "log of the group", show=False, id="groups.log"),
    ]

    class EmptyActivated(Message):
        """Enter was pressed while there was no group yet."""

        def __init__(self, groups: OutcomeGroups) -> None:
            super().__init__()
            self.groups = groups

        @property
        def control(self) -> OutcomeGroups:
            return self.groups

    class GroupActivated(Message):
        """`l` or a double click on a group: show its log."""

        def __init__(self, view: OutcomeGroups, group: OutcomeGroup) -> None:
            super().__init__()
            self.view = view
            self.group = group

        @property
        def control(self) -> OutcomeGroups:
            return self.view

    def __init__(
        self,
        *,
        empty: str = "nothing has ended yet",
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.empty = empty
        self.groups: list[OutcomeGroup] = []
        self.cursor = 0
        self._toggled: set[tuple[str, str, tuple[str, ...]]] = set()
        """Groups that were opened or closed by hand, against what they would be."""
        self._strips: list[Strip] = []
        self._heads: list[int] = []
        self._drawn: tuple[object, ...] = ()

    def set_empty(self, text: str) -> None:
        """What is said while there are no groups."""
        if text != self.empty:
            self.empty = text
            if not self.groups:
                self.refresh()

    def set_groups(self, groups: Sequence[OutcomeGroup]) -> None:
        """Shows other groups; the cursor and what was opened or closed stay with theirs."""
        fresh = sort_groups(groups)
        if fresh == self.groups:
            return
        identity = self.groups[self.cursor].identity if self.groups else None
        self.groups = fresh
        same = (index for index, group in enumerate(fresh) if group.identity == identity)
        self.cursor = next(same, min(self.cursor, max(0, len(fresh) - 1)))
        self._changed()

    @property
    def current(self) -> OutcomeGroup | None:
        """The group under the cursor."""
        return self.groups[self.cursor] if self.groups else None

    def is_unfolded(self, group: OutcomeGroup) -> bool:
        """Failures are open, and so is a single group; `ok` among others is closed. By hand it is the other way round."""
        open_at_first = group.outcome != "ok" or len(self.groups) == 1
        return bool(group.lines) and open_at_first != (group.identity in self._toggled)

    # -- painting ----------------------------------------------------------------------------------------------------

    def _layout(self) -> None:
        look, base = look_of(self), self.rich_style
        key = (tuple(self.groups), look, base, self.cursor, self.has_focus, frozenset(self._toggled))
        if key == self._drawn:
            return
        self._drawn = key
        self._strips, self._heads = [], []
        for index, group in enumerate(self.groups):
            self._heads.append(len(self._strips))
            cursor = index == self.cursor
            unfolded = self.is_unfolded(group)
            self._strips += group_lines(group, look, base, unfolded=unfolded, cursor=cursor, focused=self.has_focus)

    def _changed(self) -> None:
        if not self.is_attached:
            return
        self._layout()
        width = max((strip.cell_length for strip in self._strips), default=0)
        size = Size(max(width, self.size.width), len(self._strips))
        if size != self.virtual_size:
            self.virtual_size = size
        self.refresh()

    def on_mount(self) -> None:
        self._changed()

    def on_resize(self) -> None:
        self._changed()

    def on_focus(self) -> None:
        self._changed()

    def on_blur(self) -> None:
        self._changed()

    def render_line(self, y: int) -> Strip:
        self._layout()
        scroll_x, scroll_y = self.scroll_offset
        base, width = self.rich_style, self.size.width
        line = scroll_y + y
        if line >= len(self._strips):
            if not self._strips and y == 1:
                return Strip([Segment(f"  {self.empty}", base + look_of(self).style("muted"))]).adjust_cell_length(
                    width, base
                )
            return Strip.blank(width, base)
        strip = self._strips[line]
        if (selection := self.text_selection) is not None:
            strip = draw_selection(strip, selection, line, look_of(self).style("selection"))
        ground = base
        if line in self._heads and self._heads.index(line) == self.cursor:
            ground = base + look_of(self).style("cursor" if self.has_focus else "cursor-blurred")
        return strip.crop_extend(scroll_x, scroll_x + width, ground).apply_offsets(scroll_x, line)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it stands on the screen."""
        return selection.extract("\n".join(strip.text for strip in self._strips)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # -- keys and mouse ----------------------------------------------------------------------------------------------

    def action_move(self, groups: int) -> None:
        if not self.groups:
            return
        self.cursor = max(0, min(self.cursor + groups, len(self.groups) - 1))
        self._changed()
        self._show_cursor()

    def _show_cursor(self) -> None:
        """Brings the head into sight, and as much of the output as fits."""
        head = self._heads[self.cursor]
        following = self._heads[self.cursor + 1 :]
        end = min(following[0] if following else len(self._strips), head + self.size.height)
        top = self.scroll_offset.y
        if head < top:
            self.scroll_to(y=head, animate=False, force=True)
        elif end > top + self.size.height:
            self.scroll_to(y=end - self.size.height, animate=False, force=True)

    def action_half_page(self, direction: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + direction * max(1, self.size.height // 2), animate=False)

    def action_sideways(self, direction: int) -> None:
        self.scroll_to(x=self.scroll_offset.x + direction * SIDEWAYS, animate=False)

    def action_fold(self) -> None:
        group = self.current
        if group is None:
            self.post_message(self.EmptyActivated(self))
        elif group.lines:
            self._toggled ^= {group.identity}
            self._changed()
            self._show_cursor()

    def action_activate(self) -> None:
        if (group := self.current) is not None:
            self.post_message(self.GroupActivated(self, group))

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()
        offset = event.get_content_offset(self)
        if offset is None:
            return
        line = self.scroll_offset.y + offset.y
        if line >= len(self._strips):
            return
        index = max(place for place, head in enumerate(self._heads) if head <= line)
        on_head = self._heads[index] == line
        self.cursor = index
        if event.chain == 2:
            self.action_activate()
        elif on_head and offset.x < 3:
            self.action_fold()
        self._changed()
