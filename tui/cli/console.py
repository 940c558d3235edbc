"""`slicetower` without a verb: loads the context, then opens the console on it."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.context import Context, load_context
from backend.outcomes import ExitCode, OperatorError
from backend.paths import Paths, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The console takes no arguments of its own; the context stands before the verb."""
    parser.description = "The console on one context."


def main(arguments: argparse.Namespace) -> int:
    """Opens the console.

    Raises:
        OperatorError: The context cannot be loaded, or there is no terminal.
    """
    file = Path(arguments.context_file) if arguments.context_file else None
    context = load_context(arguments.context, file, read_only=arguments.read_only)
    names = ["--context", arguments.context] if arguments.context else []
    names += ["--context-file", str(file.absolute())] if file is not None else []
    return run(context, context_arguments=names)


def run(context: Context, where: Paths | None = None, *, context_arguments: Sequence[str] = ()) -> int:
    """Runs the console on a context until the operator leaves.

    Raises:
        OperatorError: Standard input or the screen is no terminal.
    """
    if not sys.stdin.isatty() or not (sys.stderr.isatty() or sys.stdout.isatty()):
        raise OperatorError(
            "The console needs a terminal, and this is none.",
            "In a pipe or a script use `slicetower fleet --once` or `slicetower qr list --format json`.",
        )
    # Whatever is made until the first frame stays; the console lets collections begin after it.
    gc.disable()
    try:
        from tui.app import open_console

        code = open_console(context, where or paths(), context_arguments)
    finally:
        gc.enable()
    return ExitCode.OK if code is None else code
