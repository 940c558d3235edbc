"""Every line shape that the field prints is read; nothing else is, and nothing breaks the parser."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.readings import ABOVE_PEAK, FIRST_STEP, NO_TIME, Reading, ReadingParser
from jobs.statistics import distribution, percentile, statistics

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"


def read(name: str, parser: ReadingParser | None = None) -> list[Reading]:
    parser = parser or ReadingParser()
    text = (LOGS / name).read_bytes().decode("utf-8", errors="replace")
    return [reading for line in text.split("\n") for reading in parser.feed(line)]


def feed_line(parser: ReadingParser, line: str) -> Reading | None:
    """The last reading of this line."""
    found = parser.feed(line)
    return found[-1] if found else None


def test_maxtext_classic_sets_compile_and_the_impossible_aside() -> None:
    parser = ReadingParser(peak_tflops_per_device=459)
    readings = read("maxtext_classic.log", parser)
    assert [each.step for each in readings] == list(range(10))
    assert readings[0].set_aside == FIRST_STEP
    assert readings[1].tflops_per_device == 2400.734
    assert readings[1].set_aside == ABOVE_PEAK
    assert readings[9] == Reading(9, 5.667, 134.924, 8672.758, 10.374, {"total_weights": 196608.0}, "maxtext")
    assert parser.counted == 8
    assert parser.set_aside == {FIRST_STEP: 1, ABOVE_PEAK: 1}


def test_maxtext_with_absl_prefixes_counts_each_step_once_though_two_loggers_print() -> None:
    readings = read("maxtext_absl_prefixed.log")
    timed = [each for each in readings if each.step_time_s is not None]
    assert [each.step for each in timed] == list(range(1, 14))
    assert len(timed) == len(readings) - 1, "the loss of step 1 comes before the first MaxText line"
    assert timed[1].tflops_per_device == 37.633
    assert timed[1].extra["reward_accuracy"] == 0.0


def test_maxtext_variants_rewinds_and_missing_keys() -> None:
    readings = read("maxtext_elastic_variants.log")
    assert [each.step for each in readings] == [8, 9, 150, 101, 3, 202]
    assert readings[2].tflops_per_device == 43.1
    assert readings[2].extra["live slice count"] == 2
    assert readings[3].set_aside == FIRST_STEP, "the first step after a rewind"
    assert readings[4].tflops_per_device is None
    assert readings[5].loss is not None
    assert math.isnan(readings[5].loss)


def test_levanter_progress_lines() -> None:
    readings = read("levanter_tqdm_loggable.log")
    assert [each.step for each in readings][:3] == [8, 16, 24]
    assert readings[-1].step == 100
    assert readings[-1].step_time_s == pytest.approx(1 / 19.8)
    assert readings[-1].loss == 7.04


def test_a_tqdm_bar_of_carriage_returns_gives_each_step_once() -> None:
    readings = read("tqdm_carriage_return.log")
    assert [each.step for each in readings] == list(range(1, 121))
    assert readings[-1].loss == 7.6


def test_the_upstream_line_gives_its_timings_through_gloo_chatter() -> None:
    readings = read("gloo_then_steps.log")
    assert [each.step_time_s for each in readings] == [0.1, 0.12, 0.13]
    assert readings[1].tflops_per_device == pytest.approx(3.298534883328 / 0.12)
    assert all(each.counts for each in readings), "upstream warms up before it times"
    (alone,) = ReadingParser().feed("time is 0.1234 seconds, TFLOP is 3.298534883328, TFLOP/s is 26.7304")
    assert alone.tflops_per_device == 26.7304


def test_other_frameworks() -> None:
    by_source: dict[str, list[Reading]] = {}
    for line in (LOGS / "other_frameworks.log").read_text().splitlines():
        for reading in ReadingParser().feed(line):
            by_source.setdefault(reading.source, []).append(reading)
    assert [(each.step, each.step_time_s, each.loss) for each in by_source["pax"]] == [
        (None, 0.634, None),
        (100, None, 6.3584294),
        (200, None, 5.824545),
    ]
    assert [(each.step, each.extra["Rate"], each.extra["device"]) for each in by_source["torch_xla"]] == [
        (280, 1760.91, 3.0),
        (280, 1761.04, 0.0),
    ]
    assert [(each.step, each.step_time_s) for each in by_source["axlearn"]] == [(100, 0.6123)]
    assert [(each.step, each.step_time_s, each.loss) for each in by_source["tf"]] == [
        (234, 1.887, 0.3331),
        (233, 1.254, 1.2424),
    ]
    assert [(each.step, each.loss, each.set_aside) for each in by_source["plain"]] == [(1, 10.2313, NO_TIME)]
    assert set(by_source) == {"pax", "torch_xla", "axlearn", "tf", "plain"}


@pytest.mark.parametrize(
    "name",
    [
        "boot_apt_lock.log",
        "jax_barrier_timeout_old.log",
        "jax_never_came.err",
        "jax_peer_lost_rank0.err",
        "megascale_hang.log",
    ],
)
def test_logs_of_failures_hold_no_readings(name: str) -> None:
    assert read(name) == []


def test_our_json_lines_are_read_wherever_they_stand_and_messages_kept() -> None:
    parser = ReadingParser()
    line = json.dumps({"step": 3, "step_time_s": 0.5, "tflops_per_device": 1.5, "loss": 2.0, "hbm_bytes": 7})
    expected = Reading(3, 0.5, 1.5, None, 2.0, {"hbm_bytes": 7.0}, "json")
    assert feed_line(parser, line) == expected
    assert feed_line(parser, f"\x1b[32m[worker 3] {line}\x1b[0m") == expected
    assert feed_line(parser, '{"summary": {"median_step_time_s": 0.5}}') is None
    assert parser.summary == {"median_step_time_s": 0.5}
    assert feed_line(parser, "time is 0.5 seconds, TFLOP is 1.0, TFLOP/s is 2.0") is None, "the same steps again"
    warm = feed_line(parser, '{"step": 0, "warmup": true, "step_time_s": 9.0}')
    assert warm is not None
    assert warm.set_aside == FIRST_STEP


@pytest.mark.parametrize(
    "line",
    [
        "completed step: 5, seconds: 0.000, TFLOP/s/device: inf, loss: 1.0",
        '{"step": -1, "step_time_s": 1}',
        '{"step": 1e400}',
        '{"step": 1, "step_time_s": ' + "9" * 5000 + "}",
        '{"step": ' + "[" * 10000,
        "train: 5%|█| 5/100 [00:01<00:00, 0.00it/s]",
        "Loading checkpoint shards: 50%|███| 1/2 [00:01<00:01, 1.20it/s]",
        "Progress on:eval 8.00it/100it rate:19.8it/s remaining:00:04 elapsed:00:00 postfix:loss=10.8",
        "Completed eval after train step 200, loss=7.991",
        "next step: 5 apples",
    ],
)
def test_impossible_and_foreign_lines_do_not_become_timings(line: str) -> None:
    reading = feed_line(ReadingParser(), line)
    assert reading is None or (reading.step_time_s is None and reading.tflops_per_device is None)


def test_rates_of_several_units() -> None:
    slow = feed_line(ReadingParser(), "train: 46%|████▌     | 46/100 [00:43<02:45,  3.07s/it]Step 47/100")
    assert slow is not None
    assert (slow.step, slow.step_time_s) == (46, 3.07)
    kilo = feed_line(
        ReadingParser(), "Progress on:train 1.50kit/10.0kit rate:2.0it/s remaining:1 elapsed:1 postfix:-"
    )
    assert kilo is not None
    assert (kilo.step, kilo.step_time_s) == (1500, 0.5)
    fork = feed_line(ReadingParser(), "completed step: 7, steps/s=4.0, loss: 0.1")
    assert fork is not None
    assert fork.step_time_s == 0.25


PREFIXES = {
    "absl": "I0706 16:50:26.230209 140110937163584 metric_logger.py:214] ",
    "glog": "W0000 00:00:1713630999.125092  494916 cpp_gen_intrinsics.cc:74] ",
    "ray": "(train_step pid=1234, ip=10.0.0.2) ",
    "ray in colour": "\x1b[36m(train_step pid=1234, ip=10.0.0.2)\x1b[0m ",
    "logging": "2026-11-30 18:00:00,123 - trainer - INFO - ",
    "logging with colons": "INFO :: trainer :: ",
    "loguru": "2026-11-30 18:00:00.123 | INFO     | trainer:step:42 - ",
    "kubectl": "[pod/job-0-abc/main] ",
    "gcloud": "[worker :3] ",
    "colour": "\x1b[1;32m",
    "an older bar": "old\r",
}
LINES = {
    "maxtext": (
        "completed step: 7, seconds: 5.654, TFLOP/s/device: 135.251, loss: 11.689",
        7,
        5.654,
        135.251,
        11.689,
    ),
    "maxdiffusion": ("completed step: 7, seconds: 0.5, TFLOP/s/device: 88.1, loss: 0.02", 7, 0.5, 88.1, 0.02),
    "maxdiffusion fork": ("completed step: 7, steps/s=4.0, loss: 0.1", 7, 0.25, None, 0.1),
    "shardings": ("time is 0.5 seconds, TFLOP is 3.0, TFLOP/s is 6.0", None, 0.5, 6.0, None),
    "axlearn": ("Average step time: 0.6123 seconds", None, 0.6123, None, None),
    "pax": ("[PAX STATUS]: train_step() took 0.634 seconds.", None, 0.634, None, None),
    "pax without the colon": ("[PAX STATUS] step_i: 100, training loss: 6.35", 100, None, None, 6.35),
    "torch_xla": (
        "| Training Device=xla:0/3 Epoch=1 Step=280 Loss=2.5 Rate=1760.9 GlobalRate=1.0 Time=1",
        280,
        None,
        None,
        2.5,
    ),
    "tf": ("global step 234: loss = 0.3331 (1.887 sec/step)", 234, 1.887, None, 0.3331),
    "levanter": (
        "Progress on:train 8.00it/100it rate:20.0it/s remaining:00:04 elapsed:00:00 postfix:loss=10.8",
        *(8, 0.05, None, 10.8),
    ),
    "tqdm": ("train: 46%|####      | 46/100 [00:43<02:45,  3.07s/it, loss=2.5]", 46, 3.07, None, 2.5),
    "ours": ('{"step": 7, "step_time_s": 0.5, "tflops_per_device": 2.0, "loss": 1.5}', 7, 0.5, 2.0, 1.5),
}
"""One of each framework whose lines are known; T5X prints none, serving and tpu-info print no steps."""


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", LINES)
def test_every_framework_is_read_behind_every_prefix(line: str, prefix: str) -> None:
    text, *expected = LINES[line]
    reading = feed_line(ReadingParser(), f"{PREFIXES[prefix]}{text}\n")
    assert reading is not None
    assert [reading.step, reading.step_time_s, reading.tflops_per_device, reading.loss] == expected


@pytest.mark.parametrize(
    "line",
    [
        "Tokens/min: 12345.6 Requests/min: 12.3",
        "============ Serving Benchmark Result ============",
        "TTST mean: 12.5",
        "Memory statistics | total_hbm_limit_gb=31.25",
        "│ /dev/accel0 │ TPU v5e chip │ 18.45 GiB / 31.25 GiB │ 100.00% │",
        "Completed eval after train step 200, loss=7.991, total_weights=196608",
    ],
)
def test_serving_devices_and_evaluations_tell_no_training_step(line: str) -> None:
    assert ReadingParser().feed(line) == []


def test_a_pattern_of_the_operator() -> None:
    parser = ReadingParser(
        pattern=r"it (?P<step>\d+) took (?P<milliseconds>[\d.]+)ms .* (?P<loss>\S+) g(?P<grad>\S+)"
    )
    feed_line(parser, "it 1 took 900ms loss 3.0 g1.0")
    reading = feed_line(parser, "I0000 it 2 took 250ms loss 2.5 g0.5")
    assert reading == Reading(2, 0.25, None, None, 2.5, {"grad": 0.5}, "regex")
    assert feed_line(parser, "completed step: 1, seconds: 2.0") is None


@pytest.mark.parametrize(("pattern", "why"), [("(", "position"), ("step", "names no group")])
def test_a_wrong_pattern_is_explained(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ReadingParser(pattern=pattern)


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text: str) -> None:
    parser = ReadingParser(peak_tflops_per_device=100)
    for line in (text, "completed step: " + text, '{"' + text, "train: 1%|" + text, "[PAX STATUS] step_i: " + text):
        for reading in parser.feed(line):
            assert reading.step_time_s is None or (reading.step_time_s > 0 and math.isfinite(reading.step_time_s))


finite = st.floats(1e-6, 1e6)


@given(st.integers(0, 10**9), finite, finite, st.text("abc [](){}:=,|", max_size=40))
def test_a_maxtext_line_is_read_whatever_stands_before_it(
    step: int, seconds: float, tflops: float, before: str
) -> None:
    line = f"{before} completed step: {step}, seconds: {seconds:.6f}, TFLOP/s/device: {tflops:.6f}, loss: 1.000"
    reading = feed_line(ReadingParser(), line)
    assert reading is not None
    assert (reading.step, reading.step_time_s, reading.tflops_per_device) == (
        step,
        float(f"{seconds:.6f}"),
        float(f"{tflops:.6f}"),
    )


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(0, 1))
def test_a_percentile_lies_within_its_values(values: list[float], share: float) -> None:
    assert min(values) <= percentile(sorted(values), share) <= max(values)


def test_statistics_are_medians_of_what_counts() -> None:
    readings = read("maxtext_classic.log")
    figures = statistics(readings, 459)
    assert figures.counted == 8
    assert figures.set_aside == {FIRST_STEP: 1, ABOVE_PEAK: 1}
    assert figures.tflops_per_device is not None
    assert figures.tflops_per_device.median == pytest.approx(134.9125)
    assert figures.mfu == pytest.approx(134.9125 / 459)
    assert not figures.error
    assert statistics([]).tflops_per_device is None
    assert distribution([]) is None


def test_over_a_hundred_percent_is_an_error_and_never_a_figure() -> None:
    readings = [Reading(n, 1.0, 250.0) for n in range(5)]
    figures = statistics(readings, 197)
    assert figures.mfu is None
    assert "5 of 5 readings are above the peak of 197 TFLOP/s" in figures.error
