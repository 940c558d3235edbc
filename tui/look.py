"""What a token looks like: its colour in the present theme and its glyph.

Widgets name tokens (`state-active`, `outcome-failed`, `muted`), never colours. A theme may set any of them; what it
leaves out falls back to one of Textual's own colours, so that every built-in theme works too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, TerminalTheme
from textual.app import App
from textual.color import Color, ColorParseError

from tui.glyphs import UNICODE, GlyphSet

if TYPE_CHECKING:
    from textual.widget import Widget

WORKER_COLOURS = 8
"""Distinct colours for the source prefixes of a merged log."""

TOKENS: dict[str, str] = {
    "state-creating": "secondary",
    "state-accepted": "secondary",
    "state-waiting": "warning",
    "state-provisioning": "primary",
    "state-active": "success",
    "state-failed": "error",
    "state-suspending": "warning",
    "state-suspended": "error",
    "state-deleting": "secondary",
    "state-unknown": "accent",
    "node-ready": "success",
    "node-starting": "primary",
    "node-repairing": "warning",
    "node-stopped": "secondary",
    "node-preempted": "error",
    "node-unhealthy": "error",
    "outcome-pending": "secondary",
    "outcome-ok": "success",
    "outcome-failed": "error",
    "outcome-signalled": "error",
    "outcome-timed-out": "warning",
    "outcome-unreachable": "warning",
    "outcome-unknown": "accent",
    "outcome-not-started": "muted",
    "log-error": "error",
    "log-warning": "warning",
    "muted": "secondary",
    "title": "primary",
    "key": "accent",
    "mark": "accent",
    "stale": "warning",
    "simulated": "accent",
    "badge-read-only": "warning",
    "badge-read-write": "success",
    "rule": "muted",
    "cursor-foreground": "foreground",
    "cursor-background": "primary-muted",
    "cursor-blurred-background": "panel",
    "match-foreground": "background",
    "match-background": "warning",
    "match-current-foreground": "background",
    "match-current-background": "accent",
    "selection-foreground": "background",
    "selection-background": "foreground",
    "plot-median": "primary",
    "plot-band": "secondary",
    "plot-warmup": "muted",
    "plot-peak": "error",
    "plot-prediction": "accent",
    "worker-1": "primary",
    "worker-2": "success",
    "worker-3": "warning",
    "worker-4": "accent",
    "worker-5": "secondary",
    "worker-6": "error",
    "worker-7": "foreground",
    "worker-8": "muted",
}
"""Token -> the token or Textual variable that stands in for it when a theme does not set it."""

_BOLD = frozenset(
    {"state-failed", "outcome-failed", "node-unhealthy", "title", "key", "mark", "log-error", "badge-read-only"}
    | {"badge-read-write", "match-current"}
)

_STATES = {
    "CREATING": "state-creating",
    "ACCEPTED": "state-accepted",
    "WAITING_FOR_RESOURCES": "state-waiting",
    "WAITING": "state-waiting",
    "PROVISIONING": "state-provisioning",
    "ACTIVE": "state-active",
    "FAILED": "state-failed",
    "SUSPENDING": "state-suspending",
    "SUSPENDED": "state-suspended",
    "DELETING": "state-deleting",
    "READY": "node-ready",
    "STARTING": "node-starting",
    "RESTARTING": "node-repairing",
    "REIMAGING": "node-repairing",
    "REPAIRING": "node-repairing",
    "STOPPED": "node-stopped",
    "STOPPING": "node-stopped",
    "PREEMPTED": "node-preempted",
    "TERMINATED": "node-preempted",
}


LEGIBLE = 2.0
"""Contrast below which remote text loses its colours: dim greys are meant, white on white is not."""


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """WCAG 2.1 contrast ratio of two colours, 1 to 21."""

    def luminance(color: tuple[int, int, int]) -> float:
        def linear(part: int) -> float:
            value = part / 255
            return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

        red, green, blue = (linear(part) for part in color)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def state_token(state: str) -> str:
    """The token of a queued resource's or node's state; states that this release does not know have their own."""
    return _STATES.get(state, "state-unknown")


def outcome_token(outcome: str) -> str:
    """The token of a `backend.outcomes.Outcome`."""
    token = f"outcome-{outcome.replace('_', '-')}"
    return token if token in TOKENS else "outcome-unknown"


def log_token(level: str) -> str:
    """The token of a log level, or empty for ordinary lines."""
    return {"error": "log-error", "warning": "log-warning"}.get(level, "")


def default_variables(generated: Mapping[str, str]) -> dict[str, str]:
    """A colour for every token, for `App.get_theme_variable_defaults`, so that `$muted` parses in every theme's CSS.

    Args:
        generated: `app.current_theme.to_color_system().generate()`.
    """
    values: dict[str, str] = {}
    for token in TOKENS:
        name = token
        while name not in generated and name in TOKENS:
            name = TOKENS[name]
        values[token] = generated.get(name, generated.get("foreground", "ansi_default"))
    return values


class Look:
    """Styles and glyphs for one theme. Immutable: a new theme is a new object, so caches compare by identity.

    Args:
        variables: Variable name -> CSS colour, as `App.theme_variables` has it.
        glyphs: The set to draw with.
        no_color: NO_COLOR is set: remote colours are not even tried.
        ansi_colors: What the sixteen colours of remote text become where they are not the terminal's own.
    """

    def __init__(
        self,
        variables: Mapping[str, str] | None = None,
        glyphs: GlyphSet = UNICODE,
        *,
        no_color: bool = False,
        ansi_colors: TerminalTheme = DEFAULT_TERMINAL_THEME,
    ) -> None:
        self.glyphs = glyphs
        self.no_color = no_color
        self.ansi_colors = ansi_colors
        self._given = variables if variables is not None else {}
        self._variables = dict(self._given)
        self._styles: dict[str, Style] = {}

    def style(self, token: str) -> Style:
        """The foreground style of a token, or of `NAME` where `NAME-foreground` and `NAME-background` exist: both."""
        style = self._styles.get(token)
        if style is None:
            style = self._styles[token] = self._make(token)
        return style

    def has_variables(self, variables: Mapping[str, str]) -> bool:
        """Whether this look was made of these variables; cheap for the same mapping object."""
        return variables is self._given or variables == self._variables

    def legible(self, style: Style, base: Style) -> Style:
        """A colour of remote text, or none where it could not be read on the background of `base`.

        A log that is written for dark terminals has white words; on a light theme they are drawn as ordinary ones.
        """
        if style.color is None and style.bgcolor is None:
            return style
        if self.no_color:
            return style.without_color
        ground = style.bgcolor or base.bgcolor
        color = style.color or base.color
        if ground is None or color is None or ground.is_default or color.is_default:
            return style
        if base.bgcolor is None or base.bgcolor.is_default:
            return style
        one = color.get_truecolor(self.ansi_colors)
        other = ground.get_truecolor(self.ansi_colors)
        if contrast(one, other) >= LEGIBLE:
            return style
        return style.without_color

    def glyph(self, token: str) -> str:
        """The glyph of a token in the look's set."""
        return self.glyphs.get(token)

    def worker(self, ordinal: int) -> Style:
        """A stable colour for the n-th source of a merged log."""
        return self.style(f"worker-{ordinal % WORKER_COLOURS + 1}")

    def _make(self, token: str) -> Style:
        bold = True if token in _BOLD else None
        if not token:
            return Style.null()
        if f"{token}-background" in TOKENS:
            foreground, background = self._color(f"{token}-foreground"), self._color(f"{token}-background")
            return Style(
                color=foreground.rich_color if foreground else None,
                bgcolor=background.rich_color if background else None,
                bold=bold,
                reverse=True if background is None else None,
            )
        color = self._color(token)
        if color is None:
            return Style(bold=bold)
        # The terminal's own colours can't be mixed with the background: the terminal dims them itself.
        faint = True if color.ansi is not None and color.a < 1 else None
        return Style(color=color.rich_color, bold=bold, dim=faint)

    def _color(self, name: str) -> Color | None:
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            value = self._variables.get(name, "")
            if not value or value.startswith("$"):
                name = value.removeprefix("$") if value else TOKENS.get(name, "")
                if not name:
                    return None
                continue
            return self._parse(value)
        return None

    def _parse(self, value: str) -> Color | None:
        """A colour with its `50%`, laid over the background: rich knows no transparency."""
        text, _, percentage = value.strip().partition(" ")
        try:
            color = Color.parse(text)
        except ColorParseError:
            return None
        if percentage.endswith("%"):
            # Not multiply_alpha: it leaves the terminal's own colours as they are.
            color = color._replace(a=color.a * float(percentage.rstrip("%")) / 100)
        if color.ansi is not None:
            return color
        if color.a == 0:
            return None
        if color.a < 1:
            under = self._variables.get("background", "")
            try:
                base = Color.parse(under) if under else Color(0, 0, 0)
            except ColorParseError:
                base = Color(0, 0, 0)
            if base.ansi is not None:
                return color.with_alpha(1)
            return base + color
        return color


PLAIN = Look()
"""No colours: bold and glyphs only. What golden tests draw with."""


_LOOKS: WeakKeyDictionary[App[Any], Look] = WeakKeyDictionary()


def look_of(node: App[Any] | Widget) -> Look:
    """The present look of the app that a widget lives in.

    The same object is returned until the theme or the glyph set (`app.glyphs`, where the app has one) changes.
    """
    app = node if isinstance(node, App) else node.app
    glyphs: GlyphSet = getattr(app, "glyphs", UNICODE)
    look = _LOOKS.get(app)
    if look is None or look.glyphs is not glyphs or not look.has_variables(app.theme_variables):
        look = _LOOKS[app] = Look(
            app.theme_variables, glyphs, no_color=bool(app.no_color), ansi_colors=app.ansi_theme
        )
    return look
