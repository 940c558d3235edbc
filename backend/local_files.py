"""Places of this machine as an operator types them, without surprises: a strange name is a file that is not there."""

from __future__ import annotations

from pathlib import Path

from backend.outcomes import OperatorError
from backend.sanitize import plain


def own_path(text: str) -> Path:
    """The path, with a home folder for its tilde.

    Raises:
        OperatorError: Nobody here is called so.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise OperatorError(f"{plain(text)}: nobody here has that home.", "Write the whole path.") from error


def is_there(text: str) -> bool:
    """Whether there is such a file or folder; a name that no file can have is none."""
    try:
        return own_path(text).exists()
    except (OperatorError, OSError, ValueError):
        return False
