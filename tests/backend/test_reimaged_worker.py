"""A worker that comes back with another host key: refused until the API serves that key, then accepted and told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.model import EventKind
from backend.ssh.connections import Reason, Unreachable
from backend.targets import select
from backend.tower import Tower
from tests.simulator import SimulatorFactory

BOUND_S = 60.0


async def test_another_host_key_is_refused_until_the_api_serves_it(
    simulators: SimulatorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own = simulators(fresh=True)
    async with Tower.open(own.context) as tower:
        fleet = await tower.watch.wait_for(lambda fleet: fleet if fleet.loaded else None, BOUND_S)
        (worker,) = select(fleet, ["train-a/0/3"])
        async with asyncio.timeout(BOUND_S):
            first = await tower.pool.connection(worker)
            await asyncio.to_thread(own.inject, "reimage", "train-a/0/3", "--unserved")
            await first.wait_closed()
            with pytest.raises(Unreachable) as refused:
                await tower.pool.connection(worker)
            assert refused.value.reason is Reason.HOST_KEY
            await asyncio.to_thread(own.inject, "reimage", "train-a/0/3", "--serve")
            again = await tower.pool.connection(worker)
        done = await again.run("hostname", check=True, timeout=BOUND_S)
        assert str(done.stdout).strip()
        told = [event.text for event in tower.journal.events() if event.kind is EventKind.ALARM]
        assert any("host key" in text and "changed" in text for text in told), told
