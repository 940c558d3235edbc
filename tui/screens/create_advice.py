"""What is known beside a create form: what the zone offers and holds reserved, limits, and how long others waited."""

from __future__ import annotations

from collections.abc import Sequence

from backend.cloud.cautions import warnings
from backend.cloud.requests import CreateRequest, Problem
from backend.cloud.usage import Limit, LimitStore, configured, standing, warn_of_limit
from backend.cloud.waits import Waits, statistics
from backend.cloud.waits import find as find_waits
from tui.console import Console
from tui.durations import format_duration
from tui.wording import count


class Advice:
    """Kept while the form is open."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.offered: dict[str, tuple[str, ...]] = {}
        """Accelerator types by zone."""
        self.reservations: dict[str, list[str]] = {}
        """Names by zone."""
        self.asked: set[str] = set()
        """Zones that are or were asked for both."""
        self._limits: list[Limit] = []
        self._waits: list[Waits] | None = None

    async def ask_types(self, zone: str) -> None:
        client = self._console.require_tower().client
        self.offered[zone] = tuple(await client.accelerator_types(self._console.context.project, zone))

    async def ask_reservations(self, zone: str) -> None:
        client = self._console.require_tower().client
        self.reservations[zone] = await client.reservations(self._console.context.project, zone)

    def about(self, request: CreateRequest) -> list[Problem]:
        """What should be thought over before it is sent."""
        existing = self._console.fleet.queued_resources
        found = warnings(request, existing=existing, zone_types=self.offered.get(request.zone))
        found += warn_of_limit(request, existing, self._limits)
        listed = self.reservations.get(request.zone)
        wanted = request.reservation.rpartition("/")[2]
        if wanted and not request.reservation_host and listed is not None and wanted not in listed:
            cure = f"It lists {', '.join(listed[:5])}." if listed else "It lists none."
            found.append(Problem("reservation", f"{request.zone} lists no reservation {wanted}.", cure))
        return found

    def standing(self, request: CreateRequest) -> str:
        """Chips held beside the limit that is known; empty where none is."""
        place = standing(request, self._console.fleet.queued_resources, self._limits)
        return place.sentence if place is not None else ""

    def lines(self, request: CreateRequest) -> list[str]:
        """Chips held and limits told, and how long such a request waited before; each with its source."""
        tower = self._console.tower
        if self._waits is None and tower is not None:
            self._limits = [*configured(tower.context.limits), *LimitStore(tower.journal).known(request.project)]
            self._waits = statistics(tower.journal.queue_waits())
        place = self.standing(request)
        lines = [place] if place else []
        waited = find_waits(
            self._waits or (), request.project, request.zone, request.accelerator_type, request.tier.value
        )
        if waited is not None:
            lines.append(
                f"waited for before, seen here: median {format_duration(waited.median_s)}, "
                f"{format_duration(waited.shortest_s)} to {format_duration(waited.longest_s)} ({count(waited.count, 'time')})"
            )
        return lines

    def known_types(self, zone: str) -> Sequence[str]:
        """Types that the zone is known to offer."""
        return self.offered.get(zone, ())
