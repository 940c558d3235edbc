"""`slicetower doctor`: is this machine ready? Each line says ok, warn or fail, and how to cure it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from backend.context import Context, load_context
from backend.doctor import FAIL, Finding, Terminal, examine
from backend.outcomes import ExitCode
from tui.cli.output import add_format, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Checks configuration, credentials, the endpoint, SSH keys, limits and the terminal. "
        "Exit code 0 unless a check fails: then 2, or 4 when the cloud can't be used."
    )
    parser.add_argument("--offline", action="store_true", help="don't call the cloud")
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    def load() -> Context:
        file = Path(arguments.context_file) if arguments.context_file else None
        return load_context(arguments.context, file)

    async def collect() -> list[Finding]:
        return [each async for each in examine(load, Terminal.of(sys.stdout), offline=arguments.offline)]

    findings = asyncio.run(collect())
    if arguments.format == "json":
        for each in findings:
            print_json({"check": each.check, "verdict": each.verdict, "what": each.what, "cure": each.cure})
    else:
        rows = [[each.verdict, each.check, f"{each.what} {each.cure}".strip()] for each in findings]
        print_table(["VERDICT", "CHECK", "WHAT"], rows)
    failed = {each.check for each in findings if each.verdict == FAIL}
    if not failed:
        return ExitCode.OK
    return ExitCode.CLOUD if failed <= {"credentials", "endpoint"} else ExitCode.USAGE
