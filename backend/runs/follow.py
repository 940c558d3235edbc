"""How far the output of a supervised run is here: the local log by byte offset, the header of a follow, its last status."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.runs.fanout import Phase
from backend.runs.live import Run
from backend.sanitize import plain
from backend.ssh.remote import Remote

HEADER_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Base:
    """Byte `local` of the log is byte `remote` counted from the start of the worker's file `inode`, through rotations."""

    inode: int
    remote: int = 0
    local: int = 0

    def offset(self, size: int) -> int:
        """From where to go on, for a log of `size` bytes."""
        return self.remote + max(0, size - self.local)


def read_base(path: Path) -> Base | None:
    try:
        values = json.loads(path.read_bytes())
        return Base(int(values["inode"]), int(values["remote"]), int(values["local"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_base(path: Path, base: Base) -> None:
    """Atomic: a reader sees the old or the new."""
    fresh = path.with_suffix(".follow.new")
    fresh.write_bytes(json.dumps(asdict(base)).encode())
    os.replace(fresh, path)


class Follower:
    """Reads the header of a follow, then hands bytes to the log."""

    def __init__(self, run: Run, index: int, base: Base | None, path: Path) -> None:
        self._run = run
        self._index = index
        self._base = base
        self._path = path
        self._header = b""
        self._told = b""
        """What came on stderr: the last status."""
        self._reading_header = True
        self._target = 0
        """Size of the local log when all that was there at the beginning has come."""
        self.remote: Remote | None = None
        self.whole = True
        """False once something was not taken, so that it must be read again."""

    def take(self, data: bytes, stream: int) -> None:
        if stream != 1:
            self._told += data[: max(0, HEADER_LIMIT - len(self._told))]
            return
        if not self.whole:
            return
        if self._reading_header:
            data = self._take_header(data)
        if data and self._run.output(self._index, data, 1):
            self._look_whether_caught_up()
        elif data:
            # Nothing of it counts as received: it is asked for again when there is room.
            self.whole = False
            if self.remote is not None:
                self.remote.abandon()

    def _shorter(self, header: dict[str, Any]) -> bool:
        """Whether a file that lost its end holds nothing that is not here."""
        return False

    def _look_whether_caught_up(self) -> None:
        if self._index not in self._run.caught_up and self._run.log(self._index).size >= self._target:
            self._run.caught_up.add(self._index)
            self._run.changed()

    def status(self) -> dict[str, Any] | None:
        """The status that was told at the end, if one was."""
        return last_object(self._told)

    def _take_header(self, data: bytes) -> bytes:
        self._header += data
        line, newline, rest = self._header.partition(b"\n")
        if not newline:
            if len(self._header) > HEADER_LIMIT:
                self.whole = False
            return b""
        self._reading_header = False
        try:
            header = json.loads(line)
            place = Base(int(header["inode"]), int(header["offset"]), self._run.log(self._index).size)
        except (ValueError, KeyError, TypeError):
            self.whole = False
            return b""
        if header.get("lost") and self._shorter(header):
            self._look_whether_caught_up()
            return b""
        if self._base is None or header.get("lost"):
            write_base(self._path, place)
            if header.get("lost"):
                self._run.results[
                    self._index
                ].error = "Some output is missing: the worker's file was cut or replaced."
        self._target = place.local + max(0, (whole(header.get("size")) or 0) - place.remote)
        self._run.phase(self._index, Phase.RUNNING)
        if not rest:
            self._look_whether_caught_up()
        return rest


def last_object(output: bytes) -> dict[str, Any] | None:
    """The last line that is a JSON object."""
    for line in reversed(output.splitlines()):
        if line.startswith(b"{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return None


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(value: object) -> str:
    return plain(value) if isinstance(value, str) else ""


def moment(value: object) -> datetime | None:
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) and 0 < value < 1e11 else None
