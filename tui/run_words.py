"""`:run TARGET... [OPTIONS] [-- COMMAND]`: the options of `slicetower run`, as fields of its form. Pure, no widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.outcomes import OperatorError

ON = "yes"
"""The text of a field that is set."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option, with the field of the run form that it fills."""

    name: str
    field: str
    value: str = ""
    """What follows it; empty: nothing does, it sets its field."""
    help: str = ""
    values: tuple[str, ...] = ()
    """All that may follow."""

    @property
    def shown(self) -> str:
        return f"{self.name} {self.value}".strip()


OPTIONS = {
    option.name: option
    for option in (
        Option("--detach", "detach", help="start it, and leave it to its supervisor"),
        Option("--gang", "gang", help="its workers wait for each other"),
        Option("--batch-size", "batch", "N", "4, all, or 1,5,25%"),
        Option("--timeout", "timeout", "S", "on each worker: 90, 45m, 1h30m"),
        Option("--shell", "shell", help="one text for the worker's shell"),
        Option("--title", "title", "T", "a name for the run"),
        Option("--on-failure", "on_failure", "HOW", "stop or continue", ("stop", "continue")),
        Option("--max-failures", "max_failures", "N", "3 or 10%"),
        Option("--env", "environment", "K[=V]", "may be given again; K alone takes yours"),
        Option("--sync", "sync", "DIR", "a folder to ship, and to run in"),
        Option("--setup", "setup", "CMD", "once per content and boot, before"),
        Option("--force", "force", help="even what would be refused as a gang"),
    )
}
"""By name, the most used first."""


def read_options(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Targets, and the texts of the fields that options fill.

    Args:
        words: What stands between the word and `--`.

    Raises:
        OperatorError: There is no such option, its value is missing, or it takes none.
    """
    targets: list[str] = []
    texts: dict[str, str] = {}
    variables: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            targets.append(word)
            continue
        name, equals, value = word.partition("=")
        option = OPTIONS.get(name)
        if option is None:
            raise _unknown(name)
        if not option.value:
            if equals:
                raise _wrong(f"{name} takes no value.")
            value = ON
        elif not equals:
            if not left or left[0].startswith("--"):
                raise _wrong(f"{name} is followed by nothing.", f"Write {option.shown}: {option.help}.")
            value = left.pop(0)
        if option.values and value not in option.values:
            raise _wrong(f"{name} is not '{value}'.", f"Write {' or '.join(option.values)}.")
        if option.field == "environment":
            variables.append(value)
        else:
            texts[option.field] = value
    if variables:
        import shlex

        texts["environment"] = shlex.join(variables)
    return tuple(targets), texts


def _unknown(name: str) -> OperatorError:
    import difflib

    near = difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.5)
    offered = f"{near[0]} is near." if near else f"There are {', '.join(OPTIONS)}."
    return _wrong(f":run has no option '{name}'.", f"{offered} What each worker shall run stands after ` -- `.")


def _wrong(what: str, cure: str = "") -> OperatorError:
    return OperatorError(what, f"{cure} Your line is kept: `:` and up bring it back.".strip())


def usage_of(words: Sequence[str]) -> str:
    """Of the options whose beginning is typed last, or whose value is; empty while none is.

    Args:
        words: What stands behind the word so far; the last may be empty.
    """
    last, before = words[-1] if words else "", words[-2] if len(words) > 1 else ""
    option = OPTIONS.get(before)
    if option is not None and option.value:
        return f"{option.value}  {option.help}"
    name = last.partition("=")[0]
    if not name.startswith("-"):
        return ""
    found = [each for each in OPTIONS.values() if each.name.startswith(name)]
    if not found:
        return f"there is no option {name}"
    if len(found) == 1 or name in OPTIONS:
        only = OPTIONS.get(name, found[0])
        return f"{only.shown}  {only.help}"
    return " ".join(each.shown for each in found)
