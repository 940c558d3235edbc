"""A benchmark that nobody follows (`--detach`, a console that died) is asked for on its workers before it is told of."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable

from backend.bench.model import BenchRecord
from backend.bench.store import BenchStore
from backend.outcomes import OperatorError
from tui.cli.session import context_of, open_tower, say


def catch_up(arguments: argparse.Namespace, store: BenchStore, ids: Iterable[str]) -> None:
    """Reads on where one of these was not seen to end. Says why where that can't be: what is known is shown then.

    Raises:
        OperatorError: There is no such benchmark.
    """
    for record in [store.get(each) for each in ids]:
        if not record.state.is_over:
            try:
                asyncio.run(_read_on(arguments, record))
            except OperatorError as error:
                say(f"{record.id} was {record.state.value} when it was last seen, and can't be asked: {error.what}")


async def _read_on(arguments: argparse.Namespace, record: BenchRecord) -> None:
    async with open_tower(context_of(arguments)) as tower:
        await tower.refresh()
        run = tower.runs.attach(record.id)
        if not run.observed:
            found = tower.benches.reattach([run])
            if not await tower.runs.catch_up(run):
                say(f"{record.id}: not all of its workers answered in time")
            run.detach()
            for bench in found:
                await tower.benches.wait(bench)
