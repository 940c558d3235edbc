"""When a slice's maintenance may be started by hand, by the service's rules (documentation of Cloud TPU maintenance events).

Only a PENDING one that says canReschedule, and only on v4 and v5p, or on v5e and v6e of 2x4 or larger. It begins at once;
a large slice may be gone for hours.
"""

from __future__ import annotations

from backend.model import NodeState, Slice
from jobs import accelerators

ANY_SIZE = frozenset({"v4", "v5p"})
FROM_2X4 = frozenset({"v5e", "v6e"})
LEAST_CHIPS = 8
"""2x4."""
PENDING = "PENDING"


def why_not(item: Slice) -> str:
    """Why the maintenance of a slice can't be started by hand now; empty when it can, as far as can be known here."""
    found = item.maintenance
    if found is None:
        return f"no maintenance of {item.node_id} is announced"
    if found.status != PENDING:
        return f"the maintenance of {item.node_id} is {found.status or 'in no known state'}, not PENDING"
    if not found.can_reschedule:
        return f"the API does not say can_reschedule for {item.node_id}"
    if item.state != NodeState.READY:
        return f"{item.node_id} is {item.state}, not READY"
    accelerator = accelerators.find(item.accelerator_type)
    if accelerator is None:
        return ""
    kind = accelerator.generation.name
    if kind in ANY_SIZE or (kind in FROM_2X4 and accelerator.chips >= LEAST_CHIPS):
        return ""
    if kind in FROM_2X4:
        return (
            f"{item.accelerator_type} has {accelerator.chips} chips, and {kind} may be started from 2x4 (8 chips) on"
        )
    return f"the API starts it by hand on v4, v5p, v5e and v6e, not on {kind}"
