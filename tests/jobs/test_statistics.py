"""Histograms count every value once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobs.statistics import HISTOGRAM_MOST, histogram


@given(st.lists(st.floats(1e-6, 1e6), max_size=300))
def test_a_histogram_counts_every_value_once_in_bins_that_touch(values: list[float]) -> None:
    bins = histogram(values)
    assert sum(each.count for each in bins) == len(values)
    assert len(bins) <= HISTOGRAM_MOST
    assert all(before.high == after.low for before, after in pairwise(bins))
    if values:
        assert (bins[0].low, bins[-1].high) == (min(values), max(values))


def test_a_histogram_of_equal_values_is_one_bin_and_a_slow_tail_stands_apart() -> None:
    assert [(each.low, each.high, each.count) for each in histogram([0.5] * 9)] == [(0.5, 0.5, 9)]
    told = histogram([0.1] * 15 + [0.5])
    assert [each.count for each in told] == [15, 0, 0, 1]
