"""The compiled pass over a log finds what plain numpy finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval.data import log_statistics
from scopeval.data._neighbor_kernel import scan
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.neighbor_rows import NeighborRows, separate_pairs
from scopeval.data.repeated_rows import Contents, Wanted
from scopeval.data.transitions import Transitions


@given(st.integers(0, 2**32 - 1), st.integers(0, 70), st.integers(0, 5), st.booleans())
@settings(deadline=None)
def test_neighbors_and_chosen_rows(seed, pairs, bits, longer):
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.choice([1, 1, 1, 2, 0, -1, 257], pairs + 1))
    key = rng.integers(-40, 40, pairs + longer)
    mask = (1 << bits) - 1
    value = int(key[0]) & mask if key.size else 0
    t.flags.writeable = bool(seed % 2)  # columns of Parquet files are read-only
    separate, chosen = np.empty(pairs, bool), np.empty(key.size, np.int64)
    count = scan(t, key, mask, value, separate, chosen)
    np.testing.assert_array_equal(separate, np.diff(t) != 1)
    np.testing.assert_array_equal(chosen[:count], np.flatnonzero(key & mask == value))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.sampled_from([1, 2, 3, 20, 2**61]),
    st.sampled_from([0.0, 0.05, 1.0]),
)
@settings(deadline=None)
def test_numpy_finds_the_same_neighbors(seed, rows, most, wrong):
    """A hole in t is found whatever comes after it, also where sums of t would overflow."""
    rng = np.random.default_rng(seed)
    t = np.where(rng.random(rows) < wrong, rng.integers(0, most, rows), np.arange(rows) % 7)
    t += int(rng.choice([0, most]))
    nothing = np.zeros(rows, bool)
    pairs = NeighborRows(t, t, t, nothing, None, None)
    breaks = separate_pairs(pairs.part(0, rows - 1), pairs.part(1, rows))
    np.testing.assert_array_equal(breaks.marks, np.diff(t) != 1)
    np.testing.assert_array_equal(breaks.pairs, np.flatnonzero(np.diff(t) != 1))


def test_holes_that_cancel_in_a_sum_are_found():
    t = np.array([0, 1, 3, 4, 5, 6, 8, 0, 1, 2])  # no number of pairs makes up for them
    pairs = NeighborRows(t, t, t, t > 99, None, None)
    breaks = separate_pairs(pairs.part(0, 9), pairs.part(1, 10))
    np.testing.assert_array_equal(breaks.pairs, [1, 5, 6])


@given(
    st.lists(st.integers(0, 70_000), min_size=1, max_size=400), st.integers(0, 16), st.integers(0)
)
@settings(deadline=None)
def test_a_key_is_compared_in_two_ways(states, bits, which):
    """State numbers that are all below the second one with the wanted bits, and others."""
    mask = (1 << bits) - 1
    obs = np.array(states)
    value = states[which % len(states)] & mask
    contents = Contents(obs, obs, obs, obs * 1.0, obs * 1.0, obs)
    chosen = contents.with_key(Wanted(bits, mask, value))
    np.testing.assert_array_equal(chosen, np.flatnonzero(obs & mask == value))


@pytest.mark.parametrize("seed", range(12))
def test_facts_are_the_same_with_and_without_it(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(log_statistics, "BLOCK", 64)
    monkeypatch.setattr(log_statistics, "LOOK", 16)
    monkeypatch.setattr(log_statistics, "EXHAUSTIVE", 100)
    monkeypatch.setattr("scopeval.data.repeated_rows.CAPACITY", 40)
    rows, horizon = 3_000, int(rng.integers(1, 20))
    wrong = rng.random(rows) < 0.01
    t = np.where(wrong, rng.integers(0, horizon + 2, rows), np.arange(rows) % horizon)
    walk = rng.integers(0, int(rng.choice([1, 6, 900])), rows + 1)
    log = Transitions(
        t=t,
        obs=walk[:-1],
        action=rng.integers(0, 3, rows),
        reward=rng.normal(size=rows).round(seed % 3),
        cost=np.ones(rows),
        next_obs=np.where(rng.random(rows) < 0.02, 0, walk[1:]),
        terminated=rng.random(rows) < rng.choice([0.0, 0.05]),
    )
    episode = np.cumsum(t == 0) if seed % 2 else None
    truncated = rng.random(rows) < 0.02 if seed % 3 == 0 else None
    found = []
    for loaded in (True, False):
        monkeypatch.setattr(log_statistics, "compiler_loaded", lambda answer=loaded: answer)
        for batches in (1, 4):
            statistics = LogStatistics()
            for part in np.array_split(np.arange(rows), batches):
                statistics.add(
                    log.select(part),
                    episode=None if episode is None else episode[part],
                    truncated=None if truncated is None else truncated[part],
                )
            found.append(repr(statistics.facts()))
    assert len(set(found)) == 1
