"""A folder that a form names, packed beside the loop while the form is filled: with progress, and a way to break it off."""

from __future__ import annotations

import asyncio
import threading

from backend.local_files import own_path
from backend.outcomes import OperatorError
from backend.runs.bundles import Bundle, from_directory, readable

TYPED_S = 0.6
"""After the last letter of a folder before it is packed: `/` and `~` are folders too."""


class _BrokenOff(Exception):
    """The packing is not wanted any more."""


class Packing:
    """One folder being packed in a thread."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.found: Bundle | OperatorError | None = None
        self._stop = threading.Event()
        self._done, self._total = 0, 0

    @property
    def words(self) -> str:
        """How far it is."""
        if not self._total:
            return "looking for what is to be packed …"
        return f"{readable(self._done)} of {readable(self._total)} packed"

    async def pack(self, *, after_s: float = 0.0) -> Bundle:
        """Packs it, after a pause; a cancellation ends the thread at the next file.

        Raises:
            OperatorError: It cannot be packed.
        """
        try:
            await asyncio.sleep(after_s)
            bundle = await asyncio.to_thread(from_directory, own_path(self.folder), progress=self._progress)
        except OperatorError as error:
            self.found = error
            raise
        finally:
            self._stop.set()
        self.found = bundle
        return bundle

    def stop(self) -> None:
        """Nobody wants it any more."""
        self._stop.set()

    def _progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self._stop.is_set():
            raise _BrokenOff


def of_folder(before: Packing | None, folder: str) -> Packing | None:
    """The packing of the folder that a form names now, to be begun if it is another one; the one before is broken off then."""
    if before is not None and before.folder == folder:
        return before
    if before is not None:
        before.stop()
    return Packing(folder) if folder else None
