"""The terminal, lent to something else for a while: a shell on a worker, a page printed plainly."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from backend.outcomes import OperatorError
from tui.screens.base import ConsoleScreen
from tui.toolbox import Toolbox

if TYPE_CHECKING:
    from backend.targets import WorkerRef

T = TypeVar("T")


class Lending(Toolbox):
    """A part of the application."""

    _lent: asyncio.Task[Any] | None = None
    """What has the terminal, or had it last."""

    def _require_terminal(self) -> None:
        driver = self._driver
        if driver is None or not driver.can_suspend:
            raise OperatorError("This needs a terminal of its own, and this screen is none.")

    async def do_plain(self) -> None:
        """Prints the page plainly outside the screen, where the terminal's own copying works, until enter."""
        self._require_terminal()
        screen = self.screen
        text = screen.page_text() if isinstance(screen, ConsoleScreen) else ""

        async def read() -> None:
            print(text, flush=True)
            print("-- enter comes back to slicetower --", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

        await self._lend(read)

    async def _lend(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does something with the terminal given back to it, and takes it again, whatever becomes of the work.

        What asked for it may be cancelled meanwhile: a key that was typed ahead has left its screen. The work goes on
        then, and the terminal is taken again when it ends; Textual's own `suspend` takes nothing back after an error.
        """
        if self._lent is not None and not self._lent.done():
            raise OperatorError("The terminal is lent already.", "Come back from there first.")

        async def lent() -> T | Exception:
            # Without the batch, paints pile up behind the suspended writer and block the loop (research: tui 3.9).
            with self.batch_update(), self.suspend():
                try:
                    return await work()
                except Exception as error:
                    return error

        self._lent = asyncio.create_task(lent(), name="lend the terminal")
        done: T | Exception = await asyncio.shield(self._lent)
        if isinstance(done, Exception):
            raise done
        return done

    async def open_shell(self, worker: WorkerRef | None) -> None:
        """An interactive shell on a worker, in this terminal; the loop and its tails live on meanwhile.

        Raises:
            OperatorError: There is no worker, no ssh client, or this terminal cannot be lent.
        """
        if worker is None:
            raise OperatorError("There is no worker under the cursor.")
        self._require_terminal()
        argv = [*self.own_command(), "shell", worker.address]
        if shutil.which(argv[0]) is None:
            raise OperatorError(f"{argv[0]} cannot be found.")

        async def run() -> int:
            print(f"shell on {worker.address}; exit comes back to slicetower", flush=True)
            process = await asyncio.create_subprocess_exec(*argv)
            return await process.wait()

        if code := await self._lend(run):
            raise OperatorError(f"The shell on {worker.address} ended with {code}.")
