"""What a run says of workers that have not ended, and of outputs too long to show."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.style import Style

from backend.diagnosis.grouping import OUTPUT_LIMIT
from backend.journal import Journal
from backend.outcomes import Outcome
from backend.runs.fanout import Phase, WorkerResult
from backend.runs.model import RunRecord, RunRequest, RunState
from backend.runs.store import RunStore
from backend.targets import WorkerRef
from tui.look import PLAIN
from tui.screens.run_detail import last_lines, output_lines, speaker, words_of
from tui.screens.run_rows import gather, progress_words
from tui.screens.runs import outcome_words
from tui.widgets.outcome_groups import LINES_SHOWN, group_lines
from tui.wording import utc_now


def worker(index: int) -> WorkerRef:
    return WorkerRef("p", "z", "train-a", 0, index, "train-a-0", "0")


def test_workers_that_run_are_called_running_and_not_pending() -> None:
    results = [
        WorkerResult(worker(0), phase=Phase.RUNNING),
        WorkerResult(worker(1), phase=Phase.RUNNING),
        WorkerResult(worker(2), phase=Phase.CONNECTING),
        WorkerResult(worker(3), Outcome.TIMED_OUT, Phase.ENDED),
    ]
    assert progress_words(results) == "2 running, 1 connecting, 1 timed out"


def test_the_list_of_runs_calls_them_so_as_well(tmp_path: Path) -> None:
    with closing(Journal.open(tmp_path / "journal.sqlite")) as journal:
        store = RunStore(journal)
        results = (WorkerResult(worker(0), phase=Phase.RUNNING), WorkerResult(worker(1), phase=Phase.CONNECTING))
        workers = (worker(0), worker(1))
        store.create(RunRecord("r", RunRequest(("true",)), workers, results, RunState.RUNNING, "", "", utc_now()))
        assert outcome_words(store.heads()[0]).text == "1 running, 1 connecting"
        store.set_state("r", RunState.DETACHED, None)
        assert outcome_words(store.heads()[0]).text == "2 pending"


def test_the_detail_of_a_run_names_its_policies_its_note_and_its_first_failure() -> None:
    request = RunRequest(("python3", "train.py"), batch="1,5", timeout_s=90, detach=True, title="nightly")
    early = datetime(2026, 11, 30, tzinfo=UTC)
    results = [
        WorkerResult(worker(0), Outcome.OK, Phase.ENDED, ended_at=early),
        WorkerResult(worker(1), Outcome.FAILED, Phase.ENDED, exit_code=1, ended_at=early + timedelta(seconds=9)),
        WorkerResult(worker(2), Outcome.FAILED, Phase.ENDED, exit_code=7, ended_at=early + timedelta(seconds=3)),
    ]
    assert words_of(request, results, "after the driver\x1b[2J") == [
        "3 workers: train-a/0/0-2 · batches of 1,5 · time-out 90s · detached",
        "python3 train.py",
        "after the driver",
        "first failure: train-a/0/2 failed exit 7",
    ]
    assert speaker(results).worker == worker(2)
    assert speaker(results[:1]).worker == worker(0)


def test_the_end_of_a_log_is_whole_lines_without_escapes_and_its_absence_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 20_000 + b"\n" + b"".join(b"\x1b[31mline %d\x1b]52;c;aGk=\x07\n" % n for n in range(50)))
    lines = last_lines(path)
    assert lines == [f"line {number}" for number in range(50 - len(lines), 50)]
    assert len(lines) > 3
    assert last_lines(tmp_path / "none") == []
    printed = WorkerResult(worker(0), Outcome.OK, Phase.ENDED, output_bytes=10)
    assert output_lines(printed, [], reading=False) == ["the log of train-a/0/0 is not here any more"]
    assert output_lines(WorkerResult(worker(0), Outcome.OK, Phase.ENDED), [], reading=False) == [
        "train-a/0/0 printed nothing"
    ]
    assert output_lines(WorkerResult(worker(0), Outcome.NOT_STARTED), [], reading=False) == []


def shown(tmp_path: Path, output: bytes) -> list[str]:
    path = tmp_path / "log"
    path.write_bytes(output)
    (found,) = gather([WorkerResult(worker(0), Outcome.FAILED, Phase.ENDED, exit_code=1)], [path])
    strips = group_lines(found, PLAIN, Style.null(), unfolded=True, cursor=False, focused=False)
    return [strip.text.strip(" │") for strip in strips[1:]]


def test_a_long_output_shows_its_end_in_whole_lines_and_says_what_was_left_out(tmp_path: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(100_000)).encode()
    lines = shown(tmp_path, output)
    assert f"{(len(output) - OUTPUT_LIMIT) / 1e6:.1f} MB and " in lines[0]
    assert "before this: the log has them" in lines[0]
    assert lines[1:] == [f"line {number}" for number in range(100_000 - LINES_SHOWN, 100_000)]


def test_an_output_that_fits_is_shown_whole_without_such_words(tmp_path: Path) -> None:
    assert shown(tmp_path, b"one\ntwo\n") == ["one", "two"]


def test_the_first_whole_line_of_a_cut_output_is_a_line_of_the_output(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%05d %s\n" % (number, b"x" * 995) for number in range(100)))
    (found,) = gather([WorkerResult(worker(0), Outcome.OK, Phase.ENDED)], [path])
    assert all(len(line) == 1001 for line in found.lines)
    assert found.lines[-1].startswith("00099")


def test_an_output_that_is_not_the_rule_is_followed_by_what_differs(tmp_path: Path) -> None:
    results, paths = [], []
    for number in range(4):
        paths.append(tmp_path / f"log-{number}")
        paths[-1].write_bytes(b"one\ntwo\nthree\n" + (b"four\n" if number == 2 else b""))
        results.append(WorkerResult(worker(number), Outcome.OK, Phase.ENDED))
    rule, odd = gather(results, paths)
    assert (rule.count, rule.differs, odd.members) == (3, (), "train-a/0/2")
    strips = group_lines(odd, PLAIN, Style.null(), unfolded=True, cursor=False, focused=False)
    shown = [strip.text.strip(" │") for strip in strips[1:]]
    assert shown[:4] == ["one", "two", "three", "four"]
    assert shown[4] == "differs from train-a/0/0-1,3 (-) in:"
    assert shown[-1] == "+four"
