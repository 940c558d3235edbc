"""What is said before a race that no process runs is taken up: what of it is there, and what will become of that."""

from __future__ import annotations

from backend.cloud.kept_races import EntryState, KeptRace, RaceEntry
from backend.model import Fleet, QueuedResourceState


def resume_lines(race: KeptRace, fleet: Fleet) -> list[str]:
    """One sentence for each entry, then what happens."""
    present = {item.key: item for item in fleet.queued_resources}
    states = {part.row: _state(part, getattr(present.get(part.request.key), "state", "")) for part in race.parts}
    lines = [f"{part.request.name} in {part.request.zone}: {states[part.row]}" for part in race.parts]
    key = race.winner_key
    if race.settling:
        kept = f"{key[2]} in {key[1]} won; the" if key is not None else "It was given up; the"
        return [*lines, f"{kept} others are cancelled."]
    ahead = [part for part in race.parts if states[part.row] == QueuedResourceState.ACTIVE]
    if ahead:
        first = ahead[0].request
        return [*lines, f"{first.name} in {first.zone} wins, being ACTIVE; the others are deleted."]
    return [
        *lines,
        "The first that is ACTIVE wins, the others are cancelled. What was asked for is not asked for twice.",
    ]


def _state(part: RaceEntry, state: str) -> str:
    match part.state:
        case EntryState.NOT_ASKED:
            return "not asked for yet: it is now"
        case EntryState.REFUSED | EntryState.GONE:
            return f"out of it: {part.text or part.state.value}"
        case EntryState.ASKED:
            return state or "asked for, and no answer was heard: asked again by the same request id"
        case _:
            return state or "made, and not listed now"
