"""`slicetower shell TARGET`: an interactive shell on one worker, with its host key verified."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from backend.context import Context
from backend.outcomes import ExitCode, OperatorError
from backend.paths import paths
from backend.ssh.shell import ssh_command
from tui.cli.session import context_of, open_tower, workers_for

TAKES_COMMAND = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Opens the system's ssh to one worker, given exactly the host key that the API serves."
    parser.usage = "slicetower shell TARGET [--dry-run] [-- COMMAND...]"
    parser.add_argument(
        "target", metavar="TARGET", help="one worker, such as train-a/0/3; of several, the first is not guessed"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the ssh command and run nothing; the host key that it names is kept beside the journal",
    )


def main(arguments: argparse.Namespace) -> int:
    context = context_of(arguments, changes="" if arguments.dry_run else "shell")
    if arguments.dry_run:
        kept = paths().state_dir / "known_hosts"
        kept.mkdir(mode=0o700, exist_ok=True)
        print(shlex.join(asyncio.run(_command(arguments, context, kept))))
        return ExitCode.OK
    with tempfile.TemporaryDirectory(prefix="slicetower-") as folder:
        words = asyncio.run(_command(arguments, context, Path(folder)))
        try:
            return subprocess.run(words, check=False).returncode
        except FileNotFoundError as error:
            raise OperatorError("There is no ssh program on this machine.", "Install OpenSSH's client.") from error


async def _command(arguments: argparse.Namespace, context: Context, folder: Path) -> list[str]:
    async with open_tower(context) as tower:
        workers = await workers_for(tower, [arguments.target])
        if len(workers) > 1:
            raise OperatorError(
                f"'{arguments.target}' is {len(workers)} workers, and a shell is on one.",
                f"Name one, such as {workers[0].address}.",
            )
        return await ssh_command(
            tower.pool, context, workers[0], folder, arguments.command, terminal=sys.stdin.isatty()
        )
