"""From readings and messages of workers to the figures of a step. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from backend.bench.model import StepPoint
from jobs.readings import FIRST_STEP, Reading
from jobs.statistics import distribution, percentile

__all__ = ["largest_of", "median_of", "number_of", "point_of", "whole"]


def point_of(step: int, readings: Sequence[Reading]) -> StepPoint:
    """One step of all workers: medians of those that count, with the slowest and the fastest of them."""
    reasons = Counter(reading.set_aside for reading in readings)
    aside = ""
    if FIRST_STEP in reasons:
        aside = FIRST_STEP
    elif not reasons.get(""):
        aside = next(iter(reasons))
    used = readings if aside else [reading for reading in readings if reading.counts]
    times = distribution(each.step_time_s for each in used if each.step_time_s is not None)
    rates = distribution(each.tflops_per_device for each in used if each.tflops_per_device is not None)
    return StepPoint(
        step,
        len(readings),
        times.median if times else 0.0,
        times.minimum if times else 0.0,
        times.maximum if times else 0.0,
        rates.median if rates else None,
        rates.minimum if rates else None,
        rates.maximum if rates else None,
        aside if times else aside or "no time",
    )


def number_of(message: Mapping[str, Any], key: str) -> float | None:
    """A figure of a message; None where it is missing or no number."""
    value = message.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _values(messages: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return sorted(value for message in messages if (value := number_of(message, key)) is not None)


def median_of(messages: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The median of one figure over the workers\' messages; None where nobody told it."""
    values = _values(messages, key)
    return percentile(values, 0.5) if values else None


def largest_of(messages: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The largest of one figure over the workers\' messages; None where nobody told it."""
    values = _values(messages, key)
    return values[-1] if values else None


def whole(value: float | None) -> int | None:
    """Without its fraction: bytes."""
    return None if value is None else int(value)
