"""Frees a worker's chips: ends whoever holds the device nodes, confirms it, then removes libtpu's lockfile.

TERM first, KILL after the grace. Only processes that hold a node are signalled, each checked by its start time just before,
so that a reused pid is never hit. The lockfile goes only when nobody who lives owns it. Prints one JSON object; exits with
0 when the chips are free, 1 when not. `--dry-run` tells what would be done.

Shipped to workers together with its sibling check.py: the standard library alone, Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time

try:
    from jobs.programs import check
except ImportError:
    import check  # type: ignore[import-not-found,no-redef]

DEFAULT_GRACE_S = 10.0
KILL_LIMIT_S = 5.0
"""How long SIGKILL may take."""
POLL_S = 0.05


def own_line(machine: check.Machine) -> set[int]:
    """This process and its ancestors, which are never signalled."""
    line = {0, 1}
    pid = os.getpid()
    with contextlib.suppress(OSError, IndexError):
        while pid not in line:
            line.add(pid)
            pid = int(machine.read(f"{pid}/stat").rpartition(")")[2].split()[1])
    return line


def end(
    machine: check.Machine, targets: dict[int, int], number: int, limit_s: float
) -> tuple[dict[int, int], list[int]]:
    """Signal the targets (pid -> start ticks) and wait. Returns those that still live, and those not permitted."""
    refused = []
    for pid, ticks in targets.items():
        if machine.start_ticks(pid) == ticks:
            try:
                os.kill(pid, number)
            except PermissionError:
                refused.append(pid)
            except ProcessLookupError:
                pass
    deadline = time.monotonic() + limit_s
    while True:
        left = {pid: ticks for pid, ticks in targets.items() if machine.start_ticks(pid) == ticks}
        if not set(left) - set(refused) or time.monotonic() > deadline:
            return left, refused
        time.sleep(POLL_S)


def free(machine: check.Machine, grace_s: float, dry_run: bool) -> check.Facts:
    before = check.devices(machine)
    protected = own_line(machine)
    targets = {
        holder["pid"]: machine.start_ticks(holder["pid"])
        for holder in before["holders"]
        if holder["pid"] not in protected
    }
    lock = check.lockfile(machine)
    facts: check.Facts = {
        "dry_run": dry_run,
        "nodes": before["nodes"],
        "holders": before["holders"],
        "terminated": [],
        "killed": [],
        "refused": [],
        "lockfile": dict(lock, removed=False),
    }
    if dry_run:
        owners = {owner["pid"] for owner in lock["owners"]}
        facts["would_stop"] = sorted(targets)
        facts["would_remove_lockfile"] = lock["exists"] and owners <= set(targets)
        facts["free"] = not before["holders"] and not lock["exists"]
        return facts
    left, refused = end(machine, targets, signal.SIGTERM, grace_s)
    facts["terminated"] = sorted(set(targets) - set(left))
    killed = {pid: ticks for pid, ticks in left.items() if pid not in refused}
    still, _ = end(machine, killed, signal.SIGKILL, KILL_LIMIT_S)
    facts["killed"] = sorted(set(killed) - set(still))
    facts["refused"] = sorted(refused)
    lock = check.lockfile(machine)
    removed = False
    if lock["stale"]:
        try:
            os.unlink(lock["path"])
            removed = True
        except OSError as error:
            facts["error"] = f"{lock['path']}: {error.strerror}"
    after = check.devices(machine)
    facts["holders_after"] = after["holders"]
    facts["lockfile"] = dict(check.lockfile(machine), removed=removed)
    facts["processes_not_seen"] = after["processes_not_seen"]
    facts["free"] = not after["holders"] and not facts["lockfile"]["exists"]
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(prog="free", description="Ends whoever holds this worker's chips.")
    parser.add_argument("--root", default="/", help="where /dev, /tmp and, if it is there, /proc are looked for")
    parser.add_argument("--grace", type=float, default=DEFAULT_GRACE_S, help="seconds from TERM to KILL")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, tell what would be done")
    arguments = parser.parse_args()
    facts = free(check.Machine(arguments.root), arguments.grace, arguments.dry_run)
    print(json.dumps(facts))
    return 0 if facts["free"] or arguments.dry_run else 1


if __name__ == "__main__":
    sys.exit(main())
