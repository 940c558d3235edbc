"""Races in the journal: what each asked for and how far that came, who runs it, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

import msgspec

from backend.cloud.requests import CreateRequest
from backend.journal import Journal
from backend.outcomes import OperatorError

LEASE_S = 45.0
"""Without a sign of life for so long, the process that ran a policy is taken for gone."""
RACE_TIMEOUT_S = 3600.0
LEAST_LEFT_S = 60.0
"""Who takes a race up has at least so long to see whether something is ACTIVE already."""

RACE_STEPS = (
    """
    ALTER TABLE races ADD COLUMN ends_at REAL;
    ALTER TABLE races ADD COLUMN settling INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE race_entries ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE race_entries ADD COLUMN asked_at REAL;
    ALTER TABLE race_entries ADD COLUMN made_at REAL;
    ALTER TABLE race_entries ADD COLUMN text TEXT NOT NULL DEFAULT '';
    UPDATE race_entries SET outcome = 'asked' WHERE outcome = '';
    """,
)


class EntryState(StrEnum):
    """How far one request of a race came."""

    NOT_ASKED = ""
    ASKED = "asked"
    """Its create may have been sent; what came of it is not known."""
    MADE = "made"
    """The service has taken it."""
    REFUSED = "refused"
    """Nothing of it was made."""
    GONE = "gone"
    """It was made, and somebody else has deleted it since."""


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """One request of a race."""

    row: int
    """Its row in the journal."""
    request: CreateRequest
    request_id: str
    """Of its create: sent again, it is the same create."""
    state: EntryState = EntryState.NOT_ASKED
    asked_at: float | None = None
    """When its create was first about to be sent (seconds since 1970)."""
    made_at: float | None = None
    """Creation time by the service, once it was seen: tells it from a later one of its name."""
    text: str = ""
    """Why it is refused or gone."""

    @property
    def may_exist(self) -> bool:
        """It was made by this race, or may have been."""
        return self.state in (EntryState.ASKED, EntryState.MADE)


@dataclass(frozen=True, slots=True)
class LostRace:
    """A race whose process is gone: its entries may still wait, and would be zombies."""

    id: int
    entries: tuple[CreateRequest, ...]
    """Those that may have been made."""
    waits: bool = False
    """It waits on purpose for a process, undecided: its entries are wanted."""


@dataclass(frozen=True, slots=True)
class KeptRace:
    """A race that was begun, with what became of it."""

    id: int
    parts: tuple[RaceEntry, ...]
    running: bool
    """A process has told within its lease that it runs it."""
    winner: str = ""
    """PROJECT/ZONE/NAME; empty while there is none, or when it was given up."""
    settling: bool = False
    """It is decided; what lost is being cancelled."""
    ended: bool = False
    released: bool = False
    """Whoever ran it has let it wait for another process."""
    left_s: float = RACE_TIMEOUT_S
    """Until it is given up; its clock stands still while nobody runs it."""

    @property
    def entries(self) -> tuple[CreateRequest, ...]:
        return tuple(each.request for each in self.parts)

    @property
    def lost(self) -> bool:
        """Nobody runs it and nobody ended it: what it asked for may wait as zombies."""
        return not self.running and not self.ended

    @property
    def winner_key(self) -> tuple[str, str, str] | None:
        project, _, rest = self.winner.partition("/")
        zone, _, name = rest.partition("/")
        return (project, zone, name) if name else None


class RaceStore:
    """The journal's tables of races. Whoever runs a race holds its lease, as a keep's: two never do."""

    _journal: Journal
    _clock: Callable[[], float]
    owner: str
    """Names this process."""

    def start_race(self, entries: Iterable[CreateRequest], timeout_s: float = RACE_TIMEOUT_S) -> int:
        """Keeps a race before its first create is sent, and takes its lease."""
        now = self._clock()
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO races (owner, alive_at, ends_at) VALUES (?, ?, ?)", (self.owner, now, now + timeout_s)
            )
            race = int(cursor.lastrowid or 0)
            connection.executemany(
                "INSERT INTO race_entries (race, request, request_id) VALUES (?, ?, ?)",
                [(race, msgspec.json.encode(entry).decode(), str(uuid4())) for entry in entries],
            )
        return race

    def take_race(self, race: int, timeout_s: float | None = None) -> KeptRace:
        """Takes the lease of a race that nobody runs.

        Args:
            race: Which.
            timeout_s: Until it is given up; None: what it had left when it was last run.

        Raises:
            OperatorError: there is none of that number, it is over, or another process runs it.
        """
        now = self._clock()
        with self._journal.transaction() as connection:
            row = connection.execute(
                "SELECT owner, alive_at, ended_at, ends_at FROM races WHERE id = ?", (race,)
            ).fetchone()
            if row is None:
                raise OperatorError(
                    f"There is no race {race}.", "`slicetower qr race` lists those that are not over."
                )
            owner, alive_at, ended_at, ends_at = row
            if ended_at is not None:
                raise OperatorError(f"Race {race} is over.", "`slicetower qr race` lists those that are not.")
            silent_s = now - alive_at
            if owner and silent_s < LEASE_S:
                raise OperatorError(
                    f"Race {race} is run by another process, which gave a sign of life {max(silent_s, 0):.0f} s ago.",
                    f"If that process is gone, try again in {LEASE_S - silent_s:.0f} s; two never run one race.",
                )
            left_s = timeout_s if timeout_s is not None else _left_s(alive_at, ends_at)
            connection.execute(
                "UPDATE races SET owner = ?, alive_at = ?, ends_at = ? WHERE id = ?",
                (self.owner, now, now + left_s, race),
            )
            connection.executemany(
                "UPDATE race_entries SET request_id = ? WHERE rowid = ? AND request_id = ''",
                [
                    (str(uuid4()), row)
                    for (row,) in connection.execute("SELECT rowid FROM race_entries WHERE race = ?", (race,))
                ],
            )
        found = self.race(race)
        assert found is not None
        return found

    def release_race(self, race: int) -> None:
        """Gives the lease back: the race waits for a process that takes it up."""
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE races SET owner = '', alive_at = ? WHERE id = ? AND owner = ? AND ended_at IS NULL",
                (self._clock(), race, self.owner),
            )

    def beat_race(self, race: int) -> bool:
        """A sign of life; False when another process has taken it up, or it is over."""
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE races SET alive_at = ? WHERE id = ? AND owner = ? AND ended_at IS NULL",
                (self._clock(), race, self.owner),
            )
            return cursor.rowcount > 0

    def ask_entry(self, race: int, entry: RaceEntry) -> bool:
        """Notes that a create is about to be sent; False when it must not be: another process runs the race."""
        if not self.beat_race(race):
            return False
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE race_entries SET outcome = ?, asked_at = COALESCE(asked_at, ?) WHERE rowid = ?",
                (EntryState.ASKED.value, self._clock(), entry.row),
            )
        return True

    def note_entry(
        self, entry: RaceEntry, state: EntryState, *, made_at: float | None = None, text: str = ""
    ) -> None:
        """Notes how far a request came."""
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE race_entries SET outcome = ?, made_at = COALESCE(?, made_at), text = ? WHERE rowid = ?",
                (state.value, made_at, text, entry.row),
            )

    def settle_race(self, race: int, winner: str) -> bool:
        """Notes the decision before anything is cancelled; False when another process has taken the race up."""
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE races SET winner = ?, settling = 1, alive_at = ? "
                "WHERE id = ? AND owner = ? AND ended_at IS NULL",
                (winner, self._clock(), race, self.owner),
            )
            return cursor.rowcount > 0

    def end_race(self, race: int) -> None:
        """It is over; what lost is gone, or wished to be in the journal."""
        with self._journal.transaction() as connection:
            connection.execute(
                "UPDATE races SET ended_at = ? WHERE id = ? AND owner = ? AND ended_at IS NULL",
                (self._clock(), race, self.owner),
            )

    def drop_race(self, race: int) -> bool:
        """Ends a race that nobody runs, whose zombies were cleaned up; False when somebody has taken it up."""
        now = self._clock()
        with self._journal.transaction() as connection:
            cursor = connection.execute(
                "UPDATE races SET ended_at = ? WHERE id = ? AND ended_at IS NULL AND (owner = '' OR alive_at < ?)",
                (now, race, now - LEASE_S),
            )
            return cursor.rowcount > 0

    def races(self, *, ended: int = 5) -> list[KeptRace]:
        """All races that are not ended, and the last ended ones; the newest first."""
        return self._races(
            "ended_at IS NULL OR id IN (SELECT id FROM races WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT ?)",
            ended,
        )

    def race(self, race: int) -> KeptRace | None:
        """One race; None where there is none of that number."""
        return next(iter(self._races("id = ?", race)), None)

    def _races(self, which: str, value: int) -> list[KeptRace]:
        rows = self._journal.rows(
            "SELECT id, owner, alive_at, winner, ended_at, settling, ends_at "
            f"FROM races WHERE {which} ORDER BY id DESC",
            (value,),
        )
        now = self._clock()
        return [
            KeptRace(
                id=int(race),
                parts=self._parts(int(race)),
                running=ended_at is None and bool(owner) and now - float(alive_at) < LEASE_S,
                winner=str(winner),
                settling=bool(settling),
                ended=ended_at is not None,
                released=ended_at is None and not owner,
                left_s=_left_s(float(alive_at), ends_at),
            )
            for race, owner, alive_at, winner, ended_at, settling, ends_at in rows
        ]

    def _parts(self, race: int) -> tuple[RaceEntry, ...]:
        rows = self._journal.rows(
            "SELECT rowid, request, request_id, outcome, asked_at, made_at, text FROM race_entries "
            "WHERE race = ? ORDER BY rowid",
            (race,),
        )
        return tuple(
            RaceEntry(
                row=int(row),
                request=msgspec.json.decode(text, type=CreateRequest),
                request_id=str(request_id),
                state=EntryState(state),
                asked_at=asked_at,
                made_at=made_at,
                text=str(why),
            )
            for row, text, request_id, state, asked_at, made_at, why in rows
        )

    def lost_races(self) -> list[LostRace]:
        """Races that nobody runs any more and nobody ended."""
        return [
            LostRace(
                race.id,
                tuple(each.request for each in race.parts if each.may_exist),
                waits=race.released and not race.settling,
            )
            for race in reversed(self.races(ended=0))
            if race.lost
        ]


def _left_s(alive_at: float, ends_at: float | None) -> float:
    """What was left at the last sign of life."""
    return RACE_TIMEOUT_S if ends_at is None else max(ends_at - alive_at, LEAST_LEFT_S)
