"""One verdict a run: the culprit is whom survivors name or who died first, never who shouts loudest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.outcomes import Outcome
from backend.runs.attribution import Verdict, attribute, tail
from backend.runs.fanout import WorkerResult
from backend.runs.model import RunRequest
from backend.targets import WorkerRef

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
PEER_LOST = (LOGS / "jax_peer_lost_rank0.err").read_bytes()
START = datetime(2026, 11, 30, 12, tzinfo=UTC)
GANG = RunRequest(argv=("python", "train.py"), gang=True)


def worker(slice_index: int, index: int, name: str = "a") -> WorkerRef:
    return WorkerRef("p", "z", name, slice_index, index, f"{name}-{slice_index}", f"{slice_index}")


def result(place: int, outcome: Outcome, at_s: float, code: int | None = 134) -> WorkerResult:
    """Two workers a slice."""
    return WorkerResult(
        worker(place // 2, place % 2),
        outcome,
        exit_code=code if outcome is Outcome.FAILED else None,
        signal="KILL" if outcome is Outcome.SIGNALLED else None,
        ended_at=START + timedelta(seconds=at_s),
    )


def verdict(results: list[WorkerResult], logs: dict[int, bytes], request: RunRequest = GANG) -> Verdict:
    found = attribute(request, results, lambda place: logs.get(place, b""))
    assert found is not None
    return found


def test_the_survivors_name_the_silent_dead_though_it_was_seen_last() -> None:
    results = [result(place, Outcome.FAILED, 1.0) for place in (0, 1)]
    results += [result(2, Outcome.SIGNALLED, 9.0), result(3, Outcome.FAILED, 1.1)]
    found = verdict(results, dict.fromkeys((0, 1, 3), PEER_LOST))
    assert found.culprit == "a/1/0"
    assert found.workers == ("a/1/0",)
    assert found.finding is None
    assert "signal KILL" in found.what
    assert found.why == "named as dead or missing by 3 others"
    assert [set(each.workers) for each in found.symptoms] == [{"a/0/0", "a/0/1", "a/1/1"}]


def test_an_end_without_a_code_is_no_code() -> None:
    results = [result(0, Outcome.FAILED, 1.0, None), result(1, Outcome.SIGNALLED, 2.0)]
    assert verdict(results, {}).what == "Ended, and nobody saw with which code."


def test_process_numbers_that_the_run_set_lead_to_their_worker() -> None:
    order = {f"a/{place // 2}/{place % 2}": {"SLICETOWER_PROCESS_ID": str(3 - place)} for place in range(4)}
    results = [result(place, Outcome.FAILED, 1.0) for place in range(4)]
    found = verdict(results, {0: PEER_LOST}, replace(GANG, worker_environment=order))
    assert found.culprit == "a/0/1"


def test_the_cause_of_the_named_worker_is_told_with_its_cure() -> None:
    results = [result(0, Outcome.FAILED, 2.0), result(1, Outcome.FAILED, 2.0), result(2, Outcome.FAILED, 1.0, 1)]
    oom = b"step 4\nRan out of memory in memory space hbm. Used 17.20G of 15.75G hbm. Exceeded\n"
    found = verdict(results, {0: PEER_LOST, 1: PEER_LOST, 2: oom})
    assert (found.culprit, found.finding is not None and found.finding.id) == ("a/1/0", "hbm")
    assert "17.20G of 15.75G" in found.what
    assert found.cure
    assert found.last_lines[0] == "step 4"


def test_a_cause_weighs_more_than_an_earlier_complaint() -> None:
    results = [result(0, Outcome.FAILED, 1.0), result(1, Outcome.FAILED, 2.0, 1)]
    complaint = b"Polled an error from coordination service\n"
    found = verdict(results, {0: complaint, 1: b"OSError: [Errno 28] No space left on device\n"})
    assert found.culprit == "a/0/1"
    assert found.symptoms[0].workers == ("a/0/0",)


def test_who_died_in_silence_is_blamed_before_who_complains() -> None:
    results = [result(0, Outcome.FAILED, 1.0), result(1, Outcome.FAILED, 1.5, 1)]
    found = verdict(results, {0: b"Polled an error from coordination service\n", 1: b"step 1\n"})
    assert found.culprit == "a/0/1"


def test_one_cause_everywhere_is_one_verdict_with_all_workers() -> None:
    results = [result(place, Outcome.FAILED, float(place), 1) for place in range(4)]
    found = verdict(results, dict.fromkeys(range(4), b"ModuleNotFoundError: No module named 'jax'\n"))
    assert found.text.startswith("a/0-1/0-1: The Python that ran has no module 'jax'")
    assert found.symptoms == ()


def test_a_worker_that_never_came_is_named_though_it_has_not_ended() -> None:
    results = [result(0, Outcome.FAILED, 1.0), replace(result(1, Outcome.PENDING, 0.0), ended_at=None)]
    said = b"Barrier timed out. Timed out task names: /job:jax_worker/replica:0/task:1\n"
    found = verdict(results, {0: said})
    assert found.culprit == "a/0/1"
    assert "has not ended" in found.why


def test_plain_commands_without_a_known_cause_get_no_verdict() -> None:
    results = [result(0, Outcome.FAILED, 1.0, 1), result(1, Outcome.OK, 1.0)]
    request = RunRequest(argv=("false",))
    assert attribute(request, results, lambda _: b"no\n") is None
    assert attribute(GANG, [result(0, Outcome.OK, 1.0)], lambda _: PEER_LOST) is None


def test_a_gang_without_a_known_cause_blames_the_first() -> None:
    results = [result(0, Outcome.FAILED, 2.0, 1), result(1, Outcome.UNREACHABLE, 1.0)]
    assert verdict(results, {}).culprit == "a/0/1"


def test_two_requests_number_their_processes_apart() -> None:
    results = [
        replace(result(place, Outcome.FAILED, 1.0), worker=worker(0, place % 2, "ab"[place // 2]))
        for place in range(4)
    ]
    said = b"Timed out task names: /job:jax_worker/replica:0/task:1\n"
    assert verdict(results, {2: said}).culprit == "b/0/1"


def test_hostile_bytes_of_a_log_are_made_safe() -> None:
    results = [result(0, Outcome.FAILED, 1.0, 1)]
    found = verdict(results, {0: b"\x1b]0;x\x07 No space left on device \xff\n"})
    assert found.last_lines
    assert not any("\x1b" in line or "\x07" in line for line in found.last_lines)


def test_the_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %06d of a long log\n" % number for number in range(10_000)))
    data = tail(path)
    assert data.startswith(b"line ")
    assert data.endswith(b"line 009999 of a long log\n")
    assert tail(tmp_path / "none") == b""
