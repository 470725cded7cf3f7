"""Values without the noise of their paths: exactly unbiased, with the error of the history."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from scopeval import History
from scopeval.context import control, regression
from scopeval.context.control import Adjuster, cross_fitted, fixed_interval
from scopeval.context.features import BlockMeans
from scopeval.context.regression import learn_guesses
from scopeval.estimation.sequences import AsymptoticSequence

#: Demand of a day, which no action changes, and its chance.
DEMAND = {0: 0.6, 1: 0.4}
PI, MU = (0.7, 0.3), (0.4, 0.6)  # of two orders


def episodes():
    """Every episode of one decision: chance under mu, path, weighted return."""
    for (demand, chance), order in product(DEMAND.items(), (0, 1)):
        yield chance * MU[order], demand, PI[order] / MU[order] * (4.0 * demand + 0.3 * order - 1)


EVERY = list(episodes())
VALUE = sum(chance * value for chance, _, value in EVERY)


def histories(m):
    """Every history of m paths."""
    for some in product(DEMAND.items(), repeat=m):
        yield np.prod([c for _, c in some]), np.array([[path] for path, _ in some], float)


@pytest.fixture
def eager(monkeypatch):
    """Learns from the very first episodes, so that all samples can be gone through."""
    monkeypatch.setattr(regression, "FEWEST", 2)
    monkeypatch.setattr(regression, "_EPISODES_PER_FEATURE", 1)
    monkeypatch.setattr(control, "FIRST", 4)
    known = {}

    def learn(own, values, levels, *, guess):
        key = own.paths.tobytes() + values.tobytes(), guess
        if key not in known:
            known[key] = learn_guesses(own, values, levels, guess=guess)
        return known[key]

    monkeypatch.setattr(control, "learn_guesses", learn)


@pytest.mark.parametrize("features", [None, lambda p: 2.0 * p[:, 0, 0]])
@pytest.mark.parametrize("way", ["folds", "earlier"])
def test_unbiased_by_enumeration(eager, way, features):
    """All samples of 5 episodes and 2 paths of history, through all choices of the regression."""
    samples = [
        (
            np.prod([one[0] for one in sample]),
            np.array([one[1] for one in sample], float)[:, None, None],
            np.array([[one[2]] for one in sample]),
        )
        for sample in product(EVERY, repeat=5)
    ]
    mean = used = 0.0
    for chance, paths in histories(2):
        history = History(paths, features=features, block=1)
        for p, own, y in samples:
            if way == "folds":
                z = cross_fitted(y, own, history).values
            else:
                z = Adjuster(history, planned=5).add(y, own)
            mean += chance * p * z.mean()
            used += chance * p * float(np.abs(z - y).max() > 1e-9)
    assert mean == pytest.approx(VALUE, abs=1e-12)
    assert used > 0.2  # the regressions did something


def test_the_sample_itself_as_history_would_be_wrong(eager):
    """The judge can say no: paths of the sample do not leave its mean as it is."""
    mean = 0.0
    for sample in product(EVERY, repeat=5):
        own = np.array([one[1] for one in sample], float)[:, None, None]
        y = np.array([[one[2]] for one in sample])
        z = cross_fitted(y, own, History(own, block=1)).values
        mean += np.prod([one[0] for one in sample]) * z.mean()
    assert abs(mean - VALUE) > 1e-3


def world(rng, n, *, noise=1.0):
    """Paths [n, 12, 2] with regimes, and values of two questions that depend on them."""
    regime = rng.integers(2, size=(n, 1, 1)) * 3.0
    paths = rng.normal(size=(n, 12, 2)) + regime
    total = paths[:, :, 0].mean(axis=1)
    y = 4.0 * total + np.maximum(total - 2.0, 0.0) * 6.0
    values = np.stack([y, -paths[:, :6, 1].mean(axis=1) * 2.0], axis=1)
    return paths, values + noise * rng.normal(size=(n, 2))


def test_what_is_left_is_what_paths_do_not_explain():
    rng = np.random.default_rng(0)
    paths, values = world(rng, 400)
    history = History(world(rng, 12_000)[0], columns=(0, 1), block=1)
    found = cross_fitted(values, paths, history)
    left = found.values.var(axis=0, ddof=1)
    assert (left < 1.45).all()
    assert (left > 0.75).all()
    assert values.var(axis=0)[0] > 30
    assert found.share == 12_000 / 12_400
    # the error of the history: that of g over so many paths
    assert found.error[0] == pytest.approx(values[:, 0].std() / np.sqrt(12_000), rel=0.1)


def test_what_single_entries_exceed_is_seen():
    """Prices without a mean: what is sold above 1, which no block's mean shows.

    Of 300 episodes four fifths teach; means of blocks and their hinges alone leave .58.
    """
    rng = np.random.default_rng(7)
    left = []
    for _ in range(10):
        paths = rng.normal(size=(300, 40, 1))
        y = 10.0 * np.maximum(paths[:, :, 0] - 1.0, 0.0).sum(axis=1, keepdims=True)
        history = History(rng.normal(size=(9000, 40, 1)), columns=0, block=1)
        left.append(cross_fitted(y, paths, history).values.var() / y.var())
    assert np.mean(left) < 0.3


def test_paths_that_say_nothing_are_not_used():
    """Relative to plain means: 100 runs; the ratio is 1.0 +- .03."""
    rng = np.random.default_rng(1)
    history = History(rng.normal(size=(1500, 12, 2)), columns=(0, 1), block=1)
    square = np.zeros(2)
    for _ in range(100):
        y = rng.normal(size=(50, 1))
        found = cross_fitted(y, rng.normal(size=(50, 12, 2)), history)
        square += np.array([found.values.mean() ** 2, y.mean() ** 2])
    assert square[0] / square[1] < 1.09


@pytest.mark.parametrize(("n", "m"), [(60, 120), (150, 150)])
def test_intervals_cover_also_with_short_histories(n, m):
    """150 intervals of 95 %: fewer than 88 % has a probability of 1e-3."""
    rng = np.random.default_rng(2)
    true = world(rng, 1_000_000, noise=0.0)[1].mean(axis=0)[0]
    hits = without = 0
    for _ in range(150):
        paths, values = world(rng, n)
        history = History(world(rng, m)[0], columns=(0, 1), block=1)
        found = cross_fitted(values[:, :1], paths, history)
        hits += fixed_interval(found, history, 0.05).contains(true)
        without += abs(found.values.mean() - true) < 2 * found.values.std() / np.sqrt(n)
    assert hits / 150 > 0.88
    assert without < 135  # the error of the history's mean must be counted


def test_a_variance_that_a_few_days_decide_has_fewer_degrees_of_freedom():
    """Of n = 60: two values have no fourth moment to speak of, one day of 60 decides alone."""
    history = History(np.zeros((5, 1, 1)), block=1)
    even, rare = np.tile([1.0, -1.0], 30), np.r_[np.zeros(59), 10.0]
    for values, freedom in ((even, 59.0), (rare, 2.0 / (2.0 / 59 + (57.0 + 1.0 / 59 - 2.0) / 60))):
        found = fixed_interval(control.Adjusted(values[:, None], np.zeros(1), 1.0), history, 0.05)
        error = values.std(ddof=1) / np.sqrt(60)
        assert found.half_width == pytest.approx(stats.t.ppf(0.975, freedom) * error, rel=1e-3)


def test_sequences_cover_at_all_times():
    """100 sequences of 95 %; more than 13 misses have probability 5e-4 if 5 % are missed."""
    rng = np.random.default_rng(3)
    true = world(rng, 1_000_000, noise=0.0)[1].mean(axis=0)[0]
    missed = 0
    for _ in range(100):
        history = History(world(rng, 400)[0], columns=(0, 1), block=1)
        adjuster = Adjuster(history, planned=1)
        sequence, wrong = AsymptoticSequence(0.025, 250), False
        for _ in range(8):
            paths, values = world(rng, 32)
            sequence.update(adjuster.add(values[:, :1], paths)[:, 0])
            found, margin = sequence.interval, adjuster.margin(0.025)[0]
            wrong |= not found.low - margin <= true <= found.high + margin
        missed += wrong
    assert missed <= 13


def test_batches_of_any_size_are_adjusted_alike():
    rng = np.random.default_rng(4)
    paths, values = world(rng, 200)
    history = History(world(rng, 1000)[0], columns=(0, 1))
    whole = Adjuster(history, 2, 200)
    z = whole.add(values, paths)
    parts = Adjuster(history, 2, 200)
    some = [parts.add(values[a:b], paths[a:b]) for a, b in [(0, 7), (7, 7), (7, 90), (90, 200)]]
    assert np.concatenate(some) == pytest.approx(z, abs=1e-9)
    assert parts.margin(0.05) == pytest.approx(whole.margin(0.05))
    assert (whole.error > 0).all()
    crossed = parts.crossed()
    assert crossed.values == pytest.approx(cross_fitted(values, paths, history).values)


def test_a_guess_counts_from_the_first_episode_and_is_corrected():
    """A guess that is twice too large: kept while nothing is known, then halved."""
    rng = np.random.default_rng(5)
    start = rng.normal(size=(600, 1, 1))
    y = 3.0 + start[:, 0] + 0.1 * rng.normal(size=(600, 1))
    history = History(rng.normal(size=(5000, 1, 1)), features=lambda p: 2.0 * p[:, 0, 0], block=1)
    z = Adjuster(history, planned=1).add(y, start)
    assert z[:16] == pytest.approx(
        y[:16] - 5000 / 5001 * 2.0 * (start[:16, 0] - history.paths.mean()), rel=1e-9
    )
    assert z[64:].std() < 0.12
    good = History(history.paths, features=lambda p: p[:, 0, 0], block=1)
    assert cross_fitted(y[:12], start[:12], good).values.std() < 0.2


def test_regression_needs_nothing_to_vary():
    paths = np.ones((40, 6, 2))
    found = learn_guesses(BlockMeans(paths), np.ones((40, 1)), History(paths, columns=0).levels)
    assert found.of(BlockMeans(paths)) == pytest.approx(0.0)
    assert found.kept == pytest.approx(1.0)
