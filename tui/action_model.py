"""What an action is: its key, where it works, whether it changes something, what stands before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FLEET, WORKERS, LOGS, RUNS, RUN = "fleet", "workers", "logs", "runs", "run"
BENCHES, BENCH, CREATE, DESCRIBE, EVENTS, HELP = "benches", "bench", "create", "describe", "events", "help"
OPERATIONS = "operations"
DIALOG, RUN_FORM, BENCH_FORM = "dialog", "run form", "bench form"
MESHES, COMPARE, SWEEP, SWEEP_FORM = "meshes", "compare", "sweep", "sweep form"
PREFLIGHT, RUN_PLOT, READINGS = "preflight", "run plot", "readings"
CHECK, FREE, COPIES, FORWARDS, POLICIES = "check", "free", "copies", "forwards", "policies"
COSTS, COST_STATES, WAITS = "costs", "cost states", "waits"
PRUNE_FORM, PRUNE = "prune form", "prune"
DOCTOR, PLACES = "doctor", "places"
ANSWERS = "answers"
SETUP_FORM, COPY_FORM, KEEP_FORM, RACE_FORM = "setup form", "copy form", "keep form", "race form"
CHECK_FORM, FREE_FORM = "check form", "free form"
LOG_SEARCH = "log search"

MAIN = frozenset({FLEET, WORKERS, LOGS, RUNS, RUN, BENCHES, BENCH, DESCRIBE, EVENTS, HELP, OPERATIONS}) | {
    MESHES,
    COMPARE,
    SWEEP,
    PREFLIGHT,
    RUN_PLOT,
    READINGS,
    ANSWERS,
    CHECK,
    FREE,
    COPIES,
    FORWARDS,
    POLICIES,
    COSTS,
    COST_STATES,
    WAITS,
    PRUNE,
    DOCTOR,
    PLACES,
    LOG_SEARCH,
}
"""Screens that fill the terminal and are not forms: single letters are verbs there."""
RUN_GROUPS = "run groups"
"""The run screen while its groups have the focus; its table has the same keys."""
FULL_FORMS = frozenset({CREATE, RUN_FORM, BENCH_FORM, SWEEP_FORM, SETUP_FORM, COPY_FORM, KEEP_FORM, RACE_FORM}) | {
    CHECK_FORM,
    FREE_FORM,
    PRUNE_FORM,
}
"""Forms that fill the terminal: letters are typed there, verbs are control and function keys."""
FORMS = FULL_FORMS | {DIALOG}
TABLES = frozenset({FLEET, WORKERS, RUNS, BENCHES, EVENTS, MESHES, COMPARE, SWEEP, OPERATIONS}) | {
    ANSWERS,
    READINGS,
    CHECK,
    FREE,
    COPIES,
    FORWARDS,
    POLICIES,
    COSTS,
    COST_STATES,
    WAITS,
    PRUNE,
    DOCTOR,
    PLACES,
    LOG_SEARCH,
}
TEXTS = frozenset({LOGS, RUN, BENCH, RUN_PLOT, PREFLIGHT})
EVERY = MAIN | FORMS | {RUN_GROUPS}


def on(*names: str) -> frozenset[str]:
    """The screens of an action."""
    return frozenset(names)


class Group(StrEnum):
    """The headings of the help screen, in this order."""

    HERE = "this screen"
    MOVE = "moving and choosing"
    GO = "screens"
    CONSOLE = "the console"
    DANGER = "changes something that costs or cannot be undone"


class Confirm(StrEnum):
    """What stands between the key and the deed."""

    NONE = "at once"
    ASK = "asks first"
    LIST = "shows the list and asks"
    TYPED = "asks for the name to be typed"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that the operator can do."""

    id: str
    """Unique; the name in `[keys]` of the configuration."""
    keys: tuple[str, ...]
    """Default keys; empty for what only the palette and the command line offer."""
    title: str
    """One or two words for the footer."""
    help: str
    """One sentence for the help screen and the palette."""
    scopes: frozenset[str]
    """The screens on which it exists."""
    group: Group = Group.HERE
    hint: int = 0
    """Place in the footer, lowest first; 0 keeps it out of the footer."""
    changes: bool = False
    """It changes something outside this console: absent when read-only."""
    confirm: Confirm = Confirm.NONE
    equivalent: str = ""
    """The function of backend.cloud.equivalents that explains it; empty where nothing is sent to the cloud."""
    words: tuple[str, ...] = ()
    """Its names on the command line."""
    only_simulated: bool = False
    """It exists only in a context that a simulator wrote."""
    by_widget: bool = False
    """The widget that has the focus binds the key itself."""
    widget_id: str = ""
    """The id of the widget's own binding, for the keymap."""
