"""Where this program keeps its own files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

from backend.outcomes import OperatorError


@dataclass(frozen=True, slots=True)
class Paths:
    """Where this program keeps its own; folders are private to the operator."""

    config_dir: Path
    state_dir: Path

    @property
    def config(self) -> Path:
        return self.config_dir / "config.toml"

    @property
    def themes_dir(self) -> Path:
        return self.config_dir / "themes"

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal.db"

    @property
    def runs_dir(self) -> Path:
        return self.state_dir / "runs"

    @property
    def console_log(self) -> Path:
        return self.state_dir / "console.log"


def paths(*, create: bool = True) -> Paths:
    """The XDG folders (XDG_CONFIG_HOME, XDG_STATE_HOME win), made with mode 0700.

    Raises:
        OperatorError: a folder can't be made.
    """
    config = Path(platformdirs.user_config_dir("slicetower", appauthor=False))
    state = Path(platformdirs.user_state_dir("slicetower", appauthor=False))
    found = Paths(config, state)
    if create:
        for folder in (found.state_dir, found.runs_dir):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise OperatorError(
                    f"{folder}: can't be made: {error.strerror or error}.",
                    "Make it writable, or set XDG_STATE_HOME to a folder that is.",
                ) from error
    return found
