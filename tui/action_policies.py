"""What this program does by itself for requests: keep, race, and wishes that are not done."""

from __future__ import annotations

from tui.action_model import CREATE, FLEET, MAIN, POLICIES, Action, Confirm, Group, on

POLICY_ACTIONS: tuple[Action, ...] = (
    Action(
        "keep",
        ("K",),
        "keep",
        "Make this request again when it is preempted or fails, within budgets, while this console is open.",
        on(FLEET),
        changes=True,
        confirm=Confirm.ASK,
        words=("keep",),
    ),
    Action(
        "race",
        ("f6",),
        "race",
        "Ask for this in several zones or types at once: the first that is ACTIVE wins, the others are cancelled.",
        on(CREATE),
        hint=4,
        changes=True,
        confirm=Confirm.LIST,
        words=("race",),
    ),
    Action(
        "take-up",
        ("a",),
        "take up",
        "Carry this policy out in this console: a keep or a race that no process runs.",
        on(POLICIES),
        hint=2,
        changes=True,
        confirm=Confirm.ASK,
    ),
    Action(
        "give-up",
        ("X",),
        "give up",
        "End the policy, cancel the race, or take the wish back; what it has not deleted stays.",
        on(POLICIES),
        Group.DANGER,
        hint=3,
        changes=True,
        confirm=Confirm.ASK,
    ),
    Action(
        "go.policies",
        ("9",),
        "policies",
        "Keeps, races, and deletes that are not done: what this program does by itself.",
        MAIN,
        Group.GO,
        words=("policies", "keeps"),
    ),
)
