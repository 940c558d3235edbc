"""The header line: where we are, whether we may change anything, how fresh it is, and what still costs."""

from __future__ import annotations

from dataclasses import dataclass

from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """Everything the header says."""

    context: str
    project: str = ""
    zones: tuple[str, ...] = ()
    label: str = ""
    """E.g. `simulated`."""
    read_only: bool = False
    api_age_s: float | None = None
    """Seconds since the last good poll of the zone that is worst off; None before the first."""
    api_error: str = ""
    """Short, e.g. `us-east5-a: no answer`; empty while all is well."""
    ssh_connected: int = 0
    ssh_total: int = 0
    active_chips: int = 0
    waiting_chips: int = 0
    dead_chips: int = 0
    """Held by FAILED and SUSPENDED requests."""
    notes: tuple[str, ...] = ()
    """Further words of alarm, e.g. `2 deletes pending`."""


class StatusHeader(Widget):
    """One line; what matters least is dropped first when it is narrow."""

    def set_facts(self, facts: HeaderFacts) -> None:
        raise NotImplementedError
