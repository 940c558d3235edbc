"""The one registry of actions: what a key does, what the footer hints, what help explains, what the palette offers.

An action that is not here does not exist on screen: bindings, hints, the help screen, the palette and the command line
are all derived from `ACTIONS`. Actions that change something carry `changes`, and the read-only gate is asked in one
place (`refusal`), before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding, BindingType

from tui.action_model import (
    ANSWERS,
    BENCH,
    BENCH_FORM,
    BENCHES,
    CHECK,
    CHECK_FORM,
    COMPARE,
    COPIES,
    COPY_FORM,
    COST_STATES,
    COSTS,
    CREATE,
    DESCRIBE,
    DIALOG,
    DOCTOR,
    EVENTS,
    EVERY,
    FLEET,
    FORMS,
    FORWARDS,
    FREE,
    FREE_FORM,
    FULL_FORMS,
    HELP,
    KEEP_FORM,
    LOG_SEARCH,
    LOGS,
    MAIN,
    MESHES,
    OPERATIONS,
    PLACES,
    POLICIES,
    PREFLIGHT,
    PRUNE,
    PRUNE_FORM,
    RACE_FORM,
    READINGS,
    RUN,
    RUN_FORM,
    RUN_PLOT,
    RUNS,
    SETUP_FORM,
    SWEEP,
    SWEEP_FORM,
    TABLES,
    TEXTS,
    WAITS,
    WORKERS,
    Action,
    Confirm,
    Group,
)
from tui.action_table import ACTIONS

__all__ = [
    "ACTIONS",
    "ANSWERS",
    "BENCH",
    "BENCHES",
    "BENCH_FORM",
    "CHECK",
    "CHECK_FORM",
    "COMPARE",
    "COPIES",
    "COPY_FORM",
    "COSTS",
    "COST_STATES",
    "CREATE",
    "DESCRIBE",
    "DIALOG",
    "DOCTOR",
    "EVENTS",
    "EVERY",
    "FLEET",
    "FORMS",
    "FORWARDS",
    "FREE",
    "FREE_FORM",
    "FULL_FORMS",
    "HELP",
    "KEEP_FORM",
    "LOGS",
    "LOG_SEARCH",
    "MAIN",
    "MESHES",
    "OPERATIONS",
    "PLACES",
    "POLICIES",
    "PREFLIGHT",
    "PRUNE",
    "PRUNE_FORM",
    "RACE_FORM",
    "READINGS",
    "RUN",
    "RUNS",
    "RUN_FORM",
    "RUN_PLOT",
    "SETUP_FORM",
    "SWEEP",
    "SWEEP_FORM",
    "TABLES",
    "TEXTS",
    "WAITS",
    "WORKERS",
    "Action",
    "Confirm",
    "Group",
]

PRIORITY = frozenset(
    {"quit", "interrupt", "next-field", "previous-field", "command", "filter", "logs"}
    | {"submit", "create", "run-command", "benchmark", "again", "go.create"}
)
"""Handled before the widget that has the focus: to leave; and so that what is typed in the same burst, as over a slow
line, belongs to the next field, to the command line or to the form that opens, and is never taken for verbs. `submit`,
so that nothing typed after it changes what is sent; `logs`, so that it works while a run's groups are still empty."""

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}

RESERVED_KEYS = frozenset(
    {"ctrl+a", "ctrl+b", "ctrl+h", "ctrl+j", "ctrl+k", "ctrl+l", "ctrl+o", "ctrl+s", "ctrl+z", "backspace"}
)
"""Keys that multiplexers, shells and terminals own (research: tui, complaints 18 to 20): no default may use them."""


def in_scope(scope: str) -> tuple[Action, ...]:
    """The actions of one screen, in the order of the registry."""
    return tuple(action for action in ACTIONS if scope in action.scopes)


def bindings(scope: str) -> list[BindingType]:
    """Textual's bindings for one screen: every one carries its id, so that the configuration can rebind it."""
    return [
        Binding(
            ",".join(action.keys),
            f"perform('{action.id}')",
            action.title,
            show=bool(action.hint),
            tooltip=action.help,
            id=action.id,
            priority=action.id in PRIORITY,
        )
        for action in in_scope(scope)
        if action.keys and not action.by_widget
    ]


def hints(scope: str, *, read_only: bool) -> tuple[Action, ...]:
    """What the footer shows on a screen, most useful first."""
    shown = [action for action in in_scope(scope) if action.hint and not (read_only and action.changes)]
    return tuple(sorted(shown, key=lambda action: action.hint))


def refusal(action: Action, *, read_only: bool) -> str:
    """The one gate: why the action may not be performed now; empty when it may."""
    if read_only and action.changes:
        return (
            f"This console is read-only: '{action.title}' changes something. Start it without --read-only to do that."
        )
    return ""


def words() -> dict[str, Action]:
    """Every command-line word with its action, for completion."""
    return {word: action for action in ACTIONS for word in action.words}


KEY_NAMES = {
    "colon": ":",
    "slash": "/",
    "question_mark": "?",
    "ampersand": "&",
    "plus": "+",
    "underscore": "_",
    "asterisk": "*",
    "exclamation_mark": "!",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "dollar_sign": "$",
    "percent_sign": "%",
    "comma": ",",
    "full_stop": ".",
    "minus": "-",
    "equals_sign": "=",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
}
"""Textual's names of keys as people write them."""


def key_name(key: str) -> str:
    """A key as it is shown: `?`, `ctrl+p`, `enter`."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    return "+".join([*modifiers, KEY_NAMES.get(last, last)])


def key_names(keys: Iterable[str]) -> str:
    """Several keys of one action: `j down`."""
    return " ".join(key_name(key) for key in keys)
