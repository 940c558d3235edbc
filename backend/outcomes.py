"""What became of a command on a worker, and what a process tells its caller: the words and numbers of both."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Outcome(StrEnum):
    """The truth about one worker of a run (design: truth about outcomes)."""

    PENDING = "pending"
    """Not ended: waiting for its batch, connecting or running."""
    OK = "ok"
    FAILED = "failed"
    """Exited with a code other than 0."""
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    """No session was ever opened: the command certainly did not start."""
    UNKNOWN = "unknown"
    """The connection was lost: the command may have run, may still run. Never retried in silence."""
    NOT_STARTED = "not_started"
    """Its batch was never reached."""


class ExitCode(IntEnum):
    """Exit codes of `slicetower`; where several hold, the first of 130, 4, 3, 124, 1 wins."""

    OK = 0
    COMMAND_FAILED = 1
    """A command failed or was signalled on a worker."""
    USAGE = 2
    """Refused before anything was sent."""
    UNREACHABLE = 3
    """A worker could not be reached, or its outcome is unknown."""
    CLOUD = 4
    """The Cloud TPU API refused or could not be reached."""
    TIMED_OUT = 124
    INTERRUPTED = 130


class OperatorError(Exception):
    """An error told to the operator: what, why and what to do. Nothing was sent unless the text says so.

    Args:
        what: One sentence naming the input or the action that failed, and why.
        cure: What to do about it; may be empty where nothing helps.
        exit_code: What the CLI exits with.
        raw: The original text (cloud message with its EID, ssh error), kept beside the sentence.
    """

    def __init__(self, what: str, cure: str = "", *, exit_code: ExitCode = ExitCode.USAGE, raw: str = "") -> None:
        super().__init__(f"{what} {cure}".strip())
        self.what = what
        self.cure = cure
        self.exit_code = exit_code
        self.raw = raw
