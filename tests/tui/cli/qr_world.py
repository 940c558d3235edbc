"""What tests of `slicetower qr` share: how it is run, and what was sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulator import Simulator

GOOD = ("--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite", "--zone=us-west4-a")

QUOTA = "Quota 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' exhausted. Limit 8 in zone us-west4-a"


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


def sent(run: Run, simulator: Simulator) -> tuple[Any, ...]:
    """What the service has been asked to do so far, and what it has: equal before and after means nothing was sent."""
    operations = [line["name"] for line in run(simulator, "operations", "list", "--format=json").lines]
    requests = [line["name"] for line in run(simulator, "qr", "list", "--format=json").lines]
    return operations, requests
