"""Figures of merit from readings: medians and spreads, never a mean, and utilisation against a peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.generations import GREATEST_PEAK_TFLOPS
from jobs.readings import ABOVE_PEAK, Reading


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of one figure, in its own unit."""

    count: int
    median: float
    p10: float
    p90: float
    minimum: float
    maximum: float

    @property
    def spread(self) -> float:
        """(p90 - p10) / median: 0.05 means that 8 of 10 values lie in a band 5 % wide."""
        return (self.p90 - self.p10) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of many readings, those that count. Absent figures are None."""

    counted: int
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Reason -> how many readings."""
    step_time_s: Distribution | None = None
    tflops_per_device: Distribution | None = None
    tokens_per_device: Distribution | None = None
    mfu: float | None = None
    """Median TFLOP/s per device over the peak; None without a peak or without TFLOP/s."""
    error: str = ""
    """Why the utilisation can't be believed."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the nearest ranks of sorted values; `share` from 0 to 1.

    Raises:
        ValueError: No values.
    """
    if not ordered:
        raise ValueError("no values")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def distribution(values: Iterable[float]) -> Distribution | None:
    """None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        len(ordered),
        percentile(ordered, 0.5),
        percentile(ordered, 0.1),
        percentile(ordered, 0.9),
        ordered[0],
        ordered[-1],
    )


HISTOGRAM_MOST = 8
"""Bins of a histogram at most: lines on a screen."""


@dataclass(frozen=True, slots=True)
class Bin:
    """How many values lie from `low` to `high`; the last bin holds its upper end too."""

    low: float
    high: float
    count: int


def histogram(values: Iterable[float], *, most: int = HISTOGRAM_MOST) -> tuple[Bin, ...]:
    """Bins of equal width over all values, about as many as the root of their number; one where all are equal."""
    ordered = sorted(values)
    if not ordered:
        return ()
    low, high = ordered[0], ordered[-1]
    number = max(1, min(most, round(len(ordered) ** 0.5)))
    width = (high - low) / number
    if width <= 0 or low + width == low:
        return (Bin(low, high, len(ordered)),)
    counts = [0] * number
    for value in ordered:
        counts[min(number - 1, int((value - low) / width))] += 1
    edges = [low + place * width for place in range(number)]
    return tuple(Bin(*each) for each in zip(edges, [*edges[1:], high], counts, strict=True))


class Measured(Protocol):
    """One step as one worker told it, or as all of them did."""

    @property
    def set_aside(self) -> str: ...
    @property
    def step_time_s(self) -> float | None: ...
    @property
    def tflops_per_device(self) -> float | None: ...


def statistics(
    readings: Iterable[Measured], peak_tflops_per_device: float | None = None, *, called: str = "readings"
) -> Statistics:
    """Figures of the readings that count.

    Args:
        peak_tflops_per_device: The chip's, or the operator's own.
        called: What the readings are.
    """
    kept: list[Measured] = []
    aside: Counter[str] = Counter()
    above = 0
    peak = peak_tflops_per_device or GREATEST_PEAK_TFLOPS
    for reading in readings:
        reason = reading.set_aside
        if not reason and (reading.tflops_per_device or 0.0) > peak:
            reason = ABOVE_PEAK
        above += reason == ABOVE_PEAK
        if reason:
            aside[reason] += 1
        else:
            kept.append(reading)
    rates = distribution(each.tflops_per_device for each in kept if each.tflops_per_device is not None)
    mfu = rates.median / peak_tflops_per_device if rates and peak_tflops_per_device else None
    error = ""
    if above and above >= len(kept):
        error = (
            f"{above} of {above + len(kept)} {called} are above the peak of {peak:g} TFLOP/s a device,"
            " over 100 % MFU: the peak or the program's FLOP count is wrong."
        )
    return Statistics(
        len(kept),
        dict(aside),
        distribution(each.step_time_s for each in kept if each.step_time_s is not None),
        rates,
        distribution(
            each.tokens_per_device
            for each in kept
            if isinstance(each, Reading) and each.tokens_per_device is not None
        ),
        None if error else mfu,
        error,
    )


def rate_unit(tflops: float) -> tuple[str, float]:
    """(unit, factor from TFLOP/s) in which a rate is a readable number: a CPU's is thousandths of a TFLOP/s."""
    if tflops >= 0.1:
        return "TFLOP/s", 1.0
    return ("GFLOP/s", 1e3) if tflops >= 1e-4 else ("MFLOP/s", 1e6)


def rate_words(tflops: float) -> str:
    """`151.2 TFLOP/s`, `0.33 GFLOP/s`."""
    unit, scale = rate_unit(tflops)
    return f"{tflops * scale:.4g} {unit}"
