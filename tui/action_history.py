"""What was seen and kept over time: costs, waits, old runs that go; and this machine."""

from __future__ import annotations

from tui.action_model import COSTS, MAIN, PRUNE, RUNS, Action, Confirm, Group, on

HISTORY_ACTIONS: tuple[Action, ...] = (
    Action(
        "longer-period",
        ("right_square_bracket",),
        "longer",
        "Count from further back: 1, 7 or 30 days, or all that the journal knows.",
        on(COSTS),
        hint=3,
    ),
    Action(
        "shorter-period",
        ("left_square_bracket",),
        "shorter",
        "Count a shorter time: 30, 7 days or 1.",
        on(COSTS),
        hint=4,
    ),
    Action(
        "prune",
        ("X",),
        "clean up",
        "Remove old runs with their logs, by age and number, after a list of what would go; never one that may still run.",
        on(RUNS),
        Group.DANGER,
        hint=10,
        changes=True,
        confirm=Confirm.TYPED,
        words=("prune",),
    ),
    Action(
        "remove-old",
        ("X",),
        "remove",
        "Remove the runs that are listed as old, or the marked ones of them, with their logs.",
        on(PRUNE),
        Group.DANGER,
        hint=2,
        changes=True,
        confirm=Confirm.TYPED,
    ),
    Action(
        "go.costs",
        ("dollar_sign",),
        "costs",
        "Chip-hours of all that was seen, gone or not, by request, generation, tier and zone; :costs 12h counts any time.",
        MAIN,
        Group.GO,
        words=("costs",),
    ),
    Action(
        "go.waits",
        ("percent_sign",),
        "waits",
        "How long requests waited for capacity, by type, zone and tier, and what waits now.",
        MAIN,
        Group.GO,
        words=("waits",),
    ),
    Action(
        "go.doctor",
        (),
        "doctor",
        "Whether this machine is ready: configuration, credentials, endpoint, keys, limits, terminal; and how to mend it.",
        MAIN,
        Group.GO,
        words=("doctor",),
    ),
    Action(
        "go.places",
        (),
        "locate",
        "Where configuration, themes, journal, runs and logs are on this machine, and how much they hold.",
        MAIN,
        Group.GO,
        words=("locate",),
    ),
)
