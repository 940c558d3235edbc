"""Chips that requests hold, by place, generation and kind of quota, and the limits that errors or the operator have told.

The API tells no quota. What is known is what each request holds (a dead one too), what the configuration says, and the
number in the last error of that quota, which is kept and labelled as such: it may have been raised since, and v2 to v4
quotas may count cores.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from backend.cloud.requests import CreateRequest, Problem, accelerator_of
from backend.journal import Journal
from backend.model import DEAD_STATES, QueuedResource, QueuedResourceState, Tier
from jobs import accelerators

_STEPS = (
    """
    CREATE TABLE limits (
        project TEXT NOT NULL,
        quota TEXT NOT NULL,
        place TEXT NOT NULL,
        value REAL NOT NULL,
        learned_at REAL NOT NULL,
        PRIMARY KEY (project, quota, place)
    );
    """,
)
_QUOTA = re.compile(r"'(TPU\w+ForTPUAPI)'")
_LIMIT = re.compile(r"[Ll]imit:?\s+(\d+(?:\.\d+)?)\s+in\s+(?:region|zone)\s+([a-z0-9-]+)")
_NAME = re.compile(r"TPU(V5sLitepod|V5P|V6E|V\d)s?(?=[A-Z])")
_GENERATION = {"V5sLitepod": "v5e", "V5P": "v5p", "V6E": "v6e", "V2": "v2", "V3": "v3", "V4": "v4"}


@dataclass(frozen=True, slots=True)
class Held:
    """Chips of one kind in one place."""

    active: int = 0
    coming: int = 0
    """Waiting, provisioning, or on the way out."""
    dead: int = 0
    """FAILED and SUSPENDED: they hold quota and do nothing."""

    @property
    def total(self) -> int:
        return self.active + self.coming + self.dead


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit as an error told it."""

    quota: str
    place: str
    """A zone or a region."""
    value: float
    learned_at: datetime | None
    """None: the configuration says it."""

    @property
    def words(self) -> str:
        """Number and source: `64 (by an error of 2026-11-30)`."""
        source = "your configuration" if self.learned_at is None else f"an error of {self.learned_at:%Y-%m-%d}"
        return f"{self.value:g} (by {source})"

    @property
    def generation(self) -> str:
        """`v5e`, or empty where the quota's name does not tell."""
        if self.learned_at is None:
            return self.quota.partition(" ")[0]
        name = re.sub(r"(Preemptible|Reserved)", "", self.quota)
        found = _NAME.match(name)
        return _GENERATION.get(found[1], "") if found else ""

    @property
    def kind(self) -> str:
        """spot, reserved or on-demand, as the quota's name says."""
        if self.learned_at is None:
            return self.quota.partition(" ")[2]
        if "Preemptible" in self.quota:
            return "spot"
        return "reserved" if "Reserved" in self.quota else "on-demand"

    @property
    def serving(self) -> bool:
        return "Serving" in self.quota

    def covers(self, zone: str) -> bool:
        return not self.place or zone == self.place or zone.startswith(f"{self.place}-")


def kind_of(tier: Tier) -> str:
    """Which of the three quotas of a generation a tier counts against."""
    if tier in (Tier.SPOT, Tier.BEST_EFFORT, Tier.FLEX_START):
        return "spot"
    return "reserved" if tier is Tier.RESERVED else "on-demand"


def held(items: Iterable[QueuedResource]) -> dict[tuple[str, str, str, str], Held]:
    """(project, zone, generation, kind) -> chips that requests hold there."""
    out: dict[tuple[str, str, str, str], Held] = {}
    for item in items:
        known = accelerators.find(item.accelerator_type)
        if known is None:
            continue
        key = (item.project, item.zone, known.generation.name, kind_of(item.tier))
        before, chips = out.get(key, Held()), item.chips
        if item.state in DEAD_STATES:
            out[key] = replace(before, dead=before.dead + chips)
        elif item.state == QueuedResourceState.ACTIVE:
            out[key] = replace(before, active=before.active + chips)
        else:
            out[key] = replace(before, coming=before.coming + chips)
    return out


def parse_limit(message: str, at: datetime) -> Limit | None:
    """The quota, limit and place of an error text; None where it tells none."""
    quota, limit = _QUOTA.search(message), _LIMIT.search(message)
    if quota is None or limit is None:
        return None
    return Limit(quota[1], limit[2], float(limit[1]), at)


class LimitStore:
    """The journal's table of limits that were told."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        journal.migrate("limits", _STEPS)
        self._journal = journal
        self._clock = clock

    def learn(self, project: str, message: str) -> Limit | None:
        """Keeps the limit that an error tells, if it tells one."""
        now = self._clock()
        found = parse_limit(message, datetime.fromtimestamp(now, UTC))
        if found is not None:
            with self._journal.transaction() as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?, ?)",
                    (project, found.quota, found.place, found.value, now),
                )
        return found

    def known(self, project: str) -> list[Limit]:
        """Every limit that was told for a project."""
        rows = self._journal.rows(
            "SELECT quota, place, value, learned_at FROM limits WHERE project = ? ORDER BY quota, place", (project,)
        )
        return [Limit(quota, place, value, datetime.fromtimestamp(at, UTC)) for quota, place, value, at in rows]


def configured(limits: Iterable[tuple[str, str, float]]) -> list[Limit]:
    """`Context.limits`, which hold for each zone."""
    return [Limit(f"{generation} {kind}", "", chips, None) for generation, kind, chips in limits]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a request would add to its quota in its zone."""

    generation: str
    kind: str
    zone: str
    has: Held
    asked: int
    limits: tuple[Limit, ...]
    """Those that are known to count: none where nothing told one."""

    @property
    def sentence(self) -> str:
        """Always worth saying before sending; what is not known is said to be so."""
        known = ", ".join(f"{limit.words}" for limit in self.limits)
        told = f"limit last told: {known}" if known else "no limit is known"
        return (
            f"{self.generation} {self.kind} in {self.zone}: {self.has.total} chips held{_of_dead(self.has)}, "
            f"{self.asked} more asked for; {told}"
        )


def standing(request: CreateRequest, existing: Iterable[QueuedResource], limits: Iterable[Limit]) -> Standing | None:
    """Where a request stands before it is sent; None where its chips are not known."""
    known = accelerator_of(request)
    if known is None or not request.zone:
        return None
    generation, kind = known.generation.name, kind_of(request.tier)
    has = held(existing).get((request.project, request.zone, generation, kind), Held())
    counting = tuple(
        limit
        for limit in limits
        if limit.generation == generation and limit.kind == kind and not limit.serving and limit.covers(request.zone)
    )
    return Standing(generation, kind, request.zone, has, known.chips * request.node_count, counting)


def warn_of_limit(
    request: CreateRequest, existing: Iterable[QueuedResource], limits: Iterable[Limit]
) -> list[Problem]:
    """A caution where the request would go beyond a limit that was told."""
    found = standing(request, existing, limits)
    if found is None:
        return []
    return [
        Problem(
            "accelerator_type",
            f"{found.generation} {found.kind} in {limit.place or found.zone}: {found.has.total} chips "
            f"held{_of_dead(found.has)}, {found.asked} more asked for; the last limit told was {limit.words}.",
            "It may have been raised since. Dead requests count: `slicetower qr cleanup`.",
        )
        for limit in found.limits
        if found.has.total + found.asked > limit.value
    ]


def _of_dead(has: Held) -> str:
    return f" ({has.dead} by dead requests)" if has.dead else ""
