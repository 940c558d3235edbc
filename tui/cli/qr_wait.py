"""`slicetower qr wait`: until a request is ready, or in a state, or gone; progress on stderr."""

from __future__ import annotations

import argparse
import difflib
import sys
from time import monotonic

from backend.cloud.advice import advice
from backend.cloud.errors import explain
from backend.cloud.watch import now_utc
from backend.model import DEAD_STATES, Fleet, QueuedResource, QueuedResourceState
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, duration
from tui.cli.places import add_place, context_of, find, seconds_argument
from tui.cli.qr_views import print_rows

HEARTBEAT_S = 30.0
"""Without a change the progress is said again after this time."""
GONE = "GONE"
READY = "READY"


def state_argument(text: str) -> str:
    """An argparse type: a state that the service knows, READY or GONE; another would be waited for in vain."""
    known = [READY, GONE, *(str(state) for state in QueuedResourceState)]
    if text.upper() in known:
        return text.upper()
    near = difflib.get_close_matches(text.upper(), known, n=3) or known
    raise argparse.ArgumentTypeError(f"'{plain(text)}' is no state; use {', '.join(near)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Waits until a request is ACTIVE and each of its workers is there and healthy."
    parser.add_argument("name", metavar="ID")
    parser.add_argument(
        "--timeout", type=seconds_argument, default=3600.0, metavar="DURATION", help="45m, 3600s (default: 1h)"
    )
    parser.add_argument("--state", type=state_argument, default=READY, metavar="STATE", help="another state, or GONE")
    add_format(parser)
    add_place(parser)


class Progress:
    """Says on stderr what changes, and every HEARTBEAT_S that nothing did."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = self._said_at = monotonic()
        self._said = ""

    def see(self, item: QueuedResource | None, fleet: Fleet) -> None:
        if item is None:
            text = "gone"
        else:
            note = advice(item, fleet.since.get(item.key), now_utc()).text
            workers = f" {item.workers_ready}/{item.workers_expected} workers" if item.slices else ""
            text = f"{item.state}{workers}{f', {note}' if note else ''}"
        now = monotonic()
        if text != self._said or now - self._said_at >= HEARTBEAT_S:
            self._said, self._said_at = text, now
            print(f"{duration(now - self._started):>7}  {self._name}  {text}", file=sys.stderr, flush=True)


async def wait_ready(tower: Tower, name: str, timeout_s: float, output: str, *, state: str = READY) -> int:
    """Waits, prints the row, returns the exit code.

    Raises:
        OperatorError: not there in time (124), or it can't come any more (4).
    """
    progress = Progress(name)

    def reached(fleet: Fleet) -> tuple[QueuedResource | None, Fleet] | None:
        found = fleet.find(name)
        item = found[0] if found else None
        progress.see(item, fleet)
        if item is None:
            if state == GONE:
                return None, fleet
            raise OperatorError(
                f"{name} is gone: somebody deleted it.", "Nothing is left to wait for.", exit_code=ExitCode.CLOUD
            )
        if item.ready if state == READY else item.state == state:
            return item, fleet
        if item.state in DEAD_STATES and state not in (GONE, "DELETING"):
            raise _dead(item)
        return None

    item, fleet = await tower.watch.wait_for(reached, timeout_s)
    if item is not None:
        print_rows([item], fleet, output)
    return ExitCode.OK


def _dead(item: QueuedResource) -> OperatorError:
    if item.error is not None:
        return explain(item.error.code, item.error.message, action="get the capacity of", subject=item.name)
    return OperatorError(
        f"{item.name} is {item.state}, which never becomes ACTIVE again.",
        f"`slicetower qr recreate {item.name}` asks for the same again.",
        exit_code=ExitCode.CLOUD,
    )


async def main(arguments: argparse.Namespace) -> int:
    async with Tower.open(context_of(arguments), watch=False) as tower:
        fleet = await tower.refresh()
        if not (arguments.state == GONE and not fleet.find(arguments.name) and not any(p.error for p in fleet.polls)):
            find(fleet, arguments.name)
        return await wait_ready(tower, arguments.name, arguments.timeout, arguments.format, state=arguments.state)
