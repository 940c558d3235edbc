"""Why a worker can't be reached, as the operator is told."""

from __future__ import annotations

import os
from enum import StrEnum

from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.targets import WorkerRef


class Reason(StrEnum):
    """Why a worker can't be reached."""

    ADDRESS = "address"
    NETWORK = "network"
    TIMEOUT = "timeout"
    PERMISSION = "permission"
    HOST_KEY = "host key"
    PROTOCOL = "protocol"
    FILES = "open files"


class Unreachable(OperatorError):
    """No session could be opened on a worker: nothing was started there."""

    def __init__(self, worker: WorkerRef, reason: Reason, what: str, cure: str = "", *, raw: str = "") -> None:
        super().__init__(what, cure, exit_code=ExitCode.UNREACHABLE, raw=plain(raw))
        self.worker = worker
        self.reason = reason


LOGIN = frozenset({Reason.PERMISSION, Reason.HOST_KEY, Reason.PROTOCOL})
"""The server answers, and lets nobody in."""
OURS = frozenset({Reason.ADDRESS, Reason.FILES})
"""It was not tried: these tell nothing of the server."""


def in_short(error: Unreachable) -> str:
    """In a few words: `connection refused`, `key refused`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__
    return {
        Reason.NETWORK: "connection closed",
        Reason.TIMEOUT: "no answer",
        Reason.PERMISSION: "key refused",
        Reason.HOST_KEY: "wrong host key",
    }.get(error.reason, str(error.reason))


class Retry(Exception):
    """A handshake failed in a way that another try may mend."""

    def __init__(self, error: Unreachable, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts
