"""Tools for workers: check, free, setup, forward, copy, keep."""

from __future__ import annotations

from tui.action_model import (
    CHECK,
    COPIES,
    FLEET,
    FORWARDS,
    FREE,
    MAIN,
    RUN,
    WORKERS,
    Action,
    Confirm,
    Group,
    on,
)

_HAVE_WORKERS = on(FLEET, WORKERS, RUN, CHECK)

TOOL_ACTIONS: tuple[Action, ...] = (
    Action(
        "tools",
        ("T",),
        "tools",
        "A menu of the tools for these workers: check, free, setup, forward, copy, keep.",
        _HAVE_WORKERS,
        hint=6,
        words=("tools",),
    ),
    Action(
        "check",
        ("i",),
        "check",
        "Look at every worker: chips and who holds them, versions, disks, clocks, ports; what is odd stands first.",
        _HAVE_WORKERS - {CHECK},
        words=("check",),
    ),
    Action(
        "free",
        ("F",),
        "free",
        "See what holds the chips of these workers; stopping it is asked for there.",
        _HAVE_WORKERS,
        words=("free",),
    ),
    Action(
        "setup",
        ("e",),
        "setup",
        "Make one environment with Python, jax and, if wanted, MaxText on every worker, and verify that all are equal.",
        _HAVE_WORKERS,
        changes=True,
        confirm=Confirm.ASK,
        words=("setup",),
    ),
    Action(
        "forward",
        ("f",),
        "forward",
        "A port of this worker as a port of this machine, for TensorBoard or the profiler.",
        _HAVE_WORKERS | {FORWARDS},
        words=("forward",),
    ),
    Action(
        "copy-files",
        ("m",),
        "copy files",
        "Copy files and folders to these workers, or from them.",
        _HAVE_WORKERS,
        words=("copy",),
    ),
    Action(
        "free-now",
        ("S",),
        "stop holders",
        "Stop the processes that hold the chips, confirm that they are gone, and remove the lockfile.",
        on(FREE),
        Group.DANGER,
        hint=1,
        changes=True,
        confirm=Confirm.TYPED,
    ),
    Action("break-off", ("Z",), "cancel", "Cancel what is going on here.", on(CHECK, FREE, COPIES), hint=3),
    Action("close-forward", ("X",), "close", "Close this forward.", on(FORWARDS), hint=2),
    Action(
        "go.forwards",
        ("0",),
        "forwards",
        "Ports of workers that are open on this machine.",
        MAIN,
        Group.GO,
        words=("forwards",),
    ),
)
