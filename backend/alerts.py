"""Alert rules of the operator: `[alerts]` of the configuration, told as every other notice (see backend.notifications).

`states` and `wait_min` are about requests, and stand for `states` and `waiting_minutes` of `[notifications]`. `silence_s` is
about runs: a worker whose program runs and prints nothing for so long is told once, until it prints again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from backend.notifications import Notice, NotificationSettings, Rules
from backend.paths import paths
from backend.runs.fanout import Phase
from backend.runs.live import Run
from backend.runs.model import RunState
from backend.sanitize import plain
from backend.settings import Table, read_toml
from backend.targets import fold

_KEYS = ("silence_s", "wait_min", "states")
_INSTEAD = {"wait_min": "waiting_minutes", "states": "states"}


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The table `[alerts]`; None and 0 where it does not say."""

    silence_s: float = 0.0
    """0: silence is not told."""
    wait_min: int | None = None
    states: tuple[str, ...] | None = None

    def over(self, settings: NotificationSettings) -> NotificationSettings:
        """The settings of the notifications with what the alerts say instead."""
        if self.states is not None:
            settings = replace(settings, states=self.states)
        return settings if self.wait_min is None else replace(settings, waiting_minutes=self.wait_min)


def load_alerts(config: Path | None = None) -> AlertSettings:
    """The alerts, or none where the configuration has none.

    Raises:
        OperatorError: a mistake in the table, with file, line, key, reason and cure.
    """
    config = config or paths(create=False).config
    if not config.exists():
        return AlertSettings()
    document = read_toml(config)
    table = document.table("alerts")
    table.only(_KEYS)
    for key, other in _INSTEAD.items():
        if key in table.data and other in document.table("notifications").data:
            raise table.problem(key, f"is given, and {other} in [notifications] too.", "Keep one of the two.")
    return AlertSettings(
        silence_s=table.get_number("silence_s") if "silence_s" in table.data else 0.0,
        wait_min=table.get_int("wait_min", 0, least=0, most=1_000_000) if "wait_min" in table.data else None,
        states=_states(table) if "states" in table.data else None,
    )


def _states(table: Table) -> tuple[str, ...]:
    found = table.get_texts("states")
    for state in found:
        if state not in Rules.STATES:
            raise table.problem("states", f"'{state}' is not a state.", f"States: {', '.join(Rules.STATES)}.")
    return found


@dataclass(slots=True)
class SilenceRule:
    """Tells workers that run and print nothing; each once, until it prints again."""

    silence_s: float
    _told: set[tuple[str, str]] = field(default_factory=set)

    def notices(self, runs: Iterable[Run], now: datetime) -> list[Notice]:
        """One notice a run with workers that have newly fallen silent."""
        found = []
        for run in runs:
            silent = self._silent(run, now.timestamp()) if run.state is RunState.RUNNING else set()
            known = {address for run_id, address in self._told if run_id == run.id}
            self._told -= {(run.id, address) for address in known - silent}
            fresh = silent - known
            if fresh:
                self._told |= {(run.id, address) for address in fresh}
                found.append(self._notice(run, fresh, len(silent), now))
        return found

    def _silent(self, run: Run, now: float) -> set[str]:
        silent = set()
        for result in run.results:
            if result.ended or result.phase is not Phase.RUNNING or result.started_at is None:
                continue
            log = run.logs.get(result.worker.address)
            last = max(result.started_at.timestamp(), log.last_at if log is not None else 0.0)
            if now - last >= self.silence_s:
                silent.add(result.worker.address)
        return silent

    def _notice(self, run: Run, fresh: set[str], count: int, now: datetime) -> Notice:
        name = run.request.title or run.id
        first = run.workers[0]
        text = (
            f"{name}: no output for {self.silence_s:.0f} s from {count} of {len(run.workers)} workers: {fold(fresh)}"
        )
        return Notice(now, run.id, plain(text, limit=400), True, first.project, first.zone)
