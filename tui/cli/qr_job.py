"""`slicetower qr create NAME ... --job -- COMMAND`: the flags of a production job, and what is said about it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from backend.cloud.errors import CloudError
from backend.cloud.requests import CreateRequest
from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tower import Tower
from tui.cli.output import add_format, print_json
from tui.cli.places import add_place, context_of, find, seconds_argument

if TYPE_CHECKING:
    from backend.runs.production import ProductionJob

_FLAGS = (("sync", "--sync"), ("setup", "--setup"), ("env", "--env"), ("bundle", "--bundle"), ("shell", "--shell"))


def add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("production job", "started by the workers themselves, at every boot")
    group.add_argument("--job", action="store_true", help="the command after -- is the job of this request")
    group.add_argument("--sync", type=Path, metavar="DIR", help="code; the command runs in its copy")
    group.add_argument(
        "--bundle",
        default="",
        metavar="gs://BUCKET/FOLDER",
        help="where the code of --sync goes when it is not small",
    )
    group.add_argument("--setup", default="", metavar="CMD", help="on each worker at each boot, before the command")
    group.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="a variable (readable in the metadata)"
    )
    group.add_argument("--shell", action="store_true", help="the command is one text for the worker's shell")
    group.add_argument(
        "--job-timeout", type=seconds_argument, metavar="S", help="for the job on each worker and boot: 90, 45m"
    )
    group.add_argument("--title", default="", help="a name for the run")


async def plan(arguments: argparse.Namespace, context: Context, create: CreateRequest) -> ProductionJob | None:
    """The job of a command line; None without --job.

    Raises:
        OperatorError: flags or a command without --job, --job without a command, what `plan_job` refuses.
    """
    if not getattr(arguments, "job", False):
        given = [flag for name, flag in _FLAGS if getattr(arguments, name, None)]
        if arguments.command:
            raise OperatorError("There is a command after `--`, and no --job.", "Add --job, or leave it out.")
        if given:
            raise OperatorError(f"{given[0]} is about a job, and there is no --job.", "Add --job -- COMMAND.")
        return None
    if not arguments.command:
        raise OperatorError(
            "--job: the command is empty.", "Write it after `--`: qr create ... --job -- python3 train.py"
        )
    from backend.runs import bundles
    from backend.runs.model import RunRequest
    from backend.runs.production import plan_job
    from backend.ssh.routes import login_name

    bundle = await asyncio.to_thread(bundles.from_directory, arguments.sync) if arguments.sync else None
    pairs = [text.partition("=") for text in arguments.env]
    run = RunRequest(
        argv=tuple(arguments.command),
        shell=arguments.shell,
        timeout_s=arguments.job_timeout,
        environment=tuple((name, value) for name, equals, value in pairs if equals),
        secret_environment=tuple(name for name, equals, _ in pairs if not equals),
        bundle=bundle,
        setup=arguments.setup,
        title=arguments.title,
    )
    user = login_name(context.ssh.user)
    job = await asyncio.to_thread(plan_job, create, run, user=user, bundle_folder=arguments.bundle)
    for warning in job.warnings:
        say(f"warning: {warning}")
    if bundle is not None:
        say(f"ships {bundle.report} {'by ' + job.bundle_url if job.bundle_url else 'within the startup script'}")
    return job


def show_script(job: ProductionJob, form: str) -> None:
    """The exact text that the workers will run."""
    if form != "json":
        print(job.script)


def add_adopt(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Takes up the job that a request carries, though another operator or machine made it: its logs are followed as "
        "the same run."
    )
    parser.add_argument("name", metavar="ID")
    parser.add_argument("--dry-run", action="store_true", help="say what would be taken up")
    add_format(parser)
    add_place(parser)


async def adopt(arguments: argparse.Namespace) -> int:
    """Writes a run into this journal; nothing is sent but reads."""
    from backend.runs.adoption import adopted, user_of
    from backend.ssh.routes import login_name

    context = context_of(arguments)
    async with Tower.open(context, watch=False) as tower:
        item = find(await tower.refresh(), arguments.name)
        body = await tower.client.describe(*item.key)
        record = adopted(body, item.key, context.name)
        user, own = user_of(body, item.key), login_name(context.ssh.user)
        if user != own:
            say(f"the job runs as {user}, and you log in as {own}: you may not be able to read its output")
        known = tower.runs.knows(record.id)
        if not known and not arguments.dry_run:
            tower.runs.register(record)
            tower.record(f"adopted its job, run {record.id}", subject=item.name)
    if arguments.format == "json":
        print_json({"name": item.name, "zone": item.zone, "run": record.id, "known": known, "user": user})
        return ExitCode.OK
    print(f"{'Known already' if known else 'Would adopt' if arguments.dry_run else 'Adopted'}: run {record.id}")
    print(f"executes  {plain(record.remote_text)}")
    if not arguments.dry_run:
        say(f"`slicetower logs {record.id} --follow` follows it; no console has to be told")
    return ExitCode.OK


async def begin(tower: Tower, job: ProductionJob) -> None:
    """Uploads the code and keeps the run, before the request is sent."""
    from backend.runs import production

    if job.bundle is not None and job.bundle_url:
        await production.upload(job.bundle, job.bundle_url)
    production.begin(job, tower.runs, tower.context.name)


def refused(tower: Tower, job: ProductionJob, error: CloudError) -> None:
    """The request was not made, so its run is over; where that is not certain, it stays open."""
    from backend.runs import production

    production.refused(job, tower.runs, error)


def tell(job: ProductionJob) -> None:
    say(f"run {job.run_id} starts at every boot of its workers: `slicetower logs {job.run_id} --follow`")


def say(text: str) -> None:
    print(f"slicetower: {plain(text)}", file=sys.stderr, flush=True)
