"""Actions of the console that no option of the table leads to: the verb that does it, or why none does."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Alone(StrEnum):
    """Why the command line has no counterpart."""

    SCREEN = "about the screen itself: help, focus, themes, leaving"
    VIEW = "another look at what is on the screen"
    TAKING = "takes what is on the screen along; a pipe does it for the command line"
    FORM = "a step within a form; its verb takes the option"
    OWN = "about what this console itself carries out; a process of the command line is interrupted instead"


ACTIONS: Mapping[str, str | Alone] = {
    # Requests
    "equivalent": "qr create",
    "explain": "qr delete",
    "again": "qr create",
    "ask-ssh": "qr wait",
    "go.policies": "qr keep",
    "go.create": "qr create",
    "longer-period": "qr costs",
    "shorter-period": "qr costs",
    # Workers
    "tools": Alone.SCREEN,
    "tool-options": "check",
    "free-now": "free",
    "break-off": Alone.OWN,
    "close-forward": Alone.OWN,
    "go.forwards": "forward",
    "setup-here": "setup",
    # Runs and logs
    "show": "runs show",
    "start-rest": Alone.OWN,
    "logs-marked": "logs",
    "go.logs": "logs",
    "first-error": "runs show",
    "remove-old": "runs prune",
    "more-tiles": Alone.VIEW,
    "fewer-tiles": Alone.VIEW,
    "next-worker": Alone.VIEW,
    "previous-worker": Alone.VIEW,
    "next-hit": Alone.VIEW,
    "previous-hit": Alone.VIEW,
    "copy-page": Alone.TAKING,
    "screenshot": Alone.TAKING,
    # Benchmarks
    "next-mesh": Alone.FORM,
    "what-if": "bench plan",
    "sweeps": "bench sweep",
    "plot": "bench read",
    "readings": "bench read",
    "repeat": "bench show",
    # Forms
    "next-field": Alone.FORM,
    "previous-field": Alone.FORM,
    "submit": Alone.FORM,
    "pick-value": Alone.FORM,
    "open-saved": Alone.FORM,
    "save-as": Alone.FORM,
    "next-preview": "qr create",
    "preview-down": Alone.VIEW,
    "preview-up": Alone.VIEW,
    # The console
    "back": Alone.SCREEN,
    "close": Alone.SCREEN,
    "quit": Alone.SCREEN,
    "interrupt": Alone.SCREEN,
    "pause": Alone.SCREEN,
    "theme": Alone.SCREEN,
    "context": "slicetower",
}
"""Action -> the verb that does the same, or the reason."""
