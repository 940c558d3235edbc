"""Copies that end badly on this machine's side: the file is named, and a file that was cut short is called so."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
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


class OneHas(Pool):
    """Connections of which the first alone finds its file."""

    def __init__(self) -> None:
        super().__init__(FileNotFoundError(errno.ENOENT, "No such file"))
        self.asked = 0

    async def get(self, *places: object, **_: object) -> None:
        self.asked += 1
        if self.asked > 1:
            raise self.error
        (Path(str(places[1])) / "big").write_text("x")


def below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


async def test_a_copy_that_fails_leaves_no_folders_but_those_that_were_there(tmp_path: Path) -> None:
    others = [WORKER, replace(WORKER, worker_index=1)]
    here = tmp_path / "new" / "here"
    fails = cast(ConnectionPool, Pool(FileNotFoundError(errno.ENOENT, "No such file")))
    await download(fails, others, ["big"], here, lambda _: None)
    await download(fails, [WORKER], ["big", "small"], here, lambda _: None)
    assert below(tmp_path) == []
    (tmp_path / "new").mkdir()
    await download(fails, others, ["big"], here, lambda _: None)
    assert below(tmp_path) == ["new"]
    done = await download(cast(ConnectionPool, OneHas()), others, ["big"], here, lambda _: None)
    [place] = [each.place for each in done if each.outcome is Outcome.OK]
    assert below(here) == ["big", Path(place).name]
