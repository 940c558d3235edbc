"""A supervised run on simulated workers: it outlives connections, and dies with its worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.backend.sim.worker_world import BOUND_S, World, alive, until, world

A, B = "127.77.0.0", "127.77.0.1"
SUPERVISOR = Path(__file__).parents[3] / "jobs" / "programs" / "supervisor.py"


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        for address in (A, B):
            async with made.connect(address) as connection:
                await connection.run("cat > supervisor.py", input=SUPERVISOR.read_bytes())
        yield made


async def ask(fleet: World, address: str, verb: str, stdin: bytes = b"") -> dict[str, Any]:
    async with fleet.connect(address) as connection:
        result = await connection.run(f"python3 supervisor.py {verb}", input=stdin, timeout=BOUND_S)
    assert isinstance(result.stdout, bytes)
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


async def start(fleet: World, address: str, shell: str) -> dict[str, Any]:
    return await ask(fleet, address, "start", json.dumps({"run": "r1", "shell": shell}).encode())


async def test_run_dies_with_its_worker_and_is_lost_after_the_boot(fleet: World) -> None:
    here, there = await start(fleet, A, "sleep 600"), await start(fleet, B, "sleep 600")
    assert {here["supervisor"], here["pid"]} <= set(fleet.host.processes(A))
    await fleet.host.power_off(A, wipe=False)
    assert not [pid for pid in (here["supervisor"], here["pid"]) if alive(pid)]
    await fleet.host.boot(A)
    lost = await ask(fleet, A, "status r1")
    assert (lost["state"], lost["reason"]) == ("lost", "the worker rebooted")
    assert (await ask(fleet, B, "status r1"))["state"] == "running"
    assert alive(there["pid"])


async def test_stop_on_one_worker_spares_the_same_run_on_its_neighbour(fleet: World) -> None:
    here, there = await start(fleet, A, "sleep 600 & sleep 600"), await start(fleet, B, "sleep 600")
    stopped = await ask(fleet, A, "stop r1 --grace 5")
    assert (stopped["stopped"], stopped["survivors"]) == (True, [])
    assert not alive(here["pid"])
    assert alive(there["pid"])
    await until(lambda: not fleet.host.processes(A), "an empty worker")


async def test_follow_is_resumed_through_cuts_to_the_last_byte(fleet: World) -> None:
    shell = "for i in $(seq 1 20000); do echo line $i; done; until [ -e ~/gate ]; do sleep 0.01; done"
    started = await start(fleet, A, shell)
    expected = b"".join(b"line %d\n" % number for number in range(1, 20_001))
    received = b""
    for cut in (*range(1000, len(expected), len(expected) // 10), None):
        async with fleet.connect() as connection:
            place = f"--inode {started['inode']} --offset {len(received)}"
            process = await connection.create_process(f"python3 supervisor.py follow r1 {place}", encoding=None)
            header = json.loads(await asyncio.wait_for(process.stdout.readline(), BOUND_S))
            assert (header["lost"], header["offset"]) == (False, len(received))
            if cut is None:
                await connection.run("touch gate")
                received += await asyncio.wait_for(process.stdout.read(), BOUND_S)
                assert (await process.wait()).exit_status == 0
            else:
                received += await asyncio.wait_for(process.stdout.readexactly(cut - len(received)), BOUND_S)
                await fleet.host.cut(A)
    assert received == expected
    await until(lambda: not fleet.host.processes(A), "the end of every follower")
