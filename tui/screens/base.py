"""What every screen has: the header, crumbs, the command and filter line, the hints, a clock, and one way to perform actions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from backend.outcomes import OperatorError
from tui.actions import BY_ID, Action, hints, refusal
from tui.command_line import CommandLine, parse
from tui.completion import Known
from tui.mends import forget_closed
from tui.screens.prompt import COMMAND, FILTER, Prompt
from tui.screens.trouble import as_told, told_errors
from tui.widgets.hints_footer import Hint, HintsFooter
from tui.widgets.live_table import LiveTable
from tui.widgets.rows import Cell
from tui.widgets.status_header import StatusHeader

if TYPE_CHECKING:
    from tui.console import Console

TICK_S = 0.5
"""How often a screen looks at the version counters; nothing is drawn when they stand still."""


TICKS_A_SECOND = round(1 / TICK_S)


class Performs:
    """Performs actions of the registry: on this screen when it can, else on the application."""

    SCOPE: ClassVar[str] = ""

    @property
    def console(self) -> Console:
        """The application, by its own type."""
        return cast("Console", cast("Widget", self).app)

    def handler(self, action: Action) -> Callable[[], Awaitable[None] | None] | None:
        """The method `do_ID` that performs an action, of this screen or of the application."""
        name = f"do_{action.id.replace('.', '_').replace('-', '_')}"
        return getattr(self, name, None) or getattr(self.console, name, None)

    def applies(self, action: Action) -> bool:
        """Whether an action of this screen makes sense now; the footer leaves out those that do not."""
        return True

    def answers(self, pressed_at: float) -> bool:
        """Whether a key pressed at `pressed_at` (monotonic seconds) is meant for this screen."""
        return True

    def takes(self, event: Key) -> bool:
        """Whether a key is for this screen as it is now; one that is not is dropped."""
        return self.answers(event.time)

    def action_perform(self, action_id: str) -> None:
        """What a key is bound to."""
        self.perform(BY_ID[action_id])

    def perform(self, action: Action) -> bool:
        """Performs an action, if the read-only gate lets it. Coroutines run as workers of this screen.

        Returns:
            Whether it was begun.
        """
        why = refusal(action, read_only=self.console.read_only)
        if why:
            self.console.say(why, severity="warning")
            return False
        handler = self.handler(action)
        if handler is None or self.SCOPE not in action.scopes:
            self.console.say(f"'{action.title}' does nothing on this screen.", severity="warning")
            return False
        try:
            result = handler()
        except told_errors() as error:
            self.console.tell(as_told(self.console, error), doing=action.title)
            return False
        if inspect.iscoroutine(result):
            self.background(result, group=action.id, title=action.title)
        return True

    def hints(self) -> list[Hint]:
        """The footer of this screen: what can be done here, most useful first."""
        keymap = self.console.settings.keymap
        found = hints(self.SCOPE, read_only=self.console.read_only)
        shown = [action for action in found if self.applies(action)]
        typing = isinstance(cast("Screen[Any]", self).focused, Input)
        return [
            Hint(
                keymap.shown(action, typing=typing),
                action.title,
                # The way to all the others is never dropped.
                priority=len(shown) + 1 if action.id == "help" else len(shown) - place,
                action=f"perform('{action.id}')",
            )
            for place, action in enumerate(shown)
            if keymap.shown(action)
        ]

    def background(self, work: Awaitable[Any], *, group: str, title: str) -> Worker[Any]:
        """Runs a coroutine as a worker; its error becomes a sentence on screen (`on_worker_state_changed`)."""
        return cast("Widget", self).run_worker(
            work, group=group, name=title, exclusive=True, exit_on_error=False, description=title
        )

    def on_unmount(self) -> None:
        forget_closed(self.console)

    def explain_worker(self, event: Worker.StateChanged) -> None:
        """Tells what went wrong in a worker of this screen."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.console.tell(event.worker.error, doing=event.worker.name)


class ConsoleScreen(Performs, Screen[None]):
    """A screen that fills the terminal."""

    AUTO_FOCUS = ""
    crumb: str = ""
    """Its place in the crumbs; may hold what it is about: `workers train-a`."""

    second = True
    """Whether ages are drawn anew in this tick: once a second, all in one frame."""

    _crumbs: str = ""
    _told_of = ""
    """What the last tick failed with."""
    _clock_ticks = 0

    def compose(self) -> ComposeResult:
        self._take_breakpoints()
        yield StatusHeader(id="status")
        self._crumbs = self.console.crumbs()
        yield Static(self._crumbs, id="crumbs", markup=False)
        with Container(id="body"):
            yield from self.compose_body()
        yield from self.compose_foot()
        yield Prompt(self.console.history)
        yield HintsFooter(id="hints")

    def _take_breakpoints(self) -> None:
        """The classes of the terminal's size, before anything is styled.

        Textual sets them when the first frame is out, which styles, lays out and paints everything once more.
        """
        app = self.app
        for dimension, breakpoints in (
            (app.size.width, app.HORIZONTAL_BREAKPOINTS),
            (app.size.height, app.VERTICAL_BREAKPOINTS),
        ):
            fitting = [name for least, name in sorted(breakpoints or ()) if dimension >= least]
            self.add_class(*fitting[-1:], update=False)

    @property
    def is_wide(self) -> bool:
        """Whether what belongs together stands beside each other: of the classes of width a screen has one alone."""
        return self.has_class("-wide") or self.has_class("-vast")

    def compose_body(self) -> Iterable[Widget]:
        """The widgets between crumbs and prompt."""
        return ()

    def compose_foot(self) -> Iterable[Widget]:
        """What keeps its place below the body, whatever that scrolls to."""
        return ()

    def on_mount(self) -> None:
        self.set_interval(TICK_S, self._tick)
        self._tick()
        self.focus_main()

    def on_screen_resume(self) -> None:
        self._clock_ticks = 0
        self._tick()

    def _tick(self) -> None:
        if self.is_current and not self.console.paused:
            self.second = self._clock_ticks % TICKS_A_SECOND == 0
            self._clock_ticks += 1
            self.refresh_frame()
            try:
                self.tick()
            except told_errors() as error:
                # What cannot be read now, such as a damaged journal, is told once, and asked for at the next tick again.
                if str(error) != self._told_of:
                    self._told_of = str(error)
                    self.console.tell(as_told(self.console, error), doing=self.crumb)
            else:
                self._told_of = ""

    def tick(self) -> None:
        """Looks at the version counters and draws what changed. Called twice a second while the screen is on top."""

    def refresh_frame(self) -> None:
        """Header, crumbs and hints; widgets skip what did not change."""
        self.query_one(StatusHeader).set_facts(self.console.header_facts(), second=self.second)
        self.refresh_crumbs()
        self.query_one(HintsFooter).set_hints(self.hints())

    def refresh_crumbs(self) -> None:
        """The way to here, shortened at its beginning when what is filtered and marked needs the room."""
        crumbs, aside = self.console.crumbs(), self.aside_words()
        if aside:
            room = max(self.size.width - 2 - len(aside) - 3, 8)
            crumbs = (crumbs if len(crumbs) <= room else f"…{crumbs[1 - room :]}") + f" · {aside}"
        if crumbs != self._crumbs:
            self._crumbs = crumbs
            self.query_one("#crumbs", Static).update(crumbs)

    def aside_words(self) -> str:
        """What stands behind the crumbs: how much of this screen a filter leaves out, how much is marked."""
        return ""

    def main_widget(self) -> Widget | None:
        """The widget that has the focus when nothing else asks for it."""
        return None

    def focus_main(self) -> None:
        """Gives the focus to the main widget; not while somebody types in the prompt, whatever is rearranged meanwhile."""
        widget = self.main_widget()
        if widget is not None and not self.prompt.is_open:
            widget.focus()

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        self.explain_worker(event)

    # The prompt

    def do_command(self) -> None:
        console = self.console
        self.prompt.known = Known(
            console.completions(),
            sorted(console.available_themes),
            console.context_names(),
            console.fault_options if console.is_simulated else None,
        )
        self.prompt.open(COMMAND)

    def do_filter(self) -> None:
        self.prompt.open(FILTER, self.filter_text())

    def filter_text(self) -> str:
        """The filter in force, to go on from."""
        return ""

    def apply_filter(self, text: str) -> None:
        """Takes a filter as it is typed.

        Raises:
            OperatorError: It cannot be understood (a broken regular expression).
        """

    @on(Prompt.Typed)
    def _filter_typed(self, event: Prompt.Typed) -> None:
        try:
            self.apply_filter(event.text)
        except OperatorError:
            # Half a pattern is not a mistake yet; it is told when it is entered.
            return

    @on(Prompt.Left)
    def _prompt_left(self, event: Prompt.Left) -> None:
        if event.mode == FILTER:
            self.apply_filter("")
        self.focus_main()

    @on(Prompt.Entered)
    def _prompt_entered(self, event: Prompt.Entered) -> None:
        self.focus_main()
        try:
            if event.mode == FILTER:
                self.apply_filter(event.text)
            elif (line := parse(event.text)) is not None:
                self.console.run_line(self, line)
        except OperatorError as error:
            self.console.tell(error)

    def take_line(self, line: CommandLine) -> bool:
        """Performs a command line here; False leaves it to the application."""
        return False

    def page_text(self) -> str:
        """What this screen says, as plain text to copy."""
        return ""

    def targets_here(self) -> list[str]:
        """Whom a tool of this screen is for: what is marked, or what the cursor is on."""
        return []

    # Leaving

    def do_back(self) -> None:
        if self.prompt.is_open:
            self.prompt.take_key("escape")
        elif self.filter_text():
            self.apply_filter("")
        elif len(self.console.screen_stack) > self.console.root_depth:
            self.console.pop_screen()

    def do_close(self) -> Awaitable[None] | None:
        if len(self.console.screen_stack) > self.console.root_depth:
            self.console.pop_screen()
            return None
        return self.console.do_quit()


class TableScreen(ConsoleScreen):
    """A screen around one live table with the id `table`."""

    only: str = ""
    """A filter to begin with."""

    def on_mount(self) -> None:
        if self.only:
            try:
                self.apply_filter(self.only)
            except OperatorError as error:
                self.console.tell(error, doing="filter")

    @property
    def table(self) -> LiveTable:
        return self.query_one("#table", LiveTable)

    def main_widget(self) -> Widget:
        return self.table

    def filter_text(self) -> str:
        return self.table.filter_text

    def aside_words(self) -> str:
        table = self.table
        words = []
        if table.filter_text:
            words.append(f"{len(table.visible_rows):,} of {table.row_count:,} match {table.filter_text!r}")
        if table.marks:
            hidden = len(table.marks) - sum(row.key in table.marks for row in table.visible_rows)
            words.append(f"{len(table.marks):,} marked" + (f", {hidden:,} of them hidden" if hidden else ""))
        return " · ".join(words)

    @on(LiveTable.MarksChanged)
    def _marks_changed(self) -> None:
        self.refresh_crumbs()

    def do_back(self) -> None:
        """A range that is being marked goes first, then a filter, then marks: no deed is meant by what was forgotten."""
        if self.prompt.is_open or not self.table.cancel_range():
            if not self.prompt.is_open and not self.filter_text() and self.table.marks:
                self.table.clear_marks()
            else:
                super().do_back()

    def do_copy(self) -> None:
        self.console.copy(self.table.copy_text())

    def do_copy_with_header(self) -> None:
        self.console.copy(self.table.copy_text(header=True))

    async def do_sort(self) -> None:
        """Asks for a column and sorts by it."""
        picks = [(column.id, column.title) for column in self.table.columns]
        column = await self.console.pick("Sort by", picks)
        if column:
            self.table.sort_by(column)

    def page_text(self) -> str:
        table = self.table
        lines = [[column.title for column in table.columns]]
        lines += [[cell.text if isinstance(cell, Cell) else cell for cell in row.cells] for row in table.visible_rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(table.columns))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def apply_filter(self, text: str) -> None:
        refused = self.table.set_filter(text.strip())
        if refused:
            raise OperatorError(f"'{text}' is no filter: {refused}.", "Write text, a regex, column=value, or !text.")
        self.refresh_crumbs()


Answer = TypeVar("Answer")


class Dialog(Performs, ModalScreen[Answer | None], Generic[Answer]):
    """A question over the screen; `escape` answers None."""

    SCOPE = "dialog"
    CSS_PATH = "dialogs.tcss"

    def on_mount(self) -> None:
        """Its own keys stand in the footer while it is open, not those of the screen below."""
        self.mount(HintsFooter(self.hints(), id="hints"))

    def applies(self, action: Action) -> bool:
        return action.id in ("submit", "back")

    def do_back(self) -> None:
        self.dismiss(None)

    def do_explain(self) -> None:
        """Dialogs that can explain themselves say how."""

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        self.explain_worker(event)
