"""A pasted `gcloud compute tpus queued-resources create` command, read into a request. Nothing of it is executed."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from typing import NoReturn

from backend.cloud.gcloud_flags import add_create_flags, request_of
from backend.cloud.requests import CreateRequest
from backend.outcomes import OperatorError

PASTE_LIMIT = 1 << 20
"""Characters of a command that are looked at: more is no command."""

_IDENTITY_FLAGS = (
    "--account",
    "--impersonate-service-account",
    "--billing-project",
    "--access-token-file",
    "--configuration",
    "--trace-token",
    "--flags-file",
)
"""gcloud-wide flags that change who asks or what is asked: never dropped in silence, so refused."""
_VARIABLE = re.compile(r"\$(?:\{[^}]*\}|\w+|\(|[*@#?!-])|`")
_PLAIN_FLAGS = ("--async", "--quiet", "-q", "--no-async", "--log-http", "--no-user-output-enabled")
"""Flags that say how gcloud talks, not what is asked for."""
_PLAIN_OPTIONS = ("--format", "--verbosity", "--flatten", "--user-output-enabled")


class _Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are sentences, not exits."""

    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"The gcloud command cannot be read: {message}.", "Correct it and paste it again.")


def _words(text: str) -> list[str]:
    if len(text) > PASTE_LIMIT:
        raise OperatorError(f"A text of {len(text):,} characters is no gcloud command.", "Paste the command alone.")
    trimmed = re.sub(r"^\s*[$#>%]\s+", "", text.strip())
    trimmed = re.sub(r"\\[ \t]*\r?\n[ \t]*", " ", trimmed)
    try:
        return shlex.split(trimmed, comments=False)
    except ValueError as error:
        raise OperatorError(
            f"The gcloud command cannot be read: {str(error).lower()}.", "Look at its quotes and backslashes."
        ) from None


def _expansion(text: str) -> str:
    """The first thing that a shell would expand (outside single quotes, not escaped); empty where there is none."""
    index, in_single, in_double = 0, False, False
    while index < len(text):
        mark = text[index]
        if in_single:
            in_single = mark != "'"
        elif mark == "\\":
            index += 1
        elif mark == "'" and not in_double:
            in_single = True
        elif mark == '"':
            in_double = not in_double
        elif mark in "$`":
            found = _VARIABLE.match(text, index)
            if found:
                return found[0]
        index += 1
    return ""


def _after_group(words: list[str]) -> list[str]:
    """What follows `gcloud [alpha] compute tpus queued-resources create`."""
    path = [word for word in words[:8] if not word.startswith("-")]
    if not path or path[0].rpartition("/")[2] != "gcloud":
        first = path[0] if path else "nothing"
        raise OperatorError(
            f"That is no gcloud command: it begins with {first[:40]}.",
            "Paste one that begins with `gcloud compute tpus queued-resources create`.",
        )
    track = path[1] if len(path) > 1 and path[1] in ("alpha", "beta") else ""
    if track == "beta":
        raise OperatorError("gcloud beta has no queued-resources.", "Use `gcloud alpha` or `gcloud` itself.")
    wanted = ["compute", "tpus", "queued-resources", "create"]
    rest = list(words)
    expected = [rest[0], *([track] if track else []), *wanted]
    for word in expected:
        if not rest or rest[0] != word:
            found = rest[0] if rest else "nothing"
            raise OperatorError(
                f"Only queued-resources create can be pasted here; this one says '{found[:40]}' instead of '{word}'.",
                "For a TPU VM, rewrite it: `gcloud compute tpus queued-resources create ID --node-id=NAME ...`.",
            )
        rest.pop(0)
    return rest


def from_gcloud(text: str, *, project: str = "", zone: str = "") -> CreateRequest:
    """The request of a pasted create command, alpha or GA.

    Args:
        text: The command, perhaps over several lines with backslashes, perhaps with a prompt before it.
        project: Used where the command has no --project.
        zone: Used where it has no --zone.

    Raises:
        OperatorError: the text is no create command, has unexpanded variables, or a flag that does not exist; the
            sentence names it.
    """
    rest = _after_group(_words(text))
    expansion = _expansion(re.sub(r"^\s*\$\s+", "", text))
    if expansion:
        raise OperatorError(
            f"The command has {expansion}, which a shell would expand; nothing is expanded here.",
            "Write the value instead.",
        )
    for word in rest:
        name = word.partition("=")[0]
        if name in ("--metadata", "--description"):
            continue
        if word.startswith("[") or word.endswith("]"):
            raise OperatorError(
                f"'{word[:60]}' is a choice of the documentation, not a flag.",
                "Choose one and leave the brackets out.",
            )
        if name in _IDENTITY_FLAGS:
            raise OperatorError(
                f"{name} would change who asks, which a request cannot carry.",
                "Leave it out: the context decides about credentials.",
            )
    parser = _Parser(prog="gcloud", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("name", nargs="?", default="")
    add_create_flags(parser)
    for flag in _PLAIN_FLAGS:
        parser.add_argument(flag, action="store_true", dest="_plain")
    for flag in _PLAIN_OPTIONS:
        parser.add_argument(flag, dest="_plain_option")
    try:
        given, unknown = parser.parse_known_args(rest)
    except argparse.ArgumentError as error:
        flag = error.argument_name or "the command"
        raise OperatorError(f"{flag}: {error.message}.", "Correct it and paste it again.") from None
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, known, n=3)
        if name.startswith("-"):
            raise OperatorError(
                f"gcloud's create has no flag {name}.", f"Did you mean {' or '.join(near)}?" if near else ""
            )
        raise OperatorError(f"The command has one id too many: '{unknown[0]}'.", "Give one queued resource.")
    if not given.name:
        raise OperatorError("The command names no queued resource.", "Its id comes right after `create`.")
    name = given.name
    parts = name.split("/")
    if len(parts) == 6 and parts[0] == "projects" and parts[4] == "queuedResources":
        project, zone, name = parts[1], parts[3], parts[5]
    return request_of(given, name, project=project, zone=zone)
