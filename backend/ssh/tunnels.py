"""A worker's first words through the one connection to a jump host: a direct-tcpip channel, and no login on the worker."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncssh

from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.ssh.greetings import Closed, Greeting, os_words
from backend.ssh.handshake import Dialler
from backend.ssh.routes import Hop, Route
from backend.targets import WorkerRef

PIECE = 4096
HOP_S = 30.0
"""For the connection to the jump host, which all share."""
CHANNEL_S = 10.0
"""For a channel through it, and what comes out of it."""


async def through_hop(dialler: Dialler, worker: WorkerRef, route: Route, greeting: Greeting) -> str:
    """Why a worker does not greet; empty when it does.

    Raises:
        Closed: The jump host is not to be had, or needs a key that asks for a passphrase.
    """
    assert route.hop is not None
    hop = await _hop(dialler, worker, route.hop)
    try:
        async with asyncio.timeout(CHANNEL_S):
            ended = await _hear(hop, route, greeting)
    except TimeoutError:
        return greeting.lacks(ended=False)
    except asyncssh.ChannelOpenError as error:
        if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return f"the jump host {route.hop.text} allows no forwarding there"
        return plain(error.reason).lower() or "not reachable"
    except asyncssh.Error as error:
        raise Closed(f"the jump host {route.hop.text}: {plain(str(error))}") from error
    return greeting.lacks(ended=ended)


async def _hop(dialler: Dialler, worker: WorkerRef, hop: Hop) -> asyncssh.SSHClientConnection:
    try:
        async with asyncio.timeout(HOP_S):
            each: Hop | None = hop
            while each is not None:
                await dialler.load_quietly(each.key)
                each = each.via
            return await dialler.hop(worker, hop)
    except OperatorError as error:
        raise Closed(plain(error.what.rstrip("."))) from error
    except asyncssh.Error as error:
        raise Closed(f"the jump host {hop.text}: {plain(str(error))}") from error
    except TimeoutError as error:
        raise Closed(f"the jump host {hop.text} does not answer") from error
    except OSError as error:
        raise Closed(f"the jump host {hop.text}: {os_words(error)}") from error


async def _hear(hop: asyncssh.SSHClientConnection, route: Route, greeting: Greeting) -> bool:
    """Whether the far end closed before it was known what it is."""
    reader, writer = await hop.open_connection(route.host, route.port, encoding=None)
    try:
        while data := await reader.read(PIECE):
            if greeting.feed(data):
                return False
        return True
    finally:
        with suppress(OSError, asyncssh.Error):
            writer.channel.abort()
