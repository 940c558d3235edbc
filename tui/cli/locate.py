"""`slicetower locate`: where this program keeps its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from backend.context import paths
from backend.outcomes import ExitCode
from tui.cli.output import add_format, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Where configuration, themes, journal, runs and the console's log are. Makes nothing."
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    found = paths(create=False)
    places: dict[str, Path] = {
        "config": found.config,
        "themes": found.themes_dir,
        "journal": found.journal,
        "runs": found.runs_dir,
        "console_log": found.console_log,
    }
    if arguments.format == "json":
        print_json({name: {"path": str(path), "exists": path.exists()} for name, path in places.items()})
    else:
        rows = [[name, str(path), "" if path.exists() else "not made yet"] for name, path in places.items()]
        print_table(["WHAT", "PATH", "STATE"], rows)
    return ExitCode.OK
