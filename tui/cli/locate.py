"""`slicetower locate`: where this program keeps its own."""

from __future__ import annotations

import argparse

from backend.outcomes import ExitCode
from backend.own_places import own_places
from backend.paths import paths
from tui.cli.output import add_format, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Where configuration, themes, journal, runs and the console's log are. Makes nothing."
    add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    places = own_places(paths(create=False))
    if arguments.format == "json":
        print_json({name: {"path": str(path), "exists": path.exists()} for name, path in places.items()})
    else:
        rows = [[name, str(path), "" if path.exists() else "not made yet"] for name, path in places.items()]
        print_table(["WHAT", "PATH", "STATE"], rows)
    return ExitCode.OK
