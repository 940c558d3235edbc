"""Workers of a target: one line each, a strip that holds them all, and the newest run's output below, live."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget

from backend.model import Fleet, QueuedResource
from backend.outcomes import OperatorError
from backend.runs.fanout import WorkerResult
from backend.targets import WorkerRef, fold, select
from tui.actions import BY_ID, WORKERS, bindings
from tui.screens.base import TableScreen
from tui.screens.logs import LogTiles, poll_s, tiles_that_fit
from tui.screens.run_rows import fold_targets
from tui.screens.worker_rows import COLUMNS, Newest, SliceIndex, WorkerRows, everything, heat, pointed_out, slices_of
from tui.widgets.heat_strip import HeatSlice, HeatStrip
from tui.widgets.live_table import LiveTable
from tui.wording import utc_now

if TYPE_CHECKING:
    from backend.logs.worker_log import WorkerLog
    from backend.runs.manager import Run

PANES = (0, 1, 2, 4, 8)


class WorkersScreen(TableScreen):
    """Workers of one target, or of the whole fleet."""

    SCOPE = WORKERS
    BINDINGS: ClassVar = bindings(WORKERS)
    CSS_PATH = "work.tcss"

    def __init__(self, targets: Sequence[str] = (), only: str = "") -> None:
        """
        Args:
            targets: Whose workers; none: all.
            only: A filter to begin with.
        """
        super().__init__()
        self._targets = tuple(targets)
        self._only = only
        self._panes = 1
        self._listed: tuple[WorkerRef, ...] = ()
        self._trouble: OperatorError | None = None
        self._latest: dict[str, tuple[Run, WorkerResult]] = {}
        self._newest = Newest()
        self._rows = WorkerRows()
        self._fleet: Fleet | None = None
        self._slices: SliceIndex = {}
        self._stamp: object = None
        self._cells: list[HeatSlice] = []
        self._places: dict[str, tuple[int, int]] = {}
        """Of each address, in `_cells`."""
        self._pointed: str | None = None
        self._ssh_version = -1
        single = len(targets) > 1 and all(target.count("/") == 2 for target in targets)
        self.crumb = f"workers {fold(targets) if single else ' '.join(targets)}".strip()

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="workers"):
            yield HeatStrip(id="workers-heat")
            yield LiveTable(COLUMNS, id="table")
            yield LogTiles(id="tiles")

    def on_mount(self) -> None:
        if self._only:
            self.apply_filter(self._only)
        self.set_interval(poll_s(), self._poll)

    def _poll(self) -> None:
        if self.is_current and not self.console.paused and not self.console.key_comes_first():
            self.query_one(LogTiles).poll()

    def tick(self) -> None:
        fleet, runs = self.console.fleet, self.console.live_runs()
        ssh = self.console.ssh_unanswered()
        stamp = (tuple((run.id, run.version) for run in runs), int(time.monotonic()) if self._latest else 0, ssh[0])
        same = fleet.tells_as(self._fleet)
        if same and stamp == self._stamp:
            return
        if not same:
            self._fleet = fleet
            self._choose(fleet)
            self._slices = slices_of(fleet)
        if not same or ssh[0] != self._ssh_version:
            self._ssh_version, self._pointed = ssh[0], None
            self._cells, self._places = heat(self._listed, self._slices, ssh[1])
        self._stamp = stamp
        self._latest = self._newest.of(runs)
        found = self._rows.rows(self._listed, self._slices, self._latest, utc_now(), self.table.shown_keys(), ssh)
        self.table.set_rows(found)
        if not found:
            text, kind = self._empty(fleet)
            self.table.set_message(text, kind=kind)
        self._show_cursor()

    def _choose(self, fleet: Fleet) -> None:
        self._trouble = None
        if not self._targets:
            self._listed = tuple(everything(fleet))
            return
        try:
            self._listed = select(fleet, self._targets, self.console.groups())
        except OperatorError as error:
            self._listed, self._trouble = (), error

    def _empty(self, fleet: Fleet) -> tuple[str, str]:
        if not fleet.loaded:
            return "Asking for the fleet …", "loading"
        if self._trouble is not None:
            return f"{self._trouble.what} {self._trouble.cure}".strip(), "error"
        return "No worker exists now: they come when a request becomes ACTIVE.", "empty"

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_cursor()

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def _show_cursor(self) -> None:
        row = self.table.cursor_row
        cursor = str(row.key) if row is not None else ""
        if cursor != self._pointed:
            self._pointed = cursor
            self.query_one(HeatStrip).set_slices(pointed_out(self._cells, self._places.get(cursor)))
        self._show_panes(cursor)

    def _show_panes(self, cursor: str) -> None:
        """The cursor's log first, then the marked ones', then the workers after it."""
        tiles, table = self.query_one(LogTiles), self.table
        room = tiles_that_fit(self.size.width, max(self.size.height // 2, 5), self._panes) if self._panes else 0
        rows, after = table.visible_rows, table.model.cursor + 1
        marked = (str(row.key) for row in rows if row.key in table.marks) if table.marks else ()
        # Not all of thousands of names: as many as there is room for.
        names = chain([cursor], marked, (str(rows[place].key) for place in range(after, len(rows))))
        logs: dict[str, WorkerLog] = {}
        for name in names:
            if len(logs) >= room:
                break
            if name in self._latest and name in (found := self._latest[name][0].logs):
                logs[name] = found[name]
        tiles.display = bool(logs)
        tiles.show(list(logs.items()))

    # Actions

    def do_more_tiles(self) -> None:
        self._panes = PANES[min(PANES.index(self._panes) + 1, len(PANES) - 1)]
        self._show_cursor()

    def do_fewer_tiles(self) -> None:
        self._panes = PANES[max(PANES.index(self._panes) - 1, 0)]
        self._show_cursor()

    def chosen(self) -> list[WorkerRef]:
        """The marked workers, or that of the cursor."""
        keys = {row.key for row in self.table.selected_rows()}
        return [worker for worker in self._listed if worker.address in keys]

    def targets_here(self) -> list[str]:
        return fold_targets(self.chosen())

    def do_open(self) -> None:
        self.do_logs()

    def do_logs(self) -> None:
        row = self.table.cursor_row
        if row is not None:
            self._open_logs([str(row.key)], start=str(row.key))

    def do_logs_marked(self) -> None:
        self._open_logs([worker.address for worker in self.chosen()])

    def _open_logs(self, names: Sequence[str], start: str = "") -> None:
        known = [name for name in names if name in self._latest]
        if not known:
            raise OperatorError("Nothing was run there yet, as far as this console knows.", "x runs a command.")
        run, _ = self._latest[known[0]]
        from tui.screens.logs import LogsScreen, RunLogs

        logs = RunLogs(run, None if start else known)
        self.console.push_screen(LogsScreen(logs, start=start, merged=len(known) > 1))

    def do_run_command(self) -> None:
        marked = [worker for worker in self._listed if worker.address in self.table.marks]
        self.console.open_run_form(
            fold_targets(marked) if marked else list(self._targets) or fold_targets(self._listed)
        )

    def _request(self) -> QueuedResource:
        chosen = self.chosen()
        found = self.console.fleet.find(chosen[0].queued_resource) if chosen else ()
        if not found:
            raise OperatorError("There is no queued resource under the cursor.")
        return found[0]

    def do_benchmark(self) -> None:
        self.console.open_bench_form(self._request())

    async def do_shell(self) -> None:
        chosen = self.chosen()
        await self.console.open_shell(chosen[0] if chosen else None)

    def do_describe(self) -> None:
        chosen = self.chosen()
        if not chosen:
            raise OperatorError("There is no worker under the cursor.")
        worker = chosen[0]
        one = slices_of(self.console.fleet).get((worker.project, worker.zone, worker.node_id))
        if one is None:
            raise OperatorError(f"The slice of {worker.address} is gone.")
        self.console.describe_slice(one)

    def do_equivalent(self) -> None:
        chosen = self.chosen()
        if not chosen:
            raise OperatorError("There is no worker under the cursor.")
        from backend.cloud import equivalents

        worker = chosen[0]
        same = equivalents.ssh([worker], route=self.console.context.ssh.route)
        self.console.show_equivalent(f"a shell on {worker.address}", same)
