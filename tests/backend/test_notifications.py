from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from backend import notifications
from backend.cloud.client import CloudClient
from backend.cloud.watch import FleetWatch, now_utc
from backend.model import Event, EventKind, Fleet, QueuedResource, StateSince
from backend.notifications import Notice, NotificationSettings, Notifier, Rules, load_notifications, run_command
from backend.outcomes import OperatorError
from tests.fake_cloud import FakeCloud, fake_cloud, parent, raw_request

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
NOTICE = Notice(NOW, "a", "a: PROVISIONING -> ACTIVE", state="ACTIVE")


def event(kind: EventKind, after: str = "") -> Event:
    return Event(NOW, kind, "p", "z", "a", "", after, f"a {after}")


def waiting(minutes: float, *, seen_minutes: float | None = None) -> Fleet:
    created = NOW - timedelta(minutes=minutes)
    item = QueuedResource("p", "z", "a", "WAITING_FOR_RESOURCES", created_at=created)
    seen = seen_minutes is not None
    at = NOW - timedelta(minutes=seen_minutes) if seen_minutes is not None else NOW
    return Fleet(queued_resources=(item,), since={item.key: StateSince(at, not seen)}, loaded=True)


@pytest.mark.parametrize(
    ("kind", "after", "told", "urgent"),
    [
        (EventKind.STATE, "ACTIVE", True, False),
        (EventKind.STATE, "FAILED", True, True),
        (EventKind.STATE, "SUSPENDED", True, True),
        (EventKind.STATE, "PROVISIONING", False, False),
        (EventKind.ALARM, "UNHEALTHY_MAINTENANCE", True, True),
        (EventKind.ERROR, "", False, False),
        (EventKind.NODE_STATE, "READY", False, False),
        (EventKind.ACTION, "", False, False),
    ],
)
def test_what_is_told_without_any_configuration(kind: EventKind, after: str, told: bool, urgent: bool) -> None:
    found = Rules(NotificationSettings()).notices([event(kind, after)], Fleet(), NOW)
    assert [notice.urgent for notice in found] == ([urgent] if told else [])


def test_a_long_wait_is_told_once_for_each_request() -> None:
    rules = Rules(NotificationSettings())
    assert rules.notices([], waiting(14), NOW) == []
    (notice,) = rules.notices([], waiting(16), NOW)
    assert "16 minutes" in notice.text
    assert rules.notices([], waiting(16), NOW + timedelta(hours=1)) == []
    assert len(rules.notices([], waiting(20), NOW)) == 1, "another request of the same name"


def test_a_wait_that_was_seen_to_begin_counts_from_there() -> None:
    rules = Rules(NotificationSettings())
    assert rules.notices([], waiting(60, seen_minutes=5), NOW) == []
    assert len(rules.notices([], waiting(60, seen_minutes=16), NOW)) == 1


def test_rules_can_be_switched_off() -> None:
    rules = Rules(NotificationSettings(states=(), alarms=False, waiting_minutes=0))
    told = rules.notices([event(EventKind.STATE, "FAILED"), event(EventKind.ALARM)], waiting(90), NOW)
    assert told == []


def test_the_configuration_is_read_and_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert load_notifications(file) == NotificationSettings()
    file.write_text('[notifications]\nstates = ["FAILED"]\nwaiting_minutes = 5\ncommand = ["notify-send", "x"]\n')
    settings = load_notifications(file)
    assert (settings.states, settings.waiting_minutes, settings.command) == (("FAILED",), 5, ("notify-send", "x"))
    for line, words in (('states = ["BROKEN"]', "'BROKEN' is not a state"), ("bel = true", "no such key")):
        file.write_text(f"[notifications]\n{line}\n")
        with pytest.raises(OperatorError, match=words) as caught:
            load_notifications(file)
        assert caught.value.what.startswith(f"{file}:2:")


async def test_the_command_gets_the_notice_on_its_stdin(tmp_path: Path) -> None:
    target = tmp_path / "notice.json"
    program = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    assert await run_command((sys.executable, "-c", program, str(target)), NOTICE) == ""
    assert json.loads(target.read_text())["text"] == "a: PROVISIONING -> ACTIVE"


async def test_a_command_that_fails_says_so() -> None:
    assert await run_command(("false",), NOTICE) == "ended with code 1."
    with pytest.raises(OSError, match="No such file"):
        await run_command(("/nowhere/notify",), NOTICE)


async def test_a_command_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "COMMAND_TIMEOUT_S", 0.5)
    pids = tmp_path / "pids"
    assert "did not end" in await run_command(("sh", "-c", f"sleep 60 & echo $$ $! > {pids}; wait"), NOTICE)
    for pid in map(int, pids.read_text().split()):
        with suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as fake:
        yield fake


async def test_a_change_of_state_is_shown_and_a_broken_command_is_said_once(cloud: FakeCloud) -> None:
    raw = raw_request("a", "PROVISIONING")
    cloud.queued[parent()] = [raw]
    client = CloudClient(cloud.context())
    watch = FleetWatch(client, client.context, None)
    shown: asyncio.Queue[Notice] = asyncio.Queue()
    settings = replace(NotificationSettings(), command=("/nowhere/notify",), waiting_minutes=0)
    await watch.refresh()
    task = asyncio.create_task(Notifier(watch, settings, shown.put_nowait, clock=now_utc).run())
    try:
        async with asyncio.timeout(90):
            await asyncio.sleep(0)
            for state in ("ACTIVE", "SUSPENDING", "SUSPENDED"):
                raw.state.state = state
                await watch.refresh()
            assert [(await shown.get()).state for _ in range(2)] == ["ACTIVE", "SUSPENDED"]
            while not any(each.kind is EventKind.ERROR for each in watch.events):
                await watch.refresh()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()
    assert shown.empty()
    assert sum(each.kind is EventKind.ERROR for each in watch.events) == 1
