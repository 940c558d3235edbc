"""`slicetower check TARGET`: is every worker fit for a launch? Looks, without touching anything and without jax."""

from __future__ import annotations

import argparse
import asyncio

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.sanitize import plain
from backend.tools.check import COORDINATOR_PORT, NETWORK, Outside, check
from backend.tools.judge import names_of
from backend.tools.model import CheckReport, Severity
from tui.cli.output import add_format, print_json, print_table
from tui.cli.session import Waiting, context_of, open_tower, say, workers_for
from tui.wording import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Looks at every worker at once: chips and who holds them, versions, disks, memory, clocks, limits, Multislice "
        "settings, the coordinator's port, startup. Exits with 1 for a failure, 3 for a worker without an answer."
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="train-a, train-a/0, train-a/*/0, @group")
    parser.add_argument(
        "--coordinator-port", type=int, default=COORDINATOR_PORT, metavar="PORT", help="of the first worker"
    )
    parser.add_argument("--python", default="", metavar="PATH", help="whose packages are looked at")
    parser.add_argument("--root", default="/", metavar="DIR", help="where /dev, /tmp and /var are looked for there")
    add_outside(parser)
    parser.add_argument("--facts", action="store_true", help="with json: also all that each worker said")
    add_format(parser)


def add_outside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", action="store_true", help=f"also: do these answer there: {', '.join(NETWORK)}")
    more = parser.add_argument_group("also, each as often as needed")
    more.add_argument("--reach", action="append", default=[], metavar="URL", help="does this answer there")
    more.add_argument("--bucket", action="append", default=[], metavar="gs://NAME", help="can its objects be listed")
    more.add_argument("--docker", action="append", default=[], metavar="REGISTRY", help="is docker logged in to it")
    more.add_argument(
        "--code", action="append", default=[], metavar="DIR", help="is this folder there the same everywhere"
    )


def outside_of(arguments: argparse.Namespace) -> Outside:
    """What was asked for beyond the workers themselves.

    Raises:
        OperatorError: No URL, bucket or registry.
    """
    for url in arguments.reach:
        if not url.startswith(("https://", "http://")):
            raise OperatorError(f"--reach: '{plain(url)}' is no URL.", "Write it with https://.")
    for name in (*arguments.bucket, *arguments.docker, *arguments.code):
        if not name.strip() or name.startswith("-"):
            raise OperatorError(
                f"'{plain(name)}' names nothing that could be looked at.", "See `slicetower check --help`."
            )
    ways = (*(NETWORK if arguments.network else ()), *arguments.reach)
    return Outside(ways, tuple(arguments.bucket), tuple(arguments.docker), tuple(arguments.code))


def main(arguments: argparse.Namespace) -> int:
    return asyncio.run(_main(arguments, context_of(arguments)))


async def _main(arguments: argparse.Namespace, context: Context) -> int:
    async with open_tower(context) as tower:
        workers = await workers_for(tower, arguments.targets)
        report = await check(
            tower,
            workers,
            port=arguments.coordinator_port,
            root=arguments.root,
            python=arguments.python,
            outside=outside_of(arguments),
            told=Waiting(),
        )
    if arguments.format == "json":
        _print_json(report, facts=arguments.facts)
    else:
        rows = [[each.severity, each.check, each.where, each.what] for each in report.findings]
        print_table(["", "CHECK", "WORKERS", "FOUND"], rows)
        cures = dict.fromkeys(each.cure for each in report.findings if each.cure)
        for cure in cures:
            print(f"  {cure}")
        failed = names_of(report.findings)
        say(f"{count(len(workers), 'worker')}: {report.severity}{f': {failed}' if failed else ''}")
    return exit_code(report)


def exit_code(report: CheckReport) -> ExitCode:
    if report.errors:
        return ExitCode.UNREACHABLE
    return ExitCode.COMMAND_FAILED if report.severity is Severity.FAIL else ExitCode.OK


def _print_json(report: CheckReport, *, facts: bool) -> None:
    for each in report.findings:
        print_json(
            {
                "check": each.check,
                "severity": each.severity,
                "workers": list(each.workers),
                "what": each.what,
                "cure": each.cure,
            }
        )
    if facts:
        for address, told in report.facts.items():
            print_json({"target": address, "facts": told})
    counts = {str(level): sum(each.severity is level for each in report.findings) for level in Severity}
    print_json({"summary": counts, "severity": report.severity, "errors": dict(report.errors)})
