"""Which Python runs a program of ours on a worker: that of `slicetower setup` where it is, else python3."""

from __future__ import annotations

DEFAULT = "python3"
VENV = "$HOME/.slicetower/venv"
"""Where `setup` makes it, as shell text."""

_CHOOSE = f'p={VENV}/bin/python; [ -x "$p" ] || p={DEFAULT}; exec "$p" "$@"'


def launcher(python: str) -> tuple[str, ...]:
    """The words before an interpreter's own arguments; the default means what the worker has, anything else itself."""
    return ("/bin/sh", "-c", _CHOOSE, DEFAULT) if python == DEFAULT else (python,)
