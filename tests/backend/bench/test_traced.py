"""Every number on a benchmark's screen comes from a reading: it is computed anew from the log's own lines, and found."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.bench.afterwards import FILE_BLOCK_BYTES, read_log
from backend.bench.live import Bench
from backend.outcomes import OperatorError
from tests.backend.bench.test_bench import Logged, record
from tui.screens.bench_figures import figures, histogram_lines, last_words, series
from tui.widgets.plot_words import plot_words

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
PRIMES = (3.1, 3.7, 4.1, 4.3, 4.7, 5.3, 5.9, 6.1, 6.7, 7.1)
"""Seconds of the counted steps: figures that no constant of the code is."""
SLOWER = 1.07
"""The second worker takes so much longer."""
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    made = Logged(tmp_path, slices=2)
    yield made
    made.run.close()


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def test_every_number_on_the_screen_is_traced_to_a_reading(logged: Logged) -> None:
    for address, factor in (("train-a/0/0", 1.0), ("train-a/1/0", SLOWER)):
        for number, seconds in enumerate((31.0, *PRIMES)):
            took = seconds * factor
            told = {"step": number, "step_time_s": took, "tflops_per_device": 100 / took, "warmup": number == 0}
            logged.say(address, json.dumps(told).encode() + b"\n")
        logged.say(address, b'{"summary":{"exposed_communication":0.31,"hbm_peak_bytes":7516192768}}\n')
    logged.end()
    kept = Bench(logged.run, record(logged.run)).record
    shown = [*figures(kept), *histogram_lines(kept.points, "#"), last_words(kept.points)]
    shown += [text for text, _ in plot_words(series(kept, kept.points))]

    times = [statistics.median((each, each * SLOWER)) for each in PRIMES]
    rates = [statistics.median((100 / each, 100 / each / SLOWER)) for each in PRIMES]
    middle = statistics.median(rates)
    width = (max(times) - min(times)) / 3
    counts = [0, 0, 0]
    for each in times:
        counts[min(2, int((each - min(times)) / width))] += 1
    traced = {
        *(_quantile(times, share) for share in (0.1, 0.5, 0.9)),
        *(_quantile(rates, share) for share in (0.1, 0.5, 0.9)),
        *(middle * 16, middle / 100.0 * 100, 100.0, 31.0, 7516192768 / 2**30),  # devices, MFU %, the peak, exposed %
        *(min(rates), max(rates), 100 / PRIMES[0], 100 / PRIMES[-1] / SLOWER),  # the plot's and the workers' extremes
        statistics.median(each * SLOWER for each in PRIMES) / statistics.median(times),
        *(min(times) + place * width for place in range(4)),
        *counts,
        *(times[-1], rates[-1], 10, 1, 90),  # the last step, how many steps and warm-ups, p90
    }
    labels = {"p10": "", "p90": "", "train-a/1/0": ""}
    lost = []
    for line in shown:
        text = line.replace("p10 to p90", "")
        for name in labels:
            text = text.replace(name, "")
        for found in NUMBER.findall(text.replace(",", "")):
            value = float(found)
            digits = len(found.partition(".")[2])
            if not any(abs(value - each) <= max(0.51 * 10**-digits, abs(each) * 6e-4) for each in traced):
                lost.append((found, line))
    assert lost == []
    assert len(shown) > 15


def test_every_reading_is_told_with_the_line_that_it_was_read_from(logged: Logged) -> None:
    bench = Bench(logged.run, record(logged.run))
    for address in ("train-a/1/0", "train-a/0/0"):
        bench.refresh()
        logged.say(address, b"[Gloo] Rank 1 is connected\n")
        for number, seconds in enumerate(PRIMES):
            message = {"step": number, "step_time_s": seconds, "warmup": number == 0}
            logged.say(address, json.dumps(message).encode() + b"\n", b"chatter\n")
    bench.refresh()
    told = bench.told(1000)
    assert [each.step for each in told] == [step for step in range(10) for _ in range(2)]
    assert [each.address for each in told] == ["train-a/0/0", "train-a/1/0"] * 10, "whoever printed first"
    for each in told:
        line = json.loads(bench.line_of(each))
        assert (line["step"], line["step_time_s"]) == (each.step, each.reading.step_time_s)
    counted = [each.reading.step_time_s for each in told if not each.reading.set_aside]
    assert statistics.median(each for each in counted if each) == bench.summary().step_time_s
    assert [each.step for each in bench.told(4)] == [8, 8, 9, 9], "the newest"


def test_the_figures_of_a_file_are_those_of_its_lines() -> None:
    kept = read_log(LOGS / "maxtext_classic.log", peak_tflops_per_device=459.0).record
    seconds = {
        int(step): float(took)
        for step, took in re.findall(
            r"completed step: (\d+), seconds: ([\d.]+)", (LOGS / "maxtext_classic.log").read_text()
        )
    }
    assert {point.step: point.step_time_s for point in kept.points} == seconds
    assert kept.summary.steps == 8
    assert kept.summary.set_aside == {"first step": 1, "above peak": 1}


def test_what_no_chip_can_reach_is_set_aside_though_nobody_said_which_it_was() -> None:
    kept = read_log(LOGS / "maxtext_classic.log").record
    assert {point.step: point.set_aside for point in kept.points if point.set_aside} == {
        0: "first step",
        1: "above peak",
    }
    assert kept.summary.mfu is None
    assert kept.summary.tflops_p90 is not None
    assert kept.summary.tflops_p90 < 140


def test_a_file_without_a_step_is_told(tmp_path: Path) -> None:
    file = tmp_path / "empty.log"
    file.write_text("nothing of the kind\n")
    with pytest.raises(OperatorError, match="no step of a known kind"):
        read_log(file)
    file.write_text("took 0.5\ntook 0.25\n")
    kept = read_log(file, pattern=r"took (?P<seconds>[\d.]+)").record
    assert [point.step_time_s for point in kept.points] == [0.5, 0.25]
    with pytest.raises(OperatorError, match="can't be read"):
        read_log(tmp_path / "missing")


def test_each_reading_of_a_file_leads_back_to_its_line(tmp_path: Path) -> None:
    lines = (LOGS / "maxtext_classic.log").read_text().split("\n")
    found = read_log(LOGS / "maxtext_classic.log", peak_tflops_per_device=459.0)
    told = found.told(1000)
    assert len(told) == 10
    for each in told:
        assert f"completed step: {each.step}, seconds: {each.reading.step_time_s}" in lines[each.line]
        assert found.line_of(each).decode() == lines[each.line]
    assert [each.reading.set_aside for each in told[:3]] == ["first step", "above peak", ""]
    assert [each.step for each in found.told(2)] == [8, 9]


def test_lines_are_numbered_over_blocks_and_over_lines_of_any_length(tmp_path: Path) -> None:
    file = tmp_path / "long.log"
    filler = "x" * 1000
    lines = []
    for step in range(40):
        lines += [filler] * 97 + [f"took {step + 1} s"]
    # Longer than a block.
    lines.insert(200, "y" * (FILE_BLOCK_BYTES + 5000))
    file.write_text("\n".join(lines))
    found = read_log(file, pattern=r"took (?P<seconds>\d+) s")
    told = found.told(1000)
    for each in told:
        assert f"took {each.reading.step_time_s:.0f} s" in lines[each.line]
        assert found.line_of(each).decode() == lines[each.line]
    assert len(told) == 40
    middle = told[20]
    around = found.around(middle, 2)
    assert [each.number for each in around] == list(range(middle.line - 2, middle.line + 3))
    assert [each.text for each in around] == lines[middle.line - 2 : middle.line + 3]
    assert [each.number for each in found.around(told[-1], 3)][-1] == len(lines) - 1
    file.unlink()
    assert found.around(middle) == []
    assert found.line_of(middle) == b""
