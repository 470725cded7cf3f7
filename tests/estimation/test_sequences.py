"""Means of values in stages: the same as plain intervals for one stage, and valid when they adapt.

Chances of failing by accident are stated; seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from scopeval.errors import InputError
from scopeval.estimation.moments import interval
from scopeval.estimation.sequences import AsymptoticSequence, StagedMoments


@pytest.mark.parametrize("weight", [1.0, 0.3, 7.0])
def test_one_stage_is_the_plain_interval(weight):
    x = np.random.default_rng(1).exponential(size=200)
    staged, plain = StagedMoments(0.1, 300), AsymptoticSequence(0.1, 300)
    staged.begin(weight)
    for part in np.split(x, 8):
        staged.update(part)
        now = plain.update(part)
    fixed, wanted = staged.interval(), interval(x, alpha=0.1)
    assert fixed.estimate == pytest.approx(wanted.estimate)
    assert fixed.low == pytest.approx(wanted.low)
    assert fixed.high > wanted.high  # the side of the long tail
    plain_t = StagedMoments(0.1, 300, skew_factor=0.0)
    plain_t.begin(weight)
    plain_t.update(x)
    assert plain_t.interval().high == pytest.approx(wanted.high)
    for end in ("estimate", "low", "high"):
        assert getattr(staged.sequence(), end) == pytest.approx(getattr(now, end))


def test_stages_of_equal_law_and_weight_are_nearly_one():
    x = np.random.default_rng(2).normal(size=400)
    staged = StagedMoments()
    for part in np.split(x, [50, 200]):
        staged.begin(1.0)
        staged.update(part)
    assert staged.estimate == pytest.approx(x.mean())
    assert staged.interval().half_width == pytest.approx(interval(x).half_width, rel=0.02)


def test_weights_count_as_they_should():
    """By hand: two stages, weights 1 and 3."""
    staged = StagedMoments()
    staged.begin(1.0)
    staged.update([0.0, 2.0])
    staged.begin(3.0)
    staged.update([4.0, 5.0, 6.0, 7.0])
    assert staged.total_weight == pytest.approx(2 + 12)
    assert staged.estimate == pytest.approx((2.0 + 3 * 22.0) / 14)
    squares = 1 * 2 * 2.0 + 9 * 4 * (5.0 / 3.0)
    assert staged.squared_error == pytest.approx(squares / 14**2)


def test_too_few_values_say_nothing():
    staged = StagedMoments()
    assert math.isnan(staged.estimate)
    staged.begin(1.0)
    staged.update([1.0])
    assert staged.interval().half_width == math.inf
    staged.update([1.0, 1.0])
    assert staged.interval().half_width == 0.0  # equal values, as for plain intervals
    assert staged.sequence().half_width == math.inf
    with pytest.raises(InputError, match="weight"):
        staged.begin(0.0)


def test_values_that_are_equal_to_rounding_say_nothing_of_rare_events():
    """As with a control variate that leaves only rounding. Seen to fail without `Moments.flat`."""
    rng = np.random.default_rng(0)
    staged = StagedMoments()
    for _ in range(4):
        staged.begin(1.0)
        staged.update(100.0 + 1e-13 * rng.standard_normal(100))
    assert staged.sequence().half_width == math.inf
    staged.update([60.0])  # one event
    found = staged.sequence()
    assert (found.low, found.high < math.inf) == (-math.inf, True)
    staged.update(rng.uniform(50.0, 70.0, 9))
    assert staged.sequence().half_width < math.inf


def adaptive_runs(law: str, runs: int):
    """Stages whose spread and weight depend on the mean of the stage before; the mean is 0."""
    rng = np.random.default_rng(7)
    for _ in range(runs):
        spread, left, staged, missed = 1.0, 1.0, StagedMoments(target_n=2000), False
        sizes = [30, 30, 60, 120, 240]
        for k, size in enumerate(sizes):
            share = 1.0 if k == len(sizes) - 1 else 0.5 * size / sum(sizes[k:]) / spread
            staged.begin(left * min(share, 0.9) / size)
            left -= left * min(share, 0.9)
            x = rng.normal(size=size) if law == "normal" else rng.exponential(size=size) - 1.0
            for part in np.array_split(spread * x, max(size // 30, 1)):
                staged.update(part)
                missed |= not staged.sequence().contains(0.0)
            spread = 0.3 if x.mean() > 0 else 0.8  # what the stage showed decides the next one
        yield staged.interval(), missed


@pytest.mark.parametrize(("law", "least"), [("normal", 0.935), ("exponential", 0.935)])
def test_coverage_although_stages_adapt(law, least):
    """1,500 runs at 95 %; values fall below 93.5 % by chance with probability 0.006, and
    the sequence ever misses in more than 6.5 % with probability 0.006 if its level holds."""
    found = list(adaptive_runs(law, 1500))
    covered = np.mean([one.contains(0.0) for one, _ in found])
    assert least <= covered <= 0.97
    assert np.mean([missed for _, missed in found]) <= 0.065
