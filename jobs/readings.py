r"""Numbers out of logs: one incremental parser for the lines that training programs print.

Understood are our own JSON lines, MaxText and MaxDiffusion, upstream's `shardings.py`, Levanter (tqdm-loggable), tqdm,
Pax, axlearn, torch_xla, TensorFlow, plain `step N: loss=...`, and any regular expression with named groups. Lines come
as they are: prefixes of absl, glog, Ray, logging and loguru, ANSI colour and `\r` do no harm. `key: value` pairs are
read by name, not by position. The shapes are those of tests/fixtures/logs (sources there).

A reading that must not count (a first step that compiled, a value above the chip's peak, a loss without a time) is
returned with the reason in `set_aside`: shown, counted, never averaged.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.generations import GREATEST_PEAK_TFLOPS

LINE_LIMIT = 16384
"""Characters of a line (or of a segment between carriage returns) that are looked at: no program's step line is longer."""
FIRST_STEP = "first step"
ABOVE_PEAK = "above peak"
NO_TIME = "no time"

STEP_KEYS = ("step", "step_i", "global_step")
TIME_KEYS = ("step_time_s", "seconds", "step_time", "sec_per_step", "train/step_time")
TFLOPS_KEYS = ("tflops_per_device", "TFLOP/s/device", "tflops", "perf/per_device_tflops_per_sec")
TOKENS_KEYS = ("tokens_per_device", "Tokens/s/device", "tokens", "perf/per_device_tokens_per_sec")
LOSS_KEYS = ("loss", "train/loss", "learning/loss")


@dataclass(frozen=True, slots=True)
class Reading:
    """One step as a program told it. Missing figures are None."""

    step: int | None = None
    step_time_s: float | None = None
    tflops_per_device: float | None = None
    """TFLOP/s of one device, by the program's own count."""
    tokens_per_device: float | None = None
    """Tokens/s of one device."""
    loss: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    """Other figures of the line, by the program's names."""
    source: str = ""
    """Which kind of line it was: `json`, `maxtext`, `tqdm` ..."""
    set_aside: str = ""
    """Why it doesn't count; empty when it does."""

    @property
    def counts(self) -> bool:
        return not self.set_aside


_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_N = r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf(?:inity)?)"
_MAXTEXT = re.compile(r"completed step:?\s*(\d+)\b(.*)", re.IGNORECASE)
_PAIR = re.compile(rf"([A-Za-z][\w/ .-]*?)\s*[:=]\s*{_N}(?=[\s,;|)\]]|$)", re.IGNORECASE)
_TIMINGS = re.compile(r"average time:\s*\S+ timings \(seconds\) \[([^\]]*)\]")
_SHARDINGS = re.compile(rf"time is {_N} seconds, TFLOP is {_N}, TFLOP/s is {_N}")
_LEVANTER = re.compile(r"Progress on:\s*(\S+) ([\d.]+)([kMG]?)it/\S+ rate:([\d.]+)([kMG]?)(it/s|s/it)(.*)")
_TQDM = re.compile(
    r"([^|\r\n]*?)\d+%\|[^|]*\| *(\d+)/\d+ \[[^\],]*, +([\d.]+) ?(it/s|s/it|steps?/s|s/steps?)([^\]]*)\]"
)
_PAX_TIME = re.compile(rf"\[PAX STATUS\]:? train_step\(\) took {_N} seconds")
_PAX_STEP = re.compile(rf"\[PAX STATUS\]:? step_i: (\d+), training loss: {_N}")
_AXLEARN = re.compile(rf"step (\d+):? Average step time: {_N} seconds|Average step time: {_N} seconds")
_TORCH_XLA = re.compile(r"\| Training Device=(\S+) (.*)")
_TF = re.compile(rf"global step (\d+): loss = {_N} \({_N} sec/step\)")
_PLAIN = re.compile(r"(?<![\w/])(?:train )?step:?[ =](\d+)\b:?(?: training)? *[,|-]? *(.*)", re.IGNORECASE)
_STEPS_PER_S = re.compile(rf"steps/s\s*[=:]\s*{_N}")
_NOT_TRAINING = re.compile(r"eval|valid|load|download|fetch|token|map|shard|save|restor|compil|warm", re.IGNORECASE)
_SCALE = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}

STRENGTH = {"regex": 5, "json": 5, "maxtext": 4, "shardings": 4, "pax": 3, "axlearn": 3, "tf": 3}
STRENGTH.update({"torch_xla": 3, "levanter": 2, "tqdm": 1, "plain": 0})
"""Where two loggers tell of the same steps, the stronger is read and the weaker is left alone."""


class ReadingParser:
    """Reads one worker's log line by line. One parser a log: it remembers what it has seen.

    Args:
        peak_tflops_per_device: Values above it are set aside; None when the chip is not known: then those above the
            greatest peak of all.
        pattern: A regular expression with named groups out of `step`, `seconds`, `milliseconds`, `tflops`, `tokens`,
            `loss` (other named groups become extra figures). When given, only it is used.

    Raises:
        ValueError: The pattern is wrong, with its position, or names no group.
    """

    def __init__(self, peak_tflops_per_device: float | None = None, pattern: str | None = None) -> None:
        self.peak_tflops_per_device = peak_tflops_per_device
        self.counted = 0
        self.set_aside: Counter[str] = Counter()
        """Reason -> how many readings."""
        self.messages: list[dict[str, Any]] = []
        """Other JSON objects of our own programs (`device`, `compiled`, `summary`, `error`), in order."""
        self._custom = _compiled(pattern) if pattern is not None else None
        self._strongest = -1
        self._last_step: int | None = None
        self._first_seen = False
        self._timings: list[float] = []

    @property
    def summary(self) -> dict[str, Any] | None:
        """Our program's last `summary` object, when it came."""
        return self.message("summary")

    def message(self, kind: str) -> dict[str, Any] | None:
        """The last JSON object under this key."""
        for item in reversed(self.messages):
            if isinstance(item.get(kind), dict):
                found: dict[str, Any] = item[kind]
                return found
        return None

    def feed(self, line: str) -> list[Reading]:
        """The readings of this line. Never raises, whatever the line.

        Upstream's list of timings gives several at once; a `\\r` bar is read in each segment.
        """
        found: list[Reading] = []
        for segment in line.rstrip("\r\n").split("\r"):
            text = segment[:LINE_LIMIT]
            text = _ANSI.sub("", text) if "\x1b" in text else text
            found.extend(self._judged(reading) for reading in self._read(text) if self._is_news(reading))
        return found

    def _read(self, text: str) -> list[Reading]:
        if self._custom is not None:
            reading = _custom(self._custom, text)
            return [reading] if reading else []
        if '{"' in text:
            message = _json_object(text)
            if message is not None:
                return self._of_json(message)
        if "timings (seconds)" in text and (match := _TIMINGS.search(text)):
            values = [_number(part) for part in match[1].split(",")]
            self._timings = [value for value in values if value is not None and value > 0]
            return []
        if "TFLOP is" in text and (match := _SHARDINGS.search(text)):
            return self._of_shardings(float(match[1]), float(match[2]), float(match[3]))
        for marker, read in _READERS:
            if marker in text and (reading := read(text)) is not None:
                return [reading]
        if "step" in text.lower() and (reading := _plain(text)) is not None:
            return [reading]
        return []

    def _of_json(self, message: dict[str, Any]) -> list[Reading]:
        if "step" not in message:
            if any(isinstance(message.get(key), dict) for key in ("summary", "error", "compiled", "device", "check")):
                self.messages.append(message)
            return []
        figures = {key: number for key, value in message.items() if (number := _plain_number(value)) is not None}
        reading = _of_figures(figures, "json")
        if reading is None or reading.step is None:
            return []
        return [replace(reading, set_aside=FIRST_STEP) if message.get("warmup") is True else reading]

    def _of_shardings(self, seconds: float, tflop: float, rate: float) -> list[Reading]:
        timings, self._timings = self._timings, []
        if not timings:
            return [Reading(None, seconds, rate, source="shardings", extra={"tflop": tflop})]
        return [
            Reading(number, each, tflop / each, source="shardings", extra={"tflop": tflop})
            for number, each in enumerate(timings)
        ]

    def _is_news(self, reading: Reading) -> bool:
        strength = STRENGTH[reading.source]
        if strength < self._strongest:
            return False
        self._strongest = strength
        # Bars are redrawn many times a step, and start with a figure of nothing.
        if reading.source in ("tqdm", "levanter"):
            return reading.step != self._last_step and bool(reading.step)
        return True

    def _judged(self, reading: Reading) -> Reading:
        reason = reading.set_aside
        back = reading.step is not None and self._last_step is not None and reading.step < self._last_step
        if reading.step is not None:
            self._last_step = reading.step
        timed = reading.step_time_s is not None or reading.tflops_per_device is not None
        if not timed and reading.tokens_per_device is None and not _rated(reading):
            reason = reason or NO_TIME
        elif reading.source not in ("json", "shardings") and (not self._first_seen or back):
            # Both of ours warm up before they print; others' first step compiles, as does the first after a rewind.
            reason = reason or FIRST_STEP
            self._first_seen = True
        peak = self.peak_tflops_per_device or GREATEST_PEAK_TFLOPS
        if not reason and reading.tflops_per_device is not None and reading.tflops_per_device > peak:
            reason = ABOVE_PEAK
        if reason:
            self.set_aside[reason] += 1
        else:
            self.counted += 1
        return replace(reading, set_aside=reason) if reason else reading


def _rated(reading: Reading) -> bool:
    return "Rate" in reading.extra


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern '{pattern}' is not a regular expression: {error}") from None
    if not compiled.groupindex:
        raise ValueError(
            f"the pattern '{pattern}' names no group: write (?P<step>...), (?P<seconds>...), (?P<tflops>...),"
            " (?P<tokens>...) or (?P<loss>...) around the figures"
        )
    return compiled


def _custom(pattern: re.Pattern[str], text: str) -> Reading | None:
    match = pattern.search(text)
    if match is None:
        return None
    figures = {}
    for name, value in match.groupdict().items():
        number = _number(value) if value is not None else None
        if number is not None:
            figures[name] = number
    if "milliseconds" in figures:
        figures["seconds"] = figures.pop("milliseconds") / 1000
    return _of_figures(figures, "regex") if figures else None


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text[text.index('{"') :])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _plain_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _of_figures(figures: Mapping[str, float], source: str) -> Reading | None:
    """Sorts named figures into a reading; what is impossible (a time of 0, an infinite rate) is left out."""
    rest = dict(figures)

    def take(keys: tuple[str, ...], *, positive: bool = True) -> float | None:
        for key in keys:
            if key in rest:
                value = rest.pop(key)
                if not positive or (math.isfinite(value) and value > 0):
                    return value
        return None

    step = take(STEP_KEYS, positive=False)
    whole = int(step) if step is not None and math.isfinite(step) and step >= 0 else None
    seconds = take(TIME_KEYS)
    tflops = take(TFLOPS_KEYS)
    tokens = take(TOKENS_KEYS)
    loss = take(LOSS_KEYS, positive=False)
    if whole is None and seconds is None and tflops is None and tokens is None:
        return None
    return Reading(whole, seconds, tflops, tokens, loss, rest, source)


def _pairs(text: str) -> dict[str, float]:
    pairs: dict[str, float] = {}
    for key, value in _PAIR.findall(text):
        number = _number(value)
        if number is not None:
            pairs.setdefault(key.strip(), number)
    return pairs


def _maxtext(text: str) -> Reading | None:
    match = _MAXTEXT.search(text)
    if match is None:
        return None
    figures = _pairs(match[2])
    if "steps/s" in figures and figures["steps/s"] > 0:
        figures.setdefault("seconds", 1 / figures.pop("steps/s"))
    return _of_figures({"step": float(match[1]), **figures}, "maxtext")


def _levanter(text: str) -> Reading | None:
    match = _LEVANTER.search(text)
    if match is None or _NOT_TRAINING.search(match[1]):
        return None
    done, rate = _number(match[2]), _number(match[4])
    if done is None or rate is None:
        return None
    return _bar(done * _SCALE[match[3]], rate * _SCALE[match[5]], match[6], match[7], "levanter")


def _tqdm(text: str) -> Reading | None:
    found = None
    for match in _TQDM.finditer(text):
        if not _NOT_TRAINING.search(match[1]):
            rate = _number(match[3])
            found = _bar(float(match[2]), rate, match[4], match[5], "tqdm") if rate is not None else found
    return found


def _bar(done: float, rate: float, unit: str, rest: str, source: str) -> Reading | None:
    if rate <= 0:
        return None
    seconds = rate if unit.startswith("s/") else 1 / rate
    figures = {
        key.removeprefix("postfix:").strip(): value for key, value in _pairs(rest.replace("postfix:", "")).items()
    }
    return _of_figures({**figures, "step": done, "seconds": seconds}, source)


def _pax(text: str) -> Reading | None:
    if match := _PAX_TIME.search(text):
        return _of_figures({"seconds": float(match[1])}, "pax")
    if match := _PAX_STEP.search(text):
        return _of_figures({"step": float(match[1]), "loss": float(match[2])}, "pax")
    return None


def _axlearn(text: str) -> Reading | None:
    match = _AXLEARN.search(text)
    if match is None:
        return None
    figures = {"seconds": float(match[2] or match[3])}
    return _of_figures({**figures, "step": float(match[1])} if match[1] else figures, "axlearn")


def _torch_xla(text: str) -> Reading | None:
    match = _TORCH_XLA.search(text)
    if match is None:
        return None
    pairs = {
        key: number for key, value in re.findall(r"(\w+)=(\S+)", match[2]) if (number := _number(value)) is not None
    }
    renamed = {{"Step": "step", "Loss": "loss"}.get(key, key): value for key, value in pairs.items()}
    device = re.search(r"(\d+)$", match[1])
    if device:
        renamed["device"] = float(device[1])
    return _of_figures(renamed, "torch_xla")


def _tf(text: str) -> Reading | None:
    match = _TF.search(text)
    if match is None:
        return None
    return _of_figures({"step": float(match[1]), "loss": float(match[2]), "seconds": float(match[3])}, "tf")


def _plain(text: str) -> Reading | None:
    match = _PLAIN.search(text)
    if match is None or _NOT_TRAINING.search(text[: match.start()][-40:]):
        return None
    figures = _pairs(match[2])
    if rate := _STEPS_PER_S.search(match[2]):
        figures["seconds"] = 1 / float(rate[1]) if float(rate[1]) > 0 else 0.0
    reading = _of_figures({**figures, "step": float(match[1])}, "plain")
    told = reading is not None and (reading.loss is not None or reading.step_time_s or reading.tflops_per_device)
    return reading if told else None


_READERS: tuple[tuple[str, Callable[[str], Reading | None]], ...] = (
    ("ompleted step", _maxtext),
    ("Progress on:", _levanter),
    ("PAX STATUS", _pax),
    ("Average step time", _axlearn),
    ("Training Device=", _torch_xla),
    ("global step", _tf),
    ("%|", _tqdm),
)
"""(what has to be in the line, who reads it): a substring test first, because logs are long and steps are few."""
