"""`slicetower qr wait`: until a request is ready, or in a state, or gone; progress on stderr."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
from time import monotonic
from typing import TYPE_CHECKING

from backend.cloud.advice import advice
from backend.cloud.errors import explain
from backend.cloud.watch import now_utc
from backend.model import DEAD_STATES, Fleet, QueuedResource, QueuedResourceState, SshWord, Standing
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.targets import workers_of
from backend.tower import Tower
from tui.cli.output import add_format, duration
from tui.cli.places import add_place, context_of, find, seconds_argument
from tui.cli.qr_views import print_rows

if TYPE_CHECKING:
    from backend.ssh.answers import Answers

READY_TIMEOUT_S = 3600.0
HEARTBEAT_S = 30.0
"""Without a change the progress is said again after this time."""
SSH_ROUND_S = 30.0
"""ssh is asked for so long, then the cloud again: a worker that does not answer may have been taken away."""
SSH_PAUSE_S = 5.0
"""Between rounds: a server that is asked too often refuses for a while."""
LEAST_WAIT_S = 1.0
"""Of a wait that begins when its time is up already: enough to look once."""
GONE = "GONE"
READY = "READY"


def state_argument(text: str) -> str:
    """An argparse type: a state that the service knows, READY or GONE; another would be waited for in vain."""
    return _known_state(text, [READY, GONE, *(str(state) for state in QueuedResourceState)])


def filter_argument(text: str) -> str:
    """An argparse type: a state that the service knows; another would find nothing, as if nothing were there."""
    return _known_state(text, [str(state) for state in QueuedResourceState])


def _known_state(text: str, known: list[str]) -> str:
    if text.upper() in known:
        return text.upper()
    near = difflib.get_close_matches(text.upper(), known, n=3) or known
    raise argparse.ArgumentTypeError(f"'{plain(text)}' is no state; use {', '.join(near)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Waits until a request is ACTIVE, each of its workers is there and healthy, and ssh answers on all of them."
    )
    parser.add_argument("name", metavar="ID")
    parser.add_argument(
        "--timeout",
        type=seconds_argument,
        default=READY_TIMEOUT_S,
        metavar="DURATION",
        help="45m, 3600s (default: 1h)",
    )
    parser.add_argument("--state", type=state_argument, default=READY, metavar="STATE", help="another state, or GONE")
    add_no_ssh(parser)
    add_format(parser)
    add_place(parser)


def add_no_ssh(parser: argparse.ArgumentParser) -> None:
    """Adds --no-ssh, for what waits until a request is ready."""
    parser.add_argument(
        "--no-ssh",
        action="store_true",
        help="take the cloud's word: do not log in to the workers to see that ssh answers",
    )


class Progress:
    """Says on stderr what changes, and every HEARTBEAT_S that nothing did."""

    def __init__(self, name: str, *, asks_ssh: bool = False) -> None:
        self._name = name
        self._asks_ssh = asks_ssh
        self._started = self._said_at = monotonic()
        self._said = ""

    def see(self, item: QueuedResource | None, fleet: Fleet) -> None:
        if item is None:
            text = "gone"
        else:
            note = advice(item, fleet.since.get(item.key), now_utc()).text
            if self._asks_ssh and item.ready:
                note = "asking ssh"
            workers = f" {item.workers_ready}/{item.workers_expected} workers" if item.slices else ""
            text = f"{item.state}{workers}{f', {note}' if note else ''}"
        self.say(text)

    def say(self, text: str) -> None:
        now = monotonic()
        if text != self._said or now - self._said_at >= HEARTBEAT_S:
            self._said, self._said_at = text, now
            print(f"{duration(now - self._started):>7}  {self._name}  {text}", file=sys.stderr, flush=True)


async def tell_made(tower: Tower, name: str, arguments: argparse.Namespace) -> int:
    """A request that was just made: its row, or with `--wait` that row once it is ready; returns the exit code."""
    fleet = await tower.refresh()
    if arguments.wait:
        return await wait_ready(
            tower, name, arguments.timeout or READY_TIMEOUT_S, arguments.format, ssh=not arguments.no_ssh
        )
    print_rows(fleet.find(name), fleet, arguments.format)
    return ExitCode.OK


async def wait_ready(
    tower: Tower, name: str, timeout_s: float, output: str, *, state: str = READY, ssh: bool = True
) -> int:
    """Waits, prints the row, returns the exit code.

    Args:
        tower: An open tower.
        name: The request's id.
        timeout_s: For all of it.
        output: table or json.
        state: READY, GONE, or a state of the service.
        ssh: READY means that ssh answers on every worker, too.

    Raises:
        OperatorError: not there in time (124), it can't come any more (4), or a worker refuses the operator for good (3).
    """
    progress = Progress(name, asks_ssh=ssh and state == READY)
    ends_at = monotonic() + timeout_s

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
    answers_on: SshWord | None = None
    if item is not None and state == READY and ssh:
        # Not at the top: `qr list` must not import the ssh library.
        from backend.ssh.answers import Answers

        answers = Answers(tower.pool)
        while await _ssh_is_missing(answers, item, progress, ends_at):
            await asyncio.sleep(min(SSH_PAUSE_S, max(ends_at - monotonic(), 0.0)))
            await tower.refresh()
            again, fleet = await tower.watch.wait_for(reached, max(ends_at - monotonic(), LEAST_WAIT_S))
            item = again or item
        number = len(workers_of(item))
        answers_on = SshWord(Standing.ANSWERS, f"ssh answers on {number} worker{'' if number == 1 else 's'}")
        progress.say(f"{item.state}, ready: {answers_on.text}")
    if item is not None:
        print_rows([item], fleet, output, ssh=answers_on)
    return ExitCode.OK


async def _ssh_is_missing(answers: Answers, item: QueuedResource, progress: Progress, ends_at: float) -> bool:
    """One round over the workers that have not answered; what is missing is said.

    Raises:
        OperatorError: time is up (124), or a worker refuses for good (3).
    """
    from backend.ssh.answers import told

    left_s = max(ends_at - monotonic(), LEAST_WAIT_S)
    silent = await answers.ask(workers_of(item), min(left_s, SSH_ROUND_S))
    if not silent:
        return False
    lasting = next((each.error for each in silent if each.is_lasting), None)
    if lasting is not None:
        raise lasting
    progress.say(f"{item.state}, {told(silent)}")
    if monotonic() >= ends_at:
        why = next((each.error.what for each in silent if each.error is not None), "")
        raise OperatorError(
            f"{item.name} is {item.state}, but {told(silent)}.",
            "Wait longer with a higher --timeout, or look with `slicetower check`; --no-ssh takes the cloud's word.",
            exit_code=ExitCode.TIMED_OUT,
            raw=why,
        )
    return True


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
        return await wait_ready(
            tower,
            arguments.name,
            arguments.timeout,
            arguments.format,
            state=arguments.state,
            ssh=not arguments.no_ssh,
        )
