"""Do older data agree with new episodes about rewards, costs and next observations?

State numbers: rows of the same pair (s, a) are exchangeable between old and new data if nothing has
changed, whatever controllers made them. For a column x with pair means,

    Q = sum_pairs  n m / (n + m) (mean of the new x - mean of the old x)^2 / (variance of the pair)

is compared with its law when the labels "old" and "new" are permuted within pairs: its mean is
exact, its variance is measured, and a gamma law with both gives the p-value. Columns are reward,
cost and a random number for each next state. The squares of reward and cost around the pair's mean
show outliers and noise, which mostly make all pairs' squares larger in the same data: their sum
over the new rows is compared with the normal law of its permutations, both moments exact.

Vectors: old rows near the new ones are matched to them. A quadratic regression on the matched rows
must predict the new rows about as well as one on other new episodes does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.logs.transitions import Transitions

__all__ = ["DriftTest", "drift_test"]

#: Permutations that the variance of Q is measured with.
PERMUTATIONS = 40
#: Below this p-value so many permutations more must not reach what was seen.
SUSPICIOUS, CONFIRMING = 0.01, 400
#: Rows of old and new data that are compared at most.
MOST_OLD, MOST_NEW = 20_000, 10_000
#: Vectors: old rows that are matched to each new one, and the least number of new episodes.
NEIGHBORS, LEAST_EPISODES = 3, 10
#: Vectors: to disagree, old rows must predict worse than new ones by this factor, and by this
#: share of the variance.
WORSE, LEAST_GAP = 1.5, 0.02
#: Vectors: matched rows must be this near, in standard deviations for each coordinate.
NEAR = 0.5


class DriftTest(NamedTuple):
    """The result: a p-value for all columns together, the worst column, rows compared."""

    p_value: float
    column: str
    rows: int


def drift_test(old: Transitions, new: Transitions, *, time_varying: bool, seed: int) -> DriftTest:
    """Whether two logs can come from one environment.

    Args:
        old: older data.
        new: rows of new episodes, episode by episode.
        time_varying: whether rewards and dynamics depend on t: then only rows of equal t are
            compared (state numbers only).
        seed: of the permutations.
    """
    rng = np.random.default_rng((seed, 21))
    old, new = (part.select(part.has_next) for part in (old, new))
    if old.discrete_obs and old.discrete_actions:
        return _test_pairs(old, new, time_varying, rng)
    return _test_vectors(old, new, rng)


def _smallest(p_values: dict[str, float], rows: int) -> DriftTest:
    """Bonferroni over the columns."""
    if not p_values:
        return DriftTest(1.0, "reward", rows)
    column = min(p_values, key=lambda name: p_values[name])
    plain = column.removesuffix(" spread")
    return DriftTest(min(p_values[column] * len(p_values), 1.0), plain, rows)


# -- state numbers ---------------------------------------------------------------------------------


def _test_pairs(
    old: Transitions, new: Transitions, time_varying: bool, rng: np.random.Generator
) -> DriftTest:
    old, new = _some(old, MOST_OLD, rng), _some(new, MOST_NEW, rng)
    both = Transitions.concat([old, new])
    fresh = np.arange(len(both)) >= len(old)
    keys = [both.obs, both.action, *([both.t] if time_varying else [])]
    pair = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
    count = np.bincount(pair)
    news = np.bincount(pair[fresh], minlength=len(count))
    shared = ((news > 0) & (news < count))[pair]
    rows = int((shared & fresh).sum())
    if not rows:
        return DriftTest(1.0, "reward", 0)
    pair = np.unique(pair[shared], return_inverse=True)[1].ravel()
    fresh, some = fresh[shared], both.select(shared)
    after = np.where(some.terminated, -1, some.next_obs)
    place = np.unique(after, return_inverse=True)[1].ravel()
    columns = {
        "reward": some.reward,
        "cost": some.cost,
        "next observation": rng.random(int(place.max()) + 1)[place],
    }
    p_values = _p_values(columns, pair, fresh, rng)
    del columns["next observation"]
    return _smallest(p_values | _spread_p_values(columns, pair, fresh), rows)


def _p_values(
    columns: dict[str, Floats], pair: Ints, fresh: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Of every column that varies, by permutations within pairs."""
    from scipy.special import gammaincc

    names = [name for name, x in columns.items() if _varies(x, pair)]
    if not names:
        return {}
    count = np.bincount(pair).astype(np.float64)
    news = np.bincount(pair[fresh]).astype(np.float64)
    x = np.stack([_around(columns[name], pair) for name in names])
    squares = np.stack([np.bincount(pair, one**2) for one in x]) / np.maximum(count - 1.0, 1.0)
    varying = squares > 1e-18 * squares.max(axis=1, keepdims=True)
    x /= np.sqrt(np.where(varying, squares, np.inf))[:, pair]
    seen = _distance(x, pair, np.flatnonzero(fresh), news, count)
    drawn = _permuted(x, pair, news, count, PERMUTATIONS, rng)
    mean = varying.sum(axis=1).astype(np.float64)
    spread = np.maximum(drawn.var(axis=0, ddof=1), 1e-12 * mean**2)
    p = gammaincc(mean**2 / spread, seen * mean / spread)
    if (p < SUSPICIOUS).any():  # the tail of few pairs may be longer than a gamma law's
        reached = (_permuted(x, pair, news, count, CONFIRMING, rng) >= seen).sum(axis=0)
        p = np.where(reached > 0, np.maximum(p, (1 + reached) / (1 + CONFIRMING)), p)
    return dict(zip(names, (float(one) for one in p), strict=True))


def _permuted(
    x: Floats, pair: Ints, news: Floats, count: Floats, times: int, rng: np.random.Generator
) -> Floats:
    """Q of every column with labels permuted within pairs, [times, columns]."""
    begin = np.concatenate([[0], np.cumsum(np.bincount(pair))[:-1]])
    row = np.sort(pair)
    first = np.arange(len(pair)) - begin[row] < news[row]
    drawn = np.empty((times, len(x)))
    for k in range(times):
        shuffled = np.argsort(pair + rng.random(len(pair)))
        drawn[k] = _distance(x, pair, shuffled[first], news, count)
    return drawn


def _spread_p_values(columns: dict[str, Floats], pair: Ints, fresh: np.ndarray) -> dict[str, float]:
    """Of the squares around the pairs' means, by the sum over the new rows."""
    from scipy.special import ndtr

    count = np.bincount(pair).astype(np.float64)
    news = np.bincount(pair[fresh]).astype(np.float64)
    p_values = {}
    for name, x in columns.items():
        if _varies(x, pair):
            square = _around(_around(x, pair) ** 2, pair)
            each = np.bincount(pair, square**2) / np.maximum(count - 1.0, 1.0)
            variance = float((each * news * (count - news) / count).sum())
            if variance > 0.0:
                z = float(square[fresh].sum()) / np.sqrt(variance)
                p_values[f"{name} spread"] = float(2.0 * ndtr(-abs(z)))
    return p_values


def _distance(x: Floats, pair: Ints, chosen: Ints, news: Floats, count: Floats) -> Floats:
    """Q of every column for these rows as the new ones; columns have mean 0 in every pair."""
    sums = np.stack([np.bincount(pair[chosen], one[chosen], len(count)) for one in x])
    # mean of the new - mean of the old = sum (1/m + 1/n), and n m / (n + m) times its square
    return np.asarray((sums**2 * (count / (news * (count - news)))).sum(axis=1))


def _around(x: Floats, pair: Ints) -> Floats:
    """Deviations from the mean of the pair."""
    return np.asarray(x - (np.bincount(pair, x) / np.bincount(pair))[pair])


def _varies(x: Floats, pair: Ints) -> bool:
    """Whether a column differs within some pair by more than rounding."""
    return bool(np.abs(_around(x, pair)).max() > 1e-9 * max(float(np.abs(x).max()), 1e-300))


# -- vectors ---------------------------------------------------------------------------------------


def _test_vectors(old: Transitions, new: Transitions, rng: np.random.Generator) -> DriftTest:
    from scipy.spatial import cKDTree
    from scipy.special import stdtr

    episode = np.cumsum(new.t == 0)
    old = _some(old, MOST_OLD, rng)
    inputs, past = _inputs(new), _inputs(old)
    center, scale = inputs.mean(axis=0), inputs.std(axis=0) + 1e-12
    inputs, past = (inputs - center) / scale, (past - center) / scale
    distance, index = cKDTree(past).query(inputs, k=NEIGHBORS)
    near = distance[:, -1] <= NEAR * np.sqrt(inputs.shape[1])
    episodes = np.unique(episode[near])
    if len(episodes) < LEAST_EPISODES:
        return DriftTest(1.0, "reward", 0)  # nothing to compare: they do not overlap
    matched = np.unique(index[near].ravel())
    columns, then = _outcomes(new), _outcomes(old)
    fresh_guess = _across(inputs, columns, episode % 2)
    other = _fit(past[matched], then[matched])
    guessed = _features(inputs) @ other
    p_values = {}
    parts = {"reward": slice(0, 1), "cost": slice(1, 2), "next observation": slice(2, None)}
    for name, part in parts.items():
        # what hardly varies must not count by rounding
        unit = columns[near, part].var(axis=0) + 1e-6 * (columns[near, part] ** 2).mean(axis=0)
        unit = np.where(unit > 0.0, unit, 1.0)
        worse = ((guessed - columns)[near, part] ** 2 / unit).sum(axis=1)
        usual = ((fresh_guess - columns)[near, part] ** 2 / unit).sum(axis=1)
        slack = LEAST_GAP * len(unit)
        gap = np.bincount(episode[near], worse - WORSE * usual - slack)[episodes]
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        t = float(gap.mean() / error) if error > 0 else (np.inf if gap.mean() > 1e-9 else -np.inf)
        p_values[name] = float(stdtr(len(gap) - 1, -t)) if np.isfinite(t) else float(t < 0)
    return _smallest(p_values, int(near.sum()))


def _inputs(log: Transitions) -> Floats:
    """Observation and action, [N, d]."""
    obs = log.obs if log.obs.ndim > 1 else log.obs[:, None]
    action = log.action if log.action.ndim > 1 else np.eye(int(log.action.max()) + 1)[log.action]
    return np.concatenate([obs, action], axis=1).astype(np.float64)


def _outcomes(log: Transitions) -> Floats:
    """Reward, cost and change of the observation, [N, 2 + d]; no change where it ended."""
    obs = (log.obs if log.obs.ndim > 1 else log.obs[:, None]).astype(np.float64)
    after = (log.next_obs if log.next_obs.ndim > 1 else log.next_obs[:, None]).astype(np.float64)
    change = np.where(log.terminated[:, None], 0.0, after - obs)
    return np.concatenate([log.reward[:, None], log.cost[:, None], change], axis=1)


def _features(inputs: Floats) -> Floats:
    """1, x, x^2, and products of pairs where there are few coordinates."""
    parts = [np.ones((len(inputs), 1)), inputs, inputs**2]
    d = inputs.shape[1]
    if d <= 12:
        i, j = np.triu_indices(d, 1)
        parts.append(inputs[:, i] * inputs[:, j])
    return np.concatenate(parts, axis=1)


def _fit(inputs: Floats, outcomes: Floats) -> Floats:
    """Ridge regression."""
    x = _features(inputs)
    ridge = 1e-3 * len(x) * np.eye(x.shape[1])
    ridge[0, 0] = 0.0  # the mean itself is not shrunk
    return np.asarray(np.linalg.solve(x.T @ x + ridge, x.T @ outcomes))


def _across(inputs: Floats, outcomes: Floats, half: Ints) -> Floats:
    """Predictions for each half of the episodes by a regression on the other half."""
    guessed = np.empty_like(outcomes)
    for k in (0, 1):
        there = half == k
        guessed[there] = _features(inputs[there]) @ _fit(inputs[~there], outcomes[~there])
    return guessed


def _some(log: Transitions, most: int, rng: np.random.Generator) -> Transitions:
    """At most so many rows, drawn at random."""
    if len(log) <= most:
        return log
    return log.select(np.sort(rng.choice(len(log), most, replace=False)))
