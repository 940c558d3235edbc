"""What a screen lists, written to a file of this machine: as CSV or as JSON lines, asked for by key or by `:export csv`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from itertools import count as numbers
from pathlib import Path

from backend.outcomes import OperatorError
from tui.command_line import CommandLine
from tui.screens.base import ConsoleScreen
from tui.wording import count, utc_now

FORMS = {"csv": "CSV, with a header", "jsonl": "JSON lines"}
"""By the ending of the file."""


def write(folder: Path, name: str, ending: str, lines: Iterable[str]) -> tuple[Path, int]:
    """Writes lines to a new file, private to the operator. For any thread.

    Returns:
        The file, and how many lines it has.

    Raises:
        OperatorError: It can't be written; what was written of it is removed.
    """
    for number in numbers(1):
        file = folder / f"{name}{f'-{number}' if number > 1 else ''}.{ending}"
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise OperatorError(f"{file} can't be written: {error.strerror}.", "Make its folder writable.") from error
    written = 0
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as target:
            for line in lines:
                target.write(f"{line}\n")
                written += 1
    except OSError as error:
        file.unlink(missing_ok=True)
        raise OperatorError(f"{file} can't be written: {error.strerror}.", "Nothing is left of it.") from error
    return file, written


class Exporting(ConsoleScreen):
    """A screen whose rows can be written to a file."""

    def export_name(self) -> str:
        """What the file is called before its time."""
        raise NotImplementedError

    def require_rows(self) -> None:
        """Looks whether there is anything to export, before it is asked how.

        Raises:
            OperatorError: There is nothing.
        """

    async def export_lines(self, form: str) -> Iterable[str]:
        """The lines of the file, in a form of FORMS; they may be made in a thread.

        Raises:
            OperatorError: There is nothing to export.
        """
        raise NotImplementedError

    async def do_export(self) -> None:
        """Asks for the form, and writes it."""
        self.require_rows()
        form = await self.console.pick("Export as", tuple(FORMS.items()))
        if form:
            await self.export(form)

    async def export(self, form: str) -> None:
        """Writes the file, and says where it is."""
        lines = await self.export_lines(form)
        folder = self.console.require_tower().paths.state_dir
        name = f"{self.export_name()}-{utc_now():%Y%m%d-%H%M%S}"
        file, written = await asyncio.to_thread(write, folder, name, form, lines)
        self.console.say(f"Wrote {count(written, 'line')} to {file}.")

    def take_line(self, line: CommandLine) -> bool:
        if line.word != "export" or not line.targets or self.SCOPE not in line.action.scopes:
            return super().take_line(line)
        form = {"json": "jsonl"}.get(line.targets[0], line.targets[0])
        if len(line.targets) > 1 or form not in FORMS:
            raise OperatorError(
                f"'{' '.join(line.targets)}' is no form of a file.", "Write :export csv or :export jsonl."
            )
        self.background(self.export(form), group="export", title="export")
        return True
