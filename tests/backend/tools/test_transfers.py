"""Copies that end badly on this machine's side: the file is named, and a file that was cut short is called so."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.outcomes import Outcome
from backend.ssh.connections import ConnectionPool
from backend.targets import WorkerRef
from backend.tools.transfers import Transfer, download

WORKER = WorkerRef("p", "z", "train-a", 0, 0, "train-a-0", "0")


class Pool:
    """Connections whose downloads fail here."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    async def lease(self, worker: WorkerRef) -> AbstractAsyncContextManager[Any]:
        return nullcontext(SimpleNamespace(connection=self))

    def start_sftp_client(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext(self)

    async def get(self, *_: object, **__: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "here/big: No space left on device; what is there now is cut short"),
        (errno.EACCES, "here/big: Permission denied"),
    ],
)
async def test_a_file_that_cannot_be_written_here_is_named(tmp_path: Path, number: int, expected: str) -> None:
    error = OSError(number, os.strerror(number))
    error.dstpath = b"here/big"  # type: ignore[attr-defined]  # as asyncssh adds it
    told: list[Transfer] = []
    done = await download(cast(ConnectionPool, Pool(error)), [WORKER], ["big"], tmp_path / "here", told.append)
    assert [(each.outcome, each.error) for each in done] == [(Outcome.FAILED, expected)]
    assert told == done
