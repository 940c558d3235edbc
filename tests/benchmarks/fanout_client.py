"""Our own side of the fan-out benchmark in a process of its own: `true` on all, as `slicetower run` without the API.

    python -m tests.benchmarks.fanout_client SERVER.json COUNT

Imports the product and nothing of the tests: what is measured includes the start of the interpreter.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.outcomes import Outcome
from backend.paths import Paths
from backend.runs.manager import RunManager, RunRequest
from backend.ssh import lean
from backend.ssh.connections import ConnectionPool
from backend.targets import WorkerRef


def worker(index: int) -> WorkerRef:
    """The same addresses as tests.backend.openssh.worker."""
    address = f"127.99.{index // 250}.{index % 250 + 1}"
    return WorkerRef("p", "z", "q", 0, index, "n", f"u{index}", address, address)


class OneKey:
    """The API's answer: all workers are one sshd."""

    def __init__(self, line: str) -> None:
        self._line = line

    async def host_keys(self, worker: WorkerRef, *, fresh: bool = False) -> Sequence[str]:
        return [self._line]


async def main(server: dict[str, Any], count: int) -> int:
    settings = SSHSettings(port=server["port"], user=server["user"], key=Path(server["key"]))
    context = Context(name="benchmark", project="p", zones=("z",), ssh=settings)
    lean.garbage()
    with tempfile.TemporaryDirectory() as state:
        paths = Paths(Path(state) / "config", Path(state) / "state")
        journal = Journal.open(paths.journal)
        pool = ConnectionPool(context, OneKey(server["host_key"]), journal)
        manager = RunManager(pool, journal, paths, context=context.name)
        request = RunRequest(argv=("true",))
        run = await manager.launch(manager.plan(request, [worker(index) for index in range(count)]))
        await run.wait()
        await manager.close()
        await pool.close()
        journal.close()
    return 0 if run.summary == {Outcome.OK: count} else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))))
