"""The Textual application: opened by `slicetower` without a verb.

It paints first and opens the tower (cloud client, journal, watch, connections) afterwards, in a worker: nothing here
imports grpc or asyncssh. Screens live on one stack over the fleet; actions that no screen performs itself end here.
"""

from __future__ import annotations

import gc
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from textual.app import App, SystemCommand
from textual.driver import Driver
from textual.events import Event as TerminalEvent
from textual.events import Key, MouseDown, MouseScrollDown, MouseScrollUp
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from backend.outcomes import OperatorError
from backend.sanitize import plain
from tui.actions import BY_ID, MAIN, in_scope, refusal
from tui.command_line import CommandLine, History, in_console
from tui.glyphs import ASCII, UNICODE
from tui.look import default_variables
from tui.mends import let_go_of_closed_widgets
from tui.navigation import Navigation
from tui.screens.base import ConsoleScreen, Performs
from tui.screens.fleet import FleetScreen
from tui.settings import Settings
from tui.station import Station
from tui.themes import DEFAULT_THEME, ThemeStore
from tui.toasts import Toasts
from tui.wording import count

if TYPE_CHECKING:
    from backend.context import Context
    from backend.model import Event, EventKind
    from backend.paths import Paths

NOTICES = 500
"""Own errors and actions kept for the events screen until the journal takes them."""
THEME_POLL_S = 2.0
MEDIUM, WIDE, VAST = 100, 120, 150
"""Columns from which the fleet shows all its columns, forms stand beside their preview, the fleet beside its detail.

A screen has the class of the widest that fits and no other: what holds for `-wide` is written for `-vast` too.
"""


class SliceTower(Toasts, Station, Navigation):
    """The console on one context."""

    TITLE = "slicetower"
    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (MEDIUM, "-medium"), (WIDE, "-wide"), (VAST, "-vast")]  # noqa: RUF012 - Textual's own kind
    _theme_is_chosen = False
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-high")]  # noqa: RUF012

    def __init__(
        self,
        context: Context,
        settings: Settings | None = None,
        *,
        console_log: Path | None = None,
        themes_folder: Path | None = None,
        context_arguments: Sequence[str] = (),
        driver_class: type[Driver] | None = None,
    ) -> None:
        self.console_log = console_log
        let_go_of_closed_widgets()
        super().__init__(driver_class=driver_class)
        self.context = context
        self.settings = settings or Settings()
        self.themes_folder = themes_folder
        self.context_arguments = tuple(context_arguments)
        """The options that name the context, for processes of our own."""
        self.command_history: list[str] = list(self.settings.commands.values())
        self.started_read_only = self.read_only = context.read_only
        self.glyphs = ASCII if self.settings.ascii else UNICODE
        if self.settings.ascii:
            from tui.ascii_filter import AsciiFilter

            self._filters.append(AsciiFilter())
        self.history = History()
        self.drafts: dict[str, dict[str, str]] = {}
        """Forms that were left without being sent, by their kind: field name to text."""
        self.paused = False
        self.init_station()
        self._choose_theme()
        self.notices: deque[Event] = deque(maxlen=NOTICES)
        self.notices_version = 0

    def get_css_variables(self) -> dict[str, str]:
        """Textual's own asks for the colours twice, and once more for a theme that is not ours."""
        if not self._theme_is_chosen:
            self.theme_variables = {}
            return {}
        theme = self.current_theme
        generated = theme.to_color_system().generate()
        self.theme_variables = {**default_variables(generated), **generated, **theme.variables}
        return self.theme_variables

    def _choose_theme(self) -> None:
        """Before the first paint, so that the style sheet is read once; the other themes are read after it."""
        self.themes = ThemeStore(self.themes_folder)
        wanted = self.settings.theme or DEFAULT_THEME
        self._theme_problems = [] if self.themes.install_one(self, wanted) else self._install_themes()
        if wanted not in self.available_themes:
            known = ", ".join(self.themes.names)
            self._theme_problems.append(f"There is no theme '{wanted}'; there are {known}.")
            wanted = DEFAULT_THEME
        self.set_reactive(App.theme, wanted)
        # Textual made its style sheet and its classes of its own theme before this one was known.
        theme = self.current_theme
        self.remove_class(*(name for name in self.classes if name.startswith("-theme-")), update=False)
        self.add_class(f"-theme-{theme.name}", update=False)
        self.set_class(theme.dark, "-dark-mode", update=False)
        self.set_class(not theme.dark, "-light-mode", update=False)
        self._refresh_truecolor_filter(self.ansi_theme)
        self._theme_is_chosen = True
        self.stylesheet.set_variables(self.get_css_variables())

    def _install_themes(self) -> list[str]:
        return [f"A theme was left out: {failure}" for failure in self.themes.install(self)]

    # Beginning

    def get_default_screen(self) -> Screen[Any]:
        """The fleet itself: a blank screen below it would be styled, laid out and painted first."""
        self.set_keymap(self.settings.keymap.for_textual())
        return FleetScreen()

    def on_mount(self) -> None:
        self.set_interval(THEME_POLL_S, self._poll_themes)

    def after_first_frame(self) -> None:
        """What the first frame did without: collections, the other themes, and the tower, whose libraries take a while."""
        gc.enable()
        if self.console_log is not None:
            self.history.keep_in(self.console_log.with_name("history"))
        others = self._install_themes() if not self._theme_problems else ()
        self._tell_problems([*self.settings.problems, *self._theme_problems, *others])
        self.open_tower()

    def _tell_problems(self, problems: Sequence[str]) -> None:
        """Mistakes of the configuration: the first as a message, all of them among the events."""
        if not problems:
            return
        from backend.model import EventKind

        for problem in problems:
            self.note(EventKind.ERROR, problem)
        key = self.settings.keymap.shown(BY_ID["go.events"])
        more = f" And {count(len(problems) - 1, 'more mistake')}: {key} tells all." if len(problems) > 1 else ""
        self.say(f"{problems[0]}{more}", severity="warning")

    def _poll_themes(self) -> None:
        change = self.themes.poll(self)
        if change is not None:
            for failure in change.failures:
                self.say(str(failure), title="a theme was left out", severity="warning")

    async def on_event(self, event: TerminalEvent) -> None:
        if isinstance(event, (Key, MouseDown, MouseScrollDown, MouseScrollUp)):
            self.hold_reading()
        if isinstance(event, Key):
            self.dismiss_read(event.time)
        if isinstance(event, Key) and isinstance(self.screen, Performs) and not self.screen.takes(event):
            # Typed ahead, before the question was on the screen: whatever it was meant for, it is no answer.
            return
        if isinstance(event, Key) and not event.is_forwarded and await self._done_in_turn(event):
            return
        await super().on_event(event)

    async def _done_in_turn(self, event: Key) -> bool:
        """Carries a key out before the next one is looked at, where no field takes what is typed.

        By way of the widget that has the focus it would come after a key with priority that was pressed later: `j` and `x` in one
        burst, as over a slow line, would run on the row before. True when it meant something.
        """
        screen, focused = self.screen, self.focused
        if not isinstance(screen, ConsoleScreen) or screen.SCOPE not in MAIN or focused is None:
            return False
        if focused.check_consume_key(event.key, event.character) or isinstance(focused, Input):
            return False
        return await self._check_bindings(event.key, priority=True) or await self._check_bindings(event.key)

    def on_key(self, event: Key) -> None:
        """A key that means nothing where it was pressed says so, and what it means elsewhere."""
        screen = self.screen
        if isinstance(screen, ConsoleScreen) and screen.SCOPE in MAIN and event.key not in screen.active_bindings:
            self.say(self.settings.keymap.nothing_here(event.key), severity="warning")

    # Telling

    def note(self, kind: EventKind, text: str, *, subject: str = "") -> None:
        """An event of the console's own: shown among the events, and journalled."""
        if self.tower is not None:
            # A journal that cannot be written is no reason to lose what is told: it stands among the events all the same.
            with suppress(OperatorError):
                self.tower.record(plain(text), subject=subject, kind=kind)
                return
        from backend.model import Event

        event = Event(
            at=datetime.now(UTC), kind=kind, subject=subject, text=plain(text), project=self.context.project
        )
        self.notices.append(event)
        self.notices_version += 1

    def tell(self, error: BaseException, *, doing: str = "") -> None:
        """An error as a sentence: on screen, and among the events. What is no operator's error leaves its trace in the log."""
        if isinstance(error, OperatorError):
            text = in_console(f"{error.what} {error.cure}".strip())
        else:
            text = f"slicetower itself failed{f' at {doing!r}' if doing else ''}: {type(error).__name__}: {error}."
            self._log_trace(error)
            text += f" The trace is in {self.console_log}." if self.console_log else ""
        from backend.model import EventKind

        self.say(text, title=doing, severity="error")
        self.note(EventKind.ERROR, f"{doing}: {text}" if doing else text)

    def _log_trace(self, error: BaseException) -> None:
        if self.console_log is None:
            return
        lines = "".join(traceback.format_exception(error))
        descriptor = os.open(self.console_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{lines}\n")

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        error = event.worker.error
        if event.state is not WorkerState.ERROR or error is None:
            return
        if event.worker is self._keeper and isinstance(error, OperatorError):
            self.trouble = error
        self.tell(error, doing=event.worker.name)

    # The palette and the command line

    def do_palette(self) -> None:
        self.action_command_palette()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action that works on this screen now."""
        if not isinstance(screen, Performs):
            return
        for action in in_scope(screen.SCOPE):
            if action.by_widget or action.id == "palette" or refusal(action, read_only=self.read_only):
                continue
            if action.only_simulated and not self.is_simulated:
                continue
            perform = cast("Callable[[], None]", lambda chosen=action.id: screen.action_perform(chosen))
            key = self.settings.keymap.shown(action)
            yield SystemCommand(f"{action.title}{f'  ({key})' if key else ''}", action.help, perform)

    def run_line(self, screen: Screen[Any], line: CommandLine) -> None:
        from tui.lines import run_line

        assert isinstance(screen, ConsoleScreen)
        run_line(self, screen, line)

    # Small actions

    def do_refresh(self) -> None:
        if self.tower is None:
            if self.trouble is not None:
                self.open_tower()
            return
        self.tower.watch.poke()
        self.ask_ssh_again()

    def do_pause(self) -> None:
        self.paused = not self.paused
        key = self.settings.keymap.shown(BY_ID["pause"])
        self.say(f"The screen stands still; {key} lets it go on." if self.paused else "The screen goes on.")

    def do_theme(self) -> None:
        names = self.themes.names
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]
        self.say(f"Theme: {self.theme}")

    def do_interrupt(self) -> None:
        text = self.screen.get_selected_text()
        if text:
            self.copy(text)
        else:
            self.say(f"{self.settings.keymap.shown(BY_ID['quit'])} quits.")

    def copy(self, text: str) -> None:
        """Copies by OSC 52, and to a file, because many terminals drop OSC 52 or a part of it."""
        self.copy_to_clipboard(text)
        where = ""
        if self.console_log is not None:
            file = self.console_log.with_name("copied.txt")
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as target:
                target.write(text)
            where = f", also to {file}"
        self.say(f"Copied {count(len(text), 'character')}{where}.")

    def tell_terminal(self, text: str) -> None:
        """A desktop notification by OSC 9, where the terminal shows them."""
        if self._driver is not None:
            self._driver.write(f"\x1b]9;{plain(text)}\x07")

    def do_screenshot(self) -> None:
        name = f"slicetower-{datetime.now(UTC):%Y%m%d-%H%M%S}.svg"
        path = self.save_screenshot(name, path=str(self.console_log.parent) if self.console_log else None)
        self.say(f"Saved {path}.")

    async def action_quit(self) -> None:
        """What ctrl+q does by Textual's own binding, which comes before any screen's: it asks like every way out."""
        screen = self.screen
        if isinstance(screen, Performs) and screen.SCOPE in BY_ID["quit"].scopes:
            screen.action_perform("quit")

    async def do_quit(self) -> None:
        """Says what still exists and runs, asks, closes, and leaves."""
        from tui.screens.confirm import Question
        from tui.screens.leaving import leaving_choices, leaving_lines, left_words

        kept, raced = self.carried_out()
        tower, unread = self.tower, ""
        try:
            spent = list(tower.costs(self.fleet.queued_resources).values()) if tower is not None else []
            keeps, wishes = self.keeps(), self.wishes()
        except OperatorError as error:
            # The way out stays open: the cure of a damaged journal is to leave, and to begin with a new one.
            spent, keeps, wishes = [], (), ()
            unread = f"What is wished, kept and used is not known. {error.what} {error.cure}".strip()
        lines = leaving_lines(
            self.fleet,
            self.live_runs(),
            self.context.prices,
            spent=spent,
            keeps=keeps,
            wishes=wishes,
            forwards=self.forwards.living,
            kept_here=kept,
            raced_here=raced,
        )
        lines += [unread] if unread else []
        answer: str | None = "quit"
        if lines:
            choices = leaving_choices(bool(kept or raced))
            answer = await self.push_screen_wait(Question("Quit slicetower?", lines, choices))
        message = ""
        if answer == "give up":
            self.say("Giving up what this console carries out …")
            left = await self.policies.give_up_all()
            message = left_words([], [], left)
        elif answer == "quit":
            message = left_words(kept, raced, [])
        else:
            return
        await self.close_tower()
        self.exit(0, message=message or None)


def open_console(context: Context, paths: Paths, context_arguments: Sequence[str] = ()) -> int | None:
    """Runs the application in this terminal.

    Returns:
        The exit code; None when Textual had none.
    """
    from tui.driver import TerminalDriver
    from tui.settings import load_settings

    app = SliceTower(
        context,
        load_settings(paths.config),
        console_log=paths.console_log,
        themes_folder=paths.themes_dir,
        context_arguments=context_arguments,
        driver_class=TerminalDriver,
    )
    app.run()
    return app.return_code
