"""What an operator wants to be told while looking elsewhere: rules over events and the fleet, a command that is run.

The screen's own signals (bell, OSC 9) are the console's to write; here is decided what is worth one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

from backend.cloud.watch import FleetWatch
from backend.model import Event, EventKind, Fleet, QueuedResourceState
from backend.paths import paths
from backend.sanitize import plain
from backend.settings import read_toml

COMMAND_TIMEOUT_S = 10.0
COMMANDS_AT_ONCE = 4
"""A storm of events must not become a storm of processes; the rest wait their turn."""
LOOK_S = 5.0
"""How often the waiting rule is looked at while nothing happens."""

_KEYS = ("states", "alarms", "errors", "waiting_minutes", "bell", "osc9", "command")
_STATES = tuple(state.value for state in QueuedResourceState)


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """The table `[notifications]` of the configuration."""

    states: tuple[str, ...] = ("ACTIVE", "FAILED", "SUSPENDED")
    """A request that enters one of these is told."""
    alarms: bool = True
    """Early signs of a preemption, maintenance."""
    errors: bool = False
    """Zones that can't be polled."""
    waiting_minutes: int = 15
    """A request that has waited this long for capacity is told once; 0: never."""
    bell: bool = True
    osc9: bool = False
    """Terminals such as iTerm2, kitty or Windows Terminal show it as a desktop notification."""
    command: tuple[str, ...] = ()
    """Run with the notice as JSON on its stdin; no shell. Empty: none."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing worth telling. `text` is safe to show."""

    at: datetime
    subject: str
    text: str
    urgent: bool = False
    project: str = ""
    zone: str = ""
    state: str = ""


def load_notifications(config: Path | None = None) -> NotificationSettings:
    """The settings, or the defaults where the configuration has none.

    Raises:
        OperatorError: a mistake in the table, with file, line, key, reason and cure.
    """
    config = config or paths(create=False).config
    if not config.exists():
        return NotificationSettings()
    table = read_toml(config).table("notifications")
    table.only(_KEYS)
    defaults = NotificationSettings()
    states = table.get_texts("states") if "states" in table.data else defaults.states
    for state in states:
        if state not in _STATES:
            raise table.problem("states", f"'{state}' is not a state.", f"States: {', '.join(_STATES)}.")
    return NotificationSettings(
        states=states,
        alarms=table.get_bool("alarms", defaults.alarms),
        errors=table.get_bool("errors", defaults.errors),
        waiting_minutes=table.get_int("waiting_minutes", defaults.waiting_minutes, least=0, most=1_000_000),
        bell=table.get_bool("bell", defaults.bell),
        osc9=table.get_bool("osc9", defaults.osc9),
        command=table.get_texts("command"),
    )


@dataclass(slots=True)
class Rules:
    """Which events and waits are told; a wait once for each request."""

    STATES: ClassVar[tuple[str, ...]] = _STATES
    """Those that a rule may name."""

    settings: NotificationSettings
    _told_waits: set[tuple[tuple[str, str, str], datetime | None]] = field(default_factory=set)

    def notices(self, events: Iterable[Event], fleet: Fleet, now: datetime) -> list[Notice]:
        """What is new among the events, and who waits too long."""
        found = [notice for event in events if (notice := self._of_event(event)) is not None]
        return found + self._of_waits(fleet, now)

    def _of_event(self, event: Event) -> Notice | None:
        told = {
            EventKind.STATE: event.after in self.settings.states,
            EventKind.ALARM: self.settings.alarms,
            EventKind.ERROR: self.settings.errors,
        }.get(event.kind, False)
        if not told:
            return None
        urgent = event.kind is not EventKind.STATE or event.after in ("FAILED", "SUSPENDED")
        state = event.after if event.kind is EventKind.STATE else ""
        return Notice(event.at, event.subject, event.text, urgent, event.project, event.zone, state)

    def _of_waits(self, fleet: Fleet, now: datetime) -> list[Notice]:
        if not self.settings.waiting_minutes:
            return []
        found = []
        for item in fleet.queued_resources:
            since = fleet.since.get(item.key)
            if item.state != QueuedResourceState.WAITING_FOR_RESOURCES or since is None:
                continue
            # A request can't have waited before it was made; what was not seen counts from there.
            begun = item.created_at if since.is_lower_bound and item.created_at is not None else since.at
            waited = now - begun
            identity = (item.key, item.created_at)
            if waited < timedelta(minutes=self.settings.waiting_minutes) or identity in self._told_waits:
                continue
            self._told_waits.add(identity)
            text = f"{item.name} has waited for capacity for {int(waited.total_seconds() // 60)} minutes"
            found.append(Notice(now, item.name, plain(text), False, item.project, item.zone, item.state))
        return found


Source = Callable[[datetime], Iterable[Notice]]
"""More that is worth telling, asked at every look."""


class Notifier:
    """Follows a watch; shows each notice and runs the operator's command for it."""

    def __init__(
        self,
        watch: FleetWatch,
        settings: NotificationSettings,
        show: Callable[[Notice], None],
        *,
        clock: Callable[[], datetime],
        sources: Iterable[Source] = (),
    ) -> None:
        self._sources = tuple(sources)
        self._watch = watch
        self._settings = settings
        self._rules = Rules(settings)
        self._show = show
        self._clock = clock
        self._command_failed = False

    async def run(self) -> None:
        """Follows until it is cancelled; commands that still run are then ended."""
        seen = self._watch.events_version
        last: Event | None = self._watch.events[-1] if self._watch.events else None
        slots = asyncio.Semaphore(COMMANDS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                events: list[Event] = []
                if self._watch.events_version != seen:
                    seen = self._watch.events_version
                    events = _after(list(self._watch.events), last)
                    last = self._watch.events[-1]
                now = self._clock()
                found = self._rules.notices(events, self._watch.fleet, now)
                for notice in (*found, *(each for source in self._sources for each in source(now))):
                    self._show(notice)
                    if self._settings.command:
                        group.create_task(self._run_command(notice, slots))
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._watch.next_snapshot()

    async def _run_command(self, notice: Notice, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                reason = await run_command(self._settings.command, notice)
            except OSError as error:
                reason = error.strerror or str(error)
        if reason and not self._command_failed:
            self._command_failed = True
            text = plain(f"The notification command {self._settings.command[0]} {reason}")
            self._watch.note(Event(self._clock(), EventKind.ERROR, text=text))


async def run_command(command: tuple[str, ...], notice: Notice) -> str:
    """Runs it to its end; returns what went wrong, or an empty text.

    Raises:
        OSError: it can't be started.
    """
    body = {
        "at": notice.at.isoformat(),
        "subject": notice.subject,
        "text": notice.text,
        "urgent": notice.urgent,
        "project": notice.project,
        "zone": notice.zone,
        "state": notice.state,
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_S):
            await process.communicate(json.dumps(body).encode())
    except TimeoutError:
        return f"did not end within {COMMAND_TIMEOUT_S:.0f} s."
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"ended with code {process.returncode}." if process.returncode else ""


def _after(events: list[Event], last: Event | None) -> list[Event]:
    """The events behind the last one that was seen; all of them when it has fallen out."""
    for place in range(len(events) - 1, -1, -1):
        if events[place] is last:
            return events[place + 1 :]
    return events
