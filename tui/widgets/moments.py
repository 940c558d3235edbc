"""Times as an operator types them: `14:05`, `14:05:09`, `-10m`, `2026-11-30 14:05`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*([smhd])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_moment(text: str, now: float, timezone: tzinfo = UTC) -> float:
    """Unix seconds of a moment in the past.

    Args:
        text: `-10m`, a time of day (today's, or yesterday's if that is still to come), or an ISO date and time.
        now: Unix seconds.
        timezone: Of what is typed without an offset.

    Raises:
        ValueError: The text is none of these; the message says what may be typed.
    """
    stripped = text.strip()
    if match := _AGO.fullmatch(stripped):
        return now - float(match[1]) * _UNIT_S[match[2]]
    today = datetime.fromtimestamp(now, timezone)
    try:
        if match := _CLOCK.fullmatch(stripped):
            moment = today.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
            return (moment if moment <= today else moment - timedelta(days=1)).timestamp()
        parsed = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(f"'{text}' is no time: type 14:05, 14:05:09, -10m or 2026-11-30 14:05") from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone)).timestamp()
