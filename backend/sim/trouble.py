"""Trouble on the way of a call: injected errors and slowness, by method, for a number of calls or a time."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from backend.sim.clock import Clock
from backend.sim.refusals import Code, Refusal

METHODS = (
    "ListQueuedResources",
    "GetQueuedResource",
    "CreateQueuedResource",
    "DeleteQueuedResource",
    "ResetQueuedResource",
    "PerformMaintenanceQueuedResource",
    "GetMaintenanceInfo",
    "ListNodes",
    "GetNode",
    "CreateNode",
    "DeleteNode",
    "StopNode",
    "StartNode",
    "UpdateNode",
    "PerformMaintenance",
    "SimulateMaintenanceEvent",
    "GetGuestAttributes",
    "ListAcceleratorTypes",
    "GetAcceleratorType",
    "ListRuntimeVersions",
    "GetRuntimeVersion",
    "ListReservations",
    "GenerateServiceIdentity",
    "ListLocations",
    "GetLocation",
    "GetOperation",
    "ListOperations",
    "CancelOperation",
    "DeleteOperation",
)
"""Every call of the service by its RPC's name (GetMaintenanceInfo exists over REST alone)."""


@dataclass
class Rule:
    """One fault. `method` is an RPC name or a pattern of one (`List*`); it holds while `left` and `until` allow."""

    method: str
    code: Code | None = None
    message: str = ""
    delay_s: float = 0.0
    left: int | None = None
    """Calls that it still applies to; None: any number."""
    until: float | None = None


class Trouble:
    """The rules that hold now. Delays are the clock's seconds: a client's time-out does not scale with our speed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rules: list[Rule] = []
        self._operations_until = 0.0
        self._operations_delay_s = 0.0
        self._held_until = 0.0
        self._hold_s = 0.0

    def add(self, rule: Rule) -> None:
        self.rules.append(rule)

    def clear(self) -> int:
        """Takes all of it away and returns how many rules there were."""
        count = len(self.rules)
        self.rules.clear()
        self._operations_until = self._held_until = 0.0
        return count

    def slow_operations(self, delay_s: float, until: float) -> None:
        """Operations end so much later than their work."""
        self._operations_delay_s, self._operations_until = delay_s, until

    def operation_delay(self) -> float:
        return self._operations_delay_s if self._clock.now() < self._operations_until else 0.0

    def hold_operations(self, delay_s: float, until: float) -> None:
        """Creates begin their work so much later."""
        self._hold_s, self._held_until = delay_s, until

    def operation_hold(self) -> float:
        return self._hold_s if self._clock.now() < self._held_until else 0.0

    def meet(self, method: str) -> tuple[float, Refusal | None]:
        """What a call meets: seconds to wait, and then an error or None. Uses up one of each rule that applies."""
        now = self._clock.now()
        self.rules = [rule for rule in self.rules if rule.left != 0 and (rule.until is None or now < rule.until)]
        delay_s, refusal = 0.0, None
        for rule in self.rules:
            if not fnmatchcase(method, rule.method):
                continue
            if rule.code is not None and refusal is not None:
                continue
            if rule.left is not None:
                rule.left -= 1
            delay_s += rule.delay_s
            if rule.code is not None:
                refusal = Refusal(rule.code, rule.message)
        return delay_s, refusal
