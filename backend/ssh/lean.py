"""What asyncssh does for every packet that our use has no need of, left out of its connections and channels.

A third of the client's time for a short command. Only public methods of single objects are replaced, and each of them may
be put back without any other change: nothing here is needed for a command to work.
"""

from __future__ import annotations

import gc
from typing import Any

import asyncssh

MSG_IGNORE = 2
"""RFC 4253, 11.2."""

GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""Hundreds of connections make objects by the ten thousand, which all live: looking for garbage among them finds none."""

SHORT_PAUSES = (5_000, 10, 100)
"""Where somebody types: looking through 50,000 objects at once holds a key up for 25 ms and more."""


def connection(made: asyncssh.SSHClientConnection) -> None:
    """From its first packet on: sends no empty IGNORE before every packet, and tells nothing to the debug log, which is never on.

    The IGNORE hides the IV of ciphers in CBC mode, and none of ours is one. It is half of all packets of a command, and each
    costs an encryption and a system call at both ends.
    """
    send = made.send_packet

    def send_packet(pkttype: int, *args: bytes, handler: Any = None) -> None:
        if pkttype != MSG_IGNORE:
            send(pkttype, *args, handler=handler)

    made.send_packet = send_packet  # type: ignore[method-assign]
    _hush(made)


def channel(made: asyncssh.SSHClientChannel[bytes]) -> None:
    """The same for one session's channel: its packets are told to the log by itself."""
    _hush(made)


def garbage(*, interactive: bool = False) -> None:
    """Once, when a process has imported what it works with: that is never looked through for garbage again.

    Args:
        interactive: Somebody waits for keys to be painted: many short pauses instead of few long ones.
    """
    gc.freeze()
    gc.set_threshold(*(SHORT_PAUSES if interactive else GARBAGE_THRESHOLDS))


def _hush(made: Any) -> None:
    made.log_sent_packet = made.log_received_packet = _untold
    # It would put the words of a message together before it asks whether anybody wants them.
    told = made.logger
    told.debug1 = told.debug2 = told.info = told.packet = _untold


def _untold(*_arguments: object, **_more: object) -> None: ...
