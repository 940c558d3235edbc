"""Files to and from workers, over SFTP on the kept connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from backend.outcomes import OperatorError, Outcome
from backend.sanitize import plain
from backend.ssh.connections import ConnectionPool
from backend.targets import WorkerRef

TRANSFERS_AT_ONCE = 32
"""Each reads or writes this machine's disk and its one uplink."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What became of one worker's copy."""

    worker: WorkerRef
    outcome: Outcome
    error: str = ""
    place: str = ""
    """Where it went: a folder here for a download, the remote path for an upload."""


def remote_path(text: str) -> str:
    """SFTP begins in the home directory and knows no tilde."""
    return "." if text in ("", "~", "~/") else text.removeprefix("~/")


def require_sources(sources: Sequence[Path]) -> None:
    """Raises OperatorError when one of these places of this machine does not exist."""
    for source in sources:
        if not source.exists():
            raise OperatorError(f"There is no file {plain(str(source))}.", "A remote place is written TARGET:PATH.")


async def upload(
    pool: ConnectionPool,
    workers: Sequence[WorkerRef],
    sources: Sequence[Path],
    destination: str,
    told: Callable[[Transfer], None],
) -> list[Transfer]:
    """Copies files and folders to the same place on every worker.

    Args:
        pool: Connections.
        workers: To whom.
        sources: Files or folders of this machine, all existing.
        destination: On the worker; a folder when there are several sources.
        told: Called as each worker ends.

    Raises:
        OperatorError: A source does not exist.
    """
    require_sources(sources)
    names: list[str | Path] = [str(source) for source in sources]
    place = remote_path(destination)

    async def one(sftp: asyncssh.SFTPClient, worker: WorkerRef) -> str:
        await sftp.put(names, place, preserve=True, recurse=True)
        return destination

    return await _all(pool, workers, destination or "~", one, told)


async def download(
    pool: ConnectionPool,
    workers: Sequence[WorkerRef],
    sources: Sequence[str],
    destination: Path,
    told: Callable[[Transfer], None],
) -> list[Transfer]:
    """Copies files and folders from every worker: of several workers each into `destination/QR.SLICE.WORKER/`.

    Folders that were made for what did not come go again.

    Raises:
        OperatorError: The destination can't be made.
    """
    several = len(workers) > 1
    makes_folders = several or len(sources) > 1
    names: list[str | Path] = [remote_path(source) for source in sources]
    missing = [folder for folder in (destination, *destination.parents) if makes_folders and not folder.exists()]

    async def one(sftp: asyncssh.SFTPClient, worker: WorkerRef) -> str:
        place = destination / worker.file_stem if several else destination
        is_new = makes_folders and not place.exists()
        if makes_folders:
            await asyncio.to_thread(place.mkdir, parents=True, exist_ok=True)
        try:
            await sftp.get(names, str(place), preserve=True, recurse=True)
        except BaseException:
            _remove_empty([place] if is_new else [])
            raise
        return str(place)

    try:
        return await _all(pool, workers, " ".join(sources), one, told)
    finally:
        _remove_empty(missing)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Those that nothing came into, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


async def _all(
    pool: ConnectionPool,
    workers: Sequence[WorkerRef],
    where: str,
    copy: Callable[[asyncssh.SFTPClient, WorkerRef], Awaitable[str]],
    told: Callable[[Transfer], None],
) -> list[Transfer]:
    turns = asyncio.Semaphore(TRANSFERS_AT_ONCE)

    async def one(worker: WorkerRef) -> Transfer:
        async with turns:
            done = await _one(pool, worker, where, copy)
        told(done)
        return done

    return list(await asyncio.gather(*(one(worker) for worker in workers)))


async def _one(
    pool: ConnectionPool,
    worker: WorkerRef,
    where: str,
    copy: Callable[[asyncssh.SFTPClient, WorkerRef], Awaitable[str]],
) -> Transfer:
    try:
        async with await pool.lease(worker) as lease, lease.connection.start_sftp_client() as sftp:
            return Transfer(worker, Outcome.OK, place=await copy(sftp, worker))
    except OperatorError as error:
        return Transfer(worker, Outcome.UNREACHABLE, error.what)
    except (asyncssh.ConnectionLost, asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
        return Transfer(worker, Outcome.UNKNOWN, f"The connection was lost: {plain(str(error))}.")
    except asyncssh.SFTPError as error:
        return Transfer(worker, Outcome.FAILED, f"{plain(where)}: {plain(error.reason)}")
    except OSError as error:
        return Transfer(worker, Outcome.FAILED, _of_this_machine(error, where))
    except asyncssh.Error as error:
        return Transfer(worker, Outcome.FAILED, plain(str(error)))


def _of_this_machine(error: OSError, where: str) -> str:
    """The file that could not be read or written here, and why; a full disk leaves what looks like a whole file."""
    place = error.filename or getattr(error, "dstpath", b"") or where
    name = place.decode(errors="replace") if isinstance(place, bytes) else str(place)
    cut = "; what is there now is cut short" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{plain(name)}: {plain(error.strerror or str(error))}{cut}"
