"""`slicetower`: reads the verb, imports that verb's file alone, turns errors into sentences and exit codes."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from backend.outcomes import ExitCode, OperatorError

if TYPE_CHECKING:
    import sqlite3

VERBS: dict[str, tuple[str, str]] = {
    "demo": ("tui.cli.demo", "the console on a simulated Cloud TPU"),
    "sim": ("tui.cli.sim", "serve a simulated Cloud TPU, inject faults into it"),
    "qr": ("tui.cli.qr", "queued resources: list, describe, create, delete, reset, recreate, wait"),
    "fleet": ("tui.cli.fleet", "the fleet as plain text, once"),
    "operations": ("tui.cli.operations", "long-running operations: list, describe, cancel"),
    "run": ("tui.cli.run", "run a command on workers"),
    "runs": ("tui.cli.runs", "runs: list, show, stop, retry, note, tag, export, prune"),
    "logs": ("tui.cli.logs", "the logs of a run"),
    "copy": ("tui.cli.copy", "copy files to or from workers"),
    "shell": ("tui.cli.shell", "an interactive shell on one worker"),
    "check": ("tui.cli.check", "devices, versions, disks and holders of every worker"),
    "bench": ("tui.cli.bench", "sharding benchmarks: run, sweep, list, compare, export"),
    "preflight": ("tui.cli.preflight", "compile the benchmark for a real topology, without a TPU"),
    "setup": ("tui.cli.setup", "a venv with jax on every worker"),
    "free": ("tui.cli.free", "stop what holds the TPU"),
    "forward": ("tui.cli.forward", "forward a port of one worker"),
    "doctor": ("tui.cli.doctor", "check this machine: configuration, credentials, keys, terminal"),
    "locate": ("tui.cli.locate", "where configuration, themes, journal and logs are"),
}
"""Verb -> (module with `add_arguments(parser)` and `main(arguments) -> int`, one line of help)."""


BEFORE_VERB = ("--context", "--context-file", "--read-only")


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one sentence with its cure; the usage, 30 lines for some verbs, is for `--help`."""

    def parse_known_args(  # type: ignore[override]  # its overloads give back what was given
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """A word too much is told by the verb that it stands behind, not by the one above."""
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        from backend.sanitize import plain_text

        cure = f"`{self.prog} --help` explains it."
        if message.startswith("unrecognized") and any(
            f" {name}" in message.replace("=", " ") for name in BEFORE_VERB
        ):
            cure = f"{', '.join(BEFORE_VERB)} stand before the verb: slicetower --context NAME qr list."
        self.exit(ExitCode.USAGE, f"slicetower: {plain_text(message)}\n  {cure}\n")


def build_parser() -> argparse.ArgumentParser:
    """The options that stand before the verb."""
    listing = "\n".join(f"  {verb:<11} {line}" for verb, (_, line) in VERBS.items())
    parser = Parser(
        prog="slicetower",
        description="The control tower for Cloud TPU Multislice. Without a verb: the console.",
        epilog=f"verbs:\n{listing}\n\n`slicetower VERB --help` explains each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--context", metavar="NAME", help="a context of the configuration")
    which.add_argument("--context-file", metavar="FILE", help="a context file, such as the simulator writes")
    parser.add_argument(
        "--read-only", action="store_true", help="refuse everything that changes something in the cloud or on workers"
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("verb", nargs="?", metavar="VERB")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs one verb and returns its exit code; every expected error has become a sentence on stderr."""
    parser = build_parser()
    arguments = parser.parse_args(list(argv))
    if arguments.version:
        from tui.version import version

        print(version())
        return ExitCode.OK
    if arguments.verb is None:
        module_name, rest = "tui.cli.console", []
    elif arguments.verb in VERBS:
        module_name, rest = VERBS[arguments.verb][0], arguments.rest
    else:
        import difflib

        near = difflib.get_close_matches(arguments.verb, VERBS, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`slicetower --help` lists the verbs."
        raise OperatorError(f"There is no verb '{arguments.verb}'.", hint)
    module = importlib.import_module(module_name)
    verb_parser = Parser(prog=f"slicetower {arguments.verb or ''}".strip())
    module.add_arguments(verb_parser)
    command: list[str] = []
    if getattr(module, "TAKES_COMMAND", False) and "--" in rest:
        cut = rest.index("--")
        rest, command = rest[:cut], rest[cut + 1 :]
    verb_arguments = verb_parser.parse_args(rest)
    verb_arguments.command = command
    for name in ("context", "context_file", "read_only"):
        setattr(verb_arguments, name, getattr(arguments, name))
    return int(module.main(verb_arguments))


def report(error: OperatorError) -> int:
    """Prints an error for people on stderr, through the gate, and returns its exit code."""
    from backend.sanitize import plain_text

    print(f"slicetower: {plain_text(error.what)}", file=sys.stderr)
    if error.cure:
        print(f"  {plain_text(error.cure)}", file=sys.stderr)
    if error.raw and error.raw not in error.what:
        print(f"  the original text: {plain_text(error.raw)}", file=sys.stderr)
    return int(error.exit_code)


def database_error() -> type[sqlite3.Error]:
    """What the journal raises; asked for when something was raised, so that no verb imports the database for nothing."""
    import sqlite3

    return sqlite3.Error


def of_this_machine(error: OSError | sqlite3.Error) -> OperatorError:
    """A disk that is full, a folder that can't be written or made, and their like, as a sentence with the cure."""
    if not isinstance(error, OSError):
        from backend.paths import paths
        from backend.sqlite import told

        return told(paths(create=False).journal, error)
    where = f"{error.filename}: " if error.filename else ""
    cures = {
        errno.ENOSPC: "Free some space, or set XDG_STATE_HOME to a folder on another disk.",
        errno.EDQUOT: "Free some of your quota, or set XDG_STATE_HOME to a folder on another disk.",
        errno.EMFILE: "Raise the limit of open files (`ulimit -n`).",
    }
    cure = cures.get(error.errno or 0, "Check the path and its permissions.")
    return OperatorError(f"{where}{error.strerror or error}.", cure)


def run() -> None:
    """The console script."""
    try:
        code = main(sys.argv[1:])
    except OperatorError as error:
        code = report(error)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away (| head); nobody is left to tell.
        sys.stderr.close()
        code = ExitCode.OK
    except (OSError, database_error()) as error:
        code = report(of_this_machine(error))
    sys.exit(code)


if __name__ == "__main__":
    run()
