"""What a poll of 1,000 requests with 16,384 endpoints costs the console, and how long its loop is blocked.

Budget (design.md, section 7): at most 150 ms CPU a poll, the loop never blocked over 20 ms. The fake API is a process of
its own, so that only the console's side is measured: the first poll, quiet polls, and polls in which a part of the fleet
changed. Recorded, not asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

REQUESTS = 1000
ENDPOINTS = 16_384
WORKERS = 16
"""A slice; 1,024 slices over 1,000 requests."""
ROUNDS = 20
READY_TIMEOUT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    with serving() as endpoint, TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(endpoint, Path(folder), arguments.rounds)), indent=2))


async def measure(endpoint: str, folder: Path, rounds: int) -> dict[str, object]:
    from backend.cloud.client import CloudClient
    from backend.cloud.watch import FleetWatch
    from backend.context import Context
    from backend.journal import Journal

    context = Context(
        name="bench",
        project="p",
        zones=("z",),
        endpoint=endpoint,
        rest_endpoint="http://127.0.0.1:9",
        transport="insecure",
        credentials="none",
    )
    client = CloudClient(context)
    client.prepare()
    journal = Journal.open(folder / "journal.db")
    watch = FleetWatch(client, context, journal)
    blocks: list[float] = []
    costs: dict[str, list[float]] = {"first": [], "one slice changed": [], "a tenth changed": [], "quiet": []}
    longest: dict[str, float] = dict.fromkeys(costs, 0.0)
    probe = asyncio.create_task(feel_the_loop(blocks))
    try:
        for number in range(rounds):
            # The fake API changes in the same rhythm: see `_serve_forever`.
            kind = "first" if number == 0 else ("quiet", "one slice changed", "a tenth changed")[number % 3]
            blocks.clear()
            cpu = time.process_time()
            fleet = await watch.refresh()
            costs[kind].append((time.process_time() - cpu) * 1000)
            await asyncio.sleep(0.05)
            longest[kind] = max([longest[kind], *blocks])
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        await client.close()
        journal.close()
    workers = sum(len(each.workers) for item in fleet.queued_resources for each in item.slices)
    return {
        "requests": len(fleet.queued_resources),
        "endpoints": workers,
        "cpu_ms_per_poll": {kind: round(statistics.median(values), 1) for kind, values in costs.items() if values},
        "longest_loop_block_ms": {kind: round(value * 1000, 1) for kind, value in longest.items()},
        "cpu_ms_of_the_tiers_over_rest": await tiers_over_rest(),
        "budget": {"cpu_ms_per_poll": 150, "longest_loop_block_ms": 20},
    }


async def tiers_over_rest() -> float:
    """CPU of taking in the one REST list that tells flex-start from on-demand, of REQUESTS new requests (bytes to tiers)."""
    from datetime import UTC, datetime

    from backend.cloud.flex import Models
    from backend.model import QueuedResource

    at = datetime(2026, 7, 1, 12, tzinfo=UTC)
    items = [QueuedResource("p", "z", f"r{number}", "ACTIVE", created_at=at) for number in range(REQUESTS)]
    place = "projects/p/locations/z/queuedResources"
    bodies = [{"name": f"{place}/{item.name}", "createTime": "2026-07-01T12:00:00.123456Z"} for item in items]
    raw = json.dumps({"queuedResources": bodies})

    async def get(_path: str, _parameters: dict[str, str]) -> dict[str, object]:
        answer: dict[str, object] = json.loads(raw)
        return answer

    started = time.process_time()
    await Models(get).tell(("p", "z"), items)
    return round((time.process_time() - started) * 1000, 1)


async def feel_the_loop(blocks: list[float]) -> None:
    """Notes how much later than asked it gets its turn: the time that something else held the loop."""
    pause = 0.001
    while True:
        started = time.perf_counter()
        await asyncio.sleep(pause)
        blocks.append(time.perf_counter() - started - pause)


@contextmanager
def serving() -> Iterator[str]:
    """The fake API in a process of its own; yields its endpoint."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process: BaseProcess = spawn.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        if not here.poll(READY_TIMEOUT_S):
            raise TimeoutError("the fake API did not start")
        yield here.recv()
    finally:
        process.terminate()
        process.join(READY_TIMEOUT_S)


def _serve(ready: Connection) -> None:
    asyncio.run(_serve_forever(ready))


async def _serve_forever(ready: Connection) -> None:
    from tests.fake_cloud import fake_cloud, parent, raw_node, raw_request

    async with fake_cloud() as fake:
        slices = ENDPOINTS // WORKERS
        per_request = [1 + (index < slices - REQUESTS) for index in range(REQUESTS)]
        fake.queued[parent()] = [
            raw_request(f"r{index}", slices=count, accelerator_type="v5litepod-64")
            for index, count in enumerate(per_request)
        ]
        nodes = [
            raw_node(f"r{index}-{place}", f"r{index}", workers=WORKERS)
            for index, count in enumerate(per_request)
            for place in range(count)
        ]
        fake.nodes[parent()] = nodes
        answer = fake.answer

        async def moving(method: str, request: object, context: object) -> object:
            if method == "ListNodes" and not getattr(request, "page_token", ""):
                number = fake.calls["polls"]
                fake.calls["polls"] += 1
                part = {0: [], 1: nodes[:1], 2: nodes[::10]}[number % 3 if number else 0]
                for node in part:
                    node.health_description = f"look {number}"
            return await answer(method, request, context)

        fake.answer = moving  # type: ignore[method-assign]
        ready.send(fake.endpoint)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
