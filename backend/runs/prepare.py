"""Before a command starts anywhere: its code is on every worker, and its setup is done on every worker."""

from __future__ import annotations

import asyncio
import hashlib

from backend.outcomes import OperatorError, Outcome
from backend.runs.fanout import Phase
from backend.runs.live import Run, now
from backend.runs.model import RunRequest
from backend.ssh import scripts
from backend.ssh.budget import ReadBudget
from backend.ssh.connections import ConnectionPool
from backend.ssh.remote import Exit, Lost, Remote, new_nonce

SHIP_TIMEOUT_S = 1800.0
"""For one bundle over one link: 64 MiB at 300 kbit/s."""
CHUNK_BYTES = 64 * 1024

_BAD = {
    "digest": "arrived damaged",
    "unpack": "could not be unpacked (is the disk full?)",
    "folder": "has no place: ~/.slicetower can't be made",
}


def needed(request: RunRequest) -> bool:
    return request.bundle is not None or bool(request.setup)


def setup_key(request: RunRequest) -> str:
    """Names a setup command's text in the marker that it was done."""
    return hashlib.sha256(request.setup.encode("utf-8", "surrogateescape")).hexdigest()[:16]


async def prepare(run: Run, pool: ConnectionPool, secrets: dict[str, str], budget: ReadBudget) -> bool:
    """Ships and sets up on all workers at once.

    Returns:
        Whether the command may start: on workers that are ready when failures are to be passed over, else on none.
    """
    await asyncio.gather(*(_one(run, index, pool, secrets, budget) for index in range(len(run.results))))
    bad = [result for result in run.results if result.ended]
    if not bad:
        return True
    if run.request.on_failure == "continue" and not run.request.is_gang and len(bad) < len(run.results):
        return True
    reason = f"Not started: {bad[0].worker.address} could not be prepared. {bad[0].error}"
    for index, result in enumerate(run.results):
        if not result.ended:
            run.finish(index, Outcome.NOT_STARTED, reason)
    return False


async def _one(run: Run, index: int, pool: ConnectionPool, secrets: dict[str, str], budget: ReadBudget) -> None:
    try:
        if run.request.bundle is not None:
            await _ship(run, index, pool, budget)
        if run.request.setup and not run.results[index].ended:
            await _set_up(run, index, pool, secrets, budget)
    except Lost as error:
        run.finish(index, Outcome.UNKNOWN, error.what)
    except OperatorError as error:
        run.finish(index, Outcome.UNREACHABLE, error.what)


async def _ship(run: Run, index: int, pool: ConnectionPool, budget: ReadBudget) -> None:
    bundle = run.request.bundle
    assert bundle is not None
    worker = run.workers[index]
    run.phase(index, Phase.CONNECTING)
    nonce = new_nonce()
    noise = bytearray()
    script = scripts.ship(bundle.digest, len(bundle.archive), nonce)
    remote = Remote(
        worker,
        script,
        nonce,
        output=lambda data, _: noise.extend(data),
        budget=budget,
        keep_stdin=True,
        last_control="",
    )
    try:
        async with asyncio.timeout(SHIP_TIMEOUT_S):
            await remote.start(pool, lambda text: run.phase(index, Phase.CONNECTING, text))
            words = await remote.heard("have", "need", "bad")
            if words[:1] == ["need"]:
                run.phase(index, Phase.SHIPPING, bundle.report)
                for start in range(0, len(bundle.archive), CHUNK_BYTES):
                    await remote.drained()
                    remote.write(bundle.archive[start : start + CHUNK_BYTES])
                remote.write_eof()
                words = await remote.heard("shipped", "bad")
            remote.write_eof()
            ended = await asyncio.shield(remote.ended)
    except TimeoutError as error:
        remote.abandon()
        raise Lost(worker, f"the code did not arrive within {SHIP_TIMEOUT_S:.0f} s.") from error
    except asyncio.CancelledError:
        remote.abandon()
        raise
    if ended.lost:
        raise Lost(worker, "the connection was lost while the code was shipped.", raw=ended.raw)
    if words[:1] not in (["have"], ["shipped"]):
        why = _BAD.get(words[1] if len(words) > 1 else "", "was not taken")
        tail = bytes(noise[-300:]).decode("utf-8", "replace").strip()
        run.results[index].exit_code = ended.code
        run.finish(index, Outcome.FAILED, f"The code {why} on {worker.address}. {tail}".strip())


async def _set_up(run: Run, index: int, pool: ConnectionPool, secrets: dict[str, str], budget: ReadBudget) -> None:
    worker = run.workers[index]
    nonce = new_nonce()
    digest = run.request.bundle.digest if run.request.bundle is not None else ""
    environment = run.environment(index, secrets)
    script = scripts.setup(run.request.setup, digest, setup_key(run.request), nonce, environment)
    run.phase(index, Phase.SETUP, "setup")
    remote = Remote(
        worker,
        script,
        nonce,
        output=lambda data, stream: run.output(index, data, stream),
        budget=budget,
        keep_stdin=True,
    )
    began = now()
    try:
        await remote.start(pool, lambda text: run.phase(index, Phase.SETUP, text))
        ended: Exit = await asyncio.shield(remote.ended)
    except asyncio.CancelledError:
        remote.abandon()
        raise
    if ended.lost:
        raise Lost(
            worker, "the connection was lost during setup, which its worker ends when it notices.", raw=ended.raw
        )
    if ended.code != 0:
        result = run.results[index]
        result.exit_code, result.signal, result.started_at = ended.code, ended.signal, began
        how = f"signal {ended.signal}" if ended.signal else f"code {ended.code}"
        run.finish(index, Outcome.SIGNALLED if ended.signal else Outcome.FAILED, f"Setup ended with {how}.")
    else:
        run.phase(index, Phase.WAITING, "ready")
