"""A console that follows every run it finds, as a process of its own that a test may kill at any moment.

usage: python follower.py STATE_DIRECTORY PORT USER KEY NAME; host keys were pinned before.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from backend.context import Context, SSHSettings
from backend.journal import Journal
from backend.paths import Paths
from backend.runs.manager import RunManager
from backend.ssh.connections import ConnectionPool


async def main() -> None:
    directory, port, user, key, name = sys.argv[1:6]
    context = Context(name, "p", ("z",), ssh=SSHSettings(port=int(port), user=user, key=Path(key)))
    paths = Paths(Path(directory) / "config", Path(directory) / "state")
    journal = Journal.open(paths.journal)
    pool = ConnectionPool(context, None, journal)
    manager = RunManager(pool, journal, paths, context=context.name)
    runs = await manager.reattach()
    print("following", len(runs), flush=True)
    for run in runs:
        await run.wait()
    await manager.close()
    await pool.close()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
