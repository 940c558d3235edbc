"""Known failures are seen while logs grow, at their line, once a worker, within a budget; and whom they speak against."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.diagnosis.signatures import catalogue
from backend.logs.worker_log import WorkerLog
from backend.outcomes import Outcome
from backend.runs.fanout import WorkerResult
from backend.runs.model import RunRequest
from backend.runs.sightings import LOOK_BYTES_EACH, SIGHTINGS_EACH, Lookout, suspicion
from backend.targets import WorkerRef

PEER_LOST = (Path(__file__).parents[2] / "fixtures" / "logs" / "jax_peer_lost_rank0.err").read_bytes()
BUSY = b"open(/dev/vfio/0): Device or resource busy\n"
TAKEN = b"OSError: [Errno 98] Address already in use\n"
REQUEST = RunRequest(argv=("python", "train.py"), gang=True)
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def results(count: int) -> list[WorkerResult]:
    return [WorkerResult(WorkerRef("p", "z", "a", 0, place, "a-0", "u")) for place in range(count)]


def logs(folder: Path, count: int) -> list[tuple[int, WorkerLog]]:
    return [(place, WorkerLog(folder / f"a.0.{place}.log")) for place in range(count)]


def test_a_failure_is_seen_once_at_its_line_however_its_bytes_come(tmp_path: Path) -> None:
    lookout = Lookout(REQUEST, results(1))
    every = logs(tmp_path, 1)
    log = every[0][1]
    text = b"one\ntwo\n" + BUSY + b"four\n" + BUSY + TAKEN
    seen = []
    for start in range(0, len(text), 7):
        log.append(text[start : start + 7])
        seen += lookout.look(every)
    assert [(each.finding.id, each.line) for each in seen] == [("device-busy", 2), ("coordinator-port", 5)]
    assert seen[0].text.startswith("a/0/0, line 3: The device /dev/vfio/0 is held")
    assert lookout.sightings == seen


def test_of_a_flood_the_newest_is_seen_with_its_own_line_number(tmp_path: Path) -> None:
    lookout = Lookout(REQUEST, results(1))
    every = logs(tmp_path, 1)
    log = every[0][1]
    count = 3 * LOOK_BYTES_EACH // 8
    log.append(TAKEN + b"1234567\n" * count + BUSY)
    (seen,) = lookout.look(every)
    assert (seen.finding.id, seen.line) == ("device-busy", count + 1)
    assert log.line(seen.line).text == BUSY.decode().rstrip()


def test_one_line_without_an_end_is_passed_over_and_what_follows_is_seen(tmp_path: Path) -> None:
    lookout = Lookout(REQUEST, results(1))
    every = logs(tmp_path, 1)
    log = every[0][1]
    log.append(b"x" * (2 * LOOK_BYTES_EACH))
    assert lookout.look(every) == []
    log.append(b"\n" + BUSY)
    assert [each.line for each in lookout.look(every)] == [1]


def test_a_budget_lets_every_log_have_its_turn(tmp_path: Path) -> None:
    lookout = Lookout(REQUEST, results(10))
    every = logs(tmp_path, 10)
    for _, log in every:
        log.append(b"x" * 100 + b"\n" + BUSY)
    assert [each.place for each in lookout.look(every, budget=100)] == [0]
    assert [each.place for each in lookout.look(every, most=3)] == [1, 2, 3]
    for _, log in every[:4]:
        log.append(b"more\n")
    assert [each.place for each in lookout.look(every, most=6)] == [4, 5, 6, 7, 8, 9]


def test_a_hostile_log_fills_no_memory(tmp_path: Path) -> None:
    lookout = Lookout(REQUEST, results(1))
    every = logs(tmp_path, 1)
    lines = {each.hints[0] for each in catalogue()}
    every[0][1].append(b"\n".join(lines) + b"\nMemoryError\nSocket closed\nBus error\n" * 9)
    assert 3 <= len(lookout.look(every)) <= SIGHTINGS_EACH


def test_what_an_earlier_console_saw_is_not_seen_again(tmp_path: Path) -> None:
    every = logs(tmp_path, 1)
    every[0][1].append(BUSY)
    first = Lookout(REQUEST, results(1))
    again = Lookout(REQUEST, results(1))
    again.know(first.look(every))
    again.know(first.sightings)
    assert again.look(every) == []
    assert again.sightings == first.sightings


def test_the_silent_worker_that_others_name_is_suspected_while_it_still_runs(tmp_path: Path) -> None:
    """Process 2 of the slice is named by the survivor; nobody has ended yet."""
    workers = results(4)
    lookout = Lookout(REQUEST, workers)
    every = logs(tmp_path, 4)
    assert suspicion(REQUEST, workers, lookout.sightings) == ""
    for place in (0, 1, 3):
        every[place][1].append(PEER_LOST)
    lookout.look(every)
    assert {each.place for each in lookout.sightings if each.blames == (2,)} == {0, 1, 3}
    assert suspicion(REQUEST, workers, lookout.sightings) == "a/0/2 is named as dead or missing by 3 others."
    workers[2].outcome, workers[2].signal = Outcome.SIGNALLED, "KILL"
    assert suspicion(REQUEST, workers, lookout.sightings).endswith("by 3 others (signal KILL).")


def test_a_cause_is_told_before_who_died_first_and_that_before_nothing(tmp_path: Path) -> None:
    workers = results(3)
    every = logs(tmp_path, 3)
    lookout = Lookout(REQUEST, workers)
    workers[1].outcome, workers[1].exit_code, workers[1].ended_at = Outcome.FAILED, 7, START
    workers[0].outcome, workers[0].exit_code, workers[0].ended_at = Outcome.FAILED, 134, START + timedelta(seconds=1)
    assert suspicion(REQUEST, workers, lookout.sightings) == "a/0/1 was the first to fail (code 7)."
    every[2][1].append(BUSY)
    lookout.look(every)
    assert suspicion(REQUEST, workers, lookout.sightings).startswith("a/0/2, line 1: The device /dev/vfio/0")
