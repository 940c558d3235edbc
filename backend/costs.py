"""What requests have cost so far, by the states that the journal saw: chip-hours always, money where a price is given.

Chips count while their request is ACTIVE. What nobody watched is not invented: such figures are lower bounds, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.journal import Journal
from backend.model import QueuedResource, QueuedResourceState, Slice
from backend.stays import SeenRequest, StateSpan
from jobs import accelerators

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request, from its creation until now."""

    chip_hours: float
    is_lower_bound: bool
    usd: float | None = None
    """None without a price for its generation."""
    usd_per_hour: float | None = None
    """At present; 0 while it is not ACTIVE."""
    running_chips: int = 0
    """What counts now: so many chip-hours more with every hour."""

    @property
    def bound(self) -> str:
        return ">= " if self.is_lower_bound else ""


@dataclass(frozen=True, slots=True)
class Total:
    """Of several requests."""

    chip_hours: float = 0.0
    is_lower_bound: bool = False
    usd: float | None = None
    """Of those that have a price; None when none has."""
    unpriced_chip_hours: float = 0.0
    running_chips: int = 0
    """What counts now: so many chip-hours more with every hour."""
    usd_per_hour: float | None = None
    """Of what runs and has a price; None when no request has one."""

    @property
    def usd_bound(self) -> str:
        """What has no price is money that the sum lacks."""
        return ">= " if self.is_lower_bound or self.unpriced_chip_hours else ""

    @property
    def sentence(self) -> str:
        """`>= 12.5 chip-hours so far, >= 15.00 USD by your prices`."""
        bound = ">= " if self.is_lower_bound else ""
        words = f"{bound}{self.chip_hours:,.1f} chip-hours so far"
        if self.usd is None:
            return words
        return f"{words}, {self.usd_bound}{self.usd:,.2f} USD by your prices"


def cost(
    item: QueuedResource,
    spans: Sequence[StateSpan],
    now: datetime,
    price: Callable[[str], float | None] = lambda _generation: None,
) -> Cost | None:
    """What one request has cost; None where the catalogue does not know its chips.

    Args:
        item: The request as it is now.
        spans: Its states in order, as `Journal.timeline` has them.
        now: Until when the present state counts.
        price: USD per chip-hour by generation ("v5e").
    """
    found = accelerators.find(item.accelerator_type)
    if not item.chips:
        return None
    active = [span for span in spans if span.state == QueuedResourceState.ACTIVE]
    hours = sum(span.seconds(now) for span in active) / 3600
    unseen = not spans or spans[0].entered_is_lower_bound or any(span.entered_is_lower_bound for span in active)
    # Slices that are up under a request that is not ACTIVE cost too, and no span says for how long.
    hidden = item.state != QueuedResourceState.ACTIVE and any(each.ready for each in item.slices)
    rate = price(found.generation.name) if found is not None else None
    running = item.chips if item.state == QueuedResourceState.ACTIVE else 0
    return Cost(
        chip_hours=hours * item.chips,
        is_lower_bound=unseen or hidden,
        usd=None if rate is None else hours * item.chips * rate,
        usd_per_hour=None if rate is None else running * rate,
        running_chips=running,
    )


def costs(
    items: Iterable[QueuedResource],
    timeline: Callable[[Key], Sequence[StateSpan]],
    now: datetime,
    price: Callable[[str], float | None] = lambda _generation: None,
) -> dict[Key, Cost]:
    """By `QueuedResource.key`; requests whose chips are not known are left out.

    Args:
        items: Requests as they are now.
        timeline: `Journal.timeline`.
        now: Until when present states count.
        price: `Context.price`.
    """
    found = {item.key: cost(item, timeline(item.key), now, price) for item in items}
    return {key: each for key, each in found.items() if each is not None}


def cost_seen(
    seen: SeenRequest,
    since: datetime,
    now: datetime,
    price: Callable[[str], float | None] = lambda _generation: None,
) -> Cost | None:
    """What a request, that may be gone, has cost after a moment; None where its chips were never written down.

    Args:
        seen: As `Journal.requests_seen` has it.
        since: What was before is left out.
        now: Until when a present state counts.
        price: USD per chip-hour by generation ("v5e").
    """
    if not seen.chips:
        return None
    seconds = 0.0
    active = [span for span in seen.spans if span.state == QueuedResourceState.ACTIVE]
    for span in active:
        begun = max(span.entered_at, since)
        seconds += max(((span.left_at or now) - begun).total_seconds(), 0.0)
    unseen = [seen.spans[0], *active]
    found = accelerators.find(seen.accelerator_type)
    rate = price(found.generation.name) if found is not None else None
    hours = seconds / 3600
    now_active = seen.exists and seen.spans[-1].state == QueuedResourceState.ACTIVE
    running = seen.chips if now_active else 0
    return Cost(
        chip_hours=hours * seen.chips,
        is_lower_bound=any(span.entered_is_lower_bound and span.entered_at > since for span in unseen),
        usd=None if rate is None else hours * seen.chips * rate,
        usd_per_hour=None if rate is None else running * rate,
        running_chips=running,
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """A request that was seen, and what it cost in the time that is asked about."""

    seen: SeenRequest
    cost: Cost | None
    """None where its chips were never written down."""

    @property
    def key(self) -> tuple[str, str, str, float]:
        """A name that was used again is another request."""
        made = self.seen.created_at
        return (self.seen.project, self.seen.zone, self.seen.name, made.timestamp() if made is not None else 0.0)

    @property
    def generation(self) -> str:
        """`v5e`; `unknown` for a type that the catalogue lacks."""
        found = accelerators.find(self.seen.accelerator_type)
        return found.generation.name if found is not None else "unknown"


def spent_since(
    seen: Iterable[SeenRequest],
    since: datetime,
    now: datetime,
    price: Callable[[str], float | None] = lambda _generation: None,
) -> list[Spent]:
    """What each request cost after a moment, in the order in which they were asked for."""
    found = [Spent(item, cost_seen(item, since, now, price)) for item in seen]
    return sorted(found, key=lambda each: (each.seen.created_at or now, each.seen.name))


def spent_in(
    journal: Journal,
    places: Collection[tuple[str, str]],
    since: datetime,
    now: datetime,
    price: Callable[[str], float | None] = lambda _generation: None,
) -> list[Spent]:
    """What was seen in some (project, zone) after a moment, also what is gone. Reads the journal: for any thread.

    Raises:
        OperatorError: The journal can't be read.
    """
    seen = [item for item in journal.requests_seen(since) if (item.project, item.zone) in places]
    return spent_since(seen, since, now, price)


@dataclass(frozen=True, slots=True)
class Share:
    """What requests of one kind cost together."""

    kind: str
    """By what they are told apart: generation, tier or zone."""
    name: str
    requests: int
    unknown: int
    """Of these, so many whose chips were never written down: they are in no sum."""
    total: Total


KINDS: dict[str, Callable[[Spent], str]] = {
    "generation": lambda each: each.generation,
    "tier": lambda each: each.seen.tier or "unknown",
    "zone": lambda each: each.seen.zone,
}
"""By what costs are added up."""


def shares(spent: Iterable[Spent], kind: str) -> list[Share]:
    """What each generation, tier or zone cost, the dearest first."""
    groups: dict[str, list[Spent]] = {}
    for each in spent:
        groups.setdefault(KINDS[kind](each), []).append(each)
    found = [
        Share(
            kind,
            name,
            len(members),
            sum(each.cost is None for each in members),
            total(each.cost for each in members if each.cost is not None),
        )
        for name, members in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.total.chip_hours, each.name))


def at_most(item: Slice, since: datetime, now: datetime) -> float | None:
    """Chip-hours of a TPU VM that stands alone, at most: it may have been stopped since it was made, and nobody wrote that down.

    None where its chips or its creation are not known.
    """
    found = accelerators.find(item.accelerator_type)
    if found is None or item.created_at is None:
        return None
    return found.chips * max((now - max(item.created_at, since)).total_seconds(), 0.0) / 3600


def total(parts: Iterable[Cost]) -> Total:
    every = list(parts)
    priced = [each.usd for each in every if each.usd is not None]
    rates = [each.usd_per_hour for each in every if each.usd_per_hour is not None]
    return Total(
        chip_hours=sum(each.chip_hours for each in every),
        is_lower_bound=any(each.is_lower_bound for each in every),
        usd=sum(priced) if priced else None,
        unpriced_chip_hours=sum(each.chip_hours for each in every if each.usd is None),
        running_chips=sum(each.running_chips for each in every),
        usd_per_hour=sum(rates) if rates else None,
    )
