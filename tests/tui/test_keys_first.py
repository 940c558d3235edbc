"""A key is painted before what workers print: decided by clocks that the test sets, and counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import tui.station as station
from backend.ssh import lean
from tui.station import KEY_FIRST_S, KEYS_LONGEST_S, Station


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(station, "time", made)
    return made


@pytest.fixture
def thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


async def test_a_log_waits_for_a_key_and_no_longer(clock: Clock) -> None:
    made = Station()
    made.init_station()
    assert not made.key_comes_first()
    made.hold_reading()
    assert made.key_comes_first()
    clock.now += 1.1 * KEY_FIRST_S
    assert not made.key_comes_first()


async def test_a_key_that_is_held_down_does_not_stop_a_log(clock: Clock) -> None:
    made = Station()
    made.init_station()
    made.key_comes_first()
    drawn = 0
    for _ in range(int(10 * KEYS_LONGEST_S / 0.03)):
        clock.now += 0.03
        made.hold_reading()
        drawn += not made.key_comes_first()
    assert 8 <= drawn <= 11


def test_where_somebody_types_few_objects_are_looked_through_at_once(thresholds: None) -> None:
    lean.garbage()
    assert gc.get_threshold() == lean.GARBAGE_THRESHOLDS
    lean.garbage(interactive=True)
    assert gc.get_threshold() == lean.SHORT_PAUSES
    assert gc.get_threshold()[0] * 5 <= lean.GARBAGE_THRESHOLDS[0]
