"""A console on facts that never change: no simulator, no network, no clock of the wall."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.widgets import Input, TextArea

from backend import tower as tower_module
from backend.bench.manager import BenchManager
from backend.bench.model import Survey, WorkerSurvey
from backend.bench.store import BenchStore
from backend.cloud.client import CloudClient
from backend.cloud.errors import explain
from backend.cloud.watch import FleetWatch
from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.logs.store import LogStore
from backend.model import Operation, QueuedResource, Slice, Standing
from backend.outcomes import OperatorError
from backend.paths import paths
from backend.runs.fanout import FailurePolicy, Fanout
from backend.runs.live import Run
from backend.runs.manager import RunManager
from backend.runs.store import RunStore
from backend.ssh.connections import ConnectionPool
from backend.ssh.rollcall import RollCall
from backend.targets import WorkerRef
from backend.tower import Tower
from tests.tui.driving import Console
from tests.tui.fixed import facts
from tests.tui.fixed.tools import answer_tools
from tui.app import SliceTower
from tui.screens.base import ConsoleScreen
from tui.settings import Settings

CONTEXT = Context(
    name="demo",
    label="simulated",
    project=facts.PROJECT,
    zones=(facts.WEST, facts.EAST),
    endpoint="127.0.0.1:1",
    rest_endpoint="http://127.0.0.1:1",
    transport="insecure",
    credentials="none",
    ssh=SSHSettings(user="operator", key=Path("id_ed25519")),
    prices=(("v5e", 1.2), ("v5p", 4.2)),
    source="demo.toml",
)


STILL = 4
"""So many looks in a row must be alike."""
PASSING = frozenset({"group", "verdict", "describe", "survey", "offers", "operations"}) | {"costs", "waits", "work"}
"""Work of screens that ends by itself, and then changes what they show."""


class FixedClient:
    """Answers as the service would, of what never changes."""

    def __init__(self) -> None:
        self.fleet: tuple[QueuedResource, ...] = facts.FLEET
        self.failing: tuple[str, ...] = ()
        """Zones that do not answer now."""
        self.silent = False
        """No answer ever comes."""
        self.lacks: dict[str, str] = {}
        """Why a worker lacks ssh."""

    def prepare(self) -> None: ...

    async def close(self) -> None: ...

    async def _asked(self, zone: str) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if zone in self.failing:
            raise explain(
                14, "failed to connect to all addresses", action="list the queued resources of", subject=zone
            )

    async def list_queued_resources(
        self, project: str, zone: str, *, attempts: int | None = None
    ) -> list[QueuedResource]:
        await self._asked(zone)
        return [item for item in self.fleet if item.zone == zone]

    async def get_queued_resource(self, project: str, zone: str, name: str) -> QueuedResource:
        """Never answers: a wish that is pursued stays as it is."""
        await asyncio.Event().wait()
        raise AssertionError(name)

    async def list_nodes(self, project: str, zone: str, *, attempts: int | None = None) -> list[Slice]:
        return [one for item in self.fleet if item.zone == zone for one in item.slices]

    async def describe(self, project: str, zone: str, name: str) -> dict[str, Any]:
        item = next(each for each in self.fleet if each.name == name)
        node = {
            "acceleratorType": item.accelerator_type,
            "runtimeVersion": item.runtime_version,
            "networkConfig": {"enableExternalIps": True},
            "schedulingConfig": {"spot": True},
        }
        specs = {"parent": f"projects/{project}/locations/{zone}", "node": node}
        return {
            "name": f"projects/{project}/locations/{zone}/queuedResources/{name}",
            "createTime": f"{item.created_at:%Y-%m-%dT%H:%M:%SZ}",
            "tpu": {"nodeSpec": [{**specs, "multisliceParams": {"nodeCount": item.slice_count}}]},
            "state": {"state": item.state, "stateInitiator": "SERVICE"},
        }

    async def describe_node(self, project: str, zone: str, node_id: str) -> dict[str, Any]:
        return {"name": f"projects/{project}/locations/{zone}/nodes/{node_id}", "state": "READY"}

    async def accelerator_types(self, project: str, zone: str) -> list[str]:
        return ["v5litepod-16", "v5litepod-32", "v5p-128"]

    async def reservations(self, project: str, zone: str) -> list[str]:
        return []

    async def get_operation(self, path: str) -> Operation:
        return next(item for item in facts.OPERATIONS if item.path == path)

    async def operations(self, project: str, zone: str) -> list[Operation]:
        return [item for item in facts.OPERATIONS if item.zone == zone]


class FixedBenches(BenchManager):
    """Knows what the workers are without asking them."""

    async def platform_of(self, resource: QueuedResource) -> tuple[Survey, dict[str, int]]:
        answer = WorkerSurvey(python="3.11.9", jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.23", cpus=112, port="free")
        return {worker.address: answer for worker in facts.WORKERS}, {}


async def _never(_place: int) -> None:
    await asyncio.Event().wait()


class NoPool:
    """Reaches nobody: nothing here leaves this process."""

    connected = 0
    host_keys = SimpleNamespace(read=lambda workers: None)

    def is_connected(self, _worker: WorkerRef) -> bool:
        return False

    async def connection(self, worker: WorkerRef, *_more: object) -> None:
        raise OperatorError(f"{worker.address} is not reached from here.")

    lease = connection

    async def require_key(self) -> None: ...

    async def identity(self) -> None:
        raise OperatorError("There is no key here.")

    async def close(self) -> None: ...


class FixedTower(Tower):
    """The real composition, with that client, and a run that goes on for ever."""

    answers = FixedClient()

    @cached_property
    def client(self) -> CloudClient:
        return cast("CloudClient", self.answers)

    @cached_property
    def pool(self) -> ConnectionPool:
        return cast("ConnectionPool", NoPool())

    @cached_property
    def roll_call(self) -> RollCall:
        async def listen(worker: WorkerRef) -> str:
            return self.answers.lacks.get(worker.address, "")

        return RollCall(self.context, listen)

    @cached_property
    def watch(self) -> FleetWatch:
        return FleetWatch(self.answers, self.context, self.journal, clock=lambda: facts.NOW)

    @cached_property
    def runs(self) -> RunManager:
        made = RunManager(self.pool, self.journal, self.paths, fleet=lambda: self.watch.fleet, context="demo")
        started = facts.ago(minutes=2)
        run = Run(
            facts.LIVE_ID, facts.LIVE, facts.live_results(), "exec bash train.sh --steps 5000", made.logs, started
        )
        run.fanout = Fanout(run.results, run.batches, FailurePolicy(), _never, run.changed)
        run.fanout.batch = len(run.batches)
        for place in range(len(run.workers)):
            log = run.log(place)
            for after, line in facts.live_lines(place):
                log.append(f"{line}\n".encode(), at=started.timestamp() + after)
            run.results[place].output_bytes = log.size
        made.active[run.id] = run
        return made

    @cached_property
    def benches(self) -> BenchManager:
        return FixedBenches(self.runs, self.pool, self.journal, context="demo")


async def _past(context: Context) -> None:
    """What the journal knows before the console is opened."""
    own = paths()
    journal = Journal.open(own.journal)
    client, clock = FixedClient(), [facts.NOW]
    client.fleet = (facts.OLD,)
    watch = FleetWatch(client, context, journal, clock=lambda: clock[0])
    told = list(facts.EVENTS)
    for moment, fleet in facts.HISTORY:
        journal.record([event for event in told if event.at < moment])
        told = [event for event in told if event.at >= moment]
        # Looked at shortly before as well: a change between two polls is seen, after a long gap it is a bound.
        clock[0] = moment - facts.POLL
        await watch.refresh()
        clock[0], client.fleet = moment, fleet
        await watch.refresh()
    store = RunStore(journal)
    for record in (facts.ENDED, facts.LIVE_RECORD, *facts.BENCH_RUNS):
        store.create(record)
    logs = LogStore(own.runs_dir)
    for record, output_of in ((facts.ENDED, facts.output_of), (facts.BENCH_RUNS[0], facts.readings_of)):
        for place, worker in enumerate(record.workers):
            log = logs.open(record.id, worker.file_stem)
            for line in output_of(place):
                log.append(f"{line}\n".encode(), at=record.started_at.timestamp() + place)
    logs.close()
    for bench in facts.BENCHES:
        BenchStore(journal).save(bench)
    journal.close()


def _stop_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every module of the console that asks for the present moment is told the same."""
    import backend.cloud.watch
    import tui.screens.logs

    for name, module in list(sys.modules.items()):
        if name.startswith("tui.") and hasattr(module, "utc_now"):
            monkeypatch.setattr(module, "utc_now", lambda: facts.NOW)
    monkeypatch.setattr(backend.cloud.watch, "now_utc", lambda: facts.NOW)
    monkeypatch.setattr(tui.screens.logs, "time", SimpleNamespace(time=facts.NOW.timestamp, monotonic=time.monotonic))


WAIT_S = 20.0
"""Nothing here waits for a network or a process."""


def _all_were_called(app: SliceTower) -> bool:
    """Every zone has told what it has, and every worker of it was asked."""
    if {poll.zone for poll in app.fleet.polls if poll.last_good_at is not None} != set(CONTEXT.zones):
        return False
    words = [app.ssh_word(item) for item in app.fleet.queued_resources]
    return all(word is None or word.standing is not Standing.ASKING for word in words)


class FixedConsole(Console):
    """A console under test whose screen is the same at every run."""

    async def until(self, condition: Callable[[], object], what: str = "", *, wait_s: float = WAIT_S) -> None:
        await super().until(condition, what, wait_s=wait_s)

    async def settle(self) -> None:
        """Until nothing moves: no cursor blinks, and what screens look at is drawn."""
        for field in self.app.screen.query(Input):
            field.cursor_blink = False
        for area in self.app.screen.query(TextArea):
            area.cursor_blink = False
        before: list[str] = []
        for _ in range(200):
            for screen in self.app.screen_stack:
                if isinstance(screen, ConsoleScreen) and screen.query("#hints"):
                    screen.refresh_frame()
                    screen.tick()
            await self.pilot.pause(0.02)
            if any(worker.group in PASSING and not worker.is_finished for worker in self.app.workers):
                continue
            before = [*before[-STILL:], self.text]
            if len(before) > STILL and len(set(before)) == 1:
                return
        raise AssertionError(f"the screen never came to rest:\n{self.text}")


@asynccontextmanager
async def fixed_console(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    size: tuple[int, int],
    settings: Settings | None = None,
    client: FixedClient | None = None,
    read_only: bool = False,
    loaded: bool = True,
    no_color: bool = False,
) -> AsyncIterator[FixedConsole]:
    """A console on the fixed fleet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(FixedTower, "answers", client or FixedClient())
    monkeypatch.setattr(tower_module, "Tower", FixedTower)
    context = replace(CONTEXT, read_only=read_only)
    await _past(context)
    app = SliceTower(context, settings, console_log=home / "console.log")
    for module in (
        *("fleet", "workers", "run", "runs", "operations", "deeds", "logs", "check", "forwards"),
        *("costs", "waits", "prune"),
    ):
        __import__(f"tui.screens.{module}")
    answer_tools(monkeypatch)
    _stop_clocks(monkeypatch)
    async with app.run_test(size=size) as pilot:
        driven = FixedConsole(app, pilot)
        try:
            await driven.until(lambda: app.tower is not None, "the tower")
            if loaded:
                await driven.until(lambda: app.fleet.loaded, "the fleet")
                assert app.tower is not None
                await driven.until(lambda: _all_were_called(app), "who answers by ssh")
                app.tower.runs  # noqa: B018 - made now, so that no screen is the first to ask
            yield driven
        finally:
            await app.close_tower()
