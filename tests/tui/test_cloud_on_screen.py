"""What the console says of the cloud beyond the fleet: wishes, policies, costs, operations, quotas and waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from backend.cloud.intents import IntentKind, IntentOutcome, IntentStore
from backend.cloud.policies import Keep, PolicyStore
from backend.cloud.requests import CreateRequest
from backend.cloud.usage import LimitStore
from backend.context import Context
from backend.costs import Cost
from backend.model import Fleet, Operation, Status
from backend.notifications import Notice
from backend.stays import QueueWait
from tests.simulator import SimulatorFactory
from tests.tui.driving import WIDE, Console, console
from tui.screens.confirm import Question
from tui.screens.create import CreateScreen
from tui.screens.events import EventsScreen
from tui.screens.leaving import leaving_lines
from tui.screens.operations import OperationsScreen, rows

ZONE = "us-west4-a"


@pytest.fixture
def context(simulators: SimulatorFactory) -> Context:
    return simulators().context


def spot(name: str) -> CreateRequest:
    return CreateRequest(name, "demo-project", ZONE, "v5litepod-16", runtime_version="v2-alpha-tpuv5-lite")


async def shown(driven: Console, name: str, *words: str) -> None:
    driven.app.show_request(name)
    await driven.shows(*words)


async def test_a_kept_request_says_whether_anything_keeps_it_and_quitting_tells_what_was_used(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        store = PolicyStore(driven.app.require_tower().journal)
        key = ("demo-project", ZONE, "train-a")
        assert store.start_keep(Keep(*key, preemption_budget=5, failure_budget=1))
        await shown(driven, "train-a", "kept: 5 preemptions", "a keeper runs")
        store.release_keep(key, end=False)
        await driven.shows("no process keeps it", "1 keep without a process")
        await driven.press("q")
        await driven.shows("What exists has used", "chip-hours", "Kept by a policy")


async def test_operations_are_listed_followed_and_cancelled(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = simulators(scenario="empty", fresh=True, speed=0.5)
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        client = driven.app.require_tower().client
        made = await client.create_queued_resource(spot("slow"), request_id=str(uuid4()))
        await driven.press("8")
        await driven.until(lambda: isinstance(driven.app.screen, OperationsScreen))
        await driven.shows("create", "slow", "running")
        await driven.press("X")
        await driven.until(lambda: isinstance(driven.app.screen, Question))
        await driven.press("1")
        await driven.shows("cancelling")
        assert (await client.get_operation(made.path)).cancel_requested
        await driven.press("g")
        await driven.shows(
            "/v2alpha1/projects/demo-project/locations/us-west4-a/operations/", "gcloud has no command"
        )


async def test_without_an_operation_the_call_that_lists_them_is_shown(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = simulators(scenario="empty", fresh=True)
    async with console(own.context, tmp_path, monkeypatch, size=WIDE) as driven:
        await driven.press("8")
        await driven.shows("The service tells of no operation.")
        await driven.press("g")
        await driven.shows("/v2/projects/demo-project/locations/us-west4-a/operations ", "gcloud has no command")


def test_a_failed_operation_says_why_and_a_running_one_counts() -> None:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    failed = Operation(
        "p", "z", "o1", True, "create", "projects/p/a", error=Status(8, "no more"), created_at=at, ended_at=at
    )
    running = Operation("p", "z", "o2", verb="delete", target="projects/p/b", created_at=at)
    said = [
        [cell if isinstance(cell, str) else cell.text for cell in row.cells]
        for row in rows([failed, running], at + timedelta(seconds=42))
    ]
    assert said[0][1:4] == ["failed", "create", "a"]
    assert said[0][-1] == "no more"
    assert said[1][1:5] == ["running", "delete", "b", "42s"]


def test_leaving_tells_money_wishes_and_idle_policies(tmp_path: Path) -> None:
    lines = leaving_lines(
        Fleet(loaded=True),
        [],
        spent=[Cost(10.0, False, 12.0), Cost(2.5, True, 3.0)],
        keeps=[Keep("p", "z", "a", 1, 1, running=True), Keep("p", "z", "b", 1, 1)],
    )
    assert lines[0] == "What exists has used >= 12.5 chip-hours so far, >= 15.00 USD by your prices."
    assert lines[1].endswith(": b.")
    assert leaving_lines(Fleet(loaded=True), []) == []


async def test_the_create_form_tells_chips_held_limits_waits_and_reservations(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        journal = driven.app.require_tower().journal
        LimitStore(journal).learn(
            "demo-project",
            "Quota 'TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI' exhausted. Limit 16 in zone us-west4-a",
        )
        waited = QueueWait("demo-project", ZONE, "w", "v5litepod-16", "spot", datetime.now(UTC), 90.0)
        monkeypatch.setattr(journal, "queue_waits", lambda: [waited])
        driven.app.push_screen(
            CreateScreen({"name": "more", "zone": ZONE, "accelerator_type": "v5litepod-16", "tier": "spot"})
        )
        await driven.shows("v5e spot in us-west4-a: ", "16 more asked for; limit last told: 16 (by an error of")
        await driven.shows("waited for before, seen here: median 90s", "(1 time)")
        await driven.shows("the last limit told was 16")
        screen = driven.app.screen
        assert isinstance(screen, CreateScreen)
        screen.fill({"zone": "us-east5-a", "tier": "reserved", "reservation": "team-v5"})
        await driven.shows("us-east5-a lists no reservation team-v5. It lists team-v5p.")
        screen.fill({"reservation": ""})
        await driven.shows("team-v5p; for the reserved tier")


async def test_what_a_refused_recreate_deleted_opens_as_a_form_from_its_event(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(context, tmp_path, monkeypatch, size=WIDE) as driven:
        store = IntentStore(driven.app.require_tower().journal)
        wish = store.wish(
            IntentKind.RECREATE,
            spot("lost").key,
            force=True,
            target_created_at=1.0,
            request=spot("lost"),
            request_id="x",
        )
        store.end(wish, IntentOutcome.REFUSED, "no")
        driven.app._tell_refused(spot("lost"), "no")
        await driven.press("6")
        await driven.until(lambda: isinstance(driven.app.screen, EventsScreen))
        await driven.shows("lost", "not made again")
        await driven.press("enter")
        await driven.until(lambda: isinstance(driven.app.screen, CreateScreen))
        screen = driven.app.screen
        assert isinstance(screen, CreateScreen)
        assert screen.texts()["accelerator_type"] == "v5litepod-16"


async def test_a_notice_rings_and_reaches_the_terminal_without_anybodys_escapes(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config" / "slicetower"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[notifications]\nosc9 = true\nbell = true\n")
    async with console(context, tmp_path, monkeypatch) as driven:
        written: list[str] = []
        rung: list[bool] = []
        assert driven.app._driver is not None
        monkeypatch.setattr(driven.app._driver, "write", written.append)
        monkeypatch.setattr(driven.app, "bell", lambda: rung.append(True))
        driven.app._show_notice(Notice(datetime.now(UTC), "a", "a is SUSPENDED\x1b]9;evil\x07\x9d", urgent=True))
        assert rung == [True]
        (sent,) = [text for text in written if text.startswith("\x1b]9;")]
        assert sent.startswith("\x1b]9;a is SUSPENDED")
        assert sent.count("\x1b") == sent.count("\x07") == 1
        assert "\x9d" not in sent
        await driven.until(lambda: "a is SUSPENDED" in driven.toasts(), "the toast")
