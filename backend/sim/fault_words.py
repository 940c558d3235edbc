"""A fault written as words, as `sim inject` and the console's `:inject` take it: `preempt train-a --notice 5`."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from backend.outcomes import OperatorError
from backend.sanitize import plain
from backend.sim.faults import FAULTS, Argument, Fault


def add_arguments(parser: argparse.ArgumentParser, fault: Fault) -> None:
    """The arguments of one fault."""
    for argument in fault.arguments:
        if argument.kind is bool:
            parser.add_argument(argument.name, action="store_true", help=argument.help)
        else:
            parser.add_argument(argument.name, type=argument.kind, default=argument.default, help=argument.help)


def values_of(fault: Fault, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the simulator is sent, out of parsed arguments."""
    return {name: getattr(arguments, name) for name in map(_key, fault.arguments)}


def _key(argument: Argument) -> str:
    return argument.name.lstrip("-").replace("-", "_")


def usage(fault: Fault) -> str:
    """`preempt TARGET [--notice NOTICE]`."""
    words = [fault.name]
    for argument in fault.arguments:
        name = _key(argument).upper()
        if argument.name.startswith("-"):
            words.append(f"[{argument.name}]" if argument.kind is bool else f"[{argument.name} {name}]")
        else:
            words.append(name)
    return " ".join(words)


def explained(fault: Fault) -> list[str]:
    """What each argument means, a line each."""
    return [
        f"{argument.name.upper() if argument.name[0] != '-' else argument.name}: {argument.help}"
        for argument in fault.arguments
    ]


def options() -> dict[str, tuple[str, ...]]:
    """Name of a fault -> its options, for completion."""
    return {
        fault.name: tuple(argument.name for argument in fault.arguments if argument.name.startswith("-"))
        for fault in FAULTS.values()
    }


def find(name: str) -> Fault:
    """A fault by its name.

    Raises:
        OperatorError: There is none; it names the near ones.
    """
    fault = FAULTS.get(name)
    if fault is None:
        near = difflib.get_close_matches(name, FAULTS, n=3, cutoff=0.5) or list(FAULTS)
        raise OperatorError(f"There is no fault '{plain(name)}'.", f"Near: {', '.join(near)}.")
    return fault


def read(words: Sequence[str]) -> tuple[Fault, Mapping[str, Any]]:
    """A fault and its values.

    Raises:
        OperatorError: There is no such fault, or its arguments are not understood. Nothing was sent.
    """
    name, *rest = words
    fault = find(name)

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise OperatorError(f"{fault.name}: {plain(message)}.", f"Write {usage(fault)}.")

    parser = Parser(prog=fault.name, add_help=False, allow_abbrev=False)
    add_arguments(parser, fault)
    return fault, values_of(fault, parser.parse_args(rest))
