"""Ways between screens that begin anywhere: the application's part of going somewhere and coming back."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.screen import Screen

from backend.outcomes import OperatorError
from tui.lending import Lending
from tui.screens.base import ConsoleScreen

if TYPE_CHECKING:
    from backend.cloud.equivalents import Equivalent
    from backend.model import QueuedResource, Slice
    from backend.runs.manager import Run
    from backend.runs.model import RunRequest
    from backend.targets import WorkerRef
    from tui.run_logs import RunLogs

LOOKED_BACK = 30
"""Runs of the journal among which the newest of a request is looked for."""


class Navigation(Lending):
    """A part of the application."""

    # Over the fleet

    def go(self, screen: Screen[Any] | None = None) -> None:
        """Back to the fleet, and from there to a screen."""
        while len(self.screen_stack) > self.root_depth:
            self.pop_screen()
        if screen is not None:
            self.push_screen(screen)

    def root(self) -> ConsoleScreen:
        """The fleet's screen."""
        return cast("ConsoleScreen", self.screen_stack[self.root_depth - 1])

    def do_go_fleet(self) -> None:
        self.go()

    def do_go_workers(self) -> None:
        from tui.screens.fleet import FleetScreen
        from tui.screens.workers import WorkersScreen

        root = self.root()
        chosen = root.chosen() if isinstance(root, FleetScreen) else []
        self.go(WorkersScreen([item.name for item in chosen]))

    def do_go_logs(self) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        newest = self.newest_run()
        if newest is None:
            raise OperatorError("Nothing was run yet.", "x runs a command on workers.")
        self.go(LogsScreen(RunLogs(newest), merged=True))

    def do_go_runs(self) -> None:
        from tui.screens.runs import RunsScreen

        self.go(RunsScreen())

    def do_go_benches(self) -> None:
        from tui.screens.benches import BenchesScreen

        self.go(BenchesScreen())

    def do_go_events(self) -> None:
        from tui.screens.events import EventsScreen

        self.go(EventsScreen())

    def do_go_operations(self) -> None:
        from tui.screens.operations import OperationsScreen

        self.go(OperationsScreen())

    def request_here(self) -> tuple[str, str, str] | None:
        """The request under the fleet's cursor, while the fleet is on top."""
        from backend.model import QueuedResource
        from tui.screens.fleet import FleetScreen

        screen = self.screen
        item = screen.current() if isinstance(screen, FleetScreen) else None
        return item.key if isinstance(item, QueuedResource) else None

    def do_go_costs(self) -> None:
        from tui.screens.costs import CostsScreen

        self.go(CostsScreen(about=self.request_here()))

    def do_go_doctor(self) -> None:
        from tui.screens.machine import DoctorScreen

        self.go(DoctorScreen())

    def do_go_places(self) -> None:
        from tui.screens.machine import PlacesScreen

        self.go(PlacesScreen())

    def do_go_waits(self) -> None:
        from tui.screens.waits import WaitsScreen

        self.go(WaitsScreen())

    def do_go_create(self) -> None:
        from tui.screens.create import CreateScreen

        self.go(CreateScreen())

    def do_help(self) -> None:
        from tui.screens.help import HelpScreen

        current = self.screen
        if isinstance(current, ConsoleScreen) and current.SCOPE != "help":
            self.push_screen(HelpScreen(current.SCOPE))

    def show_request(self, name: str) -> None:
        """Goes to the fleet with the cursor on the request of that name.

        Raises:
            OperatorError: There is none.
        """
        from tui.screens.fleet import FleetScreen

        root = self.root()
        self.go()
        if isinstance(root, FleetScreen):
            root.show_request(name)

    def await_request(self, key: tuple[str, str, str]) -> None:
        """Puts the fleet's cursor on a request as soon as it is seen."""
        from tui.screens.fleet import FleetScreen

        root = self.root()
        if isinstance(root, FleetScreen):
            root.await_request(key)

    # Over any screen

    def crumbs(self) -> str:
        """The way to the present screen."""
        names = [screen.crumb for screen in self.screen_stack if isinstance(screen, ConsoleScreen)]
        return f" {self.glyphs['arrow']} ".join(names)

    async def ask_secret(self, question: str) -> str | None:
        from tui.screens.confirm import Secret

        return await self.push_screen_wait(Secret(question))

    async def pick(self, question: str, picks: Sequence[tuple[str, str]]) -> str | None:
        from tui.screens.confirm import Pick

        return await self.push_screen_wait(Pick(question, picks))

    async def do_context(self) -> None:
        """Says which context this is, and offers the others of the configuration."""
        from backend.context import config_names, load_context
        from tui.screens.choose import Choose, Offer

        here = f"This is {self.context.name} ({self.context.project})"
        names = config_names()
        if not names:
            self.say(f"{here}, from {self.context.source or 'no file'}. The configuration holds no other.")
            return
        picked = await self.push_screen_wait(Choose(f"{here}. Open which?", [Offer(name) for name in names]))
        if picked is not None and picked != self.context.name:
            opened = load_context(picked, read_only=self.started_read_only)
            # By a worker of the fleet: the screen of this one is closed on the way.
            self.root().background(
                self.change_context(opened, ("--context", picked)), group="context", title=f"open {picked}"
            )

    def open_refused(self, name: str) -> bool:
        """The create form with what a recreate deleted and was refused to make again; False where there is no such."""
        from backend.cloud.intents import IntentStore
        from tui.screens.create import CreateScreen
        from tui.screens.create_job import write_job

        if self.fleet.find(name) or self.read_only:
            return False
        kept = IntentStore(self.require_tower().journal).not_made_again()
        found = next((each.request for each in kept if each.name == name and each.request is not None), None)
        if found is not None:
            texts, note = write_job(found)
            self.push_screen(CreateScreen(texts))
            if note:
                self.say(note, severity="warning")
        return found is not None

    def open_run_form(
        self,
        targets: Sequence[str],
        command: str = "",
        like: RunRequest | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        from tui.screens.run_form import RunFormScreen

        self.push_screen(RunFormScreen(targets, command, like, texts))

    async def again(self, run: Run, targets: Sequence[str]) -> None:
        """The same once more: a command by its form, with its policies; a setup after a question.

        Raises:
            OperatorError: It is a benchmark, which its own form repeats, or nobody is called so now.
        """
        from backend.targets import select
        from backend.tools.setup import is_setup
        from tui.screens.confirm import Choice, Question
        from tui.screens.setup import SetupScreen

        request = run.request
        if request.kind != "command":
            raise OperatorError(f"Run {run.id} is a {request.kind}.", "b on its queued resource asks for it again.")
        if not is_setup(request):
            self.open_run_form(targets, like=request)
            return
        tower = self.require_tower()
        planned = tower.runs.plan(request, select(self.fleet, targets, self.groups()))
        choices = (Choice("yes", "Set them up", "primary"), Choice("no", "No"))
        asked = Question("The same setup again?", [request.title, " ".join(targets)], choices)
        if await self.push_screen_wait(asked) == "yes":
            self.push_screen(SetupScreen(await tower.runs.launch(planned)))

    def open_log_at(self, logs: RunLogs, worker: str, line: int, pattern: str) -> None:
        from tui.screens.logs import LogsScreen

        self.push_screen(LogsScreen(logs, start=worker, line=line, pattern=pattern))

    def open_bench_form(self, item: QueuedResource) -> None:
        from tui.screens.bench_form import BenchFormScreen

        self.push_screen(BenchFormScreen(item))

    async def do_what_if(self) -> None:
        from tui.screens.bench_what_if import read_shape
        from tui.screens.confirm import Ask

        lines = ("A type, and how many slices of it. Nothing is asked for, and nobody needs to have it.",)
        asked = Ask("Plan for which chips?", lines, hint="v5p-128 4", check=lambda text: read_shape(text.split()))
        text = await self.push_screen_wait(asked)
        if text:
            self.open_what_if(text.split())

    def open_what_if(self, words: list[str]) -> None:
        """The benchmark form of a type that nobody has.

        Raises:
            OperatorError: There is no such type, or it takes no such number of slices.
        """
        from tui.screens.bench_what_if import WhatIfScreen, read_shape

        self.push_screen(WhatIfScreen(*read_shape(words)))

    def show_equivalent(self, title: str, same: Equivalent) -> None:
        from tui.screens.same import SameDialog

        self.push_screen(SameDialog(title, same))

    def describe_request(self, item: QueuedResource) -> None:
        """The raw view of a queued resource."""
        from backend.cloud import equivalents
        from tui.screens.deeds import rest_of
        from tui.screens.describe import DescribeScreen

        client = self.require_tower().client
        same = equivalents.describe(item, rest_of(self.context))
        self.push_screen(
            DescribeScreen(
                item.name,
                lambda: client.describe(item.project, item.zone, item.name),
                lambda: self.show_equivalent(f"describe {item.name}", same),
            )
        )

    def describe_slice(self, item: Slice) -> None:
        """The raw view of a node."""
        from backend.cloud import equivalents
        from tui.screens.deeds import rest_of
        from tui.screens.describe import DescribeScreen

        client = self.require_tower().client
        same = equivalents.describe_node(item, rest_of(self.context))
        self.push_screen(
            DescribeScreen(
                item.node_id,
                lambda: client.describe_node(item.project, item.zone, item.node_id),
                lambda: self.show_equivalent(f"describe {item.node_id}", same),
            )
        )

    # Runs

    def live_runs(self) -> list[Run]:
        """Runs that this console launched or found again."""
        tower = self.tower
        return list(tower.runs.active.values()) if tower is not None else []

    def newest_run(self, names: Collection[str] = ()) -> Run | None:
        """The newest run on any of these requests, or on anything: of this console, else one that the journal knows."""
        live = self.live_runs()
        if names:
            live = [run for run in live if any(result.worker.queued_resource in names for result in run.results)]
        if live:
            return max(live, key=lambda run: run.started_at)
        runs = self.require_tower().runs
        for head in runs.heads()[:LOOKED_BACK]:
            record = runs.store.get(head.id)
            ours = record.context == self.context.name
            if ours and (not names or any(worker.queued_resource in names for worker in record.workers)):
                return self.find_run(record.id)
        return None

    def find_run(self, run_id: str) -> Run:
        """A run of this console, or one of the journal's: followed if it was not seen to end, else to be read.

        Raises:
            OperatorError: There is none of that id.
        """
        return self.require_tower().runs.attach(run_id)

    def open_run(self, run: Run) -> None:
        """A run as what it is: a benchmark with its plot, anything else with its outcomes."""
        from backend.tools.setup import is_setup
        from tui.screens.bench import BenchScreen
        from tui.screens.run import RunScreen
        from tui.screens.setup import SetupScreen

        benches = self.require_tower().benches
        bench = benches.active.get(run.id)
        record = benches.store.find(run.id) if bench is None and run.request.kind == "bench" else None
        if bench is not None or record is not None:
            self.push_screen(BenchScreen(bench, record))
        elif is_setup(run.request):
            self.push_screen(SetupScreen(run))
        else:
            self.push_screen(RunScreen(run))

    def do_show(self) -> None:
        """The newest run."""
        self.open_run(self.find_run("last"))

    def worker_at(self, address: str) -> WorkerRef | None:
        """The worker of an address, if it exists now."""
        from backend.targets import select

        try:
            return next(iter(select(self.fleet, [address])), None)
        except OperatorError:
            return None

    def own_command(self) -> list[str]:
        """How this program is started again on the same context."""
        return [sys.executable, "-m", "tui.cli.main", *self.context_arguments]

    # The simulator, where it wrote the context

    def fault_options(self) -> Mapping[str, Sequence[str]]:
        from tui import injecting

        return injecting.options()

    async def do_inject(self) -> None:
        from tui import injecting

        words = await injecting.ask(self)
        if words:
            await injecting.inject(self, words)

    async def inject(self, words: Sequence[str]) -> None:
        """A fault, written as `slicetower sim inject` takes it."""
        from tui import injecting

        await injecting.inject(self, words)
