"""Seconds as an operator reads them: `92s`, `31m`, `1h51m`, `3d`."""

from __future__ import annotations

import math

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86400


def format_duration(seconds: float, *, is_lower_bound: bool = False) -> str:
    """Two units at most, rounded down: a state that lasts `31m` has lasted at least that.

    Args:
        seconds: Duration; negative (clocks differ) reads as 0, nan and infinity as `-`.
        is_lower_bound: Writes `>= 31m`: the beginning was not seen.
    """
    if not math.isfinite(seconds):
        return "-"
    whole = max(0, int(seconds))
    if whole < 2 * MINUTE_S:
        text = f"{whole}s"
    elif whole < HOUR_S:
        text = f"{whole // MINUTE_S}m"
    elif whole < DAY_S:
        hours, minutes = divmod(whole // MINUTE_S, 60)
        text = f"{hours}h{minutes:02d}m" if minutes else f"{hours}h"
    else:
        days, hours = divmod(whole // HOUR_S, 24)
        text = f"{days}d{hours}h" if hours and days < 10 else f"{days}d"
    return f">= {text}" if is_lower_bound else text
