"""What an ssh server says first, heard over every route without logging in to the worker.

A server greets (`SSH-2.0-...`) before any key is shown, so nothing of the operator's reaches the worker and nothing is left
there. A jump host is logged in to, as ever, but only with a key that needs nobody's help; a program (gcloud's tunnel, a
ProxyCommand) is ended as soon as it has brought the greeting.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from contextlib import suppress

from backend.ssh.proxies import Proxy

DIRECT_S, PROGRAM_S = 5.0, 30.0
"""For one greeting. A tunnel of gcloud's alone takes seconds to come up."""
MOST_BYTES = 4096
"""Lines that a server may send before its greeting (RFC 4253, 4.2)."""
END_S = 3.0
"""For a program to end."""


class Closed(Exception):
    """Nobody can be asked now: a jump host, a key or a program is missing. Its text says which, in a few words."""


class Greeting:
    """Bytes of a server, judged as they come."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> bool:
        """Whether it is known by now that this is an ssh server, or none."""
        self._data += data
        return self.is_ssh or len(self._data) > MOST_BYTES

    @property
    def is_ssh(self) -> bool:
        return any(line.startswith(b"SSH-") for line in self._data.split(b"\n"))

    def lacks(self, *, ended: bool) -> str:
        """What is wrong, in a few words; empty where it is an ssh server."""
        if self.is_ssh:
            return ""
        if b"MaxStartups" in self._data or b"Not allowed at this time" in self._data:
            return "its sshd takes no more connections now"
        if self._data:
            return "no ssh server"
        return "connection closed" if ended else "no answer"


class _Ear(asyncio.Protocol):
    """Hears one server without a stream's machinery: there are thousands of them."""

    def __init__(self, greeting: Greeting, known: asyncio.Future[bool]) -> None:
        self._greeting = greeting
        self._known = known
        """Its result: whether the server ended the connection."""

    def data_received(self, data: bytes) -> None:
        if self._greeting.feed(data):
            self._set(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set(True)

    def _set(self, ended: bool) -> None:
        if not self._known.done():
            self._known.set_result(ended)


async def directly(host: str, port: int, greeting: Greeting) -> str:
    """Over a connection of its own."""
    loop = asyncio.get_running_loop()
    known: asyncio.Future[bool] = loop.create_future()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(DIRECT_S):
            transport, _ = await loop.create_connection(lambda: _Ear(greeting, known), host, port)
            ended = await known
    except TimeoutError:
        return greeting.lacks(ended=False)
    except OSError as error:
        return os_words(error)
    finally:
        if transport is not None:
            transport.abort()
    return greeting.lacks(ended=ended)


def os_words(error: OSError) -> str:
    """`connection refused`, `no route to host`.

    Raises:
        Closed: It is this machine that lacks something.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise Closed("no more open files here") from error
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "not reachable"


async def by_program(command: tuple[str, ...], greeting: Greeting) -> str:
    """Over the standard output of a program, which is ended, with what it began, right after."""
    try:
        proxy = Proxy(command)
    except OSError as error:
        raise Closed(f"no file for what {command[0]} says ({os_words(error)})") from error
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *proxy.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        ended = False
        with suppress(TimeoutError):
            async with asyncio.timeout(PROGRAM_S):
                while not ended:
                    data = await process.stdout.read(MOST_BYTES)
                    ended = not data
                    if greeting.feed(data):
                        break
        lacks = greeting.lacks(ended=ended)
        said = proxy.last_words() if lacks else ""
        return f"{lacks}: {said}"[:120] if said else lacks
    except OSError as error:
        raise Closed(f"{command[0]} can't be started ({os_words(error)})") from error
    finally:
        if process is not None:
            await _end(process)
        proxy.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
