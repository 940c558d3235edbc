"""Logs: not a byte lost, numbers that never move, memory that stays bounded."""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.logs.arrivals import INDEX_RECORD, Arrival, Arrivals
from backend.logs.lines import level_of
from backend.logs.merged import MergedLog, by_arrival, mergeable
from backend.logs.store import RING_BYTES_TOTAL, LogStore, search_file
from backend.logs.worker_log import COALESCE_S, WorkerLog


def read(log: WorkerLog) -> list[bytes]:
    return [log.raw_line(number)[0] for number in range(log.total)]


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=30), st.integers(40, 400))
def test_lines_are_the_bytes_whatever_the_chunks_and_the_ring(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], ring: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.0.0.log"
    log = WorkerLog(path, ring_bytes=ring)
    for number, chunk in enumerate(chunks):
        log.append(chunk, at=1000.0 + number)
    data = b"".join(chunks)
    assert path.read_bytes() == data
    assert log.size == len(data)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert read(log) == expected
    log.close()
    again = WorkerLog(path, ring_bytes=ring)
    assert read(again) == expected
    assert again.size == len(data)
    again.close()


def test_numbers_are_absolute_after_trimming(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log", ring_bytes=1_000)
    for number in range(2_000):
        log.append(b"line %d\n" % number, at=float(number))
    assert log.first > 1_800
    assert log.line(0).text == "line 0"
    assert log.line(1_234).text == "line 1234"
    assert log.line(1_999).text == "line 1999"
    assert log.line(1_234).at == pytest.approx(1_234.0)
    assert log.line(1_950).at == pytest.approx(1_950.0)


def test_memory_holds_the_ring_and_no_more(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log", ring_bytes=64 * 1024)
    block = b"x" * 79 + b"\n"
    for _ in range(500):
        log.append(block * 100)
    held = sum(len(chunk.data) for chunk in log._chunks)
    assert held <= 64 * 1024 + len(block) * 100
    assert log.total == 50_000


def test_a_line_without_end_does_not_grow_memory(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log")
    for _ in range(100):
        log.append(b"\r" + b"#" * 9_999)
    assert len(log._tail) <= 128 * 1024
    assert log.size == 1_000_000
    assert log.total == 1
    assert "#" in log.line(0).text


def test_a_jump_to_a_time(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log", ring_bytes=200)
    for second in range(100):
        log.append(b"at %d\nand\n" % second, at=5_000.0 + second)
    assert log.line(log.line_at(5_042.0)).text == "at 42"
    assert log.line_at(9_999.0) == log.total
    assert log.line_at(0.0) == 0


def test_a_crash_between_log_and_index_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.0.0.log"
    log = WorkerLog(path)
    log.append(b"one\ntwo\n", at=1.0)
    log.close()
    with path.open("ab") as stream:
        stream.write(b"three\nfo")
    again = WorkerLog(path)
    again.append(b"ur\nfive\n", at=9.0)
    assert read(again) == [b"one", b"two", b"three", b"four", b"five"]
    again.close()
    os.truncate(path, 4)
    mended = WorkerLog(path, ring_bytes=1)
    assert read(mended) == [b"one"]
    mended.append(b"2\n3\n", at=20.0)
    assert read(mended) == [b"one", b"2", b"3"]


def test_a_full_disk_is_an_error_and_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = WorkerLog(tmp_path / "a.0.0.log")
    log.append(b"before\n")
    real_write = os.write
    calls = iter([3])

    def short_then_full(descriptor: int, data: bytes) -> int:
        for allowed in calls:
            return real_write(descriptor, bytes(data)[:allowed])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short_then_full)
    with pytest.raises(OSError, match="No space left"):
        log.append(b"does not fit\n")
    monkeypatch.undo()
    assert log.size == 7
    log.append(b"after\n")
    assert read(log) == [b"before", b"after"]


def test_files_are_private(tmp_path: Path) -> None:
    log = LogStore(tmp_path / "runs").open("r1", "train-a.0.3")
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.path.parent.stat().st_mode & 0o777 == 0o700


def test_the_second_reader_sees_what_the_first_appends(tmp_path: Path) -> None:
    writer = WorkerLog(tmp_path / "a.0.0.log")
    reader = WorkerLog(tmp_path / "a.0.0.log", writable=False)
    before = reader.version
    writer.append(b"hello\nwor")
    reader.refresh()
    writer.append(b"ld\n")
    reader.refresh()
    assert read(reader) == [b"hello", b"world"]
    assert reader.version > before


def test_search_over_all_workers_of_a_run(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    for worker in (10, 2):
        store.open("r1", f"train-a.0.{worker}").append(b"fine\n\x1b[31mBoom %d\x1b[0m\nfine" % worker)
    hits = list(store.search("r1", re.compile(rb"boom", re.IGNORECASE)))
    assert [(hit.file_stem, hit.number, hit.text) for hit in hits] == [
        ("train-a.0.2", 1, "Boom 2"),
        ("train-a.0.10", 1, "Boom 10"),
    ]
    assert len(list(store.search("r1", re.compile(rb"fine"), limit=3))) == 3


def test_search_finds_a_match_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.0.0.log"
    path.write_bytes(b"x" * ((1 << 20) - 3) + b"needle\nlast needle")
    assert [hit.number for hit in search_file(path, re.compile(rb"needle"))] == [0, 1]


def test_merging_is_by_arrival_and_keeps_each_workers_order(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    logs = {f"a/0/{worker}": store.open("r", f"a.0.{worker}") for worker in range(3)}
    merged = MergedLog(logs)
    generator = random.Random(7)
    for step in range(300):
        worker = generator.randrange(3)
        logs[f"a/0/{worker}"].append(b"%d\n" % step, at=1_000.0 + step * 2 * COALESCE_S)
        if step % 17 == 0:
            merged.refresh()
    merged.refresh()
    assert [int(line.text) for line in merged.lines(0, merged.total)] == list(range(300))
    assert {line.source for line in merged.lines(0, merged.total)} == set(logs)


def test_merging_a_flood_stays_bounded_and_counts_all(tmp_path: Path) -> None:
    log = LogStore(tmp_path).open("r", "a.0.0")
    merged = MergedLog({"a/0/0": log}, capacity=100)
    log.append(b"".join(b"%d\n" % number for number in range(5_000)))
    merged.refresh()
    assert merged.total == 5_000
    assert merged.first == 4_900
    assert merged.line(4_900).text == "4900"
    version = merged.version
    merged.refresh()
    assert merged.version == version


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """May hold thousands of open files; leaves none, and the limit as it was."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    made = LogStore(tmp_path)
    yield made
    made.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_1024_logs_merge_in_bounded_memory_and_without_reading_what_is_not_shown(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 arrivals a worker, of which the newest 1,000 of all workers can be reached."""
    count, arrivals = mergeable(1024), 300
    logs = {f"a/0/{worker}": store.open("r", f"a.0.{worker}") for worker in range(count)}
    for worker, log in enumerate(logs.values()):
        with log.path.with_suffix(".idx").open("ab") as index, log.path.open("ab") as text:
            for step in range(arrivals):
                at = 1_000.0 + step + worker / 10_000
                index.write(INDEX_RECORD.pack(step * 8, step, at, 1))
                text.write(b"%03d%04d\n" % (step, worker))
    store.release("r")
    logs = {address: store.open("r", address.replace("/", "."), writable=False) for address in logs}
    reads = 0
    record = Arrivals.at

    def counted(arrivals: Arrivals, position: int) -> Arrival:
        nonlocal reads
        reads += 1
        return record(arrivals, position)

    monkeypatch.setattr(Arrivals, "at", counted)
    merged = MergedLog(logs, capacity=1_000)
    merged.refresh()
    monkeypatch.undo()
    assert merged.total == count * arrivals
    assert merged.total - merged.first == 1_000
    assert len(merged._runs) <= 1_000
    assert reads < count * arrivals / 2, "not every arrival is put in order"
    texts = [line.text for line in merged.lines(merged.first, merged.total)]
    everything = sorted(
        f"{step:03d}{worker:04d}" for step in range(arrivals - 2, arrivals) for worker in range(count)
    )
    assert texts == everything[-1_000:]
    assert merged.lines(merged.total - 1, merged.total)[0].source == f"a/0/{count - 1}"


def test_logs_that_were_closed_and_opened_again_merge_as_they_arrived(tmp_path: Path) -> None:
    store = LogStore(tmp_path)
    for step in range(30):
        store.open("r", f"a.0.{step % 3}").append(b"%d\nmore\nopen" % step, at=1_000.0 + step * 2 * COALESCE_S)
    store.release("r")
    logs = {f"a/0/{worker}": store.open("r", f"a.0.{worker}", writable=False) for worker in range(3)}
    order = [(f"a/0/{step % 3}", step // 3 * 2 + line) for step in range(30) for line in (0, 1)]
    assert list(by_arrival(logs)) == order
    merged = MergedLog(logs)
    merged.refresh()
    assert [line.source for line in merged.lines(0, merged.total)] == [source for source, _ in order]


def test_thousands_of_flooding_logs_share_one_bound_of_memory(tmp_path: Path) -> None:
    """Each gets the share of one among 16,384, and chunks that are larger than that: all of it stays on disk."""
    share = LogStore._share(16_384)
    assert share * 16_384 <= RING_BYTES_TOTAL
    log = WorkerLog(tmp_path / "a.0.0.log", ring_bytes=share)
    for number in range(20):
        log.append(b"%02d %b\n" % (number, b"x" * 32_000))
        assert sum(len(chunk.data) for chunk in log._chunks) <= share
    assert [log.line(number).text[:2] for number in range(20)] == [f"{number:02d}" for number in range(20)]


def test_no_more_logs_are_merged_than_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource; from backend.logs.merged import mergeable;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400)); print(mergeable(20), mergeable(16384))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    few, many = map(int, done.stdout.split())
    assert few == 20
    assert 100 < many < 200
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_merging_reaches_lines_that_left_the_memory_of_their_log(tmp_path: Path) -> None:
    logs = {f"a/0/{worker}": WorkerLog(tmp_path / f"a.0.{worker}.log", ring_bytes=64) for worker in range(2)}
    for step in range(200):
        logs[f"a/0/{step % 2}"].append(b"%d\nmore of %d\n" % (step, step), at=1_000.0 + step * 2 * COALESCE_S)
    assert all(log.first > 100 for log in logs.values())
    merged = MergedLog(logs)
    merged.refresh()
    texts = [line.text for line in merged.lines(0, merged.total)]
    assert texts == [text for step in range(200) for text in (str(step), f"more of {step}")]
    assert merged.line(merged.line_at(1_000.0 + 100 * 2 * COALESCE_S)).text == "100"


@settings(max_examples=60)
@given(
    pieces=st.lists(st.tuples(st.binary(max_size=12), st.booleans()), max_size=40),
    span=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    ring=st.integers(1, 60),
)
def test_arrivals_are_those_of_each_line(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[bytes, bool]], span: tuple[int, int], ring: int
) -> None:
    log = WorkerLog(tmp_path_factory.mktemp("log") / "a.0.0.log", ring_bytes=ring)
    at = 1_000.0
    for data, newline in pieces:
        at += 2 * COALESCE_S
        log.append(data.replace(b"\r", b"") + (b"\n" if newline else b""), at=at)
    start, stop = span
    told = {own + step: at for at, own, count in log.arrivals(start, stop) for step in range(count)}
    assert told == {number: log.raw_line(number)[1] for number in range(start, min(stop, log.ended))}
    log.close()


def test_merging_a_flood_of_short_lines_touches_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogStore(tmp_path)
    logs = {f"a/0/{worker}": store.open("r", f"a.0.{worker}") for worker in range(8)}
    merged = MergedLog(logs)
    cut: list[int] = []
    raw_line = WorkerLog.raw_line

    def counted(log: WorkerLog, number: int) -> tuple[bytes, float]:
        cut.append(number)
        return raw_line(log, number)

    monkeypatch.setattr(WorkerLog, "raw_line", counted)
    for _ in range(10):
        for log in logs.values():
            log.append(b"y\n" * 50_000)
        merged.refresh()
    assert merged.total == 10 * 8 * 50_000
    assert not cut
    assert {line.text for line in merged.lines(merged.total - 50, merged.total)} == {"y"}
    assert len(cut) == 50


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"E0706 16:50:26.230209 1 x.cc:1] boom", "error"),
        (b"Traceback (most recent call last):", "error"),
        (b"jax.errors.JaxRuntimeError: UNKNOWN: Failed", "error"),
        (b"ERROR: out of memory", "error"),
        (b"WARNING: All log messages", "warning"),
        (b"W0706 16:50:26 x", "warning"),
        (b"completed step: 1, loss: 2.0", ""),
        (b"terrorised", ""),
    ],
)
def test_levels(line: bytes, level: str) -> None:
    assert level_of(line) == level
