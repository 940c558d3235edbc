"""Notices without a console: the rules of [notifications] and [alerts], told by a verb that stays in the foreground."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from backend.notifications import Notice
from backend.sanitize import plain
from backend.tower import Tower

NEWCOMERS_EVERY_S = 3.0
"""Between looks into the journal for runs to follow."""


@asynccontextmanager
async def telling(tower: Tower, show: Callable[[Notice], None]) -> AsyncIterator[None]:
    """While the block lasts, notices are shown and the operator's command gets them; runs are followed if silence is told.

    Args:
        tower: One that watches.
        show: Gets each notice.

    Raises:
        OperatorError: a mistake in the configuration.
    """
    tasks = [asyncio.create_task(tower.notifier(show).run(), name="tell notices")]
    if tower.alert_sources():
        tasks.append(asyncio.create_task(_follow_runs(tower), name="follow runs"))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _follow_runs(tower: Tower) -> None:
    from backend.runs.adoption import newcomers

    while True:
        if tower.watch.fleet.loaded:
            newcomers(tower.runs, tower.context.name, tower.watch.fleet)
        await asyncio.sleep(NEWCOMERS_EVERY_S)


def tell(notice: Notice, *, bell: bool = False) -> None:
    """One line of talk; a terminal rings if it is to."""
    ring = "\a" if bell and sys.stderr.isatty() else ""
    mark = "ALARM" if notice.urgent else "notice"
    print(f"{ring}{notice.at:%H:%M:%S}Z {mark}: {plain(notice.text)}", file=sys.stderr, flush=True)
