"""What screens and parts of the application know of it: what is open, and the ways to other screens.

Nothing here is carried out: `station`, `toasts`, `toolbox` and `navigation` do that, and `app` joins them. So a screen
needs no other screen to lead to it, and none of them the application.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import Screen

if TYPE_CHECKING:
    from backend.cloud.equivalents import Equivalent
    from backend.cloud.recover import Recovery
    from backend.context import Context
    from backend.model import Event, EventKind, Fleet, QueuedResource, Slice, SshWord
    from backend.outcomes import OperatorError
    from backend.runs.manager import Run
    from backend.runs.model import RunRequest
    from backend.ssh.roll import Place
    from backend.targets import WorkerRef
    from backend.tower import Tower
    from tui.command_line import CommandLine, History
    from tui.forwards import Forwards
    from tui.glyphs import GlyphSet
    from tui.policies import Policies
    from tui.run_logs import RunLogs
    from tui.settings import Settings
    from tui.themes import ThemeStore
    from tui.widgets.status_header import HeaderFacts


SIMULATED = "simulated"
"""The label of contexts whose workers are processes on CPUs."""


class Console(App[int]):
    """The application as its screens see it."""

    context: Context
    settings: Settings
    themes: ThemeStore
    glyphs: GlyphSet
    history: History
    """Command lines of this session."""
    command_history: list[str]
    """Commands that were sent to workers."""
    drafts: dict[str, dict[str, str]]
    """Forms that were left without being sent, by their kind: field name to text."""
    context_arguments: tuple[str, ...]
    """The options that name the context, for processes of our own."""
    read_only: bool
    started_read_only: bool
    paused: bool
    notices: deque[Event]
    """Own errors and actions kept for the events screen until the journal takes them."""
    notices_version: int
    tower: Tower | None
    """None until it is open."""
    trouble: OperatorError | None
    """Why it could not be opened."""

    # Telling

    def say(self, text: str, *, title: str = "", severity: str = "information") -> None:
        """A message over the screen."""
        raise NotImplementedError

    def note(self, kind: EventKind, text: str, *, subject: str = "") -> None:
        """An event of the console's own."""
        raise NotImplementedError

    def tell(self, error: BaseException, *, doing: str = "") -> None:
        """An error as a sentence."""
        raise NotImplementedError

    def tell_terminal(self, text: str) -> None:
        """A notification of the terminal's own."""
        raise NotImplementedError

    def copy(self, text: str) -> None:
        """To the clipboard and to a file."""
        raise NotImplementedError

    # What is known

    @property
    def fleet(self) -> Fleet:
        raise NotImplementedError

    def require_tower(self) -> Tower:
        raise NotImplementedError

    def require_recovery(self) -> Recovery:
        raise NotImplementedError

    @property
    def forwards(self) -> Forwards:
        raise NotImplementedError

    @property
    def policies(self) -> Policies:
        raise NotImplementedError

    def header_facts(self) -> HeaderFacts:
        raise NotImplementedError

    def crumbs(self) -> str:
        raise NotImplementedError

    def notes_about(self, key: tuple[str, str, str]) -> list[str]:
        raise NotImplementedError

    def ssh_word(self, item: QueuedResource | Slice) -> SshWord | None:
        """Whether ssh answers on what the cloud calls ready; None where it calls nothing so."""
        raise NotImplementedError

    def ssh_unanswered(self) -> tuple[int, Mapping[Place, str]]:
        """A version, and what to say of each worker that does not answer (yet)."""
        raise NotImplementedError

    def ask_ssh_again(self) -> None:
        """Asks at once whether ssh answers, whatever is known."""
        raise NotImplementedError

    def ask_ssh_first(self, item: QueuedResource | Slice | None) -> None:
        """This one is looked at: whether ssh answers there is asked before the others."""
        raise NotImplementedError

    def live_runs(self) -> list[Run]:
        raise NotImplementedError

    def newest_run(self, names: Collection[str] = ()) -> Run | None:
        raise NotImplementedError

    def find_run(self, run_id: str) -> Run:
        raise NotImplementedError

    def worker_at(self, address: str) -> WorkerRef | None:
        raise NotImplementedError

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        raise NotImplementedError

    def target_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def completions(self) -> tuple[str, ...]:
        raise NotImplementedError

    def context_names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def own_command(self) -> list[str]:
        raise NotImplementedError

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator wrote this context."""
        return self.context.label == SIMULATED

    def fault_options(self) -> Mapping[str, Sequence[str]]:
        """Faults that can be injected, each with its options."""
        raise NotImplementedError

    # Ways

    root_depth = 1
    """Screens on the stack when only the fleet is open."""

    def go(self, screen: Screen[Any] | None = None) -> None:
        """Back to the fleet, and from there to a screen."""
        raise NotImplementedError

    def run_line(self, screen: Screen[Any], line: CommandLine) -> None:
        """Performs a command line that was entered on a screen."""
        raise NotImplementedError

    async def pick(self, question: str, picks: Sequence[tuple[str, str]]) -> str | None:
        """One of several, asked for; None when it was left."""
        raise NotImplementedError

    async def ask_secret(self, question: str) -> str | None:
        """A text that is not shown while it is typed; None when it was refused."""
        raise NotImplementedError

    async def change_context(self, context: Context, arguments: Sequence[str]) -> None:
        raise NotImplementedError

    def show_request(self, name: str) -> None:
        raise NotImplementedError

    def await_request(self, key: tuple[str, str, str]) -> None:
        raise NotImplementedError

    def show_policies(self) -> None:
        raise NotImplementedError

    def show_equivalent(self, title: str, same: Equivalent) -> None:
        raise NotImplementedError

    def describe_request(self, item: QueuedResource) -> None:
        raise NotImplementedError

    def describe_slice(self, item: Slice) -> None:
        raise NotImplementedError

    def open_refused(self, name: str) -> bool:
        raise NotImplementedError

    def open_run_form(
        self,
        targets: Sequence[str],
        command: str = "",
        like: RunRequest | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        raise NotImplementedError

    def open_log_at(self, logs: RunLogs, worker: str, line: int, pattern: str) -> None:
        """A worker's log at a line, with a search in force."""
        raise NotImplementedError

    def open_bench_form(self, item: QueuedResource) -> None:
        raise NotImplementedError

    def open_setup(self, targets: Sequence[str]) -> None:
        raise NotImplementedError

    def open_run(self, run: Run) -> None:
        raise NotImplementedError

    async def again(self, run: Run, targets: Sequence[str]) -> None:
        raise NotImplementedError

    async def open_shell(self, worker: WorkerRef | None) -> None:
        raise NotImplementedError

    def do_refresh(self) -> None:
        """Asks the API now."""
        raise NotImplementedError

    async def do_quit(self) -> None:
        raise NotImplementedError

    def do_interrupt(self) -> None:
        raise NotImplementedError

    # Beginning and end

    def after_first_frame(self) -> None:
        """What the first frame did without."""
        raise NotImplementedError

    def key_comes_first(self) -> bool:
        """Whether a key was pressed that is not painted yet."""
        raise NotImplementedError

    def carried_out(self) -> tuple[list[str], list[int]]:
        """(names of the requests that this console keeps, numbers of the races that it runs)."""
        raise NotImplementedError

    def drop_forwards(self) -> None:
        raise NotImplementedError

    async def drop_policies(self) -> None:
        raise NotImplementedError
