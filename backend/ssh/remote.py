"""One command on one worker: started over a pooled connection, its bytes handed on as they come, its end told exactly.

Bytes, callbacks and a bounded window: a reader of lines would cost twenty times more and one bad byte would end the
connection. No exit status means that the connection was lost, never that all was well.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import asyncssh

from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.ssh import lean
from backend.ssh.budget import WINDOW_BYTES, ReadBudget
from backend.ssh.connections import ConnectionPool, Lease, Note, Reason, Unreachable
from backend.ssh.scripts import CONTROL, ENTRY
from backend.targets import WorkerRef

NOISE_LIMIT = 64 * 1024
"""Where control lines are looked for: what a login shell's own files may print before."""

OPEN_TIMEOUT_S = 30.0
"""To open a session on a connection that answers; a worker whose disk hangs may take any time."""

OPEN_ATTEMPTS = 4
Output = Callable[[bytes, int], object]
"""Takes bytes and their stream (1 stdout, 2 stderr)."""


class Lost(OperatorError):
    """The connection ended before the command's end was told: it may have run, or still run."""

    def __init__(self, worker: WorkerRef, what: str, *, raw: str = "") -> None:
        super().__init__(f"{worker.address}: {what}", exit_code=ExitCode.UNREACHABLE, raw=plain(raw))


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended. Neither code nor signal: the connection was lost."""

    code: int | None = None
    signal: str | None = None
    raw: str = ""

    @property
    def lost(self) -> bool:
        return self.code is None and self.signal is None


class _Session(asyncssh.SSHClientSession[bytes]):
    """The protocol side of a Remote."""

    def __init__(self, owner: Remote) -> None:
        self._owner = owner
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan
        lean.channel(chan)

    def session_started(self) -> None:
        self._owner.begin()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._owner.receive(data, 1 if datatype is None else 2)

    def pause_writing(self) -> None:
        self._owner.writable.clear()

    def resume_writing(self) -> None:
        self._owner.writable.set()

    def exit_status_received(self, status: int) -> None:
        self._owner.exit = Exit(code=status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._owner.exit = Exit(signal=plain(signal))

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.finish(exc)


class Remote:
    """A script that runs on a worker.

    Args:
        worker: Where.
        script: One line for scripts.ENTRY.
        nonce: Marks its control lines.
        output: Takes everything that is not a control line.
        on_control: Takes the words of each control line.
        budget: The shared read budget.
        window: Receive window in bytes; bounds what is held here while reading is paused.
        keep_stdin: Leaves stdin open for `write`; otherwise the script sees its end.
    """

    def __init__(
        self,
        worker: WorkerRef,
        script: bytes,
        nonce: str,
        *,
        output: Output | None = None,
        on_control: Callable[[list[str]], None] | None = None,
        budget: ReadBudget | None = None,
        keep_stdin: bool = False,
        window: int = WINDOW_BYTES,
        last_control: str = "go",
    ) -> None:
        self.worker = worker
        self.nonce = nonce
        self.exit = Exit()
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.control: list[list[str]] = []
        """Words of the control lines so far."""
        self._script = script
        self.on_output = output
        self._on_control = on_control
        self._budget = budget
        self._keep_stdin = keep_stdin
        self._window = window
        self._last = last_control
        self._marker = CONTROL + nonce.encode() + b" "
        self._held = b""
        self._looking = True
        self._told = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._session = _Session(self)
        self._lease: Lease | None = None

    @property
    def opened(self) -> bool:
        """A channel was opened: from then on the script may run."""
        return self._session.channel is not None

    # -- starting ----------------------------------------------------------------------------------------------------

    async def start(self, pool: ConnectionPool, note: Note | None = None) -> None:
        """Opens the session.

        Raises:
            Unreachable: No session: the script certainly did not start.
            Lost: The connection ended while the session was opened: nobody knows.
        """
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            lease = await pool.lease(self.worker, note)
            try:
                async with asyncio.timeout(OPEN_TIMEOUT_S):
                    await lease.connection.create_session(
                        lambda: self._session, ENTRY, encoding=None, window=self._window
                    )
            except asyncssh.ChannelOpenError as error:
                if self._session.channel is None:
                    # The channel never opened: too many sessions here, or a connection that died unnoticed.
                    if not lease.connection.is_closed():
                        lease.crowded()
                    lease.release()
                    if attempt < OPEN_ATTEMPTS:
                        continue
                    raise self._refused(str(error)) from error
                closed = lease.connection.is_closed()
                lease.release()
                if closed:
                    raise Lost(self.worker, "the connection was lost while the command was started.") from error
                raise self._refused(str(error)) from error
            except (asyncssh.Error, OSError) as error:
                lease.release()
                if self._session.channel is not None:
                    text = "the connection was lost while the command was started."
                    raise Lost(self.worker, text, raw=str(error)) from error
                if attempt == OPEN_ATTEMPTS:
                    raise self._refused(str(error)) from error
            except BaseException:
                lease.release()
                if self._session.channel is not None:
                    self._session.channel.abort()
                raise
            else:
                self._lease = lease
                return

    def _refused(self, raw: str) -> Unreachable:
        text = f"{self.worker.address} opens no session."
        cure = "It may be out of memory or processes, or its sshd allows no commands."
        return Unreachable(self.worker, Reason.PROTOCOL, text, cure, raw=raw)

    def begin(self) -> None:
        """The worker has accepted the session."""
        channel = self._session.channel
        if channel is not None:
            channel.write(self._script)
            if not self._keep_stdin:
                channel.write_eof()

    # -- while it runs -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, stream: int) -> None:
        """Takes a chunk from the worker; control lines are taken out of stdout until the last one was seen."""
        channel = self._session.channel
        if self._budget is not None and channel is not None:
            self._budget.spend(channel, len(data))
        if self._looking and stream == 1:
            data = self._look(data)
        if data and self.on_output is not None:
            self.on_output(data, stream)

    def _look(self, data: bytes) -> bytes:
        """Returns what is output for certain, and holds back what may be the beginning of a control line."""
        self._held += data
        passed = b""
        while self._looking:
            start = self._held.find(self._marker)
            if start < 0:
                if len(self._held) > NOISE_LIMIT:
                    self._looking = False
                    break
                keep = _overlap(self._held, self._marker)
                passed += self._held[: len(self._held) - keep]
                self._held = self._held[len(self._held) - keep :]
                return passed
            end = self._held.find(b"\n", start)
            if end < 0:
                passed += self._held[:start]
                self._held = self._held[start:]
                return passed
            words = self._held[start + len(self._marker) : end].decode("ascii", "replace").split()
            passed += self._held[:start]
            self._held = self._held[end + 1 :]
            self._hear(words)
        rest, self._held = passed + self._held, b""
        return rest

    def _hear(self, words: list[str]) -> None:
        self.control.append(words)
        if words and words[0] == self._last:
            self._looking = False
        self._told.set()
        if self._on_control is not None:
            self._on_control(words)

    async def heard(self, *expected: str) -> list[str]:
        """Waits for the first control line that begins with one of these words; empty when the script ended without."""
        while True:
            for words in self.control:
                if words and words[0] in expected:
                    return words
            if self.ended.done():
                return []
            self._told.clear()
            await self._told.wait()

    async def drained(self) -> None:
        """Until the worker has taken most of what was written, or the script has ended."""
        await self.writable.wait()

    def write(self, data: bytes) -> None:
        """Sends to the script's stdin."""
        if self._session.channel is not None and not self.ended.done():
            with suppress(OSError):
                self._session.channel.write(data)

    def write_eof(self) -> None:
        if self._session.channel is not None:
            with suppress(OSError):
                self._session.channel.write_eof()

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, error: Exception | None) -> None:
        """The channel is closed; everything that came was handed on."""
        if self._held and self.on_output is not None:
            self.on_output(self._held, 1)
        self._held = b""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if not self.ended.done():
            lost = Exit(raw=plain(str(error))) if error is not None and self.exit.lost else self.exit
            self.ended.set_result(lost)
        self._told.set()
        self.writable.set()

    def abandon(self) -> None:
        """Closes the channel without waiting; what runs on the worker is not stopped by that."""
        channel = self._session.channel
        if channel is not None:
            channel.resume_reading()
            channel.abort()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def _overlap(data: bytes, marker: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `marker`."""
    for size in range(min(len(marker) - 1, len(data)), 0, -1):
        if data.endswith(marker[:size]):
            return size
    return 0


def new_nonce() -> str:
    """Unguessable, so that no output can pass for a control line."""
    return secrets.token_hex(8)


async def ask(
    pool: ConnectionPool,
    worker: WorkerRef,
    script: bytes,
    nonce: str,
    *,
    timeout_s: float,
    limit: int = 1 << 20,
) -> tuple[Exit, list[list[str]], bytes]:
    """Runs a short script to its end and returns how it ended, its control lines and its output (at most `limit` bytes).

    Raises:
        Unreachable: It was not started.
        Lost: It was started, and no end was seen within `timeout_s` or at all.
    """
    kept = bytearray()

    def take(data: bytes, _stream: int) -> None:
        kept.extend(data[: max(0, limit - len(kept))])

    remote = Remote(worker, script, nonce, output=take, last_control="")
    try:
        async with asyncio.timeout(timeout_s):
            await remote.start(pool)
            ended = await asyncio.shield(remote.ended)
    except TimeoutError as error:
        remote.abandon()
        raise Lost(worker, f"no answer within {timeout_s:.0f} s.") from error
    except asyncio.CancelledError:
        remote.abandon()
        raise
    if ended.lost:
        raise Lost(worker, "the connection was lost.", raw=ended.raw)
    return ended, remote.control, bytes(kept)
