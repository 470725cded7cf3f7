"""The standard error of a predicted cost: by derivatives, and against the spread between logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import Table, Transitions
from scopeval.behavior.cost_error import Recorded, cost_error, sweep_recorded
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.frontier_check import judge
from scopeval.behavior.methods import METHODS
from scopeval.behavior.settings import Settings
from scopeval.behavior.weighted_step import PriceGrid, follow_fixed_prices, follow_prices
from scopeval.models.protocols import SweepData

GRID, PLACE = PriceGrid(1e-3, 3.0, 14), 6
METHOD = METHODS["scope-dr"]


def evidence_in(case, rows, seed, gamma=1.0, shrinkage=0.0, varying=False):
    learn = Table(shrinkage=shrinkage, time_varying=varying)
    settings = Settings(case.horizon, gamma=gamma, learn=learn, floor=0.1)
    return evidence_of(rows_of(case, rows, seed=seed), case.target, settings)


def designed(evidence):
    """A design at every price, and how to follow it with other critics."""
    recipe = replace(evidence.settings.recipe("scope-dr"), cap=None)
    swept, _ = sweep_recorded(evidence, evidence.whole, follow_prices(METHOD, recipe, GRID), GRID)
    return follow_fixed_prices(METHOD, recipe, GRID, swept.critics)


def judged(evidence, follow):
    recorded = Recorded()
    swept = evidence.sweep(evidence.whole, recorded.recording(follow), 1 + GRID.count)
    return swept, recorded, cost_error(evidence, swept, recorded, GRID, PLACE)


@pytest.mark.parametrize(
    ("seed", "gamma", "varying"), [(0, 1.0, False), (3, 0.9, False), (5, 1.0, True)]
)
def test_it_is_the_first_order_of_the_relative_cost(seed, gamma, varying):
    """Rows that count a little more or less: the change of the prediction, computed again."""
    case = random_case(seed, states=3, actions=2, horizon=4, time_varying=varying)
    case = replace(case, gamma=gamma)
    evidence = evidence_in(case, 900, seed, gamma, varying=varying)
    follow = designed(evidence)
    swept, _, error = judged(evidence, follow)
    base, total = swept.cost[0], 0.0

    def cost_with(t, weight):
        data = evidence.whole
        rows = [replace(r, weight=weight) if k == t else r for k, r in enumerate(data.rows)]
        changed = SweepData(rows, data.points, data.successor, data.regression)
        found = evidence.sweep(changed, follow, 1 + GRID.count)
        return found.cost[1 + PLACE] / found.cost[0]

    for t, rows in enumerate(evidence.whole.rows):
        pair = rows.obs * case.actions + rows.action
        count = np.bincount(pair, rows.weight)
        assert count[count > 0].min() >= 2
        for i in range(len(rows)):
            h = 1e-4 * rows.weight[i]
            up, down = (
                cost_with(t, rows.weight + s * h * (np.arange(len(rows)) == i)) for s in (1, -1)
            )
            slope = (up - down) / (2.0 * h)  # (f_i - mean f) / n / base
            n = count[pair[i]]
            total += rows.weight[i] * slope**2 * n / (n - 1.0)
    starts = swept.start_spread[1 + PLACE] ** 2 / evidence.log.starts.weight.sum()
    assert base > 0
    # occupancies are spread over the grid linearly, costs by a cubic
    assert error**2 == pytest.approx(total + starts, rel=0.05)


def test_it_is_how_much_predictions_of_one_design_differ_between_logs():
    """160 logs: the spread is within 25 % of the mean error, 4.5 of its standard errors (6e-6)."""
    case = random_case(4, states=4, actions=3, horizon=5, time_varying=False)
    follow = designed(evidence_in(case, 400, 0))
    found = []
    for seed in range(1, 161):
        evidence = evidence_in(case, 400, seed, shrinkage=2.0)
        swept, _, error = judged(evidence, follow)
        found.append((swept.cost[1 + PLACE] / swept.cost[0], error))
    predicted, errors = np.array(found).T
    assert predicted.std(ddof=1) == pytest.approx(np.sqrt((errors**2).mean()), rel=0.25)


def test_nothing_depends_on_the_logs_where_both_policies_do_the_same():
    case = random_case(2, states=4, actions=2, horizon=4, time_varying=False)
    evidence = evidence_in(case, 500, 0)
    recipe = replace(evidence.settings.recipe("scope-dr"), cap=None, floor=1.0)
    *_, error = judged(evidence, follow_prices(METHOD, recipe, GRID))
    assert error < 1e-9
    *_, other = judged(evidence, designed(evidence))
    assert other > 1e-4


def test_pairs_without_rows_raise_the_error():
    """The same logs without one pair that only the target policy takes often."""
    case = random_case(7, states=4, actions=2, horizon=4, time_varying=False)
    log = rows_of(case, 600, seed=1)
    settings = Settings(case.horizon, learn=Table(), floor=0.1)
    errors = []
    for kept in (np.ones(len(log), bool), ~((log.obs == 1) & (log.action == 0))):
        evidence = evidence_of(log.select(np.flatnonzero(kept)), case.target, settings)
        recipe = replace(settings.recipe("scope-dr"), cap=None)
        errors.append(judged(evidence, follow_prices(METHOD, recipe, GRID))[2])
    assert errors[1] > errors[0]


def test_the_bias_of_a_design_that_its_own_critics_chose():
    """Six actions that cost the same on average: whatever seems cheap was lucky.

    The mean over 60 logs is within 40 % of the truth; both are known to 5 %.
    """
    rng = np.random.default_rng(1)
    S, A, T, rows = 3, 6, 3, 400
    pi = np.full((S, A), 1.0 / A)
    recipe = replace(Settings(T, floor=0.05).recipe("scope-dr"), cap=None)
    found = []
    for seed in range(60):
        log = Transitions(
            t=np.where(np.arange(rows) < 100, 0, 1),
            obs=rng.integers(S, size=rows),
            action=rng.integers(A, size=rows),
            reward=rng.normal(size=rows),
            cost=rng.exponential(size=rows),  # 1 on average, whatever is done
            next_obs=rng.integers(S, size=rows),
            terminated=np.zeros(rows, bool),
        )
        evidence = evidence_of(log, pi, Settings(T, learn=Table(), seed=seed))
        told = judge(evidence, METHOD, recipe, GRID)
        found.append((1.0 - told.cost[8], told.bias[8], told.more_cost[8]))
    excess, bias, more = np.array(found).mean(axis=0)
    assert excess > 0.05
    assert bias == pytest.approx(excess, rel=0.4)
    assert more > 1.2 * excess  # what the other half says of designs from fewer logs
