"""The part of the variance that comes from the starts, removed by further starts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from scopeval.errors import InputError
from scopeval.estimation.running_moments import AsymptoticSequence, Moments, moments_interval
from scopeval.estimation.start_states import StartControl

#: A law of one episode: chance, v at its start, value. And of a start: chance, v.
EPISODE = [(0.2, 1.0, 3.0), (0.3, 1.0, -1.0), (0.1, 4.0, 5.0), (0.4, 4.0, 2.5)]
START = [(0.5, 1.0), (0.5, 4.0)]
TRUE = sum(p * value for p, _, value in EPISODE)


def moments_of(values):
    found = Moments()
    found.merge(np.asarray(values, np.float64))
    return found


@pytest.mark.parametrize("planned", [2, 1, 7])
def test_unbiased_with_an_unbiased_variance_by_enumeration(planned):
    """All outcomes of two episodes and three further starts, with v that is not the value."""
    n, m = 2, 3
    mean = square = variance = 0.0
    for episodes in product(EPISODE, repeat=n):
        for starts in product(START, repeat=m):
            chance = np.prod([e[0] for e in episodes]) * np.prod([s[0] for s in starts])
            control = StartControl.of([s[1] for s in starts], planned)
            assert control.factor == m / (m + planned)
            own, values = (np.array([e[k] for e in episodes]) for k in (1, 2))
            left = moments_of(control.adjusted(values, own))
            mean += chance * left.mean
            square += chance * left.mean**2
            variance += chance * (left.std**2 / n + control.own_error**2)
    assert mean == pytest.approx(TRUE, abs=1e-12)
    assert variance == pytest.approx(square - mean**2, abs=1e-12)


def test_unbiased_where_the_law_of_the_starts_is_known_by_enumeration():
    control = StartControl.known([v for _, v in START], [p for p, _ in START])
    mean = square = 0.0
    for chance, own, value in EPISODE:
        left = float(control.adjusted(np.array([value]), np.array([own]))[0])
        mean += chance * left
        square += chance * left**2
    assert mean == pytest.approx(TRUE, abs=1e-12)
    between = sum(p * (value - own) ** 2 for p, own, value in EPISODE)
    assert square - mean**2 == pytest.approx(
        between - sum(p * (value - own) for p, own, value in EPISODE) ** 2, abs=1e-12
    )
    assert control.own_error == 0.0


def test_a_true_value_leaves_the_share_of_the_starts_that_theory_says():
    """v = E[value | start]: of Var(v) / n only Var(v) / (n + m) is left, in expectation."""
    rng = np.random.default_rng(0)
    n, m = 20_000, 60_000
    own, others = rng.normal(0, 2.0, n), rng.normal(0, 2.0, m)
    control = StartControl.of(others, n)
    left = moments_of(control.adjusted(own + rng.normal(0, 1.0, n), own))
    error = left.std**2 / n + control.own_error**2
    assert error == pytest.approx(1.0 / n + 4.0 / (n + m), rel=0.05)


def test_intervals_cover():
    """2,000 intervals of 95 %; fails on right code with probability 1e-6."""
    rng = np.random.default_rng(1)
    hits = without = 0
    for _ in range(2000):
        own, others = rng.normal(0, 2.0, 100), rng.normal(0, 2.0, 100)
        values = 3.0 + 0.5 * own + rng.normal(0, 0.3, 100)  # v is twice too large
        control = StartControl.of(others, 100)
        plain = moments_interval(moments_of(control.adjusted(values, own)))
        found = control.widened(plain, 0.05, anytime=False)
        hits += found.contains(3.0)
        without += plain.contains(3.0)
    assert abs(hits / 2000 - 0.95) < 4.9 * np.sqrt(0.05 * 0.95 / 2000) + 0.005
    assert without < 0.5 * 2000  # the error of the mean of v must be counted


def test_confidence_sequences_cover_at_all_times():
    """400 sequences of 95 %, looked at 40 times; more than 36 misses have probability 4e-4."""
    rng = np.random.default_rng(2)
    missed = without = 0
    for _ in range(400):
        own, others = rng.normal(0, 2.0, 2000), rng.normal(0, 2.0, 500)
        values = 3.0 + own + rng.normal(0, 0.3, 2000)
        control = StartControl.of(others, 1)
        sequence = AsymptoticSequence(control.sequence_alpha(0.05), 2000)
        left, wrong, alone = control.adjusted(values, own), False, False
        for part in left.reshape(40, 50):
            sequence.update(part)
            found = control.widened(sequence.interval, 0.05, anytime=True)
            wrong |= not found.contains(3.0)
            alone |= not sequence.interval.contains(3.0)
        missed, without = missed + wrong, without + alone
    assert missed <= 36
    assert without > 2 * 36  # the error of the mean of v must be counted


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="expected at least 2"):
        StartControl.of([1.0], 10)
    with pytest.raises(InputError, match="others"):
        StartControl.of([1.0, np.nan], 10)
