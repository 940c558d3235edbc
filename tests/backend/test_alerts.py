"""Alert rules: log silence over real runs, states and waits, and the operator's command that gets them."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.alerts import AlertSettings, SilenceRule, load_alerts
from backend.cloud.watch import now_utc
from backend.context import Context
from backend.journal import Journal
from backend.notifications import NotificationSettings, Notifier
from backend.outcomes import OperatorError
from backend.paths import Paths
from backend.tower import Tower
from tests.backend.runs.run_world import Desk, output, world_desk
from tests.backend.sim.worker_world import world

TALKS_WHEN_TOLD = """\
import pathlib, time
print('begun', flush=True)
path = pathlib.Path.home() / 'talk'
while not path.exists():
    time.sleep(0.02)
print('again', flush=True)
time.sleep(600)
"""
LIMIT_S = 120.0


async def test_a_silent_worker_is_told_once_until_it_prints_again(tmp_path: Path) -> None:
    rule = SilenceRule(30.0)
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        run = await desk.launch("python3", "-c", TALKS_WHEN_TOLD, detach=True, title="train")
        async with asyncio.timeout(LIMIT_S):
            await run.until(lambda each: all(b"begun" in output(each, index) for index in range(4)))
        assert rule.notices([run], now_utc()) == []
        later = now_utc() + timedelta(seconds=40)
        (notice,) = rule.notices([run], later)
        assert notice.text == "train: no output for 30 s from 4 of 4 workers: train-a/0/0-3"
        assert notice.urgent
        assert notice.subject == run.id
        assert rule.notices([run], later + timedelta(hours=1)) == [], "told once"

        (sim.host.home(sim.addresses[0]) / "talk").touch()
        async with asyncio.timeout(LIMIT_S):
            await run.until(lambda each: b"again" in output(each))
        printed = datetime.fromtimestamp(run.log(0).last_at, UTC)
        assert rule.notices([run], printed + timedelta(seconds=29.999)) == [], "the others were told"
        (notice,) = rule.notices([run], printed + timedelta(seconds=31))
        assert notice.text.endswith("from 4 of 4 workers: train-a/0/0")
        await run.stop(0.0)
        assert rule.notices([run], now_utc() + timedelta(hours=1)) == [], "ended runs are not silent"


async def test_silence_reaches_the_operators_command(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    target = tmp_path / "notice.json"
    program = "import os, sys; text = sys.stdin.read(); open(sys.argv[1] + '.new', 'w').write(text); " \
        "os.replace(sys.argv[1] + '.new', sys.argv[1])"  # fmt: skip
    command = json.dumps([sys.executable, "-c", program, str(target)])
    (config / "config.toml").write_text(f"[alerts]\nsilence_s = 0.2\n[notifications]\ncommand = {command}\n")
    async with world(tmp_path) as sim, world_desk(sim) as desk:
        tower = tower_over(desk, Paths(config, tmp_path / "state"))
        run = await desk.launch("sleep", "600", detach=True)
        await run.until_started()
        shown: asyncio.Queue[object] = asyncio.Queue()
        notifier = Notifier(
            tower.watch, tower.notification_settings(), shown.put_nowait, clock=now_utc, sources=tower.alert_sources()
        )
        telling = asyncio.create_task(notifier.run())
        try:
            async with asyncio.timeout(LIMIT_S):
                while not target.exists():  # noqa: ASYNC110 (another process writes it)
                    await asyncio.sleep(0.05)
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
        told = json.loads(target.read_text())
        assert told["subject"] == run.id
        assert told["urgent"] is True
        assert "no output" in told["text"]
        await run.stop(0.0)


def tower_over(desk: Desk, paths: Paths) -> Tower:
    """A tower whose runs are those of a desk."""
    tower = Tower(Context("sim", "p", ("z",)), paths)
    tower.__dict__["runs"] = desk.manager
    tower.__dict__["journal"] = desk.journal
    assert isinstance(desk.journal, Journal)
    return tower


def test_alerts_stand_for_the_settings_of_notifications(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert load_alerts(file) == AlertSettings()
    assert load_alerts(file).over(NotificationSettings()) == NotificationSettings()
    file.write_text('[alerts]\nsilence_s = 300\nwait_min = 5\nstates = ["SUSPENDED"]\n')
    found = load_alerts(file)
    assert found == AlertSettings(300.0, 5, ("SUSPENDED",))
    settings = found.over(NotificationSettings())
    assert (settings.states, settings.waiting_minutes, settings.alarms) == (("SUSPENDED",), 5, True)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[alerts]\nsilence = 3\n", 2, "no such key"),
        ('[alerts]\nsilence_s = "long"\n', 2, "must be a number"),
        ('[alerts]\nstates = ["BROKEN"]\n', 2, "'BROKEN' is not a state"),
        ("[notifications]\nwaiting_minutes = 3\n[alerts]\nwait_min = 5\n", 4, "in \\[notifications\\] too"),
    ],
)
def test_a_mistake_in_the_alerts_is_named(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(OperatorError, match=words) as caught:
        load_alerts(file)
    assert caught.value.what.startswith(f"{file}:{line}:")
