"""What verbs about the cloud share: the context with --zone and --project, names found in it, confirmed by hand."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backend.cloud.equivalents import Rest
from backend.cloud.gcloud_flags import parse_duration
from backend.context import Context, load_context
from backend.model import Fleet, QueuedResource
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain


def seconds_argument(text: str) -> float:
    """An argparse type: seconds, or a duration as gcloud writes it."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError("it must be longer than 0")
    return seconds


def add_place(parser: argparse.ArgumentParser) -> None:
    """Adds --zone and --project, which narrow the context."""
    parser.add_argument("--zone", default="", help="only this zone; default: all zones of the context")
    parser.add_argument("--project", default="", help="default: the project of the context")


def context_of(arguments: argparse.Namespace) -> Context:
    """The context that the arguments name, narrowed to --zone and --project."""
    file = Path(arguments.context_file) if arguments.context_file else None
    context = load_context(arguments.context, file, read_only=arguments.read_only)
    zone, project = getattr(arguments, "zone", ""), getattr(arguments, "project", "")
    if project and project != context.project:
        context = replace(context, project=project, also=())
    if zone:
        context = replace(context, zones=(zone,), also=())
    return context


def rest_of(context: Context) -> Rest:
    """How curl reaches the service of this context."""
    return Rest(context.rest_endpoint.rstrip("/"), authorised=context.credentials != "none")


def refuse_read_only(context: Context, action: str) -> None:
    """Raises where the context is read-only: exit 2, nothing sent."""
    if context.read_only:
        raise OperatorError(
            f"This context is read-only: to {action} is refused.", "Leave out --read-only, or change the context."
        )


def find(fleet: Fleet, name: str) -> QueuedResource:
    """The one request of exactly this id.

    Raises:
        OperatorError: none (near names), or several in different zones; exit code CLOUD where a zone could not be
            asked, since it may be there.
    """
    found = fleet.find(name)
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(f"{item.project} {item.zone}" for item in found)
        raise OperatorError(f"{plain(name)} exists {len(found)} times: {where}.", "Say which with --zone.")
    failing = [poll for poll in fleet.polls if poll.error]
    if failing:
        raise OperatorError(
            f"Whether there is a request {plain(name)} is not known: {failing[0].zone} did not answer.",
            failing[0].error,
            exit_code=ExitCode.CLOUD,
        )
    names = [item.name for item in fleet.queued_resources]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    zones = ", ".join(poll.zone for poll in fleet.polls)
    cure = f"Near: {', '.join(near)}." if near else f"There are {', '.join(names[:6]) or 'none'}."
    raise OperatorError(f"There is no queued resource {plain(name)} in {zones}.", cure)


def confirm(names: Sequence[str], action: str, *, yes: bool, preview: Sequence[str]) -> None:
    """Shows what will go and asks for its name, or takes --yes.

    Raises:
        OperatorError: there is no tty to ask on, or another text was typed: exit 2, nothing sent.
    """
    for line in preview:
        print(plain(line), file=sys.stderr)
    if yes:
        return
    wanted = names[0] if len(names) == 1 else f"{action} {len(names)}"
    if not sys.stdin.isatty():
        raise OperatorError(
            f"To {action} {', '.join(names)} needs a confirmation, and there is no terminal to ask on.",
            "Give --yes.",
        )
    print(f"Type {wanted} to {action}, anything else to leave it: ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline().strip()
    if typed != wanted:
        raise OperatorError(f"Nothing was done: that was not {wanted}.")
