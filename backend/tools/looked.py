"""Everything that a look at workers told, and how the same sentence about many of them becomes one finding. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.sanitize import plain
from backend.tools.model import Finding, Severity

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the fleet says about one worker."""

    chips: int | None = None
    """Of this worker; None when the type is unknown."""
    slices: int = 1
    slice_index: int = 0
    boot_id: str = ""
    """At the last look; empty when there was none."""
    trouble: str = ""
    """What the cloud says against its node, in a few words; empty while it is READY and healthy."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Everything that is judged."""

    facts: Mapping[str, Facts]
    """By address, in order."""
    expected: Mapping[str, Expected] = field(default_factory=dict)
    sent_at: Mapping[str, float] = field(default_factory=dict)
    received_at: Mapping[str, float] = field(default_factory=dict)

    def of(self, address: str) -> Expected:
        return self.expected.get(address, Expected())

    def section(self, name: str) -> Iterator[tuple[str, Any]]:
        """(address, section) of each worker that told it."""
        for address, facts in self.facts.items():
            if facts.get(name) is not None:
                yield address, facts[name]


Said = Iterable[tuple[str, str]]
"""(address, sentence)"""


def grouped(check: str, severity: Severity, said: Said, cure: str = "") -> Iterator[Finding]:
    """The same sentence once, with all workers of which it is true."""
    places: dict[str, list[str]] = {}
    for address, what in said:
        places.setdefault(plain(what), []).append(address)
    for what, addresses in places.items():
        yield Finding(check, severity, tuple(addresses), what, cure)


def is_cpu(facts: Facts) -> bool:
    """The worker's own environment says that JAX runs on its CPU."""
    return ((facts.get("settings") or {}).get("jax_platforms") or "") == "cpu"
