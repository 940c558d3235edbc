"""Same output, said once: the results of a run grouped by what they printed and how they ended (as clush -b does)."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.outcomes import Outcome
from backend.sanitize import plain_text
from backend.targets import fold

OUTPUT_LIMIT = 64 * 1024
"""Bytes of one worker's output that are compared and shown, from its end; the file has it all."""

DIFF_LINES = 300
"""Longer outputs are not compared line by line: that may take the square of their lines."""
DIFF_GROUPS = 16
"""Of so many groups at most the differences are told; with more of them nothing is the rule any more."""

_NOISE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b|\b0x[0-9a-f]+\b|\b(?:pid[ =:]?)\d+\b",
    re.IGNORECASE,
)


def without_noise(text: str) -> str:
    """The text with time stamps, addresses and process numbers blanked, so that lines differing only in them compare equal."""
    return _NOISE.sub("~", text)


@dataclass(frozen=True, slots=True)
class WorkerOutput:
    """What one worker has to show."""

    address: str
    outcome: Outcome
    exit_code: int | None
    output: bytes


@dataclass(frozen=True, slots=True)
class OutputGroup:
    """Workers that ended alike and printed the same."""

    addresses: tuple[str, ...]
    outcome: Outcome
    exit_code: int | None
    text: str
    """Safe lines, at most `OUTPUT_LIMIT`."""
    digest: str

    @property
    def header(self) -> str:
        """`train-a/0-1/0-3 (8) ok`."""
        code = f" {self.exit_code}" if self.outcome is Outcome.FAILED and self.exit_code is not None else ""
        return f"{fold(self.addresses)} ({len(self.addresses)}) {self.outcome}{code}"


def group(outputs: Iterable[WorkerOutput], *, ignore_noise: bool = False) -> tuple[OutputGroup, ...]:
    """Groups by outcome, exit code and output: what failed first, then the larger groups first.

    Args:
        outputs: One entry a worker.
        ignore_noise: Compare without time stamps, hexadecimal addresses and pids.
    """
    members: dict[tuple[Outcome, int | None, str], list[WorkerOutput]] = {}
    for each in outputs:
        shown = each.output[-OUTPUT_LIMIT:]
        compared = without_noise(shown.decode("utf-8", "replace")).encode() if ignore_noise else shown
        digest = hashlib.sha256(compared).hexdigest()
        members.setdefault((each.outcome, each.exit_code, digest), []).append(each)
    groups = [
        OutputGroup(
            addresses=tuple(each.address for each in same),
            outcome=outcome,
            exit_code=exit_code,
            text=plain_text(same[0].output[-OUTPUT_LIMIT:]).rstrip("\n"),
            digest=digest,
        )
        for (outcome, exit_code, digest), same in members.items()
    ]
    return tuple(sorted(groups, key=lambda each: (each.outcome is Outcome.OK, -len(each.addresses), each.addresses)))


def difference(first: OutputGroup, other: OutputGroup) -> str:
    """A unified diff from the first group's output to the other's."""
    return "\n".join(
        difflib.unified_diff(
            first.text.split("\n"),
            other.text.split("\n"),
            fold(first.addresses),
            fold(other.addresses),
            lineterm="",
            n=1,
        )
    )


def reference(groups: Sequence[OutputGroup]) -> OutputGroup | None:
    """What is the rule: the output that most workers printed, of those that ended well where as many did."""
    told = (each for each in groups if each.text)
    return max(told, key=lambda each: (len(each.addresses), each.outcome is Outcome.OK), default=None)


def differences(groups: Sequence[OutputGroup]) -> dict[OutputGroup, tuple[str, ...]]:
    """What stands only in the rule (`-`) or only in a group (`+`), where telling it is shorter than the output itself."""
    rule = reference(groups)
    if rule is None or len(groups) > DIFF_GROUPS or rule.text.count("\n") >= DIFF_LINES:
        return {}
    found = {}
    for each in groups:
        size = each.text.count("\n") + 1
        if each is not rule and each.text and size <= DIFF_LINES:
            lines = tuple(difference(rule, each).split("\n")[2:])
            changed = sum(line[:1] in "+-" for line in lines)
            if lines and changed < size:
                found[each] = lines
    return found
