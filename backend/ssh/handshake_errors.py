"""Why a worker can't be reached, as the operator is told."""

from __future__ import annotations

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


class Retry(Exception):
    """A handshake failed in a way that another try may mend."""

    def __init__(self, error: Unreachable, attempts: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.attempts = attempts
