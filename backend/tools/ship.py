"""Programs of `jobs/programs` on workers: shipped over stdin with the exec that runs them, nothing is left behind.

One exec a worker, all at once. The program's own text comes from this release, so that workers never run another's.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

from backend.interpreter import VENV
from backend.outcomes import OperatorError, Outcome
from backend.sanitize import plain
from backend.ssh import scripts
from backend.ssh.connections import ConnectionPool, require_files
from backend.ssh.remote import Lost, ask, new_nonce
from backend.targets import WorkerRef

PROGRAM_TIMEOUT_S = 60.0
"""For one worker to run a probe and answer. Connecting has its own bounds: a long queue is not a dead worker."""

Told = Callable[[WorkerRef, str], None]
"""Takes what a worker is waited for; the empty text when for nothing any more."""

ANSWER_LIMIT = 4 << 20
"""Bytes of one answer."""

LOADER = """\
import contextlib, io, json, os, sys, types, zlib
nonce, size, rest = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
packed = b""
while len(packed) < size:
    part = os.read(0, size - len(packed))
    if not part:
        sys.exit("slicetower: the program did not arrive whole")
    packed += part
programs = json.loads(zlib.decompress(packed).decode())
for name, text in programs:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.argv = [name] + rest
said = io.StringIO()
with contextlib.redirect_stdout(said):
    code = module.main()
sys.stdout.write("\\n" + nonce + said.getvalue().strip() + "\\n")
sys.exit(code)
"""
"""Takes programs from stdin and runs the last; its one line of JSON comes back behind the nonce, whatever else is printed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said on one worker."""

    worker: WorkerRef
    facts: dict[str, Any] | None = None
    """None when it gave no answer; then `error` says why."""
    outcome: Outcome = Outcome.OK
    error: str = ""
    """One sentence, safe to show."""
    sent_at: float = 0.0
    received_at: float = 0.0
    """Unix seconds here, around the program's run there."""


@cache
def packed(*names: str) -> bytes:
    """Programs by name, siblings first."""
    folder = resources.files("jobs.programs")
    texts = [(name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in names]
    return zlib.compress(json.dumps(texts).encode(), 9)


def script(programs: Sequence[str], arguments: Sequence[str], nonce: str, *, python: str = "") -> bytes:
    """The line for ENTRY and the packed programs after it.

    Args:
        programs: Names below jobs/programs; the last is run, the others are what it imports.
        arguments: Its own.
        nonce: Marks its answer.
        python: The interpreter; empty for that of `setup` where it is, else python3.
    """
    body = packed(*programs)
    words = ["-c", LOADER, nonce, str(len(body)), *arguments]
    quoted = " ".join(scripts.quote(word) for word in words)
    chosen = scripts.quote(python) if python else '"$_st_py"'
    find = "" if python else f'_st_py={VENV}/bin/python;[ -x "$_st_py" ]||_st_py=python3;'
    return scripts.line(f"{find}exec {chosen} {quoted}", words=(*words, python)) + body


def read_answer(output: bytes, nonce: str) -> dict[str, Any] | None:
    """The object behind the nonce; None where there is none."""
    for line in reversed(output.split(b"\n")):
        _, mark, text = line.partition(nonce.encode())
        if mark:
            try:
                value = json.loads(text)
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


async def run_everywhere(
    pool: ConnectionPool,
    workers: Sequence[WorkerRef],
    programs: Sequence[str],
    arguments: Sequence[str],
    *,
    python: str = "",
    timeout_s: float = PROGRAM_TIMEOUT_S,
    told: Told | None = None,
) -> list[Answer]:
    """Runs a program on all workers at once; a worker that gives no answer is told as such, never left out.

    Raises:
        OperatorError: No key can be loaded, or too few open files.
    """
    require_files(len(workers))
    await pool.identity()
    pool.host_keys.read(workers)
    return list(
        await asyncio.gather(
            *(_run(pool, worker, programs, arguments, python, timeout_s, told) for worker in workers),
        )
    )


async def _run(
    pool: ConnectionPool,
    worker: WorkerRef,
    programs: Sequence[str],
    arguments: Sequence[str],
    python: str,
    timeout_s: float,
    told: Told | None,
) -> Answer:
    nonce = new_nonce()
    line = script(programs, arguments, nonce, python=python)
    try:
        await pool.connection(worker, None if told is None else partial(told, worker))
        sent_at = time.time()
        ended, _, output = await ask(pool, worker, line, nonce, timeout_s=timeout_s, limit=ANSWER_LIMIT)
    except Lost as error:
        return Answer(worker, None, Outcome.UNKNOWN, error.what)
    except OperatorError as error:
        return Answer(worker, None, Outcome.UNREACHABLE, error.what)
    received_at = time.time()
    facts = read_answer(output, nonce)
    if facts is None:
        said = plain(output[-300:].decode("utf-8", "replace").strip().replace("\n", " "))
        how = f"signal {ended.signal}" if ended.signal else f"code {ended.code}"
        return Answer(worker, None, Outcome.FAILED, f"{worker.address}: the program ended with {how}: {said}")
    return Answer(worker, facts, Outcome.OK, "", sent_at, received_at)
