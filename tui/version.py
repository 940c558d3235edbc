"""Which release this is."""

from __future__ import annotations


def version() -> str:
    """`slicetower 0.1.0`, or that it was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return f"slicetower {installed('slicetower')}"
    except PackageNotFoundError:
        return "slicetower, not installed: run from its source"
