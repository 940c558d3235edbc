"""Known failures in the logs of a run, told while it lives and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend.runs.live import Run
from backend.runs.sightings import Sighting
from backend.targets import fold
from tui.cli.session import say


class Warner:
    """Tells on stderr, while a run lives, what its logs say has failed, each failure once, and whom that speaks against."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told: set[str] = set()
        self._seen = 0
        self._suspicion = ""

    def pump(self) -> None:
        symptoms = self._run.symptoms
        for each in symptoms[self._seen :]:
            if each.finding.id not in self._told:
                self._told.add(each.finding.id)
                say(each.text)
        if len(symptoms) != self._seen:
            self._seen = len(symptoms)
            suspicion = self._run.suspicion
            if suspicion != self._suspicion and not any(each.text == suspicion for each in symptoms):
                say(suspicion)
            self._suspicion = suspicion


def symptoms_json(symptoms: Sequence[Sighting]) -> list[dict[str, Any]]:
    """What the logs of a run told of known failures: each once a worker; lines count from 1."""
    return [
        {
            "target": each.worker,
            "line": each.line + 1,
            "signature": each.finding.id,
            "meaning": each.finding.meaning,
            "cure": each.finding.cure,
            "follows": each.finding.symptom,
        }
        for each in symptoms
    ]


def symptom_lines(symptoms: Sequence[Sighting]) -> list[str]:
    """For people: each failure once, with the workers that tell it and where it was seen first."""
    groups: dict[str, list[Sighting]] = {}
    for each in symptoms:
        groups.setdefault(each.finding.id, []).append(each)
    lines = []
    for same in groups.values():
        first = same[0]
        where = fold(each.worker for each in same)
        line = f"line {first.line + 1}" if len(same) == 1 else f"first in {first.worker}, line {first.line + 1}"
        lines.append(f"seen      {where} ({line}): {first.finding.meaning}")
    return lines
