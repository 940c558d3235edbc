"""The root of the console: all queued resources, live, and what is known of the one under the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.containers import Container
from textual.widget import Widget

from backend.outcomes import OperatorError
from tui.actions import BY_ID, FLEET, Action, bindings
from tui.screens.base import TableScreen
from tui.screens.fleet_rows import NARROW_COLUMNS, WIDE_COLUMNS, FleetRows, find, is_request, is_slice
from tui.widgets.live_table import LiveTable
from tui.wording import stale_words, utc_now

if TYPE_CHECKING:
    from backend.model import Event, Fleet, QueuedResource, Slice, SshWord
    from backend.stays import StateSpan
    from tui.screens.fleet_detail import FleetDetail
    from tui.widgets.rows import Key

OF_A_REQUEST = frozenset({"run-command", "benchmark", "shell", "logs", "delete", "recreate"})
"""Actions that the footer leaves out where no queued resource is under the cursor."""
PAST_EVENTS = 14
"""Of a request, in its detail."""


class FleetScreen(TableScreen):
    """Queued resources; everything else begins here."""

    SCOPE = FLEET
    BINDINGS: ClassVar = bindings(FLEET)
    crumb = "queued resources"

    def __init__(self) -> None:
        super().__init__()
        self._rows = FleetRows()
        self._pointed: tuple[Fleet | None, Key, QueuedResource | Slice | None] = (None, "", None)
        """What the cursor was found on, and in which fleet: each key that the footer shows asks for it."""
        self._seen: Fleet | None = None
        self._awaited: tuple[str, str, str] | None = None
        self._narrow: bool | None = None
        self._past: tuple[object, Sequence[Event]] = (None, ())
        """Of which request at which version of the events, and what happened to it."""
        self._detail: FleetDetail | None = None
        """Made for the first request: the first frame has none."""

    def compose_body(self) -> Iterable[Widget]:
        with Container(id="fleet"):
            yield LiveTable(NARROW_COLUMNS, id="table")

    def on_mount(self) -> None:
        self.call_after_refresh(self.console.after_first_frame)

    def tick(self) -> None:
        # Not before the tower is open: what a fleet is made of is not needed for the first frame.
        fleet = self.console.fleet if self.console.tower is not None else None
        narrow = self.has_class("-narrow")
        same = fleet.tells_as(self._seen) if fleet is not None else self._seen is None
        if same and narrow == self._narrow and not self.second:
            return
        if narrow != self._narrow:
            self.table.set_columns(NARROW_COLUMNS if narrow else WIDE_COLUMNS)
        self._seen, self._narrow = fleet, narrow
        self.draw(fleet, utc_now())

    def draw(self, fleet: Fleet | None, now: datetime) -> None:
        """Rows, the words for an empty table, and the detail of the cursor."""
        narrow, short = bool(self._narrow), not self.has_class("-vast")
        keys, ssh = self._dead_keys(), self._ssh_word
        found = (
            self._rows.rows(fleet, now, narrow=narrow, short=short, keys=keys, ssh=ssh) if fleet is not None else []
        )
        self.table.set_rows(found)
        if self._awaited is not None and self.table.move_to(self._awaited):
            self._awaited = None
        if not found:
            text, kind = self._empty(fleet)
            self.table.set_message(text, kind=kind)
        self._show_detail(now)

    def _dead_keys(self) -> str:
        """What to press for a dead request, with the keys that are in force."""
        keymap = self.console.settings.keymap
        return f"{keymap.shown(BY_ID['delete'])} delete, {keymap.shown(BY_ID['recreate'])} recreate"

    def _ssh_word(self, item: QueuedResource | Slice) -> SshWord | None:
        """Whether ssh answers there; where nobody is asked, with the key that asks."""
        said = self.console.ssh_word(item)
        if said is None or said.standing.value != "not asked":
            return said
        key = self.console.settings.keymap.shown(BY_ID["ask-ssh"])
        return replace(said, text=f"{said.text}: {key} asks")

    def _empty(self, fleet: Fleet | None) -> tuple[str, str]:
        trouble = self.console.trouble
        refresh = self.console.settings.keymap.shown(BY_ID["refresh"])
        if trouble is not None:
            return f"{trouble.what} {trouble.cure}".strip() + f"\n{refresh} tries again.", "error"
        errors = [
            f"{poll.zone}: {poll.error} {poll.cure}".strip() for poll in (fleet.polls if fleet else ()) if poll.error
        ]
        if errors:
            return "\n".join([*errors, f"{refresh} asks again now."]), "error"
        zones = ", ".join(self.console.context.zones)
        if fleet is None or not fleet.loaded:
            return f"Asking {self.console.context.project} in {zones} …", "loading"
        create = self.console.settings.keymap.shown(BY_ID["create"])
        asks = "" if self.console.read_only else f"\n{create} asks for capacity."
        return f"No queued resource in {self.console.context.project} ({zones}).{asks}", "empty"

    def _show_detail(self, now: datetime) -> None:
        item = self.current()
        if item is None and self._detail is None:
            return
        spans: tuple[StateSpan, ...] = ()
        tower = self.console.tower
        if tower is not None and is_request(item):
            # The watch tells of a journal that fails; the fleet is shown without its past.
            with suppress(OperatorError):
                spans = tuple(tower.journal.timeline(item.key))
        since = self.console.fleet.since.get(item.key) if is_request(item) else None
        stale = stale_words(self.console.fleet, item, now) if item is not None else ""
        notes = list(self.console.notes_about(item.key)) if is_request(item) else []
        ssh = self._ssh_word(item) if item is not None else None
        self.console.ask_ssh_first(item)
        if self._detail is None:
            from tui.screens.fleet_detail import FleetDetail

            self._detail = FleetDetail(id="detail")
            self.query_one("#fleet").mount(self._detail)
        self._detail.show(
            item,
            since,
            spans,
            now,
            keys=self._dead_keys(),
            stale=stale,
            notes=notes,
            ssh=ssh,
            unanswered=self.console.ssh_unanswered()[1],
            past=self._past_of(item),
        )

    def _past_of(self, item: QueuedResource | Slice | None) -> Sequence[Event]:
        """What happened to the request of the cursor, for the widest terminals; read when there is news."""
        tower = self.console.tower
        if tower is None or not is_request(item) or not self.has_class("-vast"):
            return ()
        state = (item.key, tower.watch.events_version)
        if self._past[0] != state:
            events: Sequence[Event] = ()
            with suppress(OperatorError):
                events = tower.journal.events(limit=PAST_EVENTS, subject=item.name)
            self._past = (state, [event for event in events if event.zone in ("", item.zone)])
        return self._past[1]

    @on(LiveTable.RowHighlighted)
    def _highlighted(self) -> None:
        self._show_detail(utc_now())

    @on(LiveTable.RowActivated)
    def _activated(self) -> None:
        self.perform(BY_ID["open"])

    def show_request(self, name: str) -> None:
        """Puts the cursor on a request.

        Raises:
            OperatorError: There is none of that name now.
        """
        found = self.console.fleet.find(name)
        if not found:
            raise OperatorError(f"There is no queued resource '{name}' now.", "It may have been deleted.")
        self.apply_filter("")
        if not self.table.move_to(found[0].key):
            self.await_request(found[0].key)

    def applies(self, action: Action) -> bool:
        item = self.current()
        if item is None:
            return action.id not in OF_A_REQUEST
        from backend.model import DEAD_STATES

        active = is_request(item) and bool(item.workers_ready)
        match action.id:
            case "run-command" | "benchmark" | "shell" | "logs" | "tools":
                return active
            case "delete":
                return is_request(item)
            case "recreate":
                return is_request(item) and item.state in DEAD_STATES
            case _:
                return True

    # What is chosen

    def current(self) -> QueuedResource | Slice | None:
        """What the cursor is on."""
        row = self.table.cursor_row
        if row is None:
            # Without asking for the fleet, whose facts the first frame does without.
            return None
        fleet = self.console.fleet
        if self._pointed[0] is not fleet or self._pointed[1] != row.key:
            self._pointed = (fleet, row.key, find(fleet, row.key))
        return self._pointed[2]

    def current_request(self) -> QueuedResource:
        """The queued resource of the cursor.

        Raises:
            OperatorError: There is none there.
        """
        item = self.current()
        if is_request(item):
            return item
        if is_slice(item):
            raise OperatorError(f"{item.node_id} is a TPU VM without a queued resource.", "Use gcloud for it.")
        raise OperatorError("There is no queued resource under the cursor.")

    def chosen(self) -> list[QueuedResource]:
        """The marked requests, or the one of the cursor."""
        found = [find(self.console.fleet, row.key) for row in self.table.selected_rows()]
        return [item for item in found if is_request(item)]

    def await_request(self, key: tuple[str, str, str]) -> None:
        """Puts the cursor on a request as soon as the fleet knows it."""
        self._awaited = key

    def targets_here(self) -> list[str]:
        found = [find(self.console.fleet, row.key) for row in self.table.selected_rows()]
        return [item.name if is_request(item) else item.node_id for item in found if item is not None]

    # Actions

    def do_open(self) -> None:
        from tui.screens.workers import WorkersScreen

        item = self.current()
        if item is None:
            raise OperatorError("There is nothing under the cursor.")
        self.console.push_screen(WorkersScreen([item.name if is_request(item) else item.node_id]))

    def do_logs(self) -> None:
        self._open_logs([self.current_request()])

    def do_logs_marked(self) -> None:
        self._open_logs(self.chosen())

    def _open_logs(self, items: list[QueuedResource]) -> None:
        from tui.screens.logs import LogsScreen, RunLogs

        names = {item.name for item in items}
        newest = self.console.newest_run(names)
        if newest is None:
            raise OperatorError(f"Nothing was run on {', '.join(sorted(names))} yet.", "x runs a command.")
        self.console.push_screen(LogsScreen(RunLogs(newest), merged=True))

    def do_run_command(self) -> None:
        items = self.chosen()
        if not items:
            raise OperatorError("There is no queued resource under the cursor.")
        self.console.open_run_form([item.name for item in items])

    def do_benchmark(self) -> None:
        self.console.open_bench_form(self.current_request())

    async def do_shell(self) -> None:
        from backend.targets import workers_of

        workers = workers_of(self.current_request())
        if not workers:
            raise OperatorError("It has no worker yet.")
        await self.console.open_shell(workers[0])

    def do_describe(self) -> None:
        item = self.current()
        if is_slice(item):
            self.console.describe_slice(item)
        else:
            self.console.describe_request(self.current_request())

    def do_create(self) -> None:
        from tui.screens.create import CreateScreen

        self.console.push_screen(CreateScreen())

    def do_equivalent(self) -> None:
        from backend.cloud import equivalents
        from tui.screens.deeds import rest_of

        rest = rest_of(self.console.context)
        item = self.current()
        if is_slice(item):
            self.console.show_equivalent(item.node_id, equivalents.describe_node(item, rest))
        elif is_request(item):
            self.console.show_equivalent(f"describe {item.name}", equivalents.describe(item, rest))
        else:
            context = self.console.context
            same = equivalents.list_(context.project, next(iter(context.zones), "ZONE"), rest)
            self.console.show_equivalent("queued resources", same)

    async def do_again(self) -> None:
        """The create form, filled with everything that the API tells of this request but its name."""
        from tui.screens.create import CreateScreen
        from tui.screens.create_again import again

        item = self.current_request()
        plan = await self.console.require_recovery().plan(item.key)
        texts, note = await again(self.console, plan.request)
        self.console.push_screen(CreateScreen({**texts, "name": ""}))
        for each in (*plan.notes, note):
            if each:
                self.console.say(each, severity="warning")

    async def do_adopt(self) -> None:
        from backend.model import EventKind
        from backend.runs.adoption import adopted

        item = self.current_request()
        tower = self.console.require_tower()
        record = adopted(await tower.client.describe(*item.key), item.key, self.console.context.name)
        if record.id not in tower.runs.active:
            if not tower.runs.knows(record.id):
                tower.runs.register(record)
                self.console.note(EventKind.ACTION, f"adopted its job, run {record.id}", subject=item.name)
            tower.runs.attach(record.id)
        self.console.open_run(self.console.find_run(record.id))

    async def do_delete(self) -> None:
        from tui.screens import deeds

        table = self.table
        spared = [
            item.node_id for row in table.selected_rows() if is_slice(item := find(self.console.fleet, row.key))
        ]
        items = self.chosen()
        if not items and table.marks:
            raise OperatorError("Nothing that is marked is a queued resource.", "esc takes the marks away.")
        if await deeds.delete(self.console, items or [self.current_request()], spared):
            table.clear_marks()

    async def do_recreate(self) -> None:
        from tui.screens import deeds

        await deeds.recreate(self.console, self.current_request())

    async def do_reset(self) -> None:
        from tui.screens import deeds

        await deeds.reset(self.console, self.current_request())

    async def do_maintenance(self) -> None:
        from tui.screens import deeds

        await deeds.maintenance(self.console, self.current_request())

    async def do_cleanup(self) -> None:
        from tui.screens import deeds

        await deeds.cleanup(self.console)
