"""`slicetower qr create`: flags, a file or a pasted gcloud command, validated before anything is sent."""

from __future__ import annotations

import argparse
import difflib
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from backend.cloud import equivalents, request_files
from backend.cloud.encoding import load_files
from backend.cloud.errors import CloudError
from backend.cloud.gcloud_flags import add_create_flags, request_of
from backend.cloud.gcloud_parser import from_gcloud
from backend.cloud.requests import CreateRequest, Problem, carrier
from backend.cloud.validation import problems, warnings
from backend.context import Context
from backend.journal import Journal
from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli import qr_job
from tui.cli.output import add_format, print_json
from tui.cli.places import context_of, refuse_read_only, rest_of, seconds_argument
from tui.cli.qr_views import print_dry_run, print_problems
from tui.cli.qr_wait import add_no_ssh, tell_made

if TYPE_CHECKING:
    from backend.runs.production import ProductionJob

LRO_TIMEOUT_S = 600.0
"""A create ends when the request is queued: seconds, or 15 with flex-start."""
SOURCES = ("from_file", "from_gcloud", "from_recreate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Asks for slices. The flags are gcloud's; --node-id is the id of the request by default."
    parser.add_argument("name", nargs="?", default="", metavar="ID", help="the queued resource id")
    parser.add_argument(
        "--from-file", default="", metavar="FILE", help="JSON of the API, TOML, or a gcloud command; - is stdin"
    )
    parser.add_argument("--from-gcloud", default="", metavar="COMMAND", help="a gcloud create command, quoted")
    parser.add_argument(
        "--from-recreate", default="", metavar="ID", help="what a recreate deleted and was refused to make again"
    )
    parser.add_argument("--ssh-key", default="", metavar="FILE", help="public key that the workers accept from birth")
    parser.add_argument("--ssh-user", default="", metavar="NAME", help="whose key it is (default: of the context)")
    parser.add_argument("--dry-run", action="store_true", help="print the request and its equivalents, send nothing")
    parser.add_argument("--async", dest="run_async", action="store_true", help="do not wait for the operation")
    parser.add_argument("--wait", action="store_true", help="wait until it is ready: ACTIVE, and ssh answers")
    add_no_ssh(parser)
    parser.add_argument(
        "--timeout", type=seconds_argument, default=None, metavar="DURATION", help="of --wait (default: 1h)"
    )
    parser.add_argument("--yes", action="store_true", help="accepted for symmetry: a create asks nothing")
    add_format(parser)
    add_create_flags(parser)


def request_from(arguments: argparse.Namespace, context: Context) -> CreateRequest:
    """The request of a command line.

    Raises:
        OperatorError: two sources, an unreadable file, exclusive flags.
    """
    zone = context.zones[0] if len(context.zones) == 1 else ""
    given = request_of(arguments, arguments.name, project=context.project, zone=zone)
    sources = [f"--{name.replace('_', '-')}" for name in SOURCES if getattr(arguments, name)]
    if len(sources) > 1:
        raise OperatorError(f"{' and '.join(sources)} are two sources.", "Give one of them.")
    if sources:
        bare = CreateRequest(given.name, given.project, given.zone)
        if given != bare:
            changed = [item.name for item in fields(given) if getattr(given, item.name) != getattr(bare, item.name)]
            raise OperatorError(
                f"--{changed[0].replace('_', '-')} and a request from elsewhere are two sources.",
                f"Beside {sources[0]} only the id, --project and --zone may be given.",
            )
        if arguments.from_gcloud:
            found = from_gcloud(arguments.from_gcloud, project=context.project, zone=zone)
        elif arguments.from_recreate:
            found = _from_recreate(arguments.from_recreate, context)
        else:
            found = _from_file(arguments.from_file, context.project, zone)
        given = replace(
            found,
            name=arguments.name or found.name,
            project=arguments.project or found.project or context.project,
            zone=arguments.zone or found.zone or zone,
        )
    if arguments.ssh_key:
        given = _with_key(given, arguments.ssh_key, arguments.ssh_user or context.ssh.user)
    return given


def _from_recreate(name: str, context: Context) -> CreateRequest:
    from backend.cloud.intents import IntentStore

    journal = Journal.open(paths().journal)
    try:
        kept = IntentStore(journal).not_made_again()
    finally:
        journal.close()
    here = [each for each in kept if (each.project, each.zone) in context.places]
    for each in here:
        if each.name == name and each.request is not None:
            return each.request
    known = ", ".join(each.name for each in here[:5])
    raise OperatorError(
        f"No recreate of {plain(name)} was refused here.", f"There are {known}." if known else "There is none at all."
    )


def _from_file(name: str, project: str, zone: str) -> CreateRequest:
    if name != "-":
        return request_files.from_file(name, project=project, zone=zone)
    return request_files.from_text(sys.stdin.read(request_files.FILE_LIMIT + 1), "-", project=project, zone=zone)


def _with_key(request: CreateRequest, name: str, user: str) -> CreateRequest:
    """The request with a public key in its metadata, beside keys that it has already."""
    import getpass

    try:
        text = Path(name).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"The key {name} cannot be read: {error}.", "Give the public key's file.") from error
    if not text.startswith(("ssh-", "ecdsa-")) or "\n" in text:
        raise OperatorError(
            f"{name} is no public key.", "Give the .pub file: a private key must never leave this machine."
        )
    kept = dict(load_files(request).metadata)
    lines = [kept["ssh-keys"]] if kept.get("ssh-keys") else []
    files = tuple(pair for pair in request.metadata_files if pair[0] != "ssh-keys")
    metadata = dict(request.metadata)
    metadata["ssh-keys"] = "\n".join([*lines, f"{user or getpass.getuser()}:{text}"])
    return replace(request, metadata=tuple(metadata.items()), metadata_files=files)


def _refuse(request: CreateRequest, context: Context, **known: Any) -> None:
    found = problems(request, **known)
    if not request.zone and len(context.zones) > 1:
        found = [
            replace(item, cure=f"Give --zone: the context has {', '.join(context.zones)}.")
            if item.field == "zone"
            else item
            for item in found
        ]
    if found:
        print_problems(found[1:], kind="refused")
        raise OperatorError(found[0].what, found[0].cure)


async def main(arguments: argparse.Namespace) -> int:
    context = context_of(arguments)
    request = request_from(arguments, context)
    _refuse(request, context)
    job = await qr_job.plan(arguments, context, request)
    if job is not None:
        request = job.create
        _refuse(request, context)
    if arguments.run_async and arguments.wait:
        raise OperatorError("--async and --wait exclude each other.", "Choose one.")
    request_id = str(uuid4())
    way = carrier(request)
    if arguments.dry_run:
        advised = warnings(request)
        print_problems(advised, kind="warning")
        for reason in way.reasons:
            print(f"slicetower: {reason}", file=sys.stderr)
        shown = equivalents.create(request, rest_of(context), request_id=request_id, run_async=arguments.run_async)
        if job is not None:
            qr_job.show_script(job, arguments.format)
        print_dry_run(
            "create",
            [shown],
            arguments.format,
            carrier=f"{way.transport} {way.version}",
            warnings=[str(item) for item in advised],
            **({} if job is None else {"run": job.run_id, "startup_script": job.script}),
        )
        return ExitCode.OK
    refuse_read_only(context, "create")
    context = replace(context, project=request.project, zones=(request.zone,), also=())
    async with Tower.open(context, watch=False) as tower:
        return await _send(tower, request, request_id, arguments, job)


async def _send(
    tower: Tower,
    request: CreateRequest,
    request_id: str,
    arguments: argparse.Namespace,
    job: ProductionJob | None,
) -> int:
    from backend.cloud.intents import IntentStore
    from backend.cloud.recover import Recovery
    from backend.cloud.usage import LimitStore, configured, standing, warn_of_limit

    fleet = await tower.refresh()
    _refuse(
        request,
        tower.context,
        taken_names={item.name for item in fleet.queued_resources},
        taken_node_ids={each.node_id for item in fleet.queued_resources for each in item.slices}
        | {each.node_id for each in fleet.standalone},
    )
    limits = LimitStore(tower.journal)
    advised = warnings(request, existing=fleet.queued_resources)
    known = [*configured(tower.context.limits), *limits.known(request.project)]
    advised += warn_of_limit(request, fleet.queued_resources, known)
    advised += await _unknown_reservation(tower, request)
    print_problems(advised, kind="warning")
    place = standing(request, fleet.queued_resources, known)
    if place is not None:
        print(f"slicetower: {place.sentence}.", file=sys.stderr)
    for reason in carrier(request).reasons:
        print(f"slicetower: {reason}", file=sys.stderr)
    recovery = Recovery(
        tower.client, IntentStore(tower.journal), say=lambda text: print(plain(text), file=sys.stderr), limits=limits
    )
    if job is not None:
        await qr_job.begin(tower, job)
    try:
        operation = await recovery.create(request, request_id=request_id)
    except CloudError as error:
        if job is not None:
            qr_job.refused(tower, job, error)
        raise
    if job is not None:
        qr_job.tell(job)
    tower.record(f"asked for {request.node_count} x {request.shape} {request.tier}", subject=request.name)
    if arguments.run_async:
        if arguments.format == "json":
            print_json(
                {"name": request.name, "zone": request.zone, "operation": operation.path, "done": operation.done}
            )
        else:
            print(f"Asked for {request.name} in {request.zone}: {operation.path}")
        return ExitCode.OK
    await tower.client.wait_operation(operation, LRO_TIMEOUT_S)
    return await tell_made(tower, request.name, arguments)


async def _unknown_reservation(tower: Tower, request: CreateRequest) -> list[Problem]:
    """A warning where the zone does not list the reservation: it may be another project's, so it is no refusal."""
    wanted = request.reservation.rpartition("/")[2]
    if not wanted or request.reservation_host:
        return []
    try:
        listed = await tower.client.reservations(request.project, request.zone)
    except CloudError as error:
        return [Problem("reservation", f"Reservations of {request.zone} could not be listed: {error.what}")]
    if wanted in listed:
        return []
    return [Problem("reservation", f"{request.zone} lists no reservation {wanted}.", near(wanted, listed))]


def near(wanted: str, listed: list[str]) -> str:
    """What it may have been meant to be."""
    close = difflib.get_close_matches(wanted, listed, n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return (
        f"It lists {', '.join(listed[:5])}."
        if listed
        else "It lists none; one of another project needs its full name."
    )
