r"""Is a column exogenous? Does its next value depend on the action that was drawn?

Given everything before it, an action is drawn by known probabilities, and by nothing else. So for
any r that is a function of the past and of the column's next value,

    E[ (1{A_t = a} / mu_t(A_t) - 1) r_t ] = 0      where A_t does not influence the next value.

An episode's scores are sums over its steps; episodes are independent, and the test is that their
mean is 0, in two ways. For all actions together (chi square) r is the next value less its
regression on the past. Along the actions' numbers (normal) r is the score of a shift: minus the
derivative of the logarithm of the next value's density, given the past. To that no other r has more
power against a value that moves with the action's number; the first sees what moves otherwise.

What it cannot see: an influence after more than one step, or one that is small. No test can see
much less. Let context leave the share `kept` of the variance, and two actions be equally likely. An
influence that lasts as long as the input's own noise, and shifts the estimate by b of its standard
errors, shifts the best test by b sqrt(kept / (1 - kept)) of its own. Where context takes out nearly
all of the variance exogeneity is an assumption that no data confirm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.collection.episodes import Episodes
from scopeval.collection.signal_paths import WithPaths, signal_start
from scopeval.context.features import KNOTS
from scopeval.context.history import History

__all__ = ["FEWEST", "ColumnTest", "column_tests", "exogeneity", "exogeneity_warnings", "steps_of"]

#: Probability of naming an exogenous column, all columns together.
ALARM = 0.05
#: Fewest episodes of a test, whose law is that of many.
FEWEST = 50
#: Of the regression, relative to its columns: keeps it solvable where some say the same.
_RIDGE = 1e-10
#: Share of a value's variance: where the past leaves less of it, the value was known before. It is
#: ten times what the ridge may leave, and far below what the steps of a counter or of a price are
#: beside the differences of their levels between episodes.
_SEEN = 1e-9
#: Columns of the observation that may explain a next value, at most.
_WIDEST = 50


@dataclass(frozen=True)
class ColumnTest:
    """Whether the next value of a column depends on the action that was drawn.

    Attributes:
        column: its name.
        p_value: of the hypothesis that it does not.
        effect: [A] what an action adds to the next value, in deviations of what the past leaves.
    """

    column: str
    p_value: float
    effect: Floats


def exogeneity(episodes: Episodes, history: History) -> tuple[ColumnTest, ...]:
    """Test the columns of a history on episodes whose action probabilities are known.

    Args:
        episodes: with numbered actions; others, or too few of them, cannot be tested: no result.
        history: names the columns.
    """
    paths = history.paths_of(episodes)
    if history.starts_only or paths.shape[1] < 2 or len(episodes) < FEWEST:
        return ()
    if episodes.action.ndim != 2 or not np.issubdtype(episodes.action.dtype, np.integer):
        return ()
    steps = steps_of(episodes, history, paths)
    obs = episodes.obs if episodes.obs.ndim == 3 and episodes.obs.shape[2] <= _WIDEST else None
    return column_tests(episodes, history, paths, _draws(episodes, steps), obs)


def steps_of(episodes: WithPaths, history: History, paths: Floats) -> int:
    """How many steps have a next value of the path."""
    return min(episodes.horizon, int(paths.shape[1]) - (0 if _late(episodes, history) else 1))


def _late(episodes: WithPaths, history: History) -> bool:
    """Whether the path begins after the first action: no reset reports the signal."""
    return bool(history.signals) and bool(np.isnan(signal_start(episodes, history.signals)).all())


def column_tests(
    episodes: WithPaths,
    history: History,
    paths: Floats,
    drawn: Floats,
    obs: NDArray[Any] | None,
) -> tuple[ColumnTest, ...]:
    """Test each column: scores sum_t drawn_t r_t of the episodes have mean 0.

    Args:
        episodes: whose resets may have reported the path's first values.
        history: names the columns.
        paths: [N, L, d] of the episodes.
        drawn: [N, steps, A], of mean 0 given the past where nothing depends on the actions.
        obs: [N, T, p] part of the past that may explain the next value; None: the path alone.
    """
    first, length = 0 if _late(episodes, history) else 1, paths.shape[1]
    tests = []
    for d in range(paths.shape[2]):
        for ahead in range(first, min(first + 2, length)):
            steps = min(drawn.shape[1], length - ahead)
            rest, share = _unexplained(paths[:, :, d], obs, ahead, steps)
            if share > _SEEN:
                break  # otherwise it was seen before the action, as a price is: take the next one
        rest = rest if share > _SEEN else np.zeros_like(rest)
        following = paths[:, ahead : ahead + steps, d]
        score = _shift_score(following, following - rest) if share > _SEEN else rest
        rest = rest / (rest.std() or 1.0)
        tests.append(_test(history.column_name(d), drawn[:, :steps], rest, score))
    return tuple(tests)


def exogeneity_warnings(
    tests: tuple[ColumnTest, ...], where: str = "after some actions"
) -> tuple[str, ...]:
    """The columns that are not exogenous, in words; names one for nothing with probability 0.05."""
    return tuple(
        f"{test.column} depends on the actions (p = {test.p_value:.2g}): {where} its "
        f"next value is {np.ptp(test.effect):.2g} of its deviations higher than after others. It "
        "is not exogenous, and with it the estimate is biased; leave it out of the history"
        for test in tests
        if test.p_value * len(tests) <= ALARM
    )


def _draws(episodes: Episodes, steps: int) -> Floats:
    """[N, steps, A] share (1{A_t = a} / mu_t(A_t) - 1): its mean is 0 given the past.

    With the share mu_t(a) it is 1{A_t = a} - mu_t(a).
    """
    action = episodes.action[:, :steps].astype(np.int64)
    many = int(action.max()) + 1
    real = episodes.steps[:, :steps]
    taken = (action[:, :, None] == np.arange(many)) & real[:, :, None]
    chance = np.where(real, episodes.behavior_prob[:, :steps], 1.0)[:, :, None]
    return np.asarray(_shares(episodes, taken) * (taken / chance - real[:, :, None]))


def _shares(episodes: Episodes, taken: Bools) -> Floats:
    """[N, steps, A] about how often actions are taken where an observation is like this one.

    Any function of the past would do; one that is near mu keeps small probabilities harmless.
    """
    steps = taken.shape[1]
    obs = episodes.obs[:, :steps]
    if obs.ndim == 2:
        counts = np.zeros((int(obs.max()) + 1, taken.shape[2]))
        np.add.at(counts, obs.ravel(), taken.reshape(-1, taken.shape[2]))
        return np.asarray((counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))[obs])
    rows = obs.reshape(-1, obs.shape[2])
    scaled = (rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    near = np.quantile(scaled, np.linspace(0.1, 0.9, 9), axis=0)
    hinges = [np.maximum(scaled - knot, 0.0) for knot in near]
    design = np.concatenate([np.ones((len(rows), 1)), scaled, *hinges], axis=1)
    gram = design.T @ design + 1e-6 * len(design) * np.eye(design.shape[1])
    share = design @ np.linalg.solve(gram, design.T @ taken.reshape(-1, taken.shape[2]))
    return np.asarray(np.clip(share, 0.0, 1.0).reshape(taken.shape))


def _unexplained(
    path: Floats, obs: NDArray[Any] | None, ahead: int, steps: int
) -> tuple[Floats, float]:
    """[N, steps] the values `ahead` of the actions, less their regression on what was seen before.

    And the share of their variance that is left.
    """
    n = len(path)
    following = path[:, ahead : ahead + steps]
    seen = np.concatenate([np.zeros((n, 3)), path], axis=1)  # before the first value: nothing
    before = [seen[:, 3 + ahead - lag : 3 + ahead - lag + steps] for lag in (1, 2, 3)]
    so_far = np.cumsum(path, axis=1) / np.arange(1, path.shape[1] + 1)
    average = np.concatenate([np.zeros((n, 1)), so_far], axis=1)[:, ahead : ahead + steps]
    columns = [*before, before[0] ** 2, average]
    if obs is not None:
        columns += [obs[:, :steps, i] for i in range(obs.shape[2])]
    centered = [c - c.mean(axis=0) for c in columns]
    design = np.stack([c.ravel() / (c.std() or 1.0) for c in centered], axis=1)
    left = (following - following.mean(axis=0)).ravel()
    gram = design.T @ design + _RIDGE * len(design) * np.eye(design.shape[1])
    rest = (left - design @ np.linalg.solve(gram, design.T @ left)).reshape(n, steps)
    return np.asarray(rest), float(rest.var() / (left.var() or 1.0))


def _shift_score(values: Floats, expected: Floats) -> Floats:
    """[N, steps] -(d / dx) log p(x | past) at the values, where the past speaks by `expected`.

    The psi that it is has the least E[psi^2] / 2 - E[d psi / dx] (Hyvarinen 2005): a linear
    equation for psi in the span of products of hinges of the value and of what was expected.
    """
    x = _in_deviations(values)
    of_value, slope = _hinges(x)
    of_past, _ = _hinges(_in_deviations(expected))
    columns = (of_value[:, :, None] * of_past[:, None]).reshape(x.size, -1)
    slopes = (slope[:, :, None] * of_past[:, None]).reshape(x.size, -1).mean(axis=0)
    inverse = np.linalg.pinv(columns.T @ columns / x.size, rcond=1e-8, hermitian=True)
    return np.asarray(columns @ (inverse @ slopes)).reshape(values.shape)


def _in_deviations(values: Floats) -> Floats:
    """[n] in deviations from the mean."""
    flat = values.ravel() - values.mean()
    return np.asarray(flat / (flat.std() or 1.0))


def _hinges(x: Floats) -> tuple[Floats, Floats]:
    """[n, k] one, x and hinges of x, and their slopes."""
    one, knots = np.ones((x.size, 1)), np.quantile(x, KNOTS)
    above = x[:, None] - knots
    hinges = np.concatenate([one, x[:, None], np.maximum(above, 0.0)], axis=1)
    return hinges, np.concatenate([0.0 * one, one, (above >= 0).astype(np.float64)], axis=1)


def _test(name: str, drawn: Floats, rest: Floats, score: Floats) -> ColumnTest:
    """The hypothesis that `drawn` and what the past leaves go with each other by chance."""
    from scipy.special import erfc, gammaincc

    scores = np.einsum("nta,nt->na", drawn, rest)
    weight = (drawn**2).sum(axis=(0, 1))
    effect = scores.sum(axis=0) / np.where(weight > 0, weight, 1.0)
    total, inverse = scores.sum(axis=0), np.linalg.pinv(scores.T @ scores, rcond=1e-8)
    rank = int(np.linalg.matrix_rank(scores.T @ scores, tol=1e-8 * len(scores)))
    if rank == 0:
        return ColumnTest(name, 1.0, effect)
    p = float(gammaincc(rank / 2, total @ inverse @ total / 2))
    along = (drawn @ np.arange(drawn.shape[2]) * score).sum(axis=1)
    if (square := float((along**2).sum())) > 0:
        p = min(1.0, 2.0 * min(p, float(erfc(abs(along.sum()) / np.sqrt(2.0 * square)))))
    return ColumnTest(name, p, effect)
