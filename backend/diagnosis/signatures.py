"""What a log line means: known failures matched against the data in signatures.toml, and who is to blame.

When one worker of a gang dies, it prints nothing and its siblings shout: their lines are symptoms. The culprit is the first
that ended, or the task that the survivors name (research: field notes, section 0, facts 8 and 9).
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from backend.sanitize import plain


@dataclass(frozen=True, slots=True)
class Signature:
    """One known failure."""

    id: str
    pattern: re.Pattern[bytes]
    meaning: str
    cure: str
    hints: tuple[bytes, ...]
    """Every line that matches holds one of them."""
    symptom: bool = False
    """Printed by survivors; explains nothing while a cause is known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A signature that matched."""

    id: str
    meaning: str
    cure: str
    symptom: bool
    line: str
    """The line that matched, safe to show."""


@cache
def catalogue() -> tuple[Signature, ...]:
    """All signatures, causes before symptoms as in the file."""
    data = tomllib.loads(resources.files("backend.diagnosis").joinpath("signatures.toml").read_text("utf-8"))
    return tuple(
        Signature(
            id=item["id"],
            pattern=re.compile(item["pattern"].encode()),
            meaning=item["meaning"],
            cure=item["cure"],
            hints=tuple(hint.encode() for hint in item["hints"]),
            symptom=item.get("symptom", False),
        )
        for item in data["signature"]
    )


class _Words(string.Formatter):
    """Fills {name} with what the line said, and with nothing where it said nothing."""

    def get_value(self, key: int | str, args: object, kwargs: object) -> str:
        value = kwargs.get(key) if isinstance(kwargs, dict) else None
        return value if isinstance(value, str) else "?"


@cache
def _hints() -> tuple[bytes, ...]:
    return tuple(sorted({hint for each in catalogue() for hint in each.hints}))


def may_match(data: bytes) -> bool:
    """False when certainly no signature matches in it: ten times cheaper than to search, and true of nearly every log."""
    return any(hint in data for hint in _hints())


def match_line(line: bytes) -> Finding | None:
    """The first signature that the line carries; causes are looked for before symptoms."""
    for signature in _possible(line):
        match = signature.pattern.search(line)
        if match is not None:
            return _finding(signature, match, line)
    return None


def _possible(data: bytes) -> list[Signature]:
    return [each for each in catalogue() if any(hint in data for hint in each.hints)]


def _finding(signature: Signature, match: re.Match[bytes], line: bytes) -> Finding:
    words = {name: plain(value) for name, value in match.groupdict().items() if value is not None}
    meaning = _Words().vformat(signature.meaning, (), words)
    return Finding(signature.id, meaning, signature.cure, signature.symptom, plain(line))


def findings_in(data: bytes) -> Iterator[tuple[int, Finding]]:
    """Each line that carries a signature, by its number in the data, from 0."""
    if not may_match(data):
        return
    possible = _possible(data)
    for number, line in enumerate(data.split(b"\n")):
        for signature in possible:
            match = signature.pattern.search(line)
            if match is not None:
                yield number, _finding(signature, match, line)
                break


def scan(data: bytes) -> tuple[Finding, ...]:
    """All findings in a piece of log, each signature once, causes first and in the order in which they appear."""
    found: dict[str, Finding] = {}
    for _, finding in findings_in(data):
        found.setdefault(finding.id, finding)
    return tuple(sorted(found.values(), key=lambda each: each.symptom))


_BLAMED_HEAD = re.compile(rb"tasks are unhealthy|[Tt]imed out task names|The following tasks|missing tasks")
_TASK_NAME = re.compile(rb"task:(\d+)")
_NUMBERS = re.compile(rb"(?<![\w./:])(\d+)(?![\w./:])")


def blamed_tasks(data: bytes) -> tuple[int, ...]:
    """Process numbers that the coordination service names as missing or unhealthy, in numeric order.

    They stand after the words, on the same line (`heartbeats): 2`) or on the ones below (`/job:jax_worker/.../task:3`).
    """
    lines = data.split(b"\n")
    tasks: set[int] = set()
    for number, line in enumerate(lines):
        head = _BLAMED_HEAD.search(line)
        if head is None:
            continue
        rest = line[head.end() :]
        rest = rest.split(b":", 1)[1] if b":" in rest else b""
        named = {int(each) for each in _TASK_NAME.findall(b":" + rest)}
        if not named:
            named = {int(each) for each in _NUMBERS.findall(rest)}
        for below in lines[number + 1 : number + 9]:
            of_line = {int(each) for each in _TASK_NAME.findall(below)}
            if not of_line and not named and re.fullmatch(rb"\s*\d+(?:\s*,\s*\d+)*\s*", below):
                of_line = {int(each) for each in _NUMBERS.findall(below)}
            if not of_line:
                break
            named |= of_line
        tasks |= named
    return tuple(sorted(tasks))


def cause(findings: Iterable[Finding]) -> Finding | None:
    """The finding to show: a cause if there is one, else the first symptom."""
    every = list(findings)
    return next((each for each in every if not each.symptom), every[0] if every else None)
