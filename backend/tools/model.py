"""What a look at workers found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.targets import fold


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARN = "warn"
    """Worth knowing before a launch; it may go well."""
    FAIL = "fail"
    """A launch would go wrong, or already has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, on the workers where it is the same."""

    check: str
    """What was looked at: devices, versions, holders, ..."""
    severity: Severity
    workers: tuple[str, ...]
    """Addresses."""
    what: str
    """One sentence, safe to show."""
    cure: str = ""

    @property
    def where(self) -> str:
        """The addresses in short."""
        return fold(self.workers) if self.workers else ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A look at several workers."""

    findings: tuple[Finding, ...]
    """The worst first."""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By address: what the probe said (see jobs/programs/check.py)."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """By address: why there is no answer."""

    @property
    def severity(self) -> Severity:
        """The worst of all."""
        found = {finding.severity for finding in self.findings}
        return next((each for each in (Severity.FAIL, Severity.WARN) if each in found), Severity.OK)
